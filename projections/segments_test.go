package projections_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/testkit"
)

// segmentIDs are some segments' ids; a rule names those before its own.
var segmentIDs = func() (ids []id.Segment) {
	source := id.Derived("segments")
	for range 8 {
		ids = append(ids, id.Next[id.Segment](source))
	}
	return ids
}()

// Some of them are found under a consent layer, of which each has a path and two clusters.
var (
	segmentLayers   = []id.ConsentLayer{id.Next[id.ConsentLayer](id.Derived("layer 0")), id.Next[id.ConsentLayer](id.Derived("layer 1"))}
	segmentClusters = [][]id.Cluster{
		{id.Next[id.Cluster](id.Derived("cluster 0")), id.Next[id.Cluster](id.Derived("cluster 1"))},
		{id.Next[id.Cluster](id.Derived("cluster 2")), id.Next[id.Cluster](id.Derived("cluster 3"))},
	}
	segmentCampaign = id.Next[id.Campaign](id.Derived("campaign"))
)

// layerOf is the layer that the n-th segment is found under, below 0: none.
func layerOf(n int) int {
	switch {
	case n < 4:
		return -1
	case n < 7:
		return 0
	default:
		return 1
	}
}

func layerID(n int) id.ConsentLayer {
	if layerOf(n) < 0 {
		return ""
	}
	return segmentLayers[layerOf(n)]
}

func (w *fixture) segment(client id.Client, e event.Event) {
	w.Helper()
	w.record(client, string(eventstore.SegmentsStream(client)), e)
}

// randomRule is one that may name segments of its layer before the n-th.
func randomRule(random *rand.Rand, n int) (text string, refers []id.Segment) {
	parts := []string{
		`traits.n > 20`, `traits.n < 60`, `traits.plan == "a"`, `has(traits.plan)`, `within(traits.seen, "2d")`, `older(traits.seen, "1d")`,
		`!within(traits.seen, "3d")`, `bucket("x", 3) == 1`, `user.external_id.startsWith("person 1")`, `within(user.updated_at, "1d")`,
		`interactions("click", "2d") >= 2`, `interactions("impression", "12h") < 2`, fmt.Sprintf(`seen(%q, "1d")`, segmentCampaign), fmt.Sprintf(`!seen(%q, "90d")`, segmentCampaign),
	}
	if layer := layerOf(n); layer >= 0 {
		parts = []string{`traits.n > 20`, `traits.plan == "a"`, `older(traits.seen, "1d")`, `bucket("y", 2) == 1`, `has(traits.n)`}
		for range 3 {
			parts = append(parts, fmt.Sprintf(`in_cluster(%q)`, segmentClusters[layer][0]), fmt.Sprintf(`!in_cluster(%q)`, segmentClusters[layer][1]))
		}
		parts = append(parts, fmt.Sprintf(`!in_cluster(%q)`, segmentClusters[1-layer][0])) // of another layer none is known
	}
	parts = append(parts, fmt.Sprintf(`granted(%q)`, segmentLayers[0]), fmt.Sprintf(`!granted(%q)`, segmentLayers[1]))
	for i, before := range segmentIDs[:n] {
		if layerOf(i) == layerOf(n) {
			parts = append(parts, fmt.Sprintf(`in_segment(%q)`, before), fmt.Sprintf(`!in_segment(%q)`, before))
		}
	}
	text = parts[random.IntN(len(parts))]
	for range random.IntN(3) {
		text = "(" + text + []string{" && ", " || "}[random.IntN(2)] + parts[random.IntN(len(parts))] + ")"
	}
	for _, before := range segmentIDs[:n] {
		if strings.Contains(text, string(before)) {
			refers = append(refers, before)
		}
	}
	return text, refers
}

