package segments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Apply fails: the model is a [projector.PerClient], so nobody calls it.
func (Model) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error {
	return errors.New("segments are applied with a log that opens traits and rules")
}

// ApplyClient changes the model by events of a client (projector.PerClient).
func (m Model) ApplyClient(ctx context.Context, tx pgx.Tx, log *eventstore.Log, client id.Client,
	batch []eventstore.Recorded, spend projector.Spend,
) error {
	var moved pgx.Batch
	batch = slices.DeleteFunc(slices.Clone(batch), func(r eventstore.Recorded) bool {
		e, clock := r.Event.(event.ClockMoved)
		if clock {
			segmentClocks.Move(&moved, e)
		}
		return clock || !m.Wants(r.Type)
	})
	if err := readmodel.Send(ctx, tx, "clocks of segments", &moved); err != nil || len(batch) == 0 {
		return err
	}
	m.Vault = log.Vault
	c, err := m.lock(ctx, tx, client, spend, false)
	if err != nil {
		return err
	}
	return c.apply(ctx, batch)
}

// apply changes the segments of a client by its events, those of users together.
func (c *segmented) apply(ctx context.Context, events []eventstore.Recorded) error {
	isUser := func(r eventstore.Recorded) bool { return userOf(r.Event) != "" }
	for len(events) > 0 {
		if err := c.advance(ctx, events[0]); err != nil {
			return err
		}
		if !defines(events[0]) {
			if err := c.deriveMade(ctx); err != nil {
				return err
			}
		}
		n := slices.IndexFunc(events, func(r eventstore.Recorded) bool { return !isUser(r) || dayOf(r.RecordedAt).After(dayOf(c.now)) })
		if n < 0 {
			n = len(events)
		}
		var err error
		if n = min(n, c.foldIn); n > 0 {
			err = c.applyUsers(ctx, events[:n])
			c.foldIn -= n
		} else {
			n = 1
			c.redefined, c.by = true, definedBy{events[0].ID, c.by.events + 1}
			err = c.applySegment(ctx, events[0])
			c.foldIn -= c.foldedAs(events[0].Event)
		}
		if err == nil && c.foldIn <= 0 {
			err = c.fold(ctx, events[n-1].Position)
		}
		if err != nil {
			return err
		}
		events = events[n:]
	}
	if err := c.deriveMade(ctx); err != nil {
		return err
	}
	return c.keep(ctx)
}

// defines says whether an event defines a segment. What follows from the versions is
// derived once after several of these in a row: a rebuild of 1,000 segments would else do
// it 1,000 times.
func defines(r eventstore.Recorded) bool {
	_, is := r.Event.(event.SegmentDefined)
	return is
}

// foldedAs is how many events of single users an event counts as, towards the next fold,
// since it may change many users.
func (m Model) foldedAs(e event.Event) int {
	switch e.(type) {
	case event.SegmentsTimePassed, event.ClusteringCompleted, event.ConsentLayerRetired:
		return m.folding().least / 2
	}
	return 1
}

const (
	insertSegment = `
INSERT INTO segments (client, id, created_position, name, rule, rule_event, changed, changes_from, created_at, updated_at, layer)
VALUES ($1, $2, $3, $4, $5, $6, $7, $3, $8, $8, $9) ON CONFLICT DO NOTHING`
	renameSegment  = `UPDATE segments SET name = $3, changed = $4, updated_at = $5 WHERE client = $1 AND id = $2`
	ruleSegment    = `UPDATE segments SET rule = $3, rule_event = $4 WHERE client = $1 AND id = $2`
	insertVersions = `
INSERT INTO segment_versions (client, number, segment, generation, rule, rule_event, refers, layer, serves, built)
SELECT $1, n.number, n.segment, $2, n.rule, n.rule_event, string_to_array(n.refers, ','), n.layer, false, 0
FROM unnest($3::int[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[]) AS n (number, segment, rule, rule_event, refers, layer)`
	absorbVersions = `UPDATE segment_versions SET generation = $2 WHERE client = $1 AND generation = $3 AND NOT serves`
	dropVersions   = `DELETE FROM segment_versions WHERE client = $1 AND number = ANY($2)`
	serveVersions  = `UPDATE segment_versions SET serves = true WHERE client = $1 AND number = ANY($2)`
	serveBlocks    = `UPDATE segment_blocks SET serves = true WHERE client = $1 AND version = ANY($2)`
	dropSizes      = `DELETE FROM segment_sizes WHERE client = $1 AND segment = $2`
	dropSegment    = `DELETE FROM segments WHERE client = $1 AND id = $2`
)

