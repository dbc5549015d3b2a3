package segments_test

import (
	"context"
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
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// segmentFixture is a client whose segments are applied while things happen, with slices
// in between, and can be asked by brute force.
type segmentFixture struct {
	*projectionstest.Fixture
	model   segments.Model
	other   *segments.Model // of another process, which now and then leads; nil: there is none
	applied eventstore.Position
	clock   time.Time
	traits  map[id.User]string
	names   map[id.User]string
	times   map[id.User][2]time.Time
}

func newSegmentFixture(t testing.TB) *segmentFixture {
	t.Helper()
	w := &segmentFixture{
		Fixture: projectionstest.New(t), clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		traits: map[id.User]string{}, names: map[id.User]string{}, times: map[id.User][2]time.Time{},
	}
	w.model = segments.New(w.Reader)
	w.EventLog.Now = func() time.Time { return w.clock }
	schema := projector.ID(w.model)
	if err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
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
		page := testkit.Must(w.EventLog.Store.ReadAll(w.Context(), w.applied, 1000))(w)
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
		rest = append(rest, testkit.Must(w.EventLog.Decode(r))(w))
	}
	for len(rest) > 0 {
		n := 1 + random.IntN(min(len(rest), 12))
		if w.other != nil && random.IntN(8) == 0 {
			w.model, *w.other = *w.other, w.model
		}
		if w.other != nil && random.IntN(8) == 0 { // a commit is lost
			tx := testkit.Must(w.Pool.Begin(w.Context()))(w)
			if err := errors.Join(projector.Apply(w.Context(), w.model, tx, w.EventLog, rest[:1+random.IntN(n)]), tx.Rollback(w.Context())); err != nil {
				w.Fatal(err)
			}
		}
		if err := pgx.BeginFunc(w.Context(), w.Pool, func(tx pgx.Tx) error {
			return projector.Apply(w.Context(), w.model, tx, w.EventLog, rest[:n])
		}); err != nil {
			w.Fatal(err)
		}
		w.applied, rest = rest[n-1].Position, rest[n:]
	}
}

// build has new rules judge everyone.
func (w *segmentFixture) build() {
	w.Helper()
	for more := true; more; {
		var err error
		if more, _, err = w.model.Build(w.Context(), w.Acme); err != nil {
			w.Fatal(err)
		}
	}
}