// changeSegments records something about the segments of a client that its log allows.
func changeSegments(w *fixture, random *rand.Rand, client id.Client) {
	w.Helper()
	var there domain.Segments
	var ruled []int64 // revisions of events that carry a rule
	ready, used := int64(-1), map[id.Segment]bool{}
	for _, r := range must[[]eventstore.Recorded](w)(loaded(w, eventstore.SegmentsStream(client))) {
		there.Apply(r.Event)
		switch e := r.Event.(type) {
		case event.SegmentDefined:
			used[e.Segment], ruled = true, append(ruled, int64(r.Revision))
		case event.SegmentChanged:
			if e.Rule != nil {
				ruled = append(ruled, int64(r.Revision))
			}
		case event.SegmentReady:
			ready = e.Revision
		}
	}
	n := random.IntN(len(segmentIDs))
	segment := segmentIDs[n]
	text, refers := randomRule(random, n)
	var events []event.Event
	switch choice := random.IntN(8); {
	case choice < 3:
		if i := slices.IndexFunc(ruled, func(one int64) bool { return one > ready }); i >= 0 {
			events = there.Ready(ruled[i+random.IntN(len(ruled)-i)])
		}
	case choice < 4:
		w.record(client, string(eventstore.SegmentTimeStream(client)), event.SegmentsTimePassed{AsOf: w.log.Now()})
	case choice < 5 && random.IntN(5) == 0:
		if events, _ = there.Retire(segment); events != nil {
			defer w.forget(client, id.User(segment))
		}
	case !used[segment]: // an id is never used again
		events, _ = there.Define(event.SegmentDefined{Segment: segment, Name: text, Rule: event.Private([]byte(text)), Refers: refers, Layer: layerID(n)})
	case choice < 6:
		events, _ = there.Change(segment, &text, nil, nil)
	default:
		events, _ = there.Change(segment, nil, event.Private([]byte(text)), refers)
	}
	for _, e := range events { // where it is refused, there are none
		w.segment(client, e)
	}
}

func loaded(w *fixture, stream eventstore.Stream) ([]eventstore.Recorded, error) {
	history, _, err := w.log.Load(w.Context(), stream)
	return history, err
}

// changeKnown records something that rules ask of users beside their traits.
func changeKnown(w *fixture, random *rand.Rand, client id.Client, pick func() id.User) {
	w.Helper()
	n := random.IntN(len(segmentLayers))
	layer := segmentLayers[n]
	which := random.IntN(3)
	run := event.RunAttempt{Run: id.Next[id.Run](id.Derived(fmt.Sprint("run ", which))), Attempt: 1 + random.IntN(2)}
	of := event.RunScope{Layer: layer, Segment: []id.Segment{"", "", segmentIDs[0]}[which]}
	runs := string(eventstore.RunsStream(client, of))
	switch random.IntN(18) {
	case 0, 1, 2:
		user := pick()
		w.record(client, string(eventstore.ConsentStream(client, layer, user)), event.ConsentGranted{Layer: layer, User: user})
	case 3, 4:
		user := pick()
		w.record(client, string(eventstore.ConsentStream(client, layer, user)), event.ConsentWithdrawn{Layer: layer, User: user})
	case 5, 6:
		w.record(client, "did", event.InteractionRecorded{User: pick(), Item: "usr_x", Kind: []string{"click", "impression", "dismiss"}[random.IntN(3)]})
	case 7, 8:
		w.record(client, "did", event.CampaignEngagementRecorded{
			Campaign: segmentCampaign, User: pick(), Impression: id.Next[id.Impression](w.ids), Kind: []string{"click", "impression"}[random.IntN(2)],
		})
	case 9, 10, 11: // of one and the same cluster, so that not all moves with a run
		for i, cluster := range segmentClusters[n] {
			w.record(client, string(eventstore.AssignedStream(client, run)), event.ClusteringAssigned{
				Run: run.Run, Layer: layer, Segment: of.Segment, Attempt: run.Attempt, Cluster: cluster, Users: slices.DeleteFunc([]id.User{pick(), pick(), pick()}, func(user id.User) bool {
					return (user[len(user)-1]%2 == 0) == (i == 0)
				}),
			})
		}
	case 12, 13:
		completed := event.ClusteringCompleted{Run: run.Run, Layer: layer, Segment: of.Segment, Attempt: run.Attempt}
		before := must[[]eventstore.Recorded](w)(loaded(w, eventstore.Stream(runs)))
		if !slices.ContainsFunc(before, func(r eventstore.Recorded) bool {
			e, is := r.Event.(event.ClusteringCompleted)
			return is && e.Run == run.Run && e.Attempt == run.Attempt // which happens once
		}) {
			w.record(client, runs, completed)
		}
	case 14:
		w.record(client, runs, []event.Event{
			event.ClusteringStarted{Run: run.Run, Layer: layer, Attempt: run.Attempt},
			event.ClusteringCancelled{Run: run.Run, Layer: layer},
			event.ClusteringFailed{Run: run.Run, Layer: layer},
		}[random.IntN(3)])
	default:
		changeBounds(w, random, client, layer)
	}
}

// changeBounds records that rules may read something else.
func changeBounds(w *fixture, random *rand.Rand, client id.Client, layer id.ConsentLayer) {
	w.Helper()
	switch random.IntN(8) {
	case 0, 1:
		overrides := map[string]event.TraitOverride{"plan": {Sensitive: new(random.IntN(3) == 0)}, "other": {Sensitive: new(true)}}
		w.record(client, string(eventstore.TraitSchemaStream(client)), event.TraitSchemaOverridden{Overrides: overrides})
	case 2:
		if random.IntN(4) == 0 {
			w.layer(client, layer, event.ConsentLayerRetired{Layer: layer})
		}
	default:
		paths := [][]string{{"n", "plan", "seen"}, {"n", "plan", "seen"}, {"n", "seen"}, {"plan"}}[random.IntN(4)]
		w.layer(client, layer, event.ConsentLayerChanged{Layer: layer, TraitPaths: paths})
	}
}