// applySegment changes the segments by an event about them.
func (c *segmented) applySegment(ctx context.Context, r eventstore.Recorded) error {
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	switch e := r.Event.(type) {
	case event.SegmentDefined:
		box, err := readmodel.SealedOf(r, e.Rule)
		if err != nil {
			return err
		}
		queue(insertSegment, string(e.Segment), string(r.Position), e.Name, box.Box, string(box.Event), int64(r.Revision), r.RecordedAt, string(e.Layer))
		err = c.make(queue, int64(r.Revision), []*segmentVersion{{segment: e.Segment, sealed: box, refers: readmodel.Texts(e.Refers), layer: e.Layer}})
		if err != nil {
			return err
		}
	case event.SegmentChanged:
		queue(renameSegment, string(e.Segment), e.Name, int64(r.Revision), r.RecordedAt)
		if e.Rule == nil {
			break
		}
		box, err := readmodel.SealedOf(r, e.Rule)
		if err != nil {
			return err
		}
		queue(ruleSegment, string(e.Segment), box.Box, string(box.Event))
		dependents := c.dependents(e.Segment)
		replaced := append(slices.Clone(dependents), c.newest[e.Segment])
		c.absorb(queue, int64(r.Revision), append(replaced, c.awaited(replaced)...))
		var made []*segmentVersion
		if before := c.newest[e.Segment]; before != nil {
			made = append(made, &segmentVersion{segment: e.Segment, sealed: box, refers: readmodel.Texts(e.Refers), layer: before.layer})
		}
		for _, v := range dependents {
			made = append(made, &segmentVersion{segment: v.segment, sealed: v.sealed, refers: v.refers, layer: v.layer})
		}
		if err := c.make(queue, int64(r.Revision), made); err != nil {
			return err
		}
	case event.SegmentRetired:
		c.drop(queue, func(v *segmentVersion) bool { return v.segment == e.Segment })
		queue(dropSegment, string(e.Segment))
		queue(dropSizes, string(e.Segment))
	case event.SegmentReady:
		return c.ready(ctx, r, e.Revision)
	case event.SegmentsTimePassed:
		return c.judgeDue(ctx, r, e.Due, e.Number)
	default:
		return c.applyKnown(ctx, r)
	}
	if err := readmodel.Send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	if c.made = true; defines(r) {
		return nil
	}
	return c.deriveMade(ctx)
}

// Versions that have to begin to serve together are of one generation: the revision of the event
// that made them. SegmentReady names a generation, and lets all versions up to it serve.
//
// An example: big is "traits.seats > 100", and its members that have paid are payers,
// 'in_segment("big") && traits.paid'. A change of big at revision 7 makes new versions of both, of
// generation 7, since payers is judged anew by the new big. Until both are built, the old ones
// serve. If payers alone is changed at revision 9 before that, its version of generation 9
// replaces that of 7. The new big, still of 7, is taken into generation 9 (absorb), so that it does
// not serve with the old payers, which was judged by the old big.
//
// The payers that serve were judged by the big that serves, so a new big may not serve before new
// payers do. Where payers is changed at 9 so that it refers to big no more, big at 10, and payers
// again at 11, the new big waits for 11, too (awaited).

// What changes versions changes their rows and what is known of them: to read all again after each of
// 1,000 definitions took a rebuild 1.3 s of the processor more, beside 4.6 s for them and 10,000 users.