// rows are those of the tables in a schema that follow from the log alone.
func (w *segmentFixture) rows(tx interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, schema string,
) map[string][]string {
	w.Helper()
	work := w.model.Options().InProgress
	instead, completed := work.Columns, work.Completed
	found := map[string][]string{}
	for _, table := range []string{
		"segment_clients", "segments", "segment_versions", "segment_users", "segment_blocks", "segment_deltas", "segment_changes",
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
		found[table] = testkit.Must(pgx.CollectRows(testkit.Must(tx.Query(w.Context(), sql))(w), pgx.RowTo[string]))(w)
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
		page := testkit.Must(w.EventLog.Store.ReadAll(w.Context(), at, 1000))(w)
		if len(page) == 0 {
			return c
		}
		for _, r := range page {
			at = r.Position
			c.hear(w, testkit.Must(w.EventLog.Decode(r))(w))
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
				of.rule = testkit.Must(rule.Parse(of.text, rule.Users))(w)
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
	opened, _ := w.EventLog.Open(w.Context(), r, "rule") // of one that is retired below there is none
	c.newest[segment] = counting{text: string(opened), refers: refers, revision: int64(r.Revision), layer: layer}
	reached := map[id.Segment]bool{segment: true}
	for range projectionstest.SegmentIDs {
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
	for range projectionstest.SegmentIDs {
		for segment, of := range c.serving {
			for _, path := range of.rule.Paths() {
				of.blocked = of.blocked || c.sensitive[path] || of.layer != "" && !slices.Contains(c.layers[of.layer], path)
			}
			beside := strings.Contains(of.text, "traits)") // of size(traits) and "plan" in traits, which read no path of a layer
			of.blocked = of.blocked || of.layer != "" && (beside || c.layers[of.layer] == nil)
			of.blocked = of.blocked || c.sensitive["plan"] && strings.Contains(of.text, `"plan" in traits`)
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
	for user, document := range w.traits {
		facts := rule.Facts{
			ExternalID: w.names[user], CreatedAt: w.times[user][0], UpdatedAt: w.times[user][1], Client: string(w.Acme), ID: string(user), Now: now,
			Granted: func(layer string) bool { return c.granted[user][id.ConsentLayer(layer)] },
			Acts:    func(what string) []time.Time { return c.acts[user][what] },
		}
		facts.Traits = testkit.Must(traits.All([]byte(document)))(w)
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
	for _, s := range testkit.Must(w.model.List(w.Context(), w.Acme, true, readmodel.Page{Limit: 100}))(w) {
		if !s.Ready {
			continue
		}
		page := readmodel.Page{Limit: 7}
		for {
			members, _, err := w.model.Members(w.Context(), w.Acme, true, s.ID, page)
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
	for user, segments := range testkit.Must(w.model.Of(w.Context(), w.Acme, true, users))(w) {
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
	w.model, w.other = w.model.Often(), new(segments.New(w.Reader).Often())
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
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	const steps = 400
	compared, deltas, reached := 0, 0, 0 // members, and those found by way of changes; rows that were yet to come into blocks; by audiences
	for n := range steps {
		w.clock = w.clock.Add(time.Duration(random.IntN(90)) * time.Minute)
		if random.IntN(100) == 0 {
			w.clock = w.clock.AddDate(0, 0, 40)
		}
		switch choice := random.IntN(30); {
		case choice < 5 || len(w.traits) < 3:
			text := traits()
			name := fmt.Sprint("person ", n)
			user := w.Create(w.Acme, name, text)
			w.traits[user], w.names[user], w.times[user] = text, name, [2]time.Time{w.clock, w.clock}
		case choice < 7:
			user, text := pick(), traits()
			w.Change(w.Acme, user, text)
			w.traits[user], w.times[user] = text, [2]time.Time{w.times[user][0], w.clock}
		case choice < 8:
			user := pick()
			w.Erase(w.Acme, user)
			delete(w.traits, user)
			erased = append(erased, user)
		case choice < 20:
			projectionstest.ChangeKnown(w.Fixture, random, w.Acme, func() id.User {
				if len(erased) > 0 && random.IntN(10) == 0 { // it was on its way then
					return erased[random.IntN(len(erased))]
				}
				users := slices.Sorted(maps.Keys(w.traits))
				return users[random.IntN(min(len(users), 6))] // few, so that what is said of one meets
			})
		default:
			projectionstest.ChangeSegments(w.Fixture, random, w.Acme)
		}
		if random.IntN(3) == 0 {
			w.catchUp(random)
			if random.IntN(2) == 0 {
				if _, _, err := w.model.Build(t.Context(), w.Acme); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n%10 == 9 || n == steps-1 {
			w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), projectionstest.AllDue(w.clock))
			w.catchUp(random)
			want := w.brute(w.clock)
			if diff := cmp.Diff(want, w.stored()); diff != "" {
				t.Fatalf("step %d: by brute force (-) and by the model (+):\n%s", n, diff)
			}
			reached += w.standAs(rand.New(rand.NewPCG(1, uint64(n))), want)
			deltas += len(w.rows(w.Pool, projector.ID(w.model))["segment_deltas"])
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
	if compared == 0 || deltas == 0 || reached == 0 {
		t.Errorf("members %d, deltas %d, reached by audiences %d", compared, deltas, reached)
	}
	for _, table := range []string{"segment_blocks", "segment_deltas"} {
		var left int
		if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` t WHERE NOT EXISTS (SELECT FROM segment_versions v WHERE v.client = t.client AND v.number = t.version)`).Scan(&left); err != nil || left > 0 {
			t.Errorf("%s holds %d rows of versions that are no more, %v", table, left, err)
		}
	}
	tables := projectionstest.EmptyTables(t, w.Fixture, w.model)
	if err := projector.Apply(t.Context(), segments.Model{}.Often(), tables.TX, w.EventLog, w.History()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.rows(w.Pool, projector.ID(w.model)), w.rows(tables.TX, "trial")); diff != "" {
		t.Errorf("lived (-) and built anew (+):\n%s", diff)
	}
}

// standAs compares where users stand with the members of segments, and whom random
// audiences reach with whom they name one by one. It returns how many were reached.
func (w *segmentFixture) standAs(random *rand.Rand, members map[id.Segment][]id.User) (reached int) {
	w.Helper()
	c := w.told()
	known := func(segment id.Segment) bool { of, serves := c.serving[segment]; return serves && !of.blocked }
	in := func(user id.User) func(id.Segment) bool {
		return func(segment id.Segment) bool { return slices.Contains(members[segment], user) }
	}
	some := func() (named []id.Segment) {
		for _, segment := range projectionstest.SegmentIDs {
			if random.IntN(6) == 0 {
				named = append(named, segment)
			}
		}
		return named
	}
	for user := range w.traits {
		var at domain.Standing
		var err error
		if at.In, at.Out, at.Granted, err = w.model.Standing(w.Context(), w.Acme, true, user, projectionstest.SegmentIDs); err != nil {
			w.Fatal(err)
		}
		for range 20 {
			of := &event.SegmentAudience{AnyOf: some(), NoneOf: some(), Layer: []id.ConsentLayer{"", projectionstest.SegmentLayers[0], projectionstest.SegmentLayers[1]}[random.IntN(3)]}
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
		if got := testkit.Must(w.model.Among(w.Context(), w.Acme, segment, users))(w); !slices.Equal(got, members[segment]) {
			w.Fatalf("among all in %s are %v, not %v", segment, got, members[segment])
		}
	}
	if in, out, granted, err := w.model.Standing(w.Context(), w.Bolt, true, id.Next[id.User](w.IDs), projectionstest.SegmentIDs); err != nil || len(in)+len(out)+len(granted) > 0 {
		w.Errorf("somebody who is not there is in %v, out of %v, grants %v: %v", in, out, granted, err)
	}
	return reached
}

// follower keeps the members of a segment by reading them once, and following the
// changes.
type follower struct {
	members map[id.User]bool
	after   eventstore.Position
}

func (f *follower) follow(w *segmentFixture, segment id.Segment) []id.User {
	w.Helper()
	page := readmodel.Page{After: f.after, Limit: 200}
	found, _, _, err := w.model.Changes(w.Context(), w.Acme, true, segment, false, page)
	if f.members == nil || fault.Is(err, "cursor_expired") {
		f.members = map[id.User]bool{}
		members, at, err := w.model.Members(w.Context(), w.Acme, true, segment, readmodel.Page{Limit: 1000})
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
	user := w.Create(w.Acme, "ada", `{"n":30}`)
	segment := projectionstest.SegmentIDs[0]
	w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.Segment(w.Acme, event.SegmentChanged{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 40`)), Refers: []id.Segment{}})
	w.catchUp(random)
	w.build()
	for _, want := range []string{`traits.n > 20`, ""} {
		found := testkit.Must(w.model.OfUser(t.Context(), w.Acme, true, user))(t)
		got := ""
		if len(found) == 1 && len(found[0].Why) == 1 {
			got = found[0].Why[0].Text
		}
		if got != want || len(found) > 1 {
			t.Errorf("it is explained by %q, want %q: %+v", got, want, found)
		}
		w.Segment(w.Acme, event.SegmentReady{Revision: 2})
		w.catchUp(random)
	}
}

// While a new rule judges everyone, members, changes and sizes are those of the one before.
func TestMembersChangesAndSizesAreThoseOfTheRuleThatCounts(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	segment := projectionstest.SegmentIDs[0]
	w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.Segment(w.Acme, event.SegmentChanged{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.n < 40`)), Refers: []id.Segment{}})
	day, both := w.clock, w.Create(w.Acme, "both", `{"n":30}`)
	w.Create(w.Acme, "before", `{"n":50}`)
	w.clock = day.AddDate(0, 0, 1)
	w.Create(w.Acme, "none", `{}`) // the day before is over
	w.catchUp(random)
	w.build() // the next rule has judged everyone, and does not count yet
	found, _, place, err := w.model.Changes(t.Context(), w.Acme, true, segment, false, readmodel.Page{Limit: 10})
	if err != nil || len(found) != 2 || found[0].User != both || found[1].ExternalID != "before" {
		t.Errorf("the changes are %+v, %v", found, err)
	}
	next := w.Create(w.Acme, "next", `{"n":10}`)
	w.Change(w.Acme, both, `{"n":60}`) // leaves by the next rule alone
	w.catchUp(random)
	members, _, err := w.model.Members(t.Context(), w.Acme, true, segment, readmodel.Page{Limit: 10})
	if err != nil || len(members) != 2 || members[0].User != both || members[1].ExternalID != "before" {
		t.Errorf("the members are %+v, %v", members, err)
	}
	of := testkit.Must(w.model.Of(t.Context(), w.Acme, true, []id.User{both, next}))(t)
	ofUser := testkit.Must(w.model.OfUser(t.Context(), w.Acme, true, next))(t)
	if len(of) != 1 || !of[both][string(segment)] || len(ofUser) > 0 {
		t.Errorf("the users are in %v, and the one whom the next rule names in %+v", of, ofUser)
	}
	asked := []segments.ChangesAfter{{Client: w.Acme, Segment: segment, After: place}}
	if looked := testkit.Must(w.model.Changed(t.Context(), asked))(t); len(looked) != 1 || looked[0].Changed {
		t.Errorf("nothing has changed: %+v", looked)
	}
	if found, _, _, err = w.model.Changes(t.Context(), w.Acme, true, segment, false, readmodel.Page{After: place, Limit: 10}); err != nil || len(found) > 0 {
		t.Errorf("more changes are %+v, %v", found, err)
	}
	for _, size := range testkit.Must(w.model.Sizes(t.Context(), w.Acme, true, segment, day, w.clock))(t) {
		if size.Members != 2 {
			t.Errorf("it has %d members on %s", size.Members, size.Day)
		}
	}
}

// Traits tell times of nanoseconds, and the table has microseconds: nobody is due before anything can
// have changed, and so for ever.
func TestNobodyIsDueTooEarly(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	w.Create(w.Acme, "ada", `{"seen":"2026-03-01T11:00:00.0000005Z"}`)
	w.Segment(w.Acme, event.SegmentDefined{
		Segment: projectionstest.SegmentIDs[0], Name: "S", Rule: event.Private([]byte(`within(traits.seen, "1h")`)), Refers: []id.Segment{},
	})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	for _, members := range []int{1, 0} { // half a microsecond before it ends, and half a one after
		w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), projectionstest.AllDue(w.clock))
		w.catchUp(random)
		found := testkit.Must(w.model.List(t.Context(), w.Acme, true, readmodel.Page{Limit: 10}))(t)
		due := testkit.Must(w.model.Waiting(t.Context(), w.clock))(t)
		if len(found) != 1 || found[0].Members != members || len(due) > 0 {
			t.Errorf("at %s: %+v, not %d members, and due are %v", w.clock.Format(time.RFC3339Nano), found, members, due)
		}
		w.clock = w.clock.Add(time.Microsecond)
	}
}

// A new rule is built by itself, with those that it refers to, however many others there are.
func TestABuildParsesNoRuleThatItDoesNotJudgeBy(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	w.Create(w.Acme, "ada", `{"n":30}`)
	define := func(segment int, rule string, refers ...id.Segment) (made id.Event) {
		t.Helper()
		w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[segment], Name: "S", Rule: event.Private([]byte(rule)), Refers: append([]id.Segment{}, refers...)})
		for _, r := range testkit.Must(w.EventLog.Store.ReadAll(t.Context(), w.applied, 100))(t) {
			if r.Type == "segment.defined" {
				made = r.ID
			}
		}
		w.catchUp(random)
		return made
	}
	base, beside := define(0, `traits.n > 20`), define(1, `traits.n > 25`)
	w.Segment(w.Acme, event.SegmentReady{Revision: 1})
	upon := define(2, fmt.Sprintf(`in_segment(%q)`, projectionstest.SegmentIDs[0]), projectionstest.SegmentIDs[0])
	model := segments.New(w.Reader)
	for more := true; more; {
		var err error
		if more, _, err = model.Build(t.Context(), w.Acme); err != nil {
			t.Fatal(err)
		}
	}
	if !model.Parsed(base) || model.Parsed(beside) || !model.Parsed(upon) {
		t.Errorf("parsed: what it refers to %v, another %v, itself %v", model.Parsed(base), model.Parsed(beside), model.Parsed(upon))
	}
}

// However many users of a client are due, others that are due later are found, too, and no one that is not.
func TestAClientOfManyWhoAreDueHidesNoOther(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	w.Create(w.Acme, "ada", `{}`)
	w.catchUp(testkit.Random(t)) // which makes the tables
	due := w.clock.Add(-time.Hour)
	for _, of := range []struct {
		client id.Client
		users  int
		due    time.Time
	}{{"cli_a", 10_001, due.Add(-time.Hour)}, {"cli_b", 1, due}, {"cli_c", 1, w.clock.Add(time.Hour)}, {"cli_d", 2, due}} {
		if _, err := w.Pool.Exec(t.Context(), `
INSERT INTO `+projector.ID(w.model)+`.segment_users (client, id, number, created_at, updated_at, versions, due)
SELECT $1, n::text, n, $3, $3, '{}', $3 FROM generate_series(1, $2) n`, string(of.client), of.users, of.due); err != nil {
			t.Fatal(err)
		}
	}
	found := testkit.Must(w.model.Waiting(t.Context(), w.clock))(t)
	if slices.Sort(found); !slices.Equal(found, []id.Client{"cli_a", "cli_b", "cli_d"}) {
		t.Errorf("found %v", found)
	}
}

// One batch may hold that a user leaves a segment, and that it is erased: the segment counts it no longer.
func TestWhoLeavesAndIsErasedAtOnceIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	user := w.Create(w.Acme, "ada", `{"n":30}`)
	w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "S", Rule: event.Private([]byte(`traits.n > 20`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	w.catchUp(testkit.Random(t))
	counted := func(want int) {
		t.Helper()
		found := testkit.Must(w.model.List(t.Context(), w.Acme, true, readmodel.Page{Limit: 10}))(t)
		if len(found) != 1 || found[0].Members != want {
			t.Errorf("want %d members: %+v", want, found)
		}
	}
	counted(1)
	w.Change(w.Acme, user, `{"n":1}`)
	w.Erase(w.Acme, user)
	var batch []eventstore.Recorded
	for _, r := range testkit.Must(w.EventLog.Store.ReadAll(t.Context(), w.applied, 100))(t) {
		batch = append(batch, testkit.Must(w.EventLog.Decode(r))(t))
	}
	if err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		return projector.Apply(t.Context(), w.model, tx, w.EventLog, batch)
	}); err != nil {
		t.Fatal(err)
	}
	counted(0)
}

// While some events are judged, what those before them changed is written: that leaves the same rows as one
// event after the other, of those who are erased in between, too.
func TestWhatIsWrittenInPiecesIsAsIfItWereSingly(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	w.model = w.model.Often()
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	layer := projectionstest.SegmentLayers[0]
	for i, text := range []string{`traits.n > 20`, fmt.Sprintf(`granted(%q) && traits.n > 10`, layer), `interactions("click", "7d") >= 2`} {
		w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[i], Name: "S", Rule: event.Private([]byte(text)), Refers: []id.Segment{}})
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 2})
	var users []id.User
	for n := range 300 {
		traits := fmt.Sprintf(`{"n":%d}`, random.IntN(40))
		choice, at := random.IntN(8), 0
		if len(users) < 3 {
			choice = 0
		} else {
			at = random.IntN(3) // of few, so that what is said of one meets
		}
		switch choice {
		case 0:
			users = append(users, w.Create(w.Acme, fmt.Sprint("person ", n), traits))
		case 1, 2:
			w.Erase(w.Acme, users[at])
			users = slices.Delete(users, at, at+1)
		case 3:
			w.Change(w.Acme, users[at], traits)
		case 4, 5:
			w.Grant(w.Acme, layer, users[at], random.IntN(4) > 0)
		default:
			w.Interact(w.Acme, users[at], users[0], "click", 1)
		}
		w.catchUp(random)
	}
	tables := projectionstest.EmptyTables(t, w.Fixture, w.model)
	if err := projector.Apply(t.Context(), segments.Model{}.Often(), tables.TX, w.EventLog, w.History()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.rows(w.Pool, projector.ID(w.model)), w.rows(tables.TX, "trial")); diff != "" {
		t.Errorf("singly (-) and in pieces (+):\n%s", diff)
	}
}

// Who withdraws leaves the clusters of the layer, and comes back with the next run: so do the
// segments that ask for them, by way of others, too.
func TestWhoWithdrewIsInNoClusterUntilTheNextRun(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	user, layer, cluster := w.Create(w.Acme, "ada", `{}`), projectionstest.SegmentLayers[0], projectionstest.SegmentClusters[0][0]
	w.traits[user] = `{}`
	for i, text := range []string{fmt.Sprintf(`in_cluster(%q)`, cluster), fmt.Sprintf(`in_segment(%q)`, projectionstest.SegmentIDs[4])} {
		w.Segment(w.Acme, event.SegmentDefined{
			Segment: projectionstest.SegmentIDs[4+i], Name: "S", Rule: event.Private([]byte(text)), Refers: [][]id.Segment{{}, {projectionstest.SegmentIDs[4]}}[i], Layer: layer,
		})
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 1})
	run := func() {
		of := event.RunAttempt{Run: id.Next[id.Run](w.IDs), Attempt: 1}
		w.Record(w.Acme, string(eventstore.AssignedStream(w.Acme, of)), event.ClusteringAssigned{Run: of.Run, Layer: layer, Attempt: 1, Cluster: cluster, Users: []id.User{user}})
		w.Record(w.Acme, string(eventstore.RunsStream(w.Acme, event.RunScope{Layer: layer})), event.ClusteringCompleted{Run: of.Run, Layer: layer, Attempt: 1})
	}
	wants := func(segments int) {
		t.Helper()
		w.catchUp(random)
		if got := w.stored(); len(got) != segments {
			t.Errorf("it is in %v", got)
		}
	}
	w.Grant(w.Acme, layer, user, true)
	run()
	wants(2)
	w.Grant(w.Acme, layer, user, false)
	wants(0)
	w.Grant(w.Acme, layer, user, true)
	wants(0)
	run()
	wants(2)
	w.Grant(w.Acme, layer, user, false)
	w.Grant(w.Acme, layer, user, true)
	w.applyAtOnce()
	wants(0)
}

// applyAtOnce applies what the log has as one batch.
func (w *segmentFixture) applyAtOnce() {
	w.Helper()
	var batch []eventstore.Recorded
	for _, r := range testkit.Must(w.EventLog.Store.ReadAll(w.Context(), w.applied, 1000))(w) {
		batch = append(batch, testkit.Must(w.EventLog.Decode(r))(w))
	}
	if err := pgx.BeginFunc(w.Context(), w.Pool, func(tx pgx.Tx) error {
		return projector.Apply(w.Context(), w.model, tx, w.EventLog, batch)
	}); err != nil {
		w.Fatal(err)
	}
	w.applied = batch[len(batch)-1].Position
}

// one is a segment of a rule, the n-th, that counts at once, since it is the first.
func (w *segmentFixture) one(text string) id.Segment {
	w.Helper()
	segment := projectionstest.SegmentIDs[0]
	w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(text)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 0})
	return segment
}

