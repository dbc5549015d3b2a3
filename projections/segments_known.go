package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
)

// knownSchema is what rules ask of users beside their traits. Of a run that has not
// completed, who is in its clusters does not count yet.
const knownSchema = `
CREATE INDEX segment_versions_restored ON segment_versions (client) WHERE serves AND blocked = '{}';
CREATE TABLE segment_layers (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	trait_paths text[] NOT NULL,
	retired     boolean NOT NULL DEFAULT false,
	PRIMARY KEY (client, id)
);
CREATE TABLE segment_consents (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id, layer)
);
CREATE INDEX segment_consents_of_layer ON segment_consents (client, layer);
CREATE TABLE segment_clustered (
	client  text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	segment text COLLATE "C" NOT NULL, -- that the run is kept to; empty: to none
	user_id text COLLATE "C" NOT NULL,
	run     text COLLATE "C" NOT NULL,
	attempt int NOT NULL,
	cluster text COLLATE "C" NOT NULL,
	counts  boolean NOT NULL,
	PRIMARY KEY (client, layer, user_id, run, attempt)
);
CREATE INDEX segment_clustered_of_user ON segment_clustered (client, user_id);
CREATE TABLE segment_acts (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	what    text COLLATE "C" NOT NULL, -- a type of interactions, or a campaign that was seen
	newest  timestamptz NOT NULL,
	times   timestamptz[] NOT NULL,
	PRIMARY KEY (client, user_id, what)
);
CREATE INDEX segment_acts_old ON segment_acts (client, newest);`

// knownOfUser is what rules ask of a user beside its traits.
type knownOfUser struct {
	granted  map[id.ConsentLayer]bool
	clusters map[id.ConsentLayer][]id.Cluster // of the whole layer, and of segments
	acts     map[string][]time.Time           // the oldest first
}

func newKnown() knownOfUser {
	return knownOfUser{map[id.ConsentLayer]bool{}, map[id.ConsentLayer][]id.Cluster{}, map[string][]time.Time{}}
}

// facts are those of a user with what is known of it.
func (k knownOfUser) facts(of rule.Facts) rule.Facts {
	of.Granted = func(layer string) bool { return k.granted[id.ConsentLayer(layer)] }
	of.Acts = func(what string) []time.Time { return k.acts[what] }
	return of
}

// inCluster asks for clusters of a layer: of no other one is any known under it.
func (k knownOfUser) inCluster(layer id.ConsentLayer) func(string) bool {
	return func(cluster string) bool {
		return layer != "" && slices.Contains(k.clusters[layer], id.Cluster(cluster))
	}
}

// asked is what rules ask of users beside their traits.
type asked struct {
	any      bool
	acts     []string
	clusters []string
}

func (a *asked) by(r *rule.Rule) {
	a.acts, a.clusters = append(a.acts, r.Acts()...), append(a.clusters, r.Clusters()...)
	a.any = a.any || len(a.acts) > 0 || len(a.clusters) > 0 || len(r.Layers()) > 0
}

type knownRow struct {
	user    id.User
	layer   id.ConsentLayer
	cluster id.Cluster
	what    string
	times   []time.Time
}

func (r *knownRow) columns() []any {
	return []any{text(&r.user), text(&r.layer), text(&r.cluster), text(&r.what), &r.times}
}

const selectKnown = `
SELECT user_id, layer, '' AS cluster, '' AS what, '{}'::timestamptz[] AS times FROM segment_consents WHERE client = $1 AND user_id = ANY($2)
UNION ALL SELECT user_id, layer, cluster, '', '{}' FROM segment_clustered WHERE client = $1 AND counts AND user_id = ANY($2)
UNION ALL SELECT user_id, '', '', what, times FROM segment_acts WHERE client = $1 AND user_id = ANY($2) AND what = ANY($3)`

// knownOf sorts by user what was read.
func knownOf(rows []knownRow) map[id.User]knownOfUser {
	found := map[id.User]knownOfUser{}
	for _, r := range rows {
		k, ok := found[r.user]
		if !ok {
			k = newKnown()
			found[r.user] = k
		}
		switch {
		case r.layer == "":
			k.acts[r.what] = r.times
		case r.cluster == "":
			k.granted[r.layer] = true
		default:
			k.clusters[r.layer] = append(k.clusters[r.layer], r.cluster)
		}
	}
	return found
}