// make makes versions of segments, in place of those that do not serve yet. A thousand segments
// may refer to the one that an event changes: a statement each took a second.
func (c *segmented) make(queue func(string, ...any), generation int64, made []*segmentVersion) error {
	if err := c.spend(len(made) * readmodel.StepsToWrite); err != nil {
		return err
	}
	anew := map[id.Segment]bool{}
	for _, v := range made {
		anew[v.segment] = true
	}
	c.drop(queue, func(v *segmentVersion) bool { return anew[v.segment] && !v.serves })
	for _, v := range made {
		v.number, v.generation = c.next, generation
		c.versions[v.number] = v
		c.next++
	}
	queue(insertVersions, generation,
		readmodel.Column(made, func(v *segmentVersion) int { return v.number }),
		readmodel.Column(made, func(v *segmentVersion) string { return string(v.segment) }),
		readmodel.Column(made, func(v *segmentVersion) []byte { return v.sealed.Box }),
		readmodel.Column(made, func(v *segmentVersion) string { return string(v.sealed.Event) }),
		readmodel.Column(made, func(v *segmentVersion) string { return strings.Join(v.refers, ",") }),
		readmodel.Column(made, func(v *segmentVersion) string { return string(v.layer) }))
	return nil
}

// absorb takes over the generations of versions that are replaced before they serve: the
// other versions of these generations then serve together with the new one.
func (c *segmented) absorb(queue func(string, ...any), generation int64, replaced []*segmentVersion) {
	for _, v := range replaced {
		if v == nil || v.serves || v.generation == generation {
			continue
		}
		absorbed := v.generation
		queue(absorbVersions, generation, absorbed)
		for _, with := range c.versions {
			if !with.serves && with.generation == absorbed {
				with.generation = generation
			}
		}
	}
}

// awaited are versions that do not serve yet, and may not before new versions of others do.
// They are of the segments to which the serving versions of others refer, directly or by
// way of others: those serving versions were judged by what serves now.
func (c *segmented) awaited(others []*segmentVersion) (found []*segmentVersion) {
	reached := map[id.Segment]bool{}
	var reach func(id.Segment)
	reach = func(segment id.Segment) {
		serving := c.served[segment]
		if reached[segment] || serving == nil {
			return
		}
		reached[segment] = true
		for _, to := range serving.refers {
			found = append(found, c.newest[id.Segment(to)])
			reach(id.Segment(to))
		}
	}
	for _, v := range others {
		if v != nil {
			reach(v.segment)
		}
	}
	return found
}

// drop drops versions.
func (c *segmented) drop(queue func(string, ...any), which func(*segmentVersion) bool) {
	if gone := c.numbers(which); len(gone) > 0 {
		queue(dropVersions, gone)
		queue(dropBlocks, gone)
		queue(dropDeltas, gone)
		for _, number := range gone {
			delete(c.versions, number)
		}
	}
}

// dependents are the newest versions of the segments that refer to one, directly or by
// way of others, in the order of their ids.
func (c *segmented) dependents(on id.Segment) (found []*segmentVersion) {
	referring := map[id.Segment][]id.Segment{} // by what they refer to
	for segment, v := range c.newest {
		for _, to := range v.refers {
			referring[id.Segment(to)] = append(referring[id.Segment(to)], segment)
		}
	}
	reached := map[id.Segment]bool{}
	for next := []id.Segment{on}; len(next) > 0; {
		segment := next[len(next)-1]
		if next = next[:len(next)-1]; !reached[segment] {
			reached[segment] = true
			next = append(next, referring[segment]...)
		}
	}
	for _, segment := range readmodel.SortedKeys(c.newest) {
		if reached[segment] && segment != on {
			found = append(found, c.newest[segment])
		}
	}
	return found
}

// ready lets the versions of generations up to one serve. What no slice has judged yet is judged
// now: a rebuild has none.
func (c *segmented) ready(ctx context.Context, r eventstore.Recorded, generation int64) error {
	made := c.numbers(func(v *segmentVersion) bool { return v.generation <= generation && !v.serves })
	if len(made) == 0 {
		return nil
	}
	if err := c.judgeDue(ctx, r, c.now, math.MaxInt64); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = c.build(ctx, c.numbers(c.judges(made)), unbounded); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	var segments []string
	for _, number := range made {
		segments = append(segments, string(c.versions[number].segment))
	}
	c.drop(queue, func(v *segmentVersion) bool { return v.serves && slices.Contains(segments, string(v.segment)) })
	queue(serveVersions, made)
	queue(serveBlocks, made)
	queue(beginChanges, segments, string(r.Position))
	for _, number := range made {
		c.versions[number].serves = true
	}
	if err := readmodel.Send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	return c.derive(ctx)
}