// Its key is destroyed before the read model hears of that.
func TestASegmentThatIsRetiredIsNotShownWithoutItsRule(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	var made []id.Segment
	for n, segment := range projectionstest.SegmentIDs[:3] {
		w.Segment(w.Acme, event.SegmentDefined{Segment: segment, Name: "S", Rule: event.Private([]byte(`traits.a == 1`)), Refers: []id.Segment{}})
		w.Segment(w.Acme, event.SegmentReady{Revision: int64(2 * n)})
		made = append(made, segment)
	}
	user := w.Create(w.Acme, "ada", `{"a":1}`)
	w.applyAtOnce()
	if err := w.EventLog.Vault.Destroy(t.Context(), w.Acme, string(made[1])); err != nil {
		t.Fatal(err)
	}
	names := func(found []segments.Segment) (ids []id.Segment) {
		for _, s := range found {
			ids = append(ids, s.ID)
		}
		return ids
	}
	left := []id.Segment{made[0], made[2]}
	listed, err := w.model.List(t.Context(), w.Acme, true, readmodel.Page{Limit: 2}) // full, so that it has no end here
	if got := names(listed); err != nil || !slices.Equal(got, left) {
		t.Errorf("listed are %v, %v", got, err)
	}
	_, err = w.model.Get(t.Context(), w.Acme, true, made[1])
	projectionstest.WantFault(t, "segment_unknown", err)
	in, err := w.model.OfUser(t.Context(), w.Acme, true, user)
	if err != nil || len(in) != 2 || in[0].ID != left[0] || in[1].ID != left[1] {
		t.Errorf("the user is in %v, %v", in, err)
	}
	if all, err := w.model.ListAll(t.Context(), w.Acme, true, readmodel.Page{Limit: 5}); err != nil || len(all) != 3 || all[1].Rule != "" {
		t.Errorf("all are %v, %v", all, err)
	}
}

