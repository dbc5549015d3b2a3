package clustering

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
	"kindred/testkit"
)

// source draws what a user says about one trait; a change of so many standard
// deviations may have come over it.
type source struct {
	of   traits.Type
	draw func(random *splitmix.Source, change float64) reading
}

func number(x float64) reading  { return reading{known: true, number: x} }
func level(name string) reading { return reading{known: true, levels: []string{name}} }

// eachLevel makes the readings of some levels once: drawing takes them ten million times.
func eachLevel(n int, name func(i int) string) []reading {
	all := make([]reading, n)
	for i := range all {
		all[i] = level(name(i))
	}
	return all
}

// flag holds with probability p, which a change moves by its own deviation.
func flag(random *splitmix.Source, p, change float64) bool {
	return random.Float64() < p+change*math.Sqrt(p*(1-p))
}

// sources are twenty traits of all kinds.
func sources() []source {
	normal := source{traits.TypeNumber, func(r *splitmix.Source, change float64) reading { return number(gauss(r) + change) }}
	long := source{traits.TypeNumber, func(r *splitmix.Source, change float64) reading { return number(math.Exp(gauss(r) + change)) }}
	gaps := source{traits.TypeNumber, func(r *splitmix.Source, change float64) reading {
		if r.Float64() < 0.2 {
			return reading{}
		}
		return number(gauss(r) + change)
	}}
	whole := source{traits.TypeNumber, func(r *splitmix.Source, change float64) reading { return number(math.Round(3 * (gauss(r) + change))) }}
	date := source{traits.TypeDate, func(r *splitmix.Source, change float64) reading { return number(365 * (gauss(r) + change)) }}
	bools := map[bool]reading{true: level("true"), false: level("false")}
	yes := source{traits.TypeBool, func(r *splitmix.Source, change float64) reading { return bools[flag(r, 0.5, change)] }}
	pro := level("pro")
	plans := eachLevel(9, func(i int) string {
		return []string{"free", "free", "free", "free", "basic", "basic", "basic", "team", "team"}[i]
	})
	plan := source{traits.TypeCategory, func(r *splitmix.Source, change float64) reading {
		if flag(r, 0.25, change) {
			return pro
		}
		return plans[r.IntN(9)]
	}}
	numbered := eachLevel(20, func(i int) string { return fmt.Sprintf("l%d", i) })
	many := source{traits.TypeCategory, func(r *splitmix.Source, _ float64) reading {
		return numbered[int(20*r.Float64()*r.Float64())]
	}}
	stepped := eachLevel(7, func(i int) string { return fmt.Sprint(i - 3) })
	steps := source{traits.TypeCategory, func(r *splitmix.Source, change float64) reading {
		return stepped[3+int(math.Round(min(max(1.2*(gauss(r)+change), -3), 3)))]
	}}
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
	}
	tags := source{traits.TypeSet, func(r *splitmix.Source, change float64) reading {
		held := reading{known: true}
		for i := range 12 {
			p := 0.05 + 0.04*float64(i)
			if i == 6 && flag(r, p, change) || i != 6 && r.Float64() < p {
				held.levels = append(held.levels, names[i])
			}
		}
		return held
	}}
	return []source{
		normal, long, whole, date, steps, yes, plan, tags, gaps, many,
		normal, normal, normal, normal, long, whole, steps, plan, tags, gaps,
	}
}

// draw makes the profiles of a cluster at two runs, the newer one in the
// older's frame, and changed so much in one of the traits.
func draw(of []source, n, m int, random *splitmix.Source, changed int, change float64) (older, newer Profile) {
	older, newer = Profile{Users: n, Total: 4 * n}, Profile{Users: m, Total: 4 * m}
	for i, s := range of {
		t := traits.Trait{Path: fmt.Sprintf("t%02d", i), Type: s.of}
		var numbers []float64
		held, missing := map[string]int{}, 0
		for range n {
			r := s.draw(random, 0)
			switch {
			case !r.known:
				missing++
			case numeric(s.of):
				numbers = append(numbers, r.number)
			}
			for _, l := range r.levels {
				held[l]++
			}
		}
		if numeric(s.of) {
			slices.Sort(numbers)
			older.Traits = append(older.Traits, binned(t, numbers, missing))
		} else {
			all := map[string]int{} // there are others in the run
			for level := range held {
				all[level] = leastHolders
			}
			older.Traits = append(older.Traits, levelled(t, held, all, n, missing))
		}
		p := older.Traits[i].empty()
		for range m {
			if i == changed {
				p.count(s.draw(random, change))
			} else {
				p.count(s.draw(random, 0))
			}
		}
		newer.Traits = append(newer.Traits, p)
	}
	return older, newer
}