const (
	writeSegmentLayer = `
INSERT INTO segment_layers (client, id, trait_paths) VALUES ($1, $2, $3)
ON CONFLICT (client, id) DO UPDATE SET trait_paths = excluded.trait_paths`
	retireSegmentLayer = `UPDATE segment_layers SET retired = true WHERE client = $1 AND id = $2`
	grantingIn         = `SELECT user_id FROM segment_consents WHERE client = $1 AND layer = $2 ORDER BY user_id`
	dropConsentsIn     = `DELETE FROM segment_consents WHERE client = $1 AND layer = $2`
	dropClusteredIn    = `DELETE FROM segment_clustered WHERE client = $1 AND layer = $2`
	keepDecided        = `UPDATE segment_clients SET decided = $2 WHERE client = $1`

	dropOfRun = `DELETE FROM segment_clustered WHERE client = $1 AND layer = $2 AND run = $3 AND NOT counts`
	assignRun = `
INSERT INTO segment_clustered (client, layer, user_id, run, attempt, cluster, counts, segment)
SELECT $1, $2, c.user_id, $3, $4, $5, false, $7 FROM segment_consents c
WHERE c.client = $1 AND c.layer = $2 AND c.user_id = ANY($6) ON CONFLICT DO NOTHING`
	// movedByRun are those whom a run takes into clusters of some, or out of them.
	movedByRun = `
SELECT user_id FROM (SELECT user_id, cluster FROM segment_clustered WHERE client = $1 AND layer = $2 AND segment = $6 AND counts) o
FULL JOIN (SELECT user_id, cluster FROM segment_clustered WHERE client = $1 AND layer = $2 AND run = $3 AND attempt = $4 AND NOT counts) n USING (user_id)
WHERE o.cluster IS DISTINCT FROM n.cluster AND (o.cluster = ANY($5) OR n.cluster = ANY($5)) ORDER BY user_id`
	dropOtherRuns = `DELETE FROM segment_clustered WHERE client = $1 AND layer = $2 AND segment = $5 AND NOT (run = $3 AND attempt = $4)`
	countRun      = `UPDATE segment_clustered SET counts = true WHERE client = $1 AND layer = $2 AND segment = $5 AND run = $3 AND attempt = $4`

	consentsIn   = `SELECT FROM segment_consents WHERE client = $1 AND layer = $2`
	clusteredIn  = `SELECT FROM segment_clustered WHERE client = $1 AND layer = $2`
	notCountedIn = clusteredIn + ` AND NOT counts`
)

// applyKnown changes what rules ask of users, for many of them at once.
func (c *segmented) applyKnown(ctx context.Context, r eventstore.Recorded) error {
	run := func(sql string, args ...any) error {
		return readmodel.Do(ctx, c.tx, "apply to segments", sql, append([]any{string(c.client)}, args...)...)
	}
	switch e := r.Event.(type) {
	case event.ConsentLayerDefined:
		return c.changeLayer(ctx, r, e.Layer, e.TraitPaths)
	case event.ConsentLayerChanged:
		return c.changeLayer(ctx, r, e.Layer, e.TraitPaths)
	case event.ConsentLayerRetired:
		return c.retireLayer(ctx, r, e.Layer)
	case event.TraitSchemaOverridden:
		c.decided = event.Sensitive(e.Overrides)
		decided, err := json.Marshal(c.decided)
		if err != nil {
			return fmt.Errorf("encode decisions: %w", err)
		}
		if err := run(keepDecided, string(decided)); err != nil {
			return err
		}
		return c.block(ctx, r)
	case event.ClusteringStarted:
		return c.dropRun(ctx, e.Layer, e.Run)
	case event.ClusteringCancelled:
		return c.dropRun(ctx, e.Layer, e.Run)
	case event.ClusteringFailed:
		return c.dropRun(ctx, e.Layer, e.Run)
	case event.ClusteringAssigned:
		if err := c.spend(len(e.Users) * readmodel.StepsToWrite); err != nil {
			return err
		}
		return run(assignRun, string(e.Layer), string(e.Run), e.Attempt, string(e.Cluster), readmodel.Texts(e.Users), string(e.Segment))
	case event.ClusteringCompleted:
		return c.completeRun(ctx, r, e)
	}
	return nil
}