// defineLayers defines the layers of segments.
func defineLayers(w *fixture, client id.Client) {
	w.Helper()
	for _, layer := range segmentLayers {
		w.layer(client, layer, event.ConsentLayerDefined{Layer: layer, TraitPaths: []string{"n", "plan", "seen"}})
	}
}

// segmentFixture is a client whose segments are applied while things happen, with slices
// in between, and can be asked by brute force.
type segmentFixture struct {
	*fixture
	model   projections.Segments
	other   *projections.Segments // of another process, which now and then leads; nil: there is none
	applied eventstore.Position
	clock   time.Time
	traits  map[id.User]string
	names   map[id.User]string
	times   map[id.User][2]time.Time
}

func newSegmentFixture(t testing.TB) *segmentFixture {
	t.Helper()
	w := &segmentFixture{
		fixture: newFixture(t), clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		traits: map[id.User]string{}, names: map[id.User]string{}, times: map[id.User][2]time.Time{},
	}
	w.model = projections.NewSegments(w.reader)
	w.log.Now = func() time.Time { return w.clock }
	schema := projector.ID(w.model)
	if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		for _, ddl := range []string{`CREATE SCHEMA ` + schema, `SET LOCAL search_path TO ` + schema + `, public`, w.model.Schema()} {
			if _, err := tx.Exec(t.Context(), ddl); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// catchUp applies what the log has in pieces.
func (w *segmentFixture) catchUp(random *rand.Rand) {
	w.Helper()
	for {
		page := must[[]eventstore.Record](w)(w.log.Store.ReadAll(w.Context(), w.applied, 1000))
		if len(page) == 0 {
			return
		}
		w.applyPage(random, page)
	}
}

func (w *segmentFixture) applyPage(random *rand.Rand, page []eventstore.Record) {
	w.Helper()
	var rest []eventstore.Recorded
	for _, r := range page {
		rest = append(rest, must[eventstore.Recorded](w)(w.log.Decode(r)))
	}
	for len(rest) > 0 {
		n := 1 + random.IntN(min(len(rest), 12))
		if w.other != nil && random.IntN(8) == 0 {
			w.model, *w.other = *w.other, w.model
		}
		if w.other != nil && random.IntN(8) == 0 { // a commit is lost
			tx := must[pgx.Tx](w)(w.pool.Begin(w.Context()))
			if err := errors.Join(projector.Apply(w.Context(), w.model, tx, w.log, rest[:1+random.IntN(n)]), tx.Rollback(w.Context())); err != nil {
				w.Fatal(err)
			}
		}
		if err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
			return projector.Apply(w.Context(), w.model, tx, w.log, rest[:n])
		}); err != nil {
			w.Fatal(err)
		}
		w.applied, rest = rest[n-1].Position, rest[n:]
	}
}

// rows are those of the tables in a schema that follow from the log alone.
func (w *segmentFixture) rows(tx interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, schema string,
) map[string][]string {
	w.Helper()
	instead, completed := w.model.InProgress()
	found := map[string][]string{}
	for _, table := range []string{
		"segment_clients", "segments", "segment_versions", "segment_users", "segment_blocks", "segment_changes",
		"segment_layers", "segment_consents", "segment_clustered", "segment_acts", "segment_sizes",
	} {
		row, where := `to_jsonb(t)`, ``
		for _, column := range slices.Sorted(maps.Keys(instead)) {
			if name, ok := strings.CutPrefix(column, table+"."); ok && instead[column] == "" {
				row += ` - '` + name + `'`
			} else if ok {
				row += ` || jsonb_build_object('` + name + `', ` + instead[column] + `)`
			}
		}
		if completed[table] != "" {
			where = ` WHERE ` + completed[table]
		}
		sql := strings.ReplaceAll(`SELECT (`+row+`)::text FROM SCHEMA.`+table+` t`+where+` ORDER BY 1`, "SCHEMA.", schema+".")
		found[table] = must[[]string](w)(pgx.CollectRows(must[pgx.Rows](w)(tx.Query(w.Context(), sql)), pgx.RowTo[string]))
	}
	return found
}

// counting is a rule of a segment.
type counting struct {
	text     string
	refers   []id.Segment
	revision int64
	layer    id.ConsentLayer
	rule     *rule.Rule
	blocked  bool
}

