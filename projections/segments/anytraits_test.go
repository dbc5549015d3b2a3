package segments_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/segments"
	"kindred/testkit"
)

// partsOfAnyTraits are parts of rules about anyTraits.
func partsOfAnyTraits(n int) []string {
	parts := []string{
		`traits.n > 20`, `traits.n == "text"`, `traits.n != 7`, `traits.n in [1, "text", true]`, `"x" in traits.l`, `!("x" in traits.l)`, `traits.l.exists(p, p.a > 1)`, `traits.l.all(p, has(p.a))`,
		`size(traits.l) > 1`, `has(traits.o.b)`, `!has(traits.o.b)`, `traits.o.b == traits.n`, `traits["a.b"] == 1`, `traits["é"] == "ß"`, `traits["\u00e9"] != "x"`, `has(traits["q\"q"])`,
		`traits.n < "zzz"`, `traits.plan`, `!traits.plan`, `"b" in traits.o`, `traits.n / 2 > 5 || traits.plan == "a"`, `(traits.plan ? traits.n : 3) > 2`, `traits.l[0] == 1`, `size(traits) > 5`, `!("plan" in traits)`,
		`within(traits.seen, "2d")`, `!within(traits.seen, "3d")`, `older(traits.seen, "36h")`, `traits.seen < timestamp("2026-03-20T00:00:00Z")`,
		`traits.seen >= "2026-03"`, `within(traits.o.b, "1d")`, `traits.l.exists(p, within(p, "2d"))`, `(within(traits.seen, "1d") ? traits.n > 3 : older(traits.seen, "4d"))`,
	}
	if n < 4 {
		parts = append(parts, `traits.seen > user.created_at`, `within(user.created_at, "3d")`, `older(user.updated_at, "30h")`, `within(user.updated_at, "12h") == traits.plan`, `user.external_id == "person 3"`, `interactions("click", "1d") == 1`)
	}
	return parts
}

// anyTraits are traits of any kind, of which types change from one time to the next.
func anyTraits(random *rand.Rand, clock time.Time) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	seen := func() string {
		at := clock.Add(time.Duration(random.IntN(240)-200) * time.Hour / 2)
		return pick(at.Format(`"2006-01-02"`), at.Format(`"2006-01-02T15:04:05Z"`), at.In(time.FixedZone("", 5*3600+1800)).Format(`"2006-01-02T15:04:05.999999999Z07:00"`), at.Format(`"2006-01-02t15:04:05.123456789z"`), `"soon"`, `"9999-12-31"`, `"0000-01-01"`, `20260301`)
	}
	n := func() string {
		return pick("1", "7", "7.0", "0.7e1", "-0", "1e400", "1e-400", "21", "99999999999999999999", `"text"`, `"t\u0065xt"`, `""`, "null", "true", "[7]", fmt.Sprint(random.IntN(60)))
	}
	var members []string
	kinds := map[string]func() string{
		`"n"`: n, `"seen"`: seen, `"plan"`: func() string { return pick("true", "false", `"a"`, "null", "1") },
		`"l"`: func() string {
			return pick(`[]`, `["x","x"]`, `[null,1]`, `[1,{"a":2}]`, `[{"a":null},{"a":2}]`, `[[["x"]]]`, `"x"`, `{"x":1}`, `[`+seen()+`]`, `[1]`)
		},
		`"o"`: func() string {
			return pick(`{}`, `{"b":null}`, `{"b":`+n()+`}`, `{"b":`+seen()+`,"c":{}}`, `"b"`, `["b"]`)
		},
		`"a.b"`: n, `"\u00e9"`: func() string { return pick(`"ß"`, `"x"`, `"ẞ"`) }, `"q\"q"`: n, `"a"`: func() string { return pick(`{"b":1}`, "1") },
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if random.IntN(3) > 0 {
			members = append(members, name+pick(":", " : ")+kinds[name]())
		}
	}
	random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, pick(",", ", \n")) + "}"
}