// know reads what the rules of the versions ask of users.
func (c *segmented) know(ctx context.Context, users []*segmentUser) error {
	found := map[id.User]knownOfUser{}
	if c.asked.any && len(users) > 0 {
		rows, _ := c.tx.Query(ctx, selectKnown, string(c.client), // what it fails with, its rows end with
			column(users, func(u *segmentUser) string { return string(u.id) }), texts(c.asked.acts))
		read, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r knownRow, err error) { return r, row.Scan(r.columns()...) })
		if err != nil {
			return fmt.Errorf("read what is known of users: %w", err)
		}
		found = knownOf(read)
	}
	for _, u := range users {
		k, ok := found[u.id]
		if !ok {
			k = newKnown()
		}
		u.known = k
	}
	return nil
}

// touched names what an event changes of a user that rules may read, but for its traits.
func touched(e event.Event) []string {
	switch e := e.(type) {
	case event.ConsentGranted:
		return []string{consentIn(e.Layer)}
	case event.ConsentWithdrawn:
		return []string{consentIn(e.Layer), clustersOf(e.Layer)}
	}
	return column(actsOf(e), act)
}

// touchedTraits names what a change of traits changes that rules may read; ok is false where it
// cannot be told.
func touchedTraits(before, after []byte) (what []string, ok bool) {
	members, err := traits.Differing(before, after)
	return append(column(members, rule.Trait), rule.AllTraits, rule.UpdatedAt), err == nil
}

func consentIn(layer id.ConsentLayer) string  { return "consent " + string(layer) }
func clustersOf(layer id.ConsentLayer) string { return "clusters " + string(layer) }
func act(what string) string                  { return "act " + what }

// actsOf is what a user did by an event: a type of interaction, and what campaign it saw.
func actsOf(e event.Event) []string {
	switch e := e.(type) {
	case event.InteractionRecorded:
		return []string{e.Kind}
	case event.CampaignEngagementRecorded:
		if e.Kind == "impression" {
			return []string{e.Kind, string(e.Campaign)}
		}
		return []string{e.Kind}
	}
	return nil
}

// note notes what the versions read.
func (c *segmented) note() {
	c.asked, c.readers, c.unnamed, c.set = asked{}, map[string][]*segmentVersion{}, true, rule.NewSet()
	for _, v := range c.ordered {
		if v.rule != nil {
			v.inSet = c.set.Add(v.rule)
			c.asked.by(v.rule)
			c.unnamed = c.unnamed && !v.rule.ReadsExternalID()
		}
		c.asked.any = c.asked.any || v.layer != ""
		for _, what := range c.readsOf(v) {
			c.readers[what] = append(c.readers[what], v)
		}
	}
	c.wanted = c.wants(c.ordered)
}

// readsOf is what a version reads of a user, and what the versions that it refers to do.
func (c *segmented) readsOf(v *segmentVersion) []string {
	if v.reads != nil || v.rule == nil {
		return v.reads
	}
	v.reads = slices.Clip(v.rule.Touched())
	if v.layer != "" {
		v.reads = append(v.reads, consentIn(v.layer))
	}
	for _, layer := range v.rule.Layers() {
		v.reads = append(v.reads, consentIn(id.ConsentLayer(layer)))
	}
	for _, what := range v.rule.Acts() {
		v.reads = append(v.reads, act(what))
	}
	if len(v.rule.Clusters()) > 0 {
		v.reads = append(v.reads, clustersOf(v.layer))
	}
	for _, segment := range v.refers {
		if to := c.referred(v, id.Segment(segment)); to != nil {
			v.reads = append(v.reads, c.readsOf(to)...)
		}
	}
	return v.reads
}

func (c *segmented) readsAny(what []string) bool {
	return slices.ContainsFunc(what, func(one string) bool { return len(c.readers[one]) > 0 })
}

// reading are the versions that read any of what was touched, in order.
func (c *segmented) reading(what []string) (some []*segmentVersion) {
	reads := make([]bool, len(c.ordered))
	for _, one := range what {
		for _, v := range c.readers[one] {
			reads[v.place] = true
		}
	}
	for i, v := range c.ordered {
		if reads[i] {
			some = append(some, v)
		}
	}
	return some
}

// wants are the members of the traits that some versions read; nil: all.
func (c *segmented) wants(some []*segmentVersion) func(member string) bool {
	var reads []string
	for _, v := range some {
		reads = append(reads, c.readsOf(v)...)
	}
	return rule.Members(reads)
}

type (
	consentKey struct {
		user  id.User
		layer id.ConsentLayer
	}
	actKey struct {
		user id.User
		what string
	}
)

// noted is what a batch says of users beside their traits.
type noted struct {
	consents map[consentKey]bool    // granted, or withdrawn
	left     map[consentKey]bool    // withdrawn since, of whose clusters the user is no more
	acts     map[actKey][]time.Time // of those there are events of
	acted    map[actKey]bool        // that are written
}

