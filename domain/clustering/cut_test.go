package clustering

import (
	"context"
	"math"
	"slices"
	"testing"

	"kindred/domain/traits"
	"kindred/testkit"
)

// older is a run of shoppers, with what it is compared by.
type older struct {
	users  []traits.Flat
	schema traits.Schema
	run    Result
	Surveyed
}

func divided(t *testing.T, users []traits.Flat, schema traits.Schema, k int) Result {
	t.Helper()
	e := schema.Encoder(asOf)
	points := Points{Dims: len(e.Dimensions())}
	for _, u := range users {
		points.Data = e.Append(points.Data, u)
	}
	return testkit.Must(Fit(context.Background(), points, Options{K: k, Seed: 1}))(t)
}

func olderRun(t *testing.T) older {
	t.Helper()
	o := older{users: shoppers(t, 800, draws(4))}
	o.schema = traits.Infer(named(o.users), nil)
	o.run = divided(t, o.users, o.schema, 2)
	o.Surveyed = mustSurvey(t, Question{Schema: o.schema, AsOf: asOf, Result: o.run}, o.users)
	return o
}

// against compares a later division with the older one; then are the places of users
// among the older ones, -1 of newcomers.
func (o older) against(t *testing.T, users []traits.Flat, then []int, now Result) (all []Drift, cuts []Cut) {
	t.Helper()
	d := Division{Encoder: o.schema.Encoder(asOf), Centroids: o.run.Centroids}
	overlap, known := NewOverlap(o.run.K, now.K), NewOverlap(o.run.K, now.K)
	for i, place := range then {
		was := uint16(Nobody)
		if place >= 0 {
			was = o.run.Assignments[place]
		}
		d.Then = append(d.Then, was)
		by := int(was)
		if was == Nobody {
			by = d.Divide(users[i])
		} else {
			known[by][now.Assignments[i]]++
		}
		overlap[by][now.Assignments[i]]++
	}
	q := Question{
		Schema: o.schema, AsOf: asOf, Result: now, Against: make([][]Profile, now.K),
		Divisions: []Division{d}, Earlier: make([][]Earlier, now.K),
	}
	keeps := overlap.Succession().Keeps
	for j, i := range keeps {
		if i >= 0 {
			q.Against[j], q.Earlier[j] = []Profile{o.Profiles[i]}, []Earlier{{Cluster: i}}
		}
	}
	s := mustSurvey(t, q, users)
	for j, i := range keeps {
		if i >= 0 {
			all = append(all, CompareCut(o.Profiles[i], s.Against[j][0], known.Members(i, j), s.Cuts[j][0], Previous))
			cuts = append(cuts, s.Cuts[j][0])
		}
	}
	return all, cuts
}

func inOrder(n int) (of []int) {
	for i := range n {
		of = append(of, i)
	}
	return of
}

func TestAnotherCutOfTheSamePeopleIsNoDrift(t *testing.T) {
	o := olderRun(t)
	drifts, cuts := o.against(t, o.users, inOrder(800), divided(t, o.users, o.schema, 5))
	recut := false
	for i, d := range drifts {
		if !d.Judged || len(d.Causes) > 0 || cuts[i].Left+cuts[i].Came+cuts[i].New > 0 {
			t.Errorf("%+v of %+v", d.Causes, cuts[i].Turnover)
		}
		recut = recut || cuts[i].Recut() < 0.7
	}
	if len(drifts) == 0 || !recut {
		t.Errorf("%d clusters are kept, and none is cut otherwise", len(drifts))
	}
}

// aged are users who are older by so many years.
func aged(t *testing.T, users []traits.Flat, by float64) []traits.Flat {
	t.Helper()
	users = slices.Clone(users)
	for i, u := range users {
		users[i].Values = slices.Clone(u.Values)
		at := slices.IndexFunc(u.Values, func(v traits.Value) bool { return v.Path == "age" })
		users[i].Values[at].Number += by
	}
	return users
}

