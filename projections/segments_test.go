package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	for range 5 {
		ids = append(ids, id.Next[id.Segment](source))
	}
	return ids
}()

func (w *fixture) segment(client id.Client, e event.Event) {
	w.Helper()
	w.record(client, string(eventstore.SegmentsStream(client)), e)
}

// randomRule is one that may name segments before the n-th.
func randomRule(random *rand.Rand, n int) (text string, refers []id.Segment) {
	parts := []string{
		`traits.n > 20`, `traits.n < 60`, `traits.plan == "a"`, `has(traits.plan)`, `within(traits.seen, "2d")`, `older(traits.seen, "1d")`,
		`!within(traits.seen, "3d")`, `bucket("x", 3) == 1`, `user.external_id.startsWith("person 1")`, `within(user.updated_at, "1d")`,
	}
	for _, before := range segmentIDs[:n] {
		parts = append(parts, fmt.Sprintf(`in_segment(%q)`, before), fmt.Sprintf(`!in_segment(%q)`, before))
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
	case choice < 5:
		if events, _ = there.Retire(segment); events != nil {
			defer w.forget(client, id.User(segment))
		}
	case !used[segment]: // an id is never used again
		events, _ = there.Define(event.SegmentDefined{Segment: segment, Name: text, Rule: event.Private([]byte(text)), Refers: refers})
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

// segmentFixture is a client whose segments are applied while things happen, with slices
// in between, and can be asked by brute force.
type segmentFixture struct {
	*fixture
	model   projections.Segments
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
	passed, completed := w.model.InProgress()
	found := map[string][]string{}
	for _, table := range []string{"segment_clients", "segments", "segment_versions", "segment_users", "segment_blocks", "segment_changes", "segment_sizes"} {
		sql := `SELECT (to_jsonb(t) - $1::text[])::text FROM ` + schema + `.` + table + ` t`
		if completed[table] != "" {
			sql += ` WHERE ` + completed[table]
		}
		var columns []string
		for _, p := range passed {
			if column, ok := strings.CutPrefix(p, table+"."); ok {
				columns = append(columns, column)
			}
		}
		if columns == nil {
			columns = []string{}
		}
		found[table] = must[[]string](w)(pgx.CollectRows(must[pgx.Rows](w)(tx.Query(w.Context(), sql+` ORDER BY 1`, columns)), pgx.RowTo[string]))
	}
	return found
}

// brute judges everyone by the rules that count, as of a moment.
func (w *segmentFixture) brute(now time.Time) map[id.Segment][]id.User {
	w.Helper()
	type counting struct {
		text     string
		refers   []id.Segment
		revision int64
	}
	newest, serving, plain := map[id.Segment]counting{}, map[id.Segment]*rule.Rule{}, map[int64]string{}
	// Which rules count: those of the last event of which its revision was said to be ready.
	pending := map[id.Segment]int64{}
	for _, r := range must[[]eventstore.Recorded](w)(loaded(w.fixture, eventstore.SegmentsStream(w.acme))) {
		carries := func(segment id.Segment, refers []id.Segment) {
			opened, err := w.log.Open(w.Context(), r, "rule")
			if err == nil {
				plain[int64(r.Revision)] = string(opened)
			}
			newest[segment] = counting{string(opened), refers, int64(r.Revision)}
			reached := map[id.Segment]bool{segment: true}
			for range segmentIDs {
				for other, c := range newest {
					if slices.ContainsFunc(c.refers, func(one id.Segment) bool { return reached[one] }) {
						reached[other] = true
					}
				}
			}
			for other := range reached {
				if before, is := pending[other]; is { // what was to count together still does
					for with, revision := range pending {
						if revision == before {
							pending[with] = int64(r.Revision)
						}
					}
				}
				pending[other] = int64(r.Revision)
			}
		}
		switch e := r.Event.(type) {
		case event.SegmentDefined:
			carries(e.Segment, e.Refers)
		case event.SegmentChanged:
			if e.Rule != nil {
				carries(e.Segment, e.Refers)
			}
		case event.SegmentRetired:
			delete(newest, e.Segment)
			delete(serving, e.Segment)
			delete(pending, e.Segment)
		case event.SegmentReady:
			for segment, revision := range pending {
				if revision <= e.Revision && newest[segment].text != "" { // else the rule's key is gone, as the segment is retired below
					serving[segment] = must[*rule.Rule](w)(rule.Parse(newest[segment].text, rule.Users))
					delete(pending, segment)
				}
			}
		}
	}
	found := map[id.Segment][]id.User{}
	for user, traits := range w.traits {
		facts := &rule.Facts{
			ExternalID: w.names[user], CreatedAt: w.times[user][0], UpdatedAt: w.times[user][1], Client: string(w.acme), ID: string(user), Now: now,
		}
		if err := json.Unmarshal([]byte(traits), &facts.Traits); err != nil {
			w.Fatal(err)
		}
		facts.InSegment = func(segment string) bool {
			r := serving[id.Segment(segment)]
			return r != nil && r.Judge(facts) == rule.True
		}
		for segment, r := range serving {
			if r.Judge(facts) == rule.True {
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
	followers := map[id.Segment]*follower{}
	const steps = 200
	compared := 0 // members, and those found by way of changes
	for n := range steps {
		w.clock = w.clock.Add(time.Duration(random.IntN(90)) * time.Minute)
		switch choice := random.IntN(12); {
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
		if n%20 == 19 || n == steps-1 {
			w.record(w.acme, string(eventstore.SegmentTimeStream(w.acme)), event.SegmentsTimePassed{AsOf: w.clock})
			w.catchUp(random)
			want := w.brute(w.clock)
			if diff := cmp.Diff(want, w.stored()); diff != "" {
				t.Fatalf("step %d: by brute force (-) and by the model (+):\n%s", n, diff)
			}
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

// follower keeps the members of a segment by reading them once, and following the
// changes.
type follower struct {
	members map[id.User]bool
	after   eventstore.Position
}

func (f *follower) follow(w *segmentFixture, segment id.Segment) []id.User {
	w.Helper()
	page := projections.Page{After: f.after, Limit: 200}
	found, _, err := w.model.Changes(w.Context(), w.acme, true, segment, page)
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