func newNoted() noted {
	return noted{map[consentKey]bool{}, map[consentKey]bool{}, map[actKey][]time.Time{}, map[actKey]bool{}}
}

const selectActs = `SELECT user_id, what, times FROM segment_acts WHERE client = $1 AND user_id = ANY($2) AND what = ANY($3)`

// readActs reads what users have done of what they do by some events.
func (n noted) readActs(ctx context.Context, c *segmented, events []eventstore.Recorded) error {
	users, whats := map[string]bool{}, map[string]bool{}
	for _, r := range events {
		for _, what := range actsOf(r.Event) {
			users[string(userOf(r.Event))], whats[what] = true, true
		}
	}
	if len(users) == 0 {
		return nil
	}
	rows, _ := c.tx.Query(ctx, selectActs, string(c.client), sortedKeys(users), sortedKeys(whats)) // what it fails with, its rows end with
	var key actKey
	var times []time.Time
	if _, err := pgx.ForEachRow(rows, []any{text(&key.user), &key.what, &times}, func() error {
		n.acts[key] = slices.Clone(times)
		return nil
	}); err != nil {
		return fmt.Errorf("read what users did: %w", err)
	}
	return nil
}

// note notes what an event says of a user that is there, which is nil where no version is
// to judge it; changes says whether that may change anything.
func (n noted) note(c *segmented, r eventstore.Recorded, u *segmentUser) (changes bool) {
	said := func(layer id.ConsentLayer, granted bool) bool {
		if of := c.layers[layer]; of == nil || of.retired {
			return false
		}
		key := consentKey{userOf(r.Event), layer}
		if n.consents[key] = granted; !granted {
			n.left[key] = true
		}
		if u != nil && granted {
			u.known.granted[layer] = true
		} else if u != nil {
			delete(u.known.granted, layer)
			delete(u.known.clusters, layer)
		}
		return true
	}
	switch e := r.Event.(type) {
	case event.ConsentGranted:
		return said(e.Layer, true)
	case event.ConsentWithdrawn:
		return said(e.Layer, false)
	}
	for _, what := range actsOf(r.Event) {
		key := actKey{userOf(r.Event), what}
		most := rule.MaxActs
		if !slices.Contains(rule.Kinds(), what) {
			most = 1 // of a campaign the newest says all
		}
		n.acts[key], n.acted[key] = kept(n.acts[key], r.RecordedAt, c.now, most), true
		if u != nil {
			u.known.acts[what] = n.acts[key]
		}
		changes = true
	}
	return changes
}

// kept are the newest times, in order, with one more: those that a window can still reach.
func kept(times []time.Time, at, now time.Time, most int) []time.Time {
	i, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	times = slices.Insert(slices.Clone(times), i, at)
	for len(times) > most || len(times) > 1 && times[0].Before(now.Add(-rule.ActsKept)) {
		times = times[1:]
	}
	return times
}

const (
	writeConsented = `
INSERT INTO segment_consents (client, user_id, layer) SELECT $1, * FROM unnest($2::text[], $3::text[]) ON CONFLICT DO NOTHING`
	dropConsents = `
DELETE FROM segment_consents c USING unnest($2::text[], $3::text[]) AS n (user_id, layer)
WHERE c.client = $1 AND c.user_id = n.user_id AND c.layer = n.layer`
	leaveClusters = `
DELETE FROM segment_clustered c USING unnest($2::text[], $3::text[]) AS n (user_id, layer)
WHERE c.client = $1 AND c.user_id = n.user_id AND c.layer = n.layer`
	// The times of all rows come as one array, and each row takes its part.
	writeActs = `
INSERT INTO segment_acts (client, user_id, what, newest, times)
SELECT $1, n.user_id, n.what, n.newest, ($7::timestamptz[])[n.first + 1 : n.last]
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::integer[]) AS n (user_id, what, newest, first, last)
ON CONFLICT (client, user_id, what) DO UPDATE SET newest = excluded.newest, times = excluded.times`
	dropOldActs = `DELETE FROM segment_acts WHERE client = $1 AND newest < $2`
)

// eraseKnown forgets users.
var eraseKnown = []string{
	`DELETE FROM segment_consents WHERE client = $1 AND user_id = ANY($2)`,
	`DELETE FROM segment_clustered WHERE client = $1 AND user_id = ANY($2)`,
	`DELETE FROM segment_acts WHERE client = $1 AND user_id = ANY($2)`,
}