func TestWhoChangedIsToldApartFromWhoCame(t *testing.T) {
	o := olderRun(t)
	// The same people are two years younger: half a standard deviation.
	younger := aged(t, o.users, -2)
	drifts, cuts := o.against(t, younger, inOrder(800), divided(t, younger, o.schema, 2))
	for i, d := range drifts {
		if len(d.Causes) != 1 || d.Causes[0].Trait != "age" || d.Causes[0].Origin != PeopleChanged || math.Abs(d.Causes[0].Effect+0.5) > 0.15 || cuts[i].New > 0 {
			t.Errorf("%+v of %+v", d.Causes, cuts[i].Turnover)
		}
	}
	// As many newcomers are older, by one.
	users := slices.Concat(o.users, aged(t, shoppers(t, 800, draws(5)), 4))
	then := inOrder(1600)
	for i := 800; i < 1600; i++ {
		then[i] = -1
	}
	drifts, cuts = o.against(t, users, then, divided(t, users, o.schema, 2))
	for i, d := range drifts {
		if len(d.Causes) != 1 || d.Causes[0].Trait != "age" || d.Causes[0].Origin != OthersCame || d.Causes[0].Effect < 0.3 ||
			cuts[i].New != 400 || cuts[i].Stayed != 400 {
			t.Errorf("%+v of %+v", d.Causes, cuts[i].Turnover)
		}
	}
	// All are others, but of the same kinds: nothing has drifted, and both are found again.
	others := shoppers(t, 800, draws(6))
	for i := range then {
		then[i] = -1
	}
	drifts, _ = o.against(t, others, then[:800], divided(t, others, o.schema, 2))
	if len(drifts) != 2 || len(drifts[0].Causes)+len(drifts[1].Causes) > 0 {
		t.Errorf("%+v", drifts)
	}
}

// Of those who all move by .3 standard deviations, three in ten are replaced by such who have, too. Who stayed may be too few for
// what they show to be beyond chance: they have changed all the same.
func TestWhoStayedAndMovedHasChangedBesideNewcomers(t *testing.T) {
	o := olderRun(t)
	told := 0
	for seed := range uint64(15) {
		random := draws(1000 + seed)
		users, newcomers, then := aged(t, o.users, 1.2), aged(t, shoppers(t, 800, draws(100+seed)), 1.2), inOrder(800)
		for i := range users {
			if random.Float64() < 0.3 {
				users[i], then[i] = newcomers[i], -1
			}
		}
		drifts, cuts := o.against(t, users, then, divided(t, users, o.schema, 2))
		for i, d := range drifts {
			for _, c := range d.Causes {
				if told++; c.Trait != "age" || c.Origin != PeopleChanged {
					t.Errorf("seed %d: %+v of %+v", seed, c, cuts[i].Turnover)
				}
			}
		}
	}
	if told < 15 {
		t.Errorf("only %d are told", told)
	}
}

// Of a cluster that was cut otherwise, too, only what its people have changed by is told.
func TestWhatAnotherCutAddsIsNotTold(t *testing.T) {
	of := func(users, total int, counts ...int) Profile {
		return Profile{Users: users, Total: total, Traits: []TraitProfile{
			{Path: "plan", Type: traits.TypeCategory, Levels: []string{"a", "b"}, Counts: append(counts, 0), Users: users},
		}}
	}
	older := of(400, 2000, 200, 200)
	changed := of(400, 2000, 290, 110) // 225 of them are as they would be in
	cut := Cut{Known: true, Under: changed, Same: changed, Turnover: Turnover{Stayed: 225, Left: 175, Came: 175}}
	d := CompareCut(older, of(640, 2000, 600, 40), Members{Either: 900, Both: 140}, cut, Previous)
	if len(d.Causes) != 2 { // that it is larger is the cut's alone
		t.Fatalf("%+v", d.Causes)
	}
	plan, members := d.Causes[0], d.Causes[1]
	if plan.Trait != "plan" || plan.Origin != PeopleChanged || plan.Severity != Moderate || plan.Amount > 0.25 || plan.After != 0.725 {
		t.Errorf("%+v", plan)
	}
	if members.Kind != CauseMembers || math.Abs(members.Amount-350./575) > 1e-9 {
		t.Errorf("%+v", members)
	}
	// What both show is told as the lesser, whichever that is.
	d = CompareCut(older, changed, Members{Either: 575, Both: 225}, Cut{
		Known: true, Under: of(640, 2000, 600, 40), Same: of(400, 2000, 370, 30), Turnover: cut.Turnover,
	}, Previous)
	if len(d.Causes) != 2 || d.Causes[0].After != 0.725 {
		t.Errorf("%+v", d.Causes)
	}
}