// story is all that the log says of a client's segments and users, read from its beginning.
type story struct {
	newest, serving map[id.Segment]counting
	pending         map[id.Segment]int64 // revisions by which the newest is to count
	layers          map[id.ConsentLayer][]string
	sensitive       map[string]bool
	granted         map[id.User]map[id.ConsentLayer]bool
	clusters        map[id.User]map[event.RunScope]id.Cluster
	assigned        map[string]map[id.User]id.Cluster // by layer, segment, run and attempt
	acts            map[id.User]map[string][]time.Time
	gone            map[id.User]bool
}

func (w *segmentFixture) told() *story {
	w.Helper()
	c := &story{
		map[id.Segment]counting{},
		map[id.Segment]counting{},
		map[id.Segment]int64{},
		map[id.ConsentLayer][]string{},
		map[string]bool{},
		map[id.User]map[id.ConsentLayer]bool{},
		map[id.User]map[event.RunScope]id.Cluster{},
		map[string]map[id.User]id.Cluster{},
		map[id.User]map[string][]time.Time{},
		map[id.User]bool{},
	}
	for at := eventstore.Start; ; {
		page := must[[]eventstore.Record](w)(w.log.Store.ReadAll(w.Context(), at, 1000))
		if len(page) == 0 {
			return c
		}
		for _, r := range page {
			at = r.Position
			c.hear(w, must[eventstore.Recorded](w)(w.log.Decode(r)))
		}
	}
}

func (c *story) hear(w *segmentFixture, r eventstore.Recorded) {
	w.Helper()
	switch e := r.Event.(type) {
	case event.SegmentDefined:
		c.carries(w, r, e.Segment, e.Refers, e.Layer)
	case event.SegmentChanged:
		if e.Rule != nil {
			c.carries(w, r, e.Segment, e.Refers, c.newest[e.Segment].layer)
		}
	case event.SegmentRetired:
		delete(c.newest, e.Segment)
		delete(c.serving, e.Segment)
		delete(c.pending, e.Segment)
	case event.SegmentReady:
		for segment, revision := range c.pending {
			if revision <= e.Revision && c.newest[segment].text != "" { // else the rule's key is gone, as the segment is retired below
				of := c.newest[segment]
				of.rule = must[*rule.Rule](w)(rule.Parse(of.text, rule.Users))
				c.serving[segment] = of
				delete(c.pending, segment)
			}
		}
		c.block()
	case event.ConsentLayerDefined:
		c.layers[e.Layer] = e.TraitPaths
	case event.ConsentLayerChanged:
		if c.layers[e.Layer] != nil {
			c.layers[e.Layer] = e.TraitPaths
		}
		c.block()
	case event.ConsentLayerRetired:
		delete(c.layers, e.Layer)
		for user := range c.granted {
			delete(c.granted[user], e.Layer)
			c.leave(user, e.Layer)
		}
		c.block()
	case event.TraitSchemaOverridden:
		for path, o := range e.Overrides {
			c.sensitive[path] = *o.Sensitive
		}
		c.block()
	case event.ConsentGranted:
		if c.layers[e.Layer] != nil && !c.gone[e.User] {
			at(c.granted, e.User)[e.Layer] = true
		}
	case event.ConsentWithdrawn:
		if c.layers[e.Layer] != nil {
			delete(c.granted[e.User], e.Layer)
			c.leave(e.User, e.Layer)
			for run, users := range c.assigned {
				if strings.HasPrefix(run, string(e.Layer)) {
					delete(users, e.User)
				}
			}
		}
	case event.ClusteringAssigned:
		for _, user := range e.Users {
			if c.granted[user][e.Layer] {
				if users := at(c.assigned, fmt.Sprint(e.Layer, e.Segment, e.Run, e.Attempt)); users[user] == "" {
					users[user] = e.Cluster
				}
			}
		}
	case event.ClusteringStarted:
		c.drop(e.Layer, e.Run)
	case event.ClusteringCancelled:
		c.drop(e.Layer, e.Run)
	case event.ClusteringFailed:
		c.drop(e.Layer, e.Run)
	case event.ClusteringCompleted:
		of := event.RunScope{Layer: e.Layer, Segment: e.Segment}
		for user := range c.clusters {
			delete(c.clusters[user], of)
		}
		for user, cluster := range c.assigned[fmt.Sprint(e.Layer, e.Segment, e.Run, e.Attempt)] {
			at(c.clusters, user)[of] = cluster
		}
		for key := range c.assigned {
			if strings.HasPrefix(key, string(e.Layer)+string(e.Segment)+"run_") {
				delete(c.assigned, key)
			}
		}
	case event.InteractionRecorded:
		if !c.gone[e.User] {
			at(c.acts, e.User)[e.Kind] = append(c.acts[e.User][e.Kind], r.RecordedAt)
		}
	case event.CampaignEngagementRecorded:
		if !c.gone[e.User] {
			at(c.acts, e.User)[e.Kind] = append(c.acts[e.User][e.Kind], r.RecordedAt)
			if e.Kind == "impression" {
				c.acts[e.User][string(e.Campaign)] = append(c.acts[e.User][string(e.Campaign)], r.RecordedAt)
			}
		}
	case event.EndUserErased:
		c.gone[e.User] = true
		delete(c.granted, e.User)
		delete(c.clusters, e.User)
		for _, users := range c.assigned {
			delete(users, e.User)
		}
	}
}