func (n noted) write(ctx context.Context, c *segmented) error {
	var granted, withdrawn []consentKey
	for key, is := range n.consents {
		if is {
			granted = append(granted, key)
		} else {
			withdrawn = append(withdrawn, key)
		}
	}
	for _, step := range []struct {
		sql  string
		keys []consentKey
	}{{writeConsented, granted}, {dropConsents, withdrawn}, {leaveClusters, slices.Collect(maps.Keys(n.left))}} {
		if len(step.keys) == 0 {
			continue
		}
		if err := do(ctx, c.tx, "write consents of segments", step.sql, string(c.client),
			column(step.keys, func(k consentKey) string { return string(k.user) }),
			column(step.keys, func(k consentKey) string { return string(k.layer) }),
		); err != nil {
			return err
		}
	}
	acted := slices.Collect(maps.Keys(n.acted))
	if len(acted) == 0 {
		return nil
	}
	all := []time.Time{}
	first, last := make([]int, len(acted)), make([]int, len(acted))
	for i, key := range acted {
		first[i] = len(all)
		all = append(all, n.acts[key]...)
		last[i] = len(all)
	}
	return do(ctx, c.tx, "write what users did", writeActs, string(c.client),
		column(acted, func(k actKey) string { return string(k.user) }),
		column(acted, func(k actKey) string { return k.what }),
		column(acted, func(k actKey) time.Time { return n.acts[k][len(n.acts[k])-1] }), first, last, all)
}

// segmentLayer is a consent layer, as far as rules stand in it.
type segmentLayer struct {
	paths   []string
	retired bool
}

const selectLayers = `SELECT id, trait_paths, retired FROM segment_layers WHERE client = $1`

func (c *segmented) loadLayers(ctx context.Context) error {
	c.layers = map[id.ConsentLayer]*segmentLayer{}
	rows, _ := c.tx.Query(ctx, selectLayers, string(c.client)) // what it fails with, its rows end with
	var layer id.ConsentLayer
	var l segmentLayer
	_, err := pgx.ForEachRow(rows, []any{text(&layer), &l.paths, &l.retired}, func() error {
		one := l
		c.layers[layer] = &one
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the layers of segments: %w", err)
	}
	return nil
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

	dropRun   = `DELETE FROM segment_clustered WHERE client = $1 AND layer = $2 AND run = $3 AND NOT counts`
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
)

// applyKnown changes what rules ask of users, for many of them at once.
func (c *segmented) applyKnown(ctx context.Context, r eventstore.Recorded) error {
	run := func(sql string, args ...any) error {
		return do(ctx, c.tx, "apply to segments", sql, append([]any{string(c.client)}, args...)...)
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
		return run(dropRun, string(e.Layer), string(e.Run))
	case event.ClusteringCancelled:
		return run(dropRun, string(e.Layer), string(e.Run))
	case event.ClusteringFailed:
		return run(dropRun, string(e.Layer), string(e.Run))
	case event.ClusteringAssigned:
		return run(assignRun, string(e.Layer), string(e.Run), e.Attempt, string(e.Cluster), texts(e.Users), string(e.Segment))
	case event.ClusteringCompleted:
		return c.completeRun(ctx, r, e)
	}
	return nil
}

// completeRun lets the clusters of a run count.
func (c *segmented) completeRun(ctx context.Context, r eventstore.Recorded, e event.ClusteringCompleted) error {
	var moved []string
	if len(c.readers[clustersOf(e.Layer)]) > 0 {
		rows, _ := c.tx.Query(ctx, movedByRun, string(c.client), string(e.Layer), string(e.Run), e.Attempt, c.asked.clusters, string(e.Segment))
		var err error
		if moved, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("find whom a run moves: %w", err)
		}
	}
	for _, sql := range []string{dropOtherRuns, countRun} {
		if err := do(ctx, c.tx, "complete a run", sql, string(c.client), string(e.Layer), string(e.Run), e.Attempt, string(e.Segment)); err != nil {
			return err
		}
	}
	return c.rejudgeAll(ctx, r, moved, clustersOf(e.Layer))
}

func (c *segmented) changeLayer(ctx context.Context, r eventstore.Recorded, layer id.ConsentLayer, paths []string) error {
	if err := do(ctx, c.tx, "write a layer of segments", writeSegmentLayer, string(c.client), string(layer), paths); err != nil {
		return err
	}
	if err := c.loadLayers(ctx); err != nil {
		return err
	}
	return c.block(ctx, r)
}