// Whose consent is recorded after its layer was retired, since it was on its way then, grants nothing.
func TestNobodyGrantsALayerThatWasRetired(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	layer := projectionstest.SegmentLayers[0]
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	segment := w.one(fmt.Sprintf(`granted(%q)`, layer))
	before, after := w.Create(w.Acme, "before", `{}`), w.Create(w.Acme, "after", `{}`)
	w.traits[before], w.traits[after] = `{}`, `{}`
	w.Grant(w.Acme, layer, before, true)
	w.applyAtOnce()
	if got := w.stored(); !slices.Equal(got[segment], []id.User{before}) {
		t.Errorf("before the layer is retired %v are in", got)
	}
	w.Layer(w.Acme, layer, event.ConsentLayerRetired{Layer: layer})
	w.applyAtOnce()
	w.Grant(w.Acme, layer, after, true)
	w.applyAtOnce()
	if got := w.stored(); len(got) > 0 {
		t.Errorf("then %v are in", got)
	}
}

// A rule that counts the traits, or asks for one by its name, is judged whichever of them changes.
func TestARuleOfAllTraitsIsJudgedWhicheverChanges(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`size(traits) == 2`, `"new" in traits`} {
		w := newSegmentFixture(t)
		segment := w.one(text)
		user := w.Create(w.Acme, "ada", `{"a":1}`)
		for _, change := range []struct {
			traits string
			in     []id.User
		}{{`{"a":1,"new":true}`, []id.User{user}}, {`{"a":1}`, nil}} {
			w.Change(w.Acme, user, change.traits)
			w.traits[user] = change.traits
			w.applyAtOnce()
			if got := w.stored()[segment]; !slices.Equal(got, change.in) {
				t.Errorf("%s of %s: %v are in", text, change.traits, got)
			}
		}
	}
}