// Where all are twice as many, half of whom are new, a cluster that is a larger share has it from those who came over.
func TestWhoMakesAClusterLargerIsTold(t *testing.T) {
	older := Profile{Users: 300, Total: 1000}
	for _, c := range []struct {
		Turnover
		total  int
		origin Origin
	}{
		{Turnover{Stayed: 300, Came: 200, New: 300}, 2000, PeopleChanged},
		{Turnover{Stayed: 300, New: 600}, 2000, OthersCame},
		{Turnover{Stayed: 290, Left: 10, Came: 20, New: 500}, 2000, OthersCame},
		{Turnover{Stayed: 300, Came: 90}, 1000, PeopleChanged},
		{Turnover{Stayed: 150}, 850, OthersCame}, // half of them are gone
	} {
		under := Profile{Users: c.Stayed + c.Came + c.New, Total: c.total}
		d := CompareCut(older, under, c.Members(), Cut{Known: true, Under: under, Same: Profile{Users: c.Stayed + c.Left}, Turnover: c.Turnover}, First)
		i := slices.IndexFunc(d.Causes, func(c Cause) bool { return c.Kind == CauseSize })
		if i < 0 || d.Causes[i].Origin != c.origin {
			t.Errorf("%+v: %+v", c, d.Causes)
		}
	}
}

// The people of one kind become so old that the old borders would put them elsewhere.
func TestACrowdThatPassesABorderIsDriftOfItsOwnClusterAlone(t *testing.T) {
	o := olderRun(t)
	users := slices.Clone(o.users)
	for i := 0; i < len(users); i += 2 {
		users[i] = aged(t, o.users[i:i+1], 100)[0]
	}
	now := divided(t, users, o.schema, 2)
	drifts, _ := o.against(t, users, inOrder(800), now)
	told := 0
	for _, d := range drifts {
		if len(d.Causes) > 0 {
			told++
			if len(d.Causes) != 1 || d.Causes[0].Trait != "age" || d.Causes[0].Origin != PeopleChanged || d.Causes[0].Effect < 2 {
				t.Errorf("%+v", d.Causes)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d of %d clusters have drifted", told, len(drifts))
	}
}

func TestALevelThatIsHeldByMoreIsNamed(t *testing.T) {
	before := TraitProfile{Path: "plan", Type: traits.TypeCategory, Levels: []string{"free", "pro"}, Counts: []int{300, 100, 0}, Users: 400}
	after := TraitProfile{Path: "plan", Type: traits.TypeCategory, Levels: []string{"free", "pro"}, Counts: []int{200, 180, 0}, Missing: 20, Users: 400}
	m, _ := before.move(after, 0.01, before.drift(after, 0.01).PSI)
	if m.Level != "free" || m.Effect >= 0 || m.Before != 0.75 || m.After != 0.5 {
		t.Errorf("%+v", m)
	}
	after = TraitProfile{Path: "plan", Type: traits.TypeCategory, Levels: []string{"free", "pro"}, Counts: []int{200, 67, 0}, Missing: 133, Users: 400}
	if m, _ = before.move(after, 0.01, before.drift(after, 0.01).PSI); m.Level != MissingLevel || m.Effect <= 0 {
		t.Errorf("%+v", m)
	}
}

// Who goes on saying a number may have others of them, though most of the change is that fewer say any.
func TestANumberThatIsMissingIsNamedWhereThatIsMostOfTheChange(t *testing.T) {
	of := func(missing int, counts ...int) TraitProfile {
		return TraitProfile{Path: "age", Type: traits.TypeNumber, Edges: []float64{20, 40, 60}, Counts: counts, Missing: missing, Users: sum(counts) + missing}
	}
	before := of(0, 100, 100, 100, 100)
	for _, c := range []struct {
		after TraitProfile
		level string
	}{
		{of(100, 110, 85, 60, 45), MissingLevel},
		{of(4, 160, 110, 80, 46), ""},
		{of(40, 240, 90, 20, 10), ""},
	} {
		if m, beyond := before.move(c.after, 0.01, before.drift(c.after, 0.01).PSI); m.Level != c.level || !beyond {
			t.Errorf("%+v: %+v, beyond chance %t", c.after, m, beyond)
		}
	}
}

func TestTheNormalQuantileIsThatOfTables(t *testing.T) {
	for p, want := range map[float64]float64{0.5: 0, 0.6: 0.2533471, 0.9: 1.2815516, 0.97: 1.8807936, 0.03: -1.8807936} {
		if got := normalQuantile(p); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v at %v, want %v", got, p, want)
		}
	}
}