// dropRun forgets whom an attempt that does not count has put into clusters.
func (c *segmented) dropRun(ctx context.Context, layer id.ConsentLayer, run id.Run) error {
	if err := c.spendOnLayer(ctx, readmodel.StepsToDelete, notCountedIn, layer); err != nil {
		return err
	}
	return readmodel.Do(ctx, c.tx, "forget a run", dropOfRun, string(c.client), string(layer), string(run))
}

// completeRun lets the clusters of a run count.
func (c *segmented) completeRun(ctx context.Context, r eventstore.Recorded, e event.ClusteringCompleted) error {
	if err := c.spendOnLayer(ctx, readmodel.StepsToWrite, clusteredIn, e.Layer); err != nil {
		return err
	}
	var user string
	var moved []string
	if len(c.readers[clustersOf(e.Layer)]) > 0 {
		if err := c.each(ctx, "find whom a run moves", []any{&user}, func() { moved = append(moved, user) },
			movedByRun, string(e.Layer), string(e.Run), e.Attempt, c.asked.clusters, string(e.Segment)); err != nil {
			return err
		}
	}
	for _, sql := range []string{dropOtherRuns, countRun} {
		if err := readmodel.Do(ctx, c.tx, "complete a run", sql, string(c.client), string(e.Layer), string(e.Run), e.Attempt, string(e.Segment)); err != nil {
			return err
		}
	}
	return c.rejudgeAll(ctx, r, moved, clustersOf(e.Layer))
}

func (c *segmented) changeLayer(ctx context.Context, r eventstore.Recorded, layer id.ConsentLayer, paths []string) error {
	if err := readmodel.Do(ctx, c.tx, "write a layer of segments", writeSegmentLayer, string(c.client), string(layer), paths); err != nil {
		return err
	}
	if err := c.loadLayers(ctx); err != nil {
		return err
	}
	return c.block(ctx, r)
}

// spendOnLayer spends so many steps for each row of a layer.
func (c *segmented) spendOnLayer(ctx context.Context, steps int, query string, layer id.ConsentLayer) error {
	return readmodel.SpendOnRows(ctx, c.tx, c.spend, steps, query, string(c.client), string(layer))
}

// retireLayer forgets what was said and found under a layer.
func (c *segmented) retireLayer(ctx context.Context, r eventstore.Recorded, layer id.ConsentLayer) error {
	for _, query := range []string{consentsIn, clusteredIn} {
		if err := c.spendOnLayer(ctx, readmodel.StepsToDelete, query, layer); err != nil {
			return err
		}
	}
	var user string
	var granted []string
	if len(c.readers[consentIn(layer)]) > 0 {
		if err := c.each(ctx, "find who grants a layer", []any{&user}, func() { granted = append(granted, user) }, grantingIn, string(layer)); err != nil {
			return err
		}
	}
	for _, sql := range []string{retireSegmentLayer, dropConsentsIn, dropClusteredIn} {
		if err := readmodel.Do(ctx, c.tx, "retire a layer of segments", sql, string(c.client), string(layer)); err != nil {
			return err
		}
	}
	if err := c.loadLayers(ctx); err != nil {
		return err
	}
	if err := c.block(ctx, r); err != nil {
		return err
	}
	return c.rejudgeAll(ctx, r, granted, consentIn(layer))
}

// rejudgeAll judges users by the versions that read what was touched.
func (c *segmented) rejudgeAll(ctx context.Context, r eventstore.Recorded, ids []string, what ...string) error {
	reading := c.reading(what)
	for some := range slices.Chunk(ids, usersRead) {
		users, err := c.readToJudge(ctx, openableUsersByID, some)
		if err != nil {
			return err
		}
		if err := c.rejudgeRead(ctx, users, reading, r.Position); err != nil {
			return err
		}
	}
	return nil
}

// deriveMade derives what follows from versions that were made since the last time, and
// blocks those that are to be blocked.
func (c *segmented) deriveMade(ctx context.Context) error {
	if !c.made {
		return nil
	}
	c.made = false
	if err := c.derive(ctx); err != nil {
		return err
	}
	return c.blockNew(ctx)
}