// Whatever is in the traits, and however a user's change from one time to the next: the members are those whom the
// rules name, also where clocks of several processes differ, and time comes to a part of those who are due.
func TestMembersAreThoseWhomTheRulesNameWhateverTheTraits(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := newSegmentFixture(t)
	w.model, w.other = w.model.Often(), new(segments.New(w.Reader).Often())
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	latest := w.clock
	now := func() time.Time { return latest.Add(-time.Duration(random.IntN(3)) * time.Second) } // of another process
	pick := func() id.User {
		users := slices.Sorted(maps.Keys(w.traits))
		return users[random.IntN(min(len(users), 12))]
	}
	followers := map[id.Segment]*follower{}
	compared, asked := 0, 0
	const steps = 300
	for n := range steps {
		latest = latest.Add(time.Duration(random.IntN(40)) * time.Minute)
		w.clock = now()
		switch choice := random.IntN(30); {
		case choice < 4 || len(w.traits) < 3:
			text, name := anyTraits(random, w.clock), fmt.Sprint("person ", n)
			user := w.Create(w.Acme, name, text)
			w.traits[user], w.names[user], w.times[user] = text, name, [2]time.Time{w.clock, w.clock}
		case choice < 14:
			user, text := pick(), anyTraits(random, w.clock)
			if random.IntN(5) == 0 {
				text = w.traits[user]
			}
			w.Change(w.Acme, user, text)
			w.traits[user], w.times[user] = text, [2]time.Time{w.times[user][0], w.clock}
		case choice < 15:
			user := pick()
			w.Erase(w.Acme, user)
			delete(w.traits, user)
		case choice < 16:
			w.Create(w.Bolt, fmt.Sprint("bolt ", n), anyTraits(random, w.clock))
		case choice < 20:
			projectionstest.ChangeKnown(w.Fixture, random, w.Acme, pick)
		case choice < 22:
			w.catchUp(random)
			var due []time.Time
			var numbers []int64
			rows := testkit.Must(w.Pool.Query(t.Context(), `SELECT due, number FROM `+projector.ID(w.model)+`.segment_users WHERE client = $1 AND due <= $2`, string(w.Acme), latest))(t)
			for rows.Next() {
				var at time.Time
				var number int64
				if err := rows.Scan(&at, &number); err != nil {
					t.Fatal(err)
				}
				due, numbers = append(due, at), append(numbers, number)
			}
			if len(due) > 0 {
				i := random.IntN(len(due))
				w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), event.SegmentsTimePassed{AsOf: latest, Due: due[i], Number: numbers[i]})
			}
		default:
			projectionstest.ChangeSegmentsBy(w.Fixture, random, w.Acme, partsOfAnyTraits)
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
			w.clock = latest
			w.Record(w.Acme, string(eventstore.SegmentTimeStream(w.Acme)), projectionstest.AllDue(w.clock))
			w.catchUp(random)
			want := w.brute(w.clock)
			if diff := cmp.Diff(want, w.stored()); diff != "" {
				t.Fatalf("step %d: by brute force (-) and by the model (+):\n%s", n, diff)
			}
			asked += w.askedOtherwise(want)
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
	if compared == 0 || asked == 0 {
		t.Error("there were no members")
	}
	tables := projectionstest.EmptyTables(t, w.Fixture, w.model)
	if err := projector.Apply(t.Context(), segments.Model{}.Often(), tables.TX, w.EventLog, w.History()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.rows(w.Pool, projector.ID(w.model)), w.rows(tables.TX, "trial")); diff != "" {
		t.Errorf("lived (-) and built anew (+):\n%s", diff)
	}
}

// askedOtherwise asks for the members of segments by a filter, by a preview and user by user. It returns how many
// were asked for.
func (w *segmentFixture) askedOtherwise(want map[id.Segment][]id.User) (named int) {
	w.Helper()
	c, users := w.told(), slices.Sorted(maps.Keys(w.traits))
	whys := map[id.Segment]map[id.User][]rule.Comparison{}
	for _, user := range users {
		for _, s := range testkit.Must(w.model.OfUser(w.Context(), w.Acme, true, user))(w) {
			at(whys, s.ID)[user] = s.Why
		}
	}
	for segment, of := range c.serving {
		for _, user := range users {
			in := slices.Contains(want[segment], user)
			one := testkit.Must(w.model.MemberOf(w.Context(), w.Acme, true, user, segment))(w)
			if granted := of.layer == "" || c.granted[user][of.layer]; one.Member != in || (len(one.Why) > 0) != (granted && !of.blocked) {
				w.Errorf("%s is in %s: %v, by brute force %v, and told is %v", user, segment, one.Member, in, one.Why)
			}
			if len(one.Why) == 1 && one.Why[0].Text == of.text && (one.Why[0].Truth == rule.True) != in {
				w.Errorf("%s is in %s: %v, since %+v", user, segment, in, one.Why)
			}
			if why, is := whys[segment][user]; is != in || is && !cmp.Equal(why, one.Why) {
				w.Errorf("%s is in %s: %v, %v; told alone: %v", user, segment, is, why, one.Why)
			}
		}
		if of.blocked {
			continue
		}
		filter := &rule.Filter{Rule: of.rule, Layer: string(of.layer), Now: w.clock}
		found := testkit.Must(w.model.NamedAlone(w.Context(), w.Acme, true, filter, users))(w)
		preview := testkit.Must(w.model.Preview(w.Context(), w.Acme, true, of.rule, event.Within{Layer: of.layer}, traits.Schema{}, w.clock))(w)
		if preview.Named != len(want[segment]) || preview.Members != preview.Named || preview.Users != len(users) {
			w.Errorf("a preview of %s names %d of %d, by brute force %d", of.text, preview.Named, preview.Users, len(want[segment]))
		}
		for _, user := range users {
			in := slices.Contains(want[segment], user)
			if named++; found[user] && (of.layer == "" || c.granted[user][of.layer]) != in {
				w.Errorf("a filter %s names %s: %v", of.text, user, found[user])
			}
		}
	}
	return named
}