// at is a map within a map, which is there from now on.
func at[K, L comparable, V any](of map[K]map[L]V, key K) map[L]V {
	if of[key] == nil {
		of[key] = map[L]V{}
	}
	return of[key]
}

// drop forgets what a run of a layer has found.
func (c *story) drop(layer id.ConsentLayer, run id.Run) {
	for key := range c.assigned {
		if strings.HasPrefix(key, string(layer)) && strings.Contains(key, string(run)) {
			delete(c.assigned, key)
		}
	}
}

// leave takes a user out of the clusters of a layer.
func (c *story) leave(user id.User, layer id.ConsentLayer) {
	maps.DeleteFunc(c.clusters[user], func(of event.RunScope, _ id.Cluster) bool { return of.Layer == layer })
}

// in says whether a user is in a cluster of a layer, of whatever was divided.
func (c *story) in(user id.User, layer id.ConsentLayer, cluster id.Cluster) bool {
	for of, is := range c.clusters[user] {
		if of.Layer == layer && is == cluster {
			return true
		}
	}
	return false
}

// carries takes over a rule, and finds what is to count together with it.
func (c *story) carries(w *segmentFixture, r eventstore.Recorded, segment id.Segment, refers []id.Segment, layer id.ConsentLayer) {
	w.Helper()
	opened, _ := w.log.Open(w.Context(), r, "rule") // of one that is retired below there is none
	c.newest[segment] = counting{text: string(opened), refers: refers, revision: int64(r.Revision), layer: layer}
	reached := map[id.Segment]bool{segment: true}
	for range segmentIDs {
		for other, of := range c.newest {
			if slices.ContainsFunc(of.refers, func(one id.Segment) bool { return reached[one] }) {
				reached[other] = true
			}
		}
	}
	together := func(other id.Segment) { // what was to count together still does
		if before, is := c.pending[other]; is {
			for with, revision := range c.pending {
				if revision == before {
					c.pending[with] = int64(r.Revision)
				}
			}
		}
	}
	looked := map[id.Segment]bool{}
	var wait func(id.Segment) // what a rule that counts names waits for the rule in its place
	wait = func(other id.Segment) {
		if looked[other] {
			return
		}
		looked[other] = true
		for _, to := range c.serving[other].refers {
			together(to)
			wait(to)
		}
	}
	for other := range reached {
		together(other)
		wait(other)
	}
	for other := range reached {
		c.pending[other] = int64(r.Revision)
	}
}

// block empties what reads more than it may, for good.
func (c *story) block() {
	for range segmentIDs {
		for segment, of := range c.serving {
			for _, path := range of.rule.Paths() {
				of.blocked = of.blocked || c.sensitive[path] || of.layer != "" && !slices.Contains(c.layers[of.layer], path)
			}
			of.blocked = of.blocked || of.layer != "" && c.layers[of.layer] == nil
			for _, to := range of.refers {
				of.blocked = of.blocked || c.serving[to].blocked
			}
			c.serving[segment] = of
		}
	}
}

// brute judges everyone by the rules that count, as of a moment.
func (w *segmentFixture) brute(now time.Time) map[id.Segment][]id.User {
	w.Helper()
	c := w.told()
	found := map[id.Segment][]id.User{}
	for user, traits := range w.traits {
		facts := rule.Facts{
			ExternalID: w.names[user], CreatedAt: w.times[user][0], UpdatedAt: w.times[user][1], Client: string(w.acme), ID: string(user), Now: now,
			Granted: func(layer string) bool { return c.granted[user][id.ConsentLayer(layer)] },
			Acts:    func(what string) []time.Time { return c.acts[user][what] },
		}
		if err := json.Unmarshal([]byte(traits), &facts.Traits); err != nil {
			w.Fatal(err)
		}
		var in func(segment string) bool
		in = func(segment string) bool {
			of, facts := c.serving[id.Segment(segment)], facts
			facts.InSegment = in
			facts.InCluster = func(cluster string) bool { return c.in(user, of.layer, id.Cluster(cluster)) }
			return of.rule != nil && !of.blocked && (of.layer == "" || c.granted[user][of.layer]) && of.rule.Judge(&facts) == rule.True
		}
		for segment := range c.serving {
			if in(string(segment)) {
				found[segment] = append(found[segment], user)
			}
		}
	}
	for segment := range found {
		slices.Sort(found[segment])
	}
	return found
}