// Of two processes one has a clock that is behind: what was seen last is what decides, not what is recorded last.
func TestWhatWasSeenLastCountsInWhateverOrderItIsRecorded(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	campaign := id.Next[id.Campaign](w.IDs)
	segment := w.one(fmt.Sprintf(`seen(%q, "1h")`, campaign))
	user := w.Create(w.Acme, "ada", `{}`)
	w.traits[user] = `{}`
	at := w.clock
	for i, ago := range []time.Duration{0, 40 * time.Second} {
		w.clock = at.Add(-ago)
		w.Record(w.Acme, fmt.Sprint("process ", i), event.CampaignEngagementRecorded{Campaign: campaign, User: user, Impression: id.Next[id.Impression](w.IDs), Kind: "impression"})
	}
	for _, of := range []struct {
		after time.Duration
		in    int
	}{{time.Hour - 20*time.Second, 1}, {time.Hour, 0}} {
		w.clock = at.Add(of.after)
		w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), projectionstest.AllDue(w.clock))
		w.applyAtOnce()
		if got := w.stored()[segment]; len(got) != of.in {
			t.Errorf("after %s %v are in", of.after, got)
		}
	}
}

// What counts was judged by what else counts. Where a segment refers to another one no more by its newest rule,
// the rule that still counts does: a new rule of the other one waits until the newest counts.
func TestANewRuleWaitsForWhoWasJudgedByTheOldOne(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	big, payers := projectionstest.SegmentIDs[0], projectionstest.SegmentIDs[1]
	user := w.Create(w.Acme, "ada", `{"seats":50,"paid":true}`)
	w.traits[user] = `{"seats":50,"paid":true}`
	change := func(segment id.Segment, text string, refers ...id.Segment) {
		w.Segment(w.Acme, event.SegmentChanged{Segment: segment, Name: "S", Rule: event.Private([]byte(text)), Refers: append([]id.Segment{}, refers...)})
	}
	refers := fmt.Sprintf(`in_segment(%q) && traits.paid`, big)
	w.Segment(w.Acme, event.SegmentDefined{Segment: big, Name: "Big", Rule: event.Private([]byte(`traits.seats > 10`)), Refers: []id.Segment{}})
	w.Segment(w.Acme, event.SegmentDefined{Segment: payers, Name: "Payers", Rule: event.Private([]byte(refers)), Refers: []id.Segment{big}})
	w.Segment(w.Acme, event.SegmentReady{Revision: 1})
	change(payers, `traits.paid`)       // 3
	change(big, `traits.seats > 100`)   // 4
	change(payers, `traits.seats > 20`) // 5: instead of 3
	w.Segment(w.Acme, event.SegmentReady{Revision: 4})
	w.catchUp(random)
	w.build()
	if diff := cmp.Diff(w.brute(w.clock), w.stored()); diff != "" || len(w.stored()) != 2 {
		t.Errorf("the rules of before count (-), and these are in (+):\n%s", diff)
	}
	w.Segment(w.Acme, event.SegmentReady{Revision: 5})
	w.catchUp(random)
	if diff := cmp.Diff(map[id.Segment][]id.User{payers: {user}}, w.stored()); diff != "" {
		t.Errorf("both new rules count (-), and these are in (+):\n%s", diff)
	}
}