var same90 = Members{Either: 100, Both: 90}

func TestFalseAlarmsOfDriftAreRare(t *testing.T) {
	random := draws(11)
	for _, c := range []struct{ n, m, times int }{
		{50, 50, 200}, {50, 500, 100}, {500, 50, 100}, {100, 100, 300}, {200, 200, 300}, {500, 500, 50}, {1000, 1000, 10}, {5000, 5000, 5},
	} {
		if share := alarmsOf(c.n, c.m, c.times, &random); share > 0.02 {
			t.Errorf("%d and %d users: false alarms in %.1f %% of %d comparisons", c.n, c.m, 100*share, c.times)
		}
	}
}

// BenchmarkFalseAlarms counts them in many comparisons of twenty traits.
func BenchmarkFalseAlarms(b *testing.B) {
	for _, c := range []struct{ n, m, times int }{
		{50, 50, 4000}, {50, 1000, 1000}, {1000, 50, 1000}, {100, 100, 4000}, {500, 500, 1000}, {5000, 5000, 100},
	} {
		b.Run(fmt.Sprintf("%d and %d users", c.n, c.m), func(b *testing.B) {
			share := 0.0
			for b.Loop() {
				random := draws(11)
				share = alarmsOf(c.n, c.m, c.times, &random)
			}
			b.ReportMetric(100*share, "%")
		})
	}
}

// alarmsOf is the share of comparisons in which a cluster that has not
// changed is said to have drifted.
func alarmsOf(n, m, times int, random *splitmix.Source) float64 {
	alarms := 0
	for range times {
		older, newer := draw(sources(), n, m, random, -1, 0)
		if len(Compare(older, newer, same90, Previous).Causes) > 0 {
			alarms++
		}
	}
	return float64(alarms) / float64(times)
}

func TestDriftIsSeen(t *testing.T) {
	of := sources()
	random := draws(12)
	for _, c := range []struct {
		n      int
		change float64
		least  float64
	}{
		{100, 1, 0.90}, {1000, 1, 0.90}, {500, 0.5, 0.80}, {2000, 0.5, 0.80}, {5000, 0.5, 0.80},
	} {
		times := max(3_000_000/c.n/c.n, 10)
		for i := range 9 { // the tenth never changes
			seen := 0
			for range times {
				older, newer := draw(of[i:i+1], c.n, c.n, &random, 0, c.change)
				// Nineteen quiet traits beside it, so that the limit is that of twenty.
				quiet := TraitProfile{Type: traits.TypeBool, Levels: []string{"true"}, Counts: []int{c.n, 0}, Users: c.n}
				for j := range 19 {
					quiet.Path = fmt.Sprintf("z%d", j)
					older.Traits, newer.Traits = append(older.Traits, quiet), append(newer.Traits, quiet)
				}
				if slices.ContainsFunc(Compare(older, newer, same90, Previous).Causes, func(c Cause) bool { return c.Trait == "t00" }) {
					seen++
				}
			}
			power := float64(seen) / float64(times)
			t.Logf("%d users, %.1f sd in a %s (%d): seen in %.0f %%", c.n, c.change, of[i].of, i, 100*power)
			if power < c.least {
				t.Errorf("%d users, %.1f sd in a %s (%d): seen in only %.0f %%", c.n, c.change, of[i].of, i, 100*power)
			}
		}
	}
}