// stored is who is in which segment by the tables, told in two ways.
func (w *segmentFixture) stored() map[id.Segment][]id.User {
	w.Helper()
	listed := map[id.Segment][]id.User{}
	for _, s := range must[[]projections.Segment](w)(w.model.List(w.Context(), w.acme, true, projections.Page{Limit: 100})) {
		if !s.Ready {
			continue
		}
		page := projections.Page{Limit: 7}
		for {
			members, _, err := w.model.Members(w.Context(), w.acme, true, s.ID, page)
			if err != nil {
				w.Fatal(err)
			}
			for _, m := range members {
				listed[s.ID] = append(listed[s.ID], m.User)
			}
			if len(members) < page.Limit {
				break
			}
			page.After = members[len(members)-1].Place
		}
		if s.Members != len(listed[s.ID]) {
			w.Errorf("%s counts %d members, and lists %d", s.ID, s.Members, len(listed[s.ID]))
		}
		slices.Sort(listed[s.ID])
	}
	var users []id.User
	for user := range w.traits {
		users = append(users, user)
	}
	byUser := map[id.Segment][]id.User{}
	for user, segments := range must[map[id.User]map[string]bool](w)(w.model.Of(w.Context(), w.acme, true, users)) {
		for segment := range segments {
			byUser[id.Segment(segment)] = append(byUser[id.Segment(segment)], user)
		}
	}
	for segment := range byUser {
		slices.Sort(byUser[segment])
	}
	if diff := cmp.Diff(listed, byUser); diff != "" {
		w.Errorf("the members of segments (-) and the segments of users (+):\n%s", diff)
	}
	return listed
}