// A new rule changes nothing of when those of before are due.
func TestWhoIsDueStaysSoWhileANewRuleJudges(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	segment := w.one(`within(traits.seen, "1h")`)
	w.Create(w.Acme, "ada", `{"seen":"2026-03-01T11:30:00Z"}`)
	w.applyAtOnce()
	w.Segment(w.Acme, event.SegmentDefined{
		Segment: projectionstest.SegmentIDs[1], Name: "T", Rule: event.Private([]byte(`within(traits.seen, "5h")`)), Refers: []id.Segment{},
	})
	w.applyAtOnce()
	w.build()
	w.clock = w.clock.Add(time.Hour)
	w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), projectionstest.AllDue(w.clock))
	w.applyAtOnce()
	if members, _, err := w.model.Members(t.Context(), w.Acme, true, segment, readmodel.Page{Limit: 10}); err != nil || len(members) > 0 {
		t.Errorf("after an hour %+v are in: %v", members, err)
	}
}

// Who leaves and comes back before changes are folded is where it was, and counts once.
func TestWhoComesBackBeforeChangesAreFoldedCountsOnce(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	w.model = w.model.Often()
	segment := w.one(`traits.on`)
	var users []id.User
	for n := range 20 {
		user := w.Create(w.Acme, fmt.Sprint(n), `{"on":true}`)
		w.traits[user], users = `{"on":true}`, append(users, user)
	}
	w.applyAtOnce()
	for n := range 60 {
		user := users[n/2%len(users)]
		w.traits[user] = fmt.Sprintf(`{"on":%t}`, n%2 == 1)
		w.Change(w.Acme, user, w.traits[user])
		if n%5 == 4 {
			w.applyAtOnce()
			if got := len(w.stored()[segment]); got != 20-(n+1)%2 {
				t.Errorf("%d of 20 are in", got)
			}
		}
	}
}