func TestCausesOfDrift(t *testing.T) {
	yes := func(yes, no int) []TraitProfile {
		return []TraitProfile{{Path: "p", Type: traits.TypeBool, Levels: []string{"true"}, Counts: []int{yes, no}, Users: yes + no}}
	}
	older := Profile{Users: 400, Total: 2000, Traits: yes(200, 200), Centroid: []float32{0, 0}, Spread: 2}
	for name, c := range map[string]struct {
		newer   Profile
		members Members
		want    []Cause
		shift   float64
	}{
		"none":    {Profile{Users: 410, Total: 2000, Traits: yes(200, 210), Centroid: []float32{3, 4}, Spread: 2}, same90, []Cause{}, 2.5},
		"members": {Profile{Users: 400, Total: 2000, Traits: yes(200, 200)}, Members{Either: 100, Both: 55}, []Cause{{Kind: CauseMembers, Baseline: First, Amount: 0.45, Severity: Moderate}}, 0},
		"most members": {
			Profile{Users: 400, Total: 2000, Traits: yes(200, 200)},
			Members{Either: 100, Both: 40},
			[]Cause{{Kind: CauseMembers, Baseline: First, Amount: 0.6, Severity: Major}},
			0,
		},
		"too few in both": {Profile{Users: 400, Total: 2000, Traits: yes(200, 200)}, Members{Either: 49, Both: 1}, []Cause{}, 0},
		"size":            {Profile{Users: 600, Total: 2000, Traits: yes(300, 300)}, same90, []Cause{{Kind: CauseSize, Baseline: First, Amount: 0.5, Severity: Moderate}}, 0},
		"size of few":     {Profile{Users: 50, Total: 200, Traits: yes(25, 25)}, same90, []Cause{}, 0},
		"another schema":  {Profile{Schema: 2, Users: 400, Total: 2000, Centroid: []float32{3, 4}, Spread: 2}, same90, []Cause{}, 0},
		"other edges": {Profile{Users: 400, Total: 2000, Traits: []TraitProfile{
			{Path: "p", Type: traits.TypeBool, Levels: []string{"false"}, Counts: []int{400, 0}, Users: 400},
		}}, same90, []Cause{}, 0},
	} {
		got := Compare(older, c.newer, c.members, First)
		if diff := cmp.Diff(c.want, got.Causes, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); diff != "" || !got.Judged {
			t.Errorf("%s: %s", name, diff)
		}
		if math.Abs(got.Shift-c.shift) > 1e-9 {
			t.Errorf("%s: the centroid has shifted by %v", name, got.Shift)
		}
	}
	got := Compare(older, Profile{Users: 400, Total: 2000, Traits: yes(380, 20)}, same90, Previous)
	if len(got.Causes) != 1 || got.Causes[0].Trait != "p" || got.Severity() != Major || got.Causes[0].Amount != got.Traits[0].PSI {
		t.Errorf("%+v", got)
	}
	if few := Compare(Profile{Users: 49}, older, Members{Either: 100}, First); few.Judged || len(few.Causes) > 0 {
		t.Errorf("%+v", few)
	}
}