// Whatever happens in whatever order, and however far slices have come: the members are
// those that the rules name by brute force, following the changes finds them, too, and
// a rebuild makes the same rows.
func TestMembersAreThoseWhomTheRulesName(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	w.other = new(projections.NewSegments(w.reader))
	traits := func() string {
		return []string{
			fmt.Sprintf(`{"n": %d}`, random.IntN(90)),
			fmt.Sprintf(`{"n": %d, "plan": %q}`, random.IntN(90), []string{"a", "b"}[random.IntN(2)]),
			fmt.Sprintf(`{"plan": null, "seen": %q}`, w.clock.Add(-time.Duration(random.IntN(120))*time.Hour).Format(time.RFC3339)),
			fmt.Sprintf(`{"n": "text", "seen": %q}`, w.clock.Add(time.Duration(random.IntN(50)-40)*time.Hour).Format(time.DateOnly)),
		}[random.IntN(4)]
	}
	pick := func() id.User {
		users := make([]id.User, 0, len(w.traits))
		for user := range w.traits {
			users = append(users, user)
		}
		slices.Sort(users)
		return users[random.IntN(len(users))]
	}
	var erased []id.User
	followers := map[id.Segment]*follower{}
	defineLayers(w.fixture, w.acme)
	const steps = 400
	compared := 0 // members, and those found by way of changes
	for n := range steps {
		w.clock = w.clock.Add(time.Duration(random.IntN(90)) * time.Minute)
		if random.IntN(100) == 0 {
			w.clock = w.clock.AddDate(0, 0, 40)
		}
		switch choice := random.IntN(30); {
		case choice < 5 || len(w.traits) < 3:
			text := traits()
			name := fmt.Sprint("person ", n)
			user := w.create(w.acme, name, text)
			w.traits[user], w.names[user], w.times[user] = text, name, [2]time.Time{w.clock, w.clock}
		case choice < 7:
			user, text := pick(), traits()
			w.change(w.acme, user, text)
			w.traits[user], w.times[user] = text, [2]time.Time{w.times[user][0], w.clock}
		case choice < 8:
			user := pick()
			w.erase(w.acme, user)
			delete(w.traits, user)
			erased = append(erased, user)
		case choice < 20:
			changeKnown(w.fixture, random, w.acme, func() id.User {
				if len(erased) > 0 && random.IntN(10) == 0 { // it was on its way then
					return erased[random.IntN(len(erased))]
				}
				users := slices.Sorted(maps.Keys(w.traits))
				return users[random.IntN(min(len(users), 6))] // few, so that what is said of one meets
			})
		default:
			changeSegments(w.fixture, random, w.acme)
		}
		if random.IntN(3) == 0 {
			w.catchUp(random)
			if random.IntN(2) == 0 {
				if _, _, err := w.model.Build(t.Context(), w.acme); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n%10 == 9 || n == steps-1 {
			w.record(w.acme, string(eventstore.SegmentTimeStream(w.acme)), event.SegmentsTimePassed{AsOf: w.clock})
			w.catchUp(random)
			want := w.brute(w.clock)
			if diff := cmp.Diff(want, w.stored()); diff != "" {
				t.Fatalf("step %d: by brute force (-) and by the model (+):\n%s", n, diff)
			}
			w.standAs(rand.New(rand.NewPCG(1, uint64(n))), want)
			for segment := range want {
				if followers[segment] == nil {
					followers[segment] = &follower{}
				}
				compared += len(want[segment])
				if diff := cmp.Diff(want[segment], followers[segment].follow(w, segment)); diff != "" {
					t.Fatalf("step %d: %s by brute force (-) and by its changes (+):\n%s", n, segment, diff)
				}
			}
		}
	}
	if compared == 0 {
		t.Error("no segment ever had a member")
	}
	tables := emptyTables(t, w.fixture, w.model)
	if err := projector.Apply(t.Context(), projections.Segments{}, tables.tx, w.log, w.history()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.rows(w.pool, projector.ID(w.model)), w.rows(tables.tx, "trial")); diff != "" {
		t.Errorf("lived (-) and built anew (+):\n%s", diff)
	}
}

// standAs compares where users stand with the members of segments, and whom random
// audiences reach with whom they name one by one.
func (w *segmentFixture) standAs(random *rand.Rand, members map[id.Segment][]id.User) {
	w.Helper()
	c := w.told()
	known := func(segment id.Segment) bool { of, serves := c.serving[segment]; return serves && !of.blocked }
	in := func(user id.User) func(id.Segment) bool {
		return func(segment id.Segment) bool { return slices.Contains(members[segment], user) }
	}
	some := func() (named []id.Segment) {
		for _, segment := range segmentIDs {
			if random.IntN(6) == 0 {
				named = append(named, segment)
			}
		}
		return named
	}
	reached := 0
	for user := range w.traits {
		var at domain.Standing
		var err error
		if at.In, at.Out, at.Granted, err = w.model.Standing(w.Context(), w.acme, true, user, segmentIDs); err != nil {
			w.Fatal(err)
		}
		for range 20 {
			of := &event.SegmentAudience{AnyOf: some(), NoneOf: some(), Layer: []id.ConsentLayer{"", segmentLayers[0], segmentLayers[1]}[random.IntN(3)]}
			want := (of.Layer == "" || c.granted[user][of.Layer]) && (len(of.AnyOf) == 0 || slices.ContainsFunc(of.AnyOf, in(user))) &&
				!slices.ContainsFunc(of.NoneOf, func(segment id.Segment) bool { return !known(segment) || in(user)(segment) })
			if got := domain.Reaches(event.CampaignTerms{Audience: domain.AudienceSegments, Segments: of}, at); got != want {
				w.Fatalf("%+v reaches %s: %t; it stands at %+v", of, user, got, at)
			}
			if want {
				reached++
			}
		}
	}
	users := slices.Sorted(maps.Keys(w.traits))
	for segment := range c.serving {
		if got := must[[]id.User](w)(w.model.Among(w.Context(), w.acme, segment, users)); !slices.Equal(got, members[segment]) {
			w.Fatalf("among all in %s are %v, not %v", segment, got, members[segment])
		}
	}
	if reached == 0 && len(w.traits) > 3 {
		w.Error("no audience ever reached anybody")
	}
	if in, out, granted, err := w.model.Standing(w.Context(), w.bolt, true, id.Next[id.User](w.ids), segmentIDs); err != nil || len(in)+len(out)+len(granted) > 0 {
		w.Errorf("somebody who is not there is in %v, out of %v, grants %v: %v", in, out, granted, err)
	}
}

// follower keeps the members of a segment by reading them once, and following the
// changes.
type follower struct {
	members map[id.User]bool
	after   eventstore.Position
}

func (f *follower) follow(w *segmentFixture, segment id.Segment) []id.User {
	w.Helper()
	page := projections.Page{After: f.after, Limit: 200}
	found, _, _, err := w.model.Changes(w.Context(), w.acme, true, segment, false, page)
	if f.members == nil || fault.Is(err, "cursor_expired") {
		f.members = map[id.User]bool{}
		members, at, err := w.model.Members(w.Context(), w.acme, true, segment, projections.Page{Limit: 1000})
		if err != nil {
			w.Fatal(err)
		}
		for _, m := range members {
			f.members[m.User] = true
		}
		// The model has no checkpoint here: what was applied is how far it is.
		f.after = w.applied + at[strings.IndexByte(string(at), '/'):]
	} else if err != nil {
		w.Fatal(err)
	}
	for _, c := range found {
		if c.Place <= f.after {
			continue
		}
		f.members[c.User], f.after = c.Change == "entered", c.Place
	}
	var in []id.User
	for user, is := range f.members {
		if is {
			in = append(in, user)
		}
	}
	slices.Sort(in)
	return in
}

// While a new rule judges everyone, the one before counts, and is what explains.
func TestAUserIsInASegmentForTheRuleThatCounts(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	user := w.create(w.acme, "ada", `{"n":30}`)
	segment := segmentIDs[0]
	w.segment(w.acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.segment(w.acme, event.SegmentReady{Revision: 0})
	w.segment(w.acme, event.SegmentChanged{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 40`)), Refers: []id.Segment{}})
	w.catchUp(random)
	for _, want := range []string{`traits.n > 20`, ""} {
		found := must[[]projections.SegmentOfUser](t)(w.model.OfUser(t.Context(), w.acme, true, user))
		got := ""
		if len(found) == 1 && len(found[0].Why) == 1 {
			got = found[0].Why[0].Text
		}
		if got != want || len(found) > 1 {
			t.Errorf("it is explained by %q, want %q: %+v", got, want, found)
		}
		w.segment(w.acme, event.SegmentReady{Revision: 2})
		w.catchUp(random)
	}
}

// One batch may hold that a user leaves a segment, and that it is erased: the segment counts it no longer.
func TestWhoLeavesAndIsErasedAtOnceIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	user := w.create(w.acme, "ada", `{"n":30}`)
	w.segment(w.acme, event.SegmentDefined{Segment: segmentIDs[0], Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.segment(w.acme, event.SegmentReady{Revision: 0})
	w.catchUp(testkit.Random(t))
	counted := func(want int) {
		t.Helper()
		found := must[[]projections.Segment](t)(w.model.List(t.Context(), w.acme, true, projections.Page{Limit: 10}))
		if len(found) != 1 || found[0].Members != want {
			t.Errorf("want %d members: %+v", want, found)
		}
	}
	counted(1)
	w.change(w.acme, user, `{"n":1}`)
	w.erase(w.acme, user)
	var batch []eventstore.Recorded
	for _, r := range must[[]eventstore.Record](t)(w.log.Store.ReadAll(t.Context(), w.applied, 100)) {
		batch = append(batch, must[eventstore.Recorded](t)(w.log.Decode(r)))
	}
	if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return projector.Apply(t.Context(), w.model, tx, w.log, batch)
	}); err != nil {
		t.Fatal(err)
	}
	counted(0)
}

// Who withdraws leaves the clusters of the layer, and comes back with the next run: so do the
// segments that ask for them, by way of others, too.
func TestWhoWithdrewIsInNoClusterUntilTheNextRun(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	defineLayers(w.fixture, w.acme)
	user, layer, cluster := w.create(w.acme, "ada", `{}`), segmentLayers[0], segmentClusters[0][0]
	w.traits[user] = `{}`
	for i, text := range []string{fmt.Sprintf(`in_cluster(%q)`, cluster), fmt.Sprintf(`in_segment(%q)`, segmentIDs[4])} {
		w.segment(w.acme, event.SegmentDefined{
			Segment: segmentIDs[4+i], Name: "S", Rule: event.Private([]byte(text)), Refers: [][]id.Segment{{}, {segmentIDs[4]}}[i], Layer: layer,
		})
	}
	w.segment(w.acme, event.SegmentReady{Revision: 1})
	run := func() {
		of := event.RunAttempt{Run: id.Next[id.Run](w.ids), Attempt: 1}
		w.record(w.acme, string(eventstore.AssignedStream(w.acme, of)), event.ClusteringAssigned{Run: of.Run, Layer: layer, Attempt: 1, Cluster: cluster, Users: []id.User{user}})
		w.record(w.acme, string(eventstore.RunsStream(w.acme, event.RunScope{Layer: layer})), event.ClusteringCompleted{Run: of.Run, Layer: layer, Attempt: 1})
	}
	wants := func(segments int) {
		t.Helper()
		w.catchUp(random)
		if got := w.stored(); len(got) != segments {
			t.Errorf("it is in %v", got)
		}
	}
	w.grant(w.acme, layer, user, true)
	run()
	wants(2)
	w.grant(w.acme, layer, user, false)
	wants(0)
	w.grant(w.acme, layer, user, true)
	wants(0)
	run()
	wants(2)
}