// retireLayer forgets what was said and found under a layer.
func (c *segmented) retireLayer(ctx context.Context, r eventstore.Recorded, layer id.ConsentLayer) error {
	var granted []string
	if len(c.readers[consentIn(layer)]) > 0 {
		rows, _ := c.tx.Query(ctx, grantingIn, string(c.client), string(layer)) // what it fails with, its rows end with
		var err error
		if granted, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("find who grants a layer: %w", err)
		}
	}
	for _, sql := range []string{retireSegmentLayer, dropConsentsIn, dropClusteredIn} {
		if err := do(ctx, c.tx, "retire a layer of segments", sql, string(c.client), string(layer)); err != nil {
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
	c.steps = 0
	reading := c.reading(what)
	for some := range slices.Chunk(ids, usersRead) {
		users, err := c.read(ctx, segmentUsersByID, some)
		if err != nil {
			return err
		}
		f := flips{members: members{}}
		judged := map[id.User]*segmentUser{}
		if _, err := c.openEach(ctx, users, unbounded, func(u *segmentUser) error {
			judged[u.id] = u
			return c.rejudge(u, reading, r.Position, &f)
		}); err != nil {
			return err
		}
		if err := c.write(ctx, judged, f); err != nil {
			return err
		}
	}
	return nil
}

// Why a version is blocked, beside what rule.Breach says: followed by a space, and the id.
const (
	blockedByLayer   = "layer_retired"
	blockedBySegment = "segment_blocked"
)

// reasons are why a version is to name nobody: its rule reads what it may not any more, or
// refers to a segment of which that holds.
func (c *segmented) reasons(v *segmentVersion, known map[int][]string) (found []string) {
	if before, is := known[v.number]; is || v.rule == nil {
		return before
	}
	known[v.number] = nil
	bounds := rule.Bounds{Decided: c.decided}
	if v.layer != "" {
		of := c.layers[v.layer]
		if of == nil || of.retired {
			found = append(found, blockedByLayer+" "+string(v.layer))
			of = &segmentLayer{paths: v.rule.Paths()}
		}
		bounds.Layered, bounds.Paths = true, of.paths
	}
	for _, breach := range v.rule.Breaches(bounds) {
		found = append(found, breach.Cause+" "+breach.Name)
	}
	for _, segment := range v.refers {
		to := c.referred(v, id.Segment(segment))
		if to != nil && (to.serves && to.isBlocked() || len(c.reasons(to, known)) > 0) {
			found = append(found, blockedBySegment+" "+segment)
		}
	}
	known[v.number] = found
	return found
}

const (
	blockVersion    = `UPDATE segment_versions SET blocked = $3 WHERE client = $1 AND number = $2`
	renumberVersion = `UPDATE segment_versions SET number = $3, built = 0 WHERE client = $1 AND number = $2`
)

// block looks which versions are to name nobody, now that rules may read something else.
// One that served is empty from here on: whoever follows it reads its members again. When
// that is over it is empty still, until it has been judged anew by the rule. One that is
// being built begins anew. A version gets another number then, as users carry the old
// one; numbers are set apart for all, since a rebuild cannot open rules that are no more.
func (c *segmented) block(ctx context.Context, r eventstore.Recorded) error {
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	reasons := map[int][]string{}
	for _, v := range c.ordered {
		c.reasons(v, reasons)
	}
	// A rebuild renumbers fewer of them, so they do not take their turns by number.
	bySegment := slices.SortedFunc(slices.Values(c.ordered), func(a, b *segmentVersion) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.generation, b.generation))
	})
	for _, v := range bySegment {
		number := c.next
		c.next++
		why := reasons[v.number]
		if v.serves && v.isBlocked() && why == nil {
			why = []string{}
		}
		if slices.Equal(why, v.blocked) && (why == nil) == (v.blocked == nil) {
			continue
		}
		queue(blockVersion, v.number, why)
		if (why == nil) == (v.blocked == nil) {
			continue
		}
		queue(renumberVersion, v.number, number)
		queue(dropBlocks, []int{v.number})
		if v.serves {
			queue(beginChanges, []string{string(v.segment)}, string(r.Position))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	return c.load(ctx)
}

// blockNew blocks versions that were made where their rules may not read what they do any
// more.
func (c *segmented) blockNew(ctx context.Context) error {
	reasons := map[int][]string{}
	for _, v := range c.ordered {
		if v.serves {
			continue
		}
		if why := c.reasons(v, reasons); why != nil {
			if err := do(ctx, c.tx, "block a segment", blockVersion, string(c.client), v.number, why); err != nil {
				return err
			}
			v.blocked = why
		}
	}
	return nil
}

// judges are versions of some that name anybody.
func (c *segmented) judges(numbers []int) func(*segmentVersion) bool {
	return func(v *segmentVersion) bool { return !v.isBlocked() && slices.Contains(numbers, v.number) }
}