func TestACauseIsToldAgainWhenItHasGrown(t *testing.T) {
	cause := func(kind CauseKind, amount float64) Cause { return Cause{Kind: kind, Baseline: First, Amount: amount} }
	var told, fresh []Cause
	for i, step := range []struct{ now, fresh []Cause }{
		{[]Cause{cause(CauseSize, 0.4)}, []Cause{cause(CauseSize, 0.4)}},
		{[]Cause{cause(CauseSize, 0.45)}, nil},
		{[]Cause{cause(CauseSize, 0.49)}, nil},
		{[]Cause{cause(CauseSize, 0.51), cause(CauseMembers, 0.6)}, []Cause{cause(CauseMembers, 0.6), cause(CauseSize, 0.51)}},
		{nil, nil},
		{[]Cause{cause(CauseSize, 0.4)}, []Cause{cause(CauseSize, 0.4)}},
	} {
		fresh, told = Told(told, step.now, never)
		if diff := cmp.Diff(step.fresh, fresh); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

func never(Cause) bool { return false }

// What stays about its limit is told once: it stands until it has come back by a quarter.
func TestATraitAboutItsLimitIsToldOnce(t *testing.T) {
	of := func(path string, psi, effect float64) Drift {
		d := Drift{Judged: true, Traits: []TraitDrift{{Path: path, PSI: psi, Limit: 0.16, Move: Move{Effect: effect}, moved: math.Abs(effect) >= leastMove}}}
		for _, t := range d.Traits {
			if t.drifted() {
				d.Causes = append(d.Causes, Cause{Kind: CauseTrait, Baseline: First, Trait: path, Amount: psi})
			}
		}
		return d
	}
	var told, fresh []Cause
	for i, step := range []struct {
		drift Drift
		fresh int
	}{
		{of("login", 0.17, 0), 1},
		{of("login", 0.15, 0), 0},
		{of("login", 0.17, 0), 0},
		{of("login", 0.121, 0), 0},
		{of("login", 0.19, 0), 0},
		{of("login", 0.22, 0), 1}, // it has grown
		{of("login", 0.119, 0), 0},
		{of("login", 0.17, 0), 1},
		{of("login", 0.02, -0.2), 0},
		{of("login", 0.02, -0.26), 0},
		{of("login", 0.02, 0.18), 0},
		{of("login", 0.02, -0.26), 1},
		{of("another", 0.02, 0), 0},
		{of("login", 0.02, -0.26), 1}, // there was nothing to compare
	} {
		if fresh, told = Told(told, step.drift.Causes, step.drift.Near); len(fresh) != step.fresh {
			t.Errorf("step %d: %v is told", i, fresh)
		}
	}
}

// So are its members and its size.
func TestMembersAndSizeAboutTheirLimitsAreToldOnce(t *testing.T) {
	of := func(users, stayed int) Drift {
		return Compare(Profile{Users: 1000, Total: 4000}, Profile{Users: users, Total: 4000}, Members{Either: 1000, Both: stayed}, First)
	}
	var told, fresh []Cause
	for i, step := range []struct {
		drift Drift
		fresh []CauseKind
	}{
		{of(1260, 590), []CauseKind{CauseMembers, CauseSize}},
		{of(1240, 610), nil},
		{of(1260, 590), nil},
		{of(1200, 690), nil},
		{of(1260, 590), nil},
		{of(1180, 710), nil}, // they have come back
		{of(1260, 590), []CauseKind{CauseMembers, CauseSize}},
		{of(1330, 480), []CauseKind{CauseMembers, CauseSize}}, // they have grown
	} {
		var kinds []CauseKind
		fresh, told = Told(told, step.drift.Causes, step.drift.Near)
		for _, c := range fresh {
			kinds = append(kinds, c.Kind)
		}
		if diff := cmp.Diff(step.fresh, kinds); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

func TestEachChangeSinceThePreviousRunIsTold(t *testing.T) {
	leaving := []Cause{{Kind: CauseMembers, Baseline: Previous, Amount: 0.5}}
	var told, fresh []Cause
	for range 3 {
		fresh, told = Told(told, leaving, never)
		if diff := cmp.Diff(leaving, fresh); diff != "" || len(told) > 0 {
			t.Errorf("%v stand, and are told: %s", told, diff)
		}
	}
}

func TestManyCausesAreToldOnce(t *testing.T) {
	now := make([]Cause, MaxStanding+5)
	for i := range now {
		now[i] = Cause{Kind: CauseTrait, Baseline: First, Trait: fmt.Sprintf("t%02d", i), Amount: 1 + float64(i)/100}
	}
	fresh, told := Told(nil, now, never)
	if len(fresh) != len(now) || len(told) != MaxStanding {
		t.Fatalf("%d are told at first, %d of them kept", len(fresh), len(told))
	}
	members := Cause{Kind: CauseMembers, Baseline: First, Amount: 0.5}
	grown := Cause{Kind: CauseTrait, Baseline: First, Trait: "t00", Amount: 1.4}
	for i, step := range []struct{ now, fresh []Cause }{
		{now, nil},
		{now, nil},
		{append([]Cause{members}, now...), []Cause{members}},
		{append([]Cause{members, grown}, now[1:]...), []Cause{grown}},
		{append([]Cause{members, grown}, now[1:]...), nil},
		{now[:3], nil},
		{now, now[3:]},
	} {
		fresh, told = Told(told, step.now, never)
		slices.SortFunc(fresh, func(a, b Cause) int { return strings.Compare(a.Trait, b.Trait) })
		if diff := cmp.Diff(step.fresh, fresh); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
}

func TestProfilesSurviveJSON(t *testing.T) {
	random := draws(1)
	older, _ := draw(sources(), 300, 10, &random, -1, 0)
	older.Centroid, older.Spread = []float32{0.1, -2.5e-8}, 1.0/3
	raw := testkit.Must(json.Marshal(older))(t)
	var again Profile
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(older, again); diff != "" {
		t.Error(diff)
	}
	if len(raw) > 20*600 {
		t.Errorf("%d bytes for twenty traits", len(raw))
	}
}
