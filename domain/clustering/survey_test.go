package clustering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
	"kindred/testkit"
)

// shoppers are users of two kinds, the even ones and the odd ones.
func shoppers(t testing.TB, n int, random splitmix.Source) []traits.Flat {
	t.Helper()
	users := make([]traits.Flat, n)
	for i := range users {
		plan, age, joined, home := "free", 30+4*gauss(&random), 30, [2]float64{48.1, 11.6}
		tags := `["news"]`
		if i%2 == 1 {
			plan, age, joined, home, tags = "pro", 60+4*gauss(&random), 900, [2]float64{-33.9, 18.4}, `["news", "golf"]`
		}
		if random.IntN(10) == 0 {
			plan = "free"
		}
		joined += random.IntN(300)
		said := fmt.Sprintf(`{"plan": %q, "age": %.1f, "joined_at": %q, "home": {"lat": %v, "lon": %v}, "tags": %s, "active": %v, "secret": {"health": %d}}`,
			plan, age, asOf.Add(-time.Duration(joined)*24*time.Hour).Format(time.DateOnly), home[0], home[1], tags, random.IntN(2) == 0, i%2)
		var err error
		if users[i], err = traits.Flatten([]byte(said)); err != nil {
			t.Fatal(err)
		}
	}
	return users
}

func counted(users []traits.Flat) iter.Seq2[int, traits.Flat] { return slices.All(users) }

// halves is the result that puts the odd users into cluster 1.
func halves(n int) Result {
	r := Result{K: 2, Centroids: [][]float32{{0}, {1}}, Spreads: []float64{1, 1}}
	for i := range n {
		r.Assignments = append(r.Assignments, uint16(i%2))
	}
	return r
}

func mustSurvey(t testing.TB, q Question, users []traits.Flat) Surveyed {
	t.Helper()
	return testkit.Must(Survey(context.Background(), q, counted(users)))(t)
}

// Traits that have nothing to do with the clusters are dealt out anew, 20 times.
func TestChanceSetsNoClusterApart(t *testing.T) {
	t.Parallel()
	random := draws(8)
	for _, size := range []int{25, 100, 400} {
		told, all := 0, 0
		for range 20 {
			users := make([]traits.Flat, 4*size)
			result := Result{K: 4, Centroids: [][]float32{{0}, {1}, {2}, {3}}, Spreads: []float64{1, 1, 1, 1}}
			for i := range users {
				users[i] = testkit.Must(traits.Flatten(fmt.Appendf(nil, `{"a": %.3f, "b": %.3f, "c": %d, "d": "l%d", "e": %v}`,
					gauss(&random), math.Exp(gauss(&random)), random.IntN(100), random.IntN(4), random.IntN(3) == 0)))(t)
				if random.IntN(8) == 0 {
					users[i].Values = append(users[i].Values, traits.Value{Path: "rare", Kind: traits.Number, Number: gauss(&random)})
				}
				result.Assignments = append(result.Assignments, uint16(i%4))
			}
			for _, label := range mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: result}, users).Labels {
				told, all = told+len(label.Distinctions), all+6
			}
		}
		if told*100 > all {
			t.Errorf("clusters of %d: %d of %d traits of chance set one apart", size, told, all)
		}
	}
}

func TestASurveySaysWhatSetsClustersApart(t *testing.T) {
	users := shoppers(t, 1000, draws(1))
	schema := traits.Infer(named(users), nil)
	s := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(1000)}, users)
	if got := s.Labels[0]; got.F1 != 1 || got.Text != "age up to 46" {
		t.Errorf("the even ones are labelled %q, F1 %v", got.Text, got.F1)
	}
	want := map[string]Distinction{
		"age":       {Path: "age", Type: traits.TypeNumber, Here: 60, All: 45},
		"joined_at": {Path: "joined_at", Type: traits.TypeDate, Here: 1050, All: 600},
		"home":      {Path: "home", Type: traits.TypeGeo, Level: "35°S 15°E", Here: 1, All: 0.5},
		"tags":      {Path: "tags", Type: traits.TypeSet, Level: "golf", Here: 1, All: 0.5},
		"plan":      {Path: "plan", Type: traits.TypeCategory, Level: "pro", Here: 0.9, All: 0.45},
	}
	for _, d := range s.Labels[1].Distinctions {
		w, ok := want[d.Path]
		if !ok {
			t.Errorf("%s is none: %+v", d.Path, d)
			continue
		}
		delete(want, d.Path)
		near := func(a, b float64) bool { return a > b*0.9-0.01 && a < b*1.1+0.01 }
		if d.Level != w.Level || !near(d.Here, w.Here) || !near(d.All, w.All) || d.Effect < leastEffect {
			t.Errorf("%+v, not %+v", d, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}

// Nobody's number is too far from others' for what was found to be recorded.
func TestAnEffectIsNeverInfinite(t *testing.T) {
	numbers := []string{"0", "1e-300", "1e-300", "1e50", "0"}
	var users []traits.Flat
	for i := range 200 {
		flat := testkit.Must(traits.Flatten([]byte(`{"n":` + numbers[i%len(numbers)] + `}`)))(t)
		users = append(users, flat)
	}
	apart := NewApart(traits.Infer(named(users), nil), asOf)
	for i, u := range users {
		apart.Count(u, numbers[i%len(numbers)] == "1e50")
	}
	if got := apart.Distinctions(); len(got) != 1 || got[0].Effect != mostEffect {
		t.Errorf("%+v", got)
	}
}

// What sets some apart is what a label says of a cluster that holds just them.
func TestSomeAreSetApartFromAllAsAClusterIs(t *testing.T) {
	users := shoppers(t, 1000, draws(1))
	schema := traits.Infer(named(users), nil)
	apart := NewApart(schema, asOf)
	for i, u := range users {
		apart.Count(u, i%2 == 1)
	}
	want := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(1000)}, users).Labels[1].Distinctions
	if diff := cmp.Diff(want, apart.Distinctions()); diff != "" || len(want) != 5 {
		t.Errorf("as a cluster (-), as some of all (+):\n%s", diff)
	}
	if got := NewApart(schema, asOf).Distinctions(); len(got) != 0 {
		t.Errorf("of nobody: %+v", got)
	}
	if got := NewApart(traits.Schema{}, asOf); len(got.Distinctions()) != 0 {
		t.Error("of no traits")
	}
}

func TestTheTextOfALabel(t *testing.T) {
	inf := math.Inf(1)
	g := group{users: 100, held: []map[string]int{{"pro": 82}}}
	all := group{users: 1000, held: []map[string]int{{"pro": 310}}}
	n := naming{survey: &survey{groups: []group{g, all}, Question: Question{Result: Result{K: 1}}}, ahead: map[int]bool{1: true}, least: map[int]float64{2: 0}}
	for want, c := range map[string]Condition{
		"plan=pro (82 % v. 31 %)":            {Path: "plan", Type: traits.TypeCategory, Level: "pro", bit: 1},
		"plan≠pro (82 % v. 31 %)":            {Path: "plan", Type: traits.TypeCategory, Level: "pro", Not: true, bit: 1},
		"age over 52":                        {Path: "age", Type: traits.TypeNumber, Over: 52, UpTo: inf},
		"age up to 30.5":                     {Path: "age", Type: traits.TypeNumber, Over: -inf, UpTo: 30.5},
		"age 0":                              {Path: "age", Type: traits.TypeNumber, Over: -inf, UpTo: 0, trait: 2},
		"age -1 to 1200":                     {Path: "age", Type: traits.TypeNumber, Over: -1, UpTo: 1200},
		"joined at over 90 days ago":         {Path: "joined\nat", Type: traits.TypeDate, Over: 90.2, UpTo: inf},
		"joined in the last 90 days":         {Path: "joined", Type: traits.TypeDate, Over: -inf, UpTo: 90},
		"joined 10 to 90 days ago":           {Path: "joined", Type: traits.TypeDate, Over: 10, UpTo: 90},
		"seen in the last 0.3 days":          {Path: "seen", Type: traits.TypeDate, Over: -inf, UpTo: 0.26},
		"ends over 20 days ahead":            {Path: "ends", Type: traits.TypeDate, Over: -inf, UpTo: -20},
		"ends up to 30 days ahead":           {Path: "ends", Type: traits.TypeDate, Over: -30, UpTo: inf},
		"ends 20 to 30 days ahead":           {Path: "ends", Type: traits.TypeDate, Over: -30, UpTo: -20},
		"ends 10 days ago to 30 days ahead":  {Path: "ends", Type: traits.TypeDate, Over: -30, UpTo: 10},
		"ends 10 days ago or later":          {Path: "ends", Type: traits.TypeDate, Over: -inf, UpTo: 10, trait: 1},
		strings.Repeat("é", 39) + "… over 1": {Path: strings.Repeat("é", 90), Type: traits.TypeNumber, Over: 1, UpTo: inf},
	} {
		if got := n.text(0, c); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	taken := map[string]bool{}
	for _, c := range []struct {
		said []string
		want string
	}{{[]string{"a", "b"}, "a, b"}, {[]string{"a", "b"}, "a, b (2)"}, {nil, "mixed"}, {nil, "mixed (2)"}} {
		got := name(c.said, taken)
		if got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
		taken[got] = true
	}
}

// Of ten questions each has answered one or two: nothing is true of most who are in the larger cluster.
func TestALabelIsTrueOfMost(t *testing.T) {
	random := draws(5)
	r := Result{K: 2, Centroids: make([][]float32, 2), Spreads: make([]float64, 2)}
	var users []traits.Flat
	for i := range 600 {
		var f traits.Flat
		for q := range 10 {
			if cluster := i % 4 / 3; random.IntN(10) == 0 || q == cluster-1 {
				f.Values = append(f.Values, traits.Value{Path: fmt.Sprint("q", q), Kind: traits.Number, Number: gauss(&random)})
			}
		}
		users, r.Assignments = append(users, f), append(r.Assignments, uint16(i%4/3))
	}
	schema := traits.Infer(named(users), nil)
	labels := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: r}, users).Labels
	if labels[0].Text != "mixed" || len(labels[1].Conditions) == 0 || labels[1].Conditions[0].Path != "q0" {
		t.Errorf("%+v", labels)
	}
}

// Three kinds that no one trait tells apart; most users are of the third.
func TestALabelTellsBestWhoIsInACluster(t *testing.T) {
	random := draws(3)
	r := Result{K: 3, Centroids: make([][]float32, 3), Spreads: make([]float64, 3)}
	var users []traits.Flat
	for i := range 1200 {
		kind := min(i%4, 2)
		age, plan := 30+3*gauss(&random), "free"
		if kind == 1 {
			age += 30
		}
		if kind == 2 {
			plan = "pro"
			age += 30 * float64(i%8/4)
		}
		f := testkit.Must(traits.Flatten(fmt.Appendf(nil, `{"age":%.1f,"plan":%q,"noise":%d}`, age, plan, random.IntN(100))))(t)
		users, r.Assignments = append(users, f), append(r.Assignments, uint16(kind))
	}
	s := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users)
	for c, starts := range []string{"age up to ", "age over ", "plan=pro (100 % v. 50 %)"} {
		l := s.Labels[c]
		if l.F1 < 0.99 || !strings.Contains(l.Text, starts) || c < 2 && !strings.Contains(l.Text, "plan=free") && !strings.Contains(l.Text, "plan≠pro") {
			t.Errorf("%q, F1 %.3f", l.Text, l.F1)
		}
	}
}

// Bounds between two groups lie where nobody is, and a number of few is not told.
func TestBoundsOfWholeNumbersAreSomebodys(t *testing.T) {
	random := draws(5)
	r := Result{K: 3, Centroids: make([][]float32, 3), Spreads: make([]float64, 3)}
	var users []traits.Flat
	for i := range 1200 {
		visits := [][2]int{{1, 7}, {9, 6}, {20, 10}}[i%3]
		f := testkit.Must(traits.Flatten(fmt.Appendf(nil, `{"visits":%d,"noise":%d}`, visits[0]+random.IntN(visits[1]), random.IntN(100))))(t)
		users, r.Assignments = append(users, f), append(r.Assignments, uint16(i%3))
	}
	s := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users)
	for c, want := range []string{"visits up to 7", "visits 9 to 14", "visits 20 to 29"} {
		if l := s.Labels[c]; l.Text != want || l.F1 != 1 {
			t.Errorf("%q, F1 %.3f, not %q", l.Text, l.F1, want)
		}
	}
	known := append(slices.Repeat([]float64{7}, 12), 9, 9, 20)
	if low, high := atMost(known, 8.4), atMost(known, 15.5); low != 7 || high != 15 {
		t.Errorf("at most %v and %v", low, high)
	}
	if low, high := atLeast(known, 5.5), atLeast(known, 8); low != 7 || high != 9 || atLeast(known, 16.4) != 17 {
		t.Errorf("at least %v and %v", low, high)
	}
}

// Users of three flags, of whom only those who hold all three are in cluster 1: a fourth
// trait adds nothing, and is not named.
func TestALabelHasAThirdConditionWhereItTells(t *testing.T) {
	random := draws(4)
	r := Result{K: 2, Centroids: make([][]float32, 2), Spreads: make([]float64, 2)}
	var users []traits.Flat
	for i := range 1600 {
		age := 20 + 20*float64(i>>2&1) + 5*random.Float64()
		f := testkit.Must(traits.Flatten(fmt.Appendf(nil, `{"plan":"p%d","team":"t%d","age":%.1f,"noise":"n%d"}`, i&1, i>>1&1, age, random.IntN(3))))(t)
		users, r.Assignments = append(users, f), append(r.Assignments, uint16(i&7/7))
	}
	l := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users).Labels[1]
	if l.F1 != 1 || len(l.Conditions) != 3 || strings.Contains(l.Text, "noise") {
		t.Errorf("%q, F1 %.3f", l.Text, l.F1)
	}
}

// Users who hold two of five members, or two of three: a cluster of each two, which one member does not tell.
func TestALabelNamesSeveralMembersOfASet(t *testing.T) {
	tags := []string{`"a","b"`, `"a","c"`, `"a","d"`, `"a","e"`, `"b","c"`, `"b","d"`, `"b","e"`, `"c","d"`, `"c","e"`, `"d","e"`, `"x","y"`, `"x","z"`, `"y","z"`}
	r := Result{K: len(tags), Centroids: make([][]float32, len(tags)), Spreads: make([]float64, len(tags))}
	var users []traits.Flat
	for i := range 40 * len(tags) {
		f := testkit.Must(traits.Flatten(fmt.Appendf(nil, `{"tags":[%s],"age":%d}`, tags[i%len(tags)], i%7)))(t)
		users, r.Assignments = append(users, f), append(r.Assignments, uint16(i%len(tags)))
	}
	for c, l := range mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users).Labels {
		if l.F1 != 1 || len(l.Conditions) != 2 {
			t.Errorf("of %s: %q, F1 %.3f", tags[c], l.Text, l.F1)
		}
	}
}

// Judged by every label that there is of three levels, held or not.
func TestALabelTellsAsWellAsAnyOther(t *testing.T) {
	const n, of, levels, clusters = 900, 5, 3, 3
	for seed := range 6 {
		random := draws(50, seed)
		r := Result{K: clusters, Centroids: make([][]float32, clusters), Spreads: make([]float64, clusters)}
		var users []traits.Flat
		var said [n][of]int
		for i := range n {
			c := random.IntN(clusters)
			raw := `{"a":0`
			for d := range of {
				if said[i][d] = (c + d*seed) % levels; random.IntN(5) < 2 {
					said[i][d] = random.IntN(levels)
				}
				raw += fmt.Sprintf(`,"t%d":"l%d"`, d, said[i][d])
			}
			f := testkit.Must(traits.Flatten([]byte(raw + "}")))(t)
			users, r.Assignments = append(users, f), append(r.Assignments, uint16(c))
		}
		labels := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users).Labels
		holds := func(condition, i int) bool {
			return condition == 0 || (said[i][(condition-1)/levels/2] == (condition-1)%levels) != ((condition-1)/levels%2 == 1)
		}
		for c, l := range labels {
			best := 0.0
			for x := range 1 + 2*of*levels {
				for y := range x + 1 {
					for z := range y + 1 {
						told, right, size := 0, 0, 0
						for i, in := range r.Assignments {
							meets := holds(x, i) && holds(y, i) && holds(z, i)
							if meets {
								told++
							}
							if int(in) == c {
								size++
								if meets {
									right++
								}
							}
						}
						best = max(best, 2*float64(right)/float64(told+size))
					}
				}
			}
			if l.F1 > best+1e-9 || l.F1 < best-2*leastAdded {
				t.Errorf("seed %d: %q has F1 %.3f, the best label %.3f", seed, l.Text, l.F1, best)
			}
		}
	}
}

func TestALevelOfFewIsNotNamed(t *testing.T) {
	for holders, named := range map[int]bool{9: false, 10: true} {
		g := &group{users: 20, held: []map[string]int{{"rare": holders}}, missing: []int{0}}
		all := &group{users: 1000, held: []map[string]int{{"rare": holders, "usual": 900}}, missing: []int{0}}
		var d Distinction
		if d.byLevel(g, all, 0); (d.Level == "rare") != named {
			t.Errorf("%d holders: %+v", holders, d)
		}
	}
}

func TestLabelsAreDifferent(t *testing.T) {
	users := shoppers(t, 900, draws(2))
	r := Result{K: 9, Centroids: make([][]float32, 9), Spreads: make([]float64, 9)}
	for i := range users {
		r.Assignments = append(r.Assignments, uint16(i%9)) // says nothing about the users
	}
	s := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: r}, users)
	seen := map[string]bool{}
	for _, l := range s.Labels {
		if seen[l.Text] || l.Text == "" {
			t.Errorf("%q is there twice", l.Text)
		}
		seen[l.Text] = true
	}
}

func TestSensitiveTraitsAreNotLookedAt(t *testing.T) {
	users := shoppers(t, 200, draws(3))
	schema := traits.Infer(named(users), nil)
	s := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(200)}, users)
	if text := fmt.Sprintf("%+v", s); strings.Contains(text, "health") {
		t.Errorf("health is looked at: %s", text)
	}
	permitted := schema.Restrict(func(path string) bool { return path == "age" })
	s = mustSurvey(t, Question{Schema: permitted, AsOf: asOf, Result: halves(200)}, users)
	if p := s.Profiles[0].Traits; len(p) != 1 || p[0].Path != "age" {
		t.Errorf("%+v", p)
	}
}

func TestWhatIsKeptOfAClusterTellsNobody(t *testing.T) {
	users := shoppers(t, 200, draws(6))
	say := func(i int, v traits.Value) { users[i].Values = append(users[i].Values, v) }
	for i := range users {
		town := "Lyon"
		switch {
		case i%2 == 1 && i < 12: // six
			town = "Turin"
		case i%2 == 1 && i < 32: // ten
			town = "Graz"
		}
		say(i, traits.Value{Path: "town", Kind: traits.Text, Text: town})
	}
	say(1, traits.Value{Path: "cabin", Kind: traits.Geo, Number: 46.53, Lon: 8.13}) // one of the second half
	say(2, traits.Value{Path: "cabin", Kind: traits.Geo, Number: 52.51, Lon: 13.41})
	for i := range users {
		slices.SortFunc(users[i].Values, func(v, w traits.Value) int { return strings.Compare(v.Path, w.Path) })
	}
	weight := 4.0
	schema, result := traits.Infer(named(users), map[string]traits.Override{"age": {Weight: &weight}}), halves(200)
	encoder := schema.Encoder(asOf)
	dimensions := encoder.Dimensions()
	for c := range result.K {
		result.Centroids[c] = make([]float32, len(dimensions))
		for i, u := range users {
			if i%2 == c {
				for d, x := range encoder.Append(nil, u) {
					result.Centroids[c][d] += x / 100
				}
			}
		}
	}
	kept := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: result}, users).Profiles
	for c, p := range kept {
		for d, x := range p.Centroid {
			sum, unit := 100*float64(x), 1.0
			if dimensions[d].Path == "age" {
				unit = 2
			}
			if whole := math.Round(sum/unit) * unit; math.Abs(sum-whole) > 1e-4 || math.Abs(sum-100*float64(result.Centroids[c][d])) > unit/2+1e-4 {
				t.Errorf("cluster %d keeps %v of %v, where the sum is %v", c, sum, dimensions[d], 100*result.Centroids[c][d])
			}
		}
		for _, of := range p.Traits {
			if of.Path == "town" && (slices.Contains(of.Levels, "Turin") || slices.Contains(of.Levels, "Graz") != (c == 1)) {
				t.Errorf("cluster %d names %v", c, of.Levels)
			}
		}
	}
}

func TestDriftFromRunToRun(t *testing.T) {
	users := shoppers(t, 2000, draws(4))
	schema := traits.Infer(named(users), nil)
	first := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(2000)}, users)
	against := [][]Profile{{first.Profiles[0]}, {first.Profiles[1], first.Profiles[1]}}

	again := shoppers(t, 1600, draws(5)) // other users of the same kinds
	s := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(1600), Against: against}, again)
	for c, profiles := range s.Against {
		for i, newer := range profiles {
			if d := Compare(against[c][i], newer, same90, Previous); len(d.Causes) > 0 || !d.Judged || len(d.Traits) != 6 {
				t.Errorf("cluster %d: %+v", c, d)
			}
		}
	}

	for i := range again { // those who were free take a plan, and nobody moved
		if i%2 == 0 {
			at := slices.IndexFunc(again[i].Values, func(v traits.Value) bool { return v.Path == "plan" })
			again[i].Values[at].Text = "pro"
		}
	}
	s = mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(1600), Against: against}, again)
	d := Compare(against[0][0], s.Against[0][0], same90, Previous)
	if len(d.Causes) != 1 || d.Causes[0].Trait != "plan" || d.Severity() != Major {
		t.Errorf("%+v", d)
	}
}

// Nobody has an age any more: an import left the column out, or the consent layer does not permit it.
func TestATraitThatNobodySaysAnyMoreIsMissing(t *testing.T) {
	users := shoppers(t, 800, draws(4))
	first := mustSurvey(t, Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: halves(800)}, users)
	without := func(some int) []traits.Flat { // some of them say it still
		later := slices.Clone(users)
		for i := some; i < len(later); i++ {
			later[i].Values = slices.DeleteFunc(slices.Clone(later[i].Values), func(v traits.Value) bool { return v.Path == "age" })
		}
		return later
	}
	schema := traits.Infer(named(without(0)), nil)
	wanted := func(path string, of traits.Type) bool { return traits.Wanted(path, of, nil) }
	for what, c := range map[string]struct {
		wanted func(string, traits.Type) bool
		users  []traits.Flat
		causes int
	}{
		"nobody says it":                       {wanted, without(0), 1},
		"two do, who are not in the sample":    {wanted, without(2), 0},
		"it is not permitted any more":         {func(path string, _ traits.Type) bool { return path != "age" }, without(0), 0},
		"what is permitted is not to be known": {nil, without(0), 0},
	} {
		s := mustSurvey(t, Question{
			Schema: schema, AsOf: asOf, Result: halves(800), Against: [][]Profile{first.Profiles[:1], first.Profiles[1:]}, Wanted: c.wanted,
			Divisions: []Division{{Encoder: schema.Encoder(asOf), Centroids: [][]float32{make([]float32, len(schema.Encoder(asOf).Dimensions()))}, Then: halves(800).Assignments}},
			Earlier:   [][]Earlier{{{Cluster: 0}}, {{Cluster: 1}}},
		}, c.users)
		for i, older := range first.Profiles {
			d := CompareCut(older, s.Against[i][0], same90, s.Cuts[i][0], Previous)
			traitsOf := slices.DeleteFunc(d.Causes, func(c Cause) bool { return c.Kind != CauseTrait })
			if len(traitsOf) != c.causes {
				t.Errorf("%s: %+v", what, traitsOf)
			}
			for _, age := range traitsOf {
				if age.Trait != "age" || age.Level != MissingLevel || age.Before != 0 || age.After != 1 || age.Severity != Major || age.Origin != PeopleChanged {
					t.Errorf("%s: %+v", what, age)
				}
			}
		}
	}
}

func TestTimeAloneIsNoDrift(t *testing.T) {
	const n, days = 400, 30
	joined := func(later int) (users []traits.Flat) {
		for i := range n {
			day := time.Date(2024, 10, 1+i/2%days+later, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
			users = append(users, traits.Flat{Values: []traits.Value{{Path: "joined_at", Kind: traits.Text, Text: day}}})
		}
		return users
	}
	schema := traits.Schema{Traits: []traits.Trait{{Path: "joined_at", Type: traits.TypeDate, Weight: 1}}}
	began := time.Date(2024, 12, 1, 7, 9, 11, 0, time.UTC)
	older := mustSurvey(t, Question{Schema: schema, AsOf: began, Result: halves(n)}, joined(0))
	raw := testkit.Must(json.Marshal(older.Profiles))(t)
	var kept []Profile
	if err := json.Unmarshal(raw, &kept); err != nil {
		t.Fatal(err)
	}
	unknown := slices.Clone(kept)
	unknown[0].AsOf = 0
	for _, c := range []struct {
		what         string
		older        Profile
		after, later int // days
		drifts       bool
		compared     int
	}{
		{"the same users, at once", kept[0], 0, 0, false, 1},
		{"the same users, a month after", kept[0], days, 0, false, 1},
		{"users who do something as lately as before", kept[0], days, days, false, 1},
		{"users of another month, at once", kept[0], 0, -days, true, 1},
		{"users of another month, a month after", kept[0], days, -days, true, 1},
		{"a profile that does not say when it was made", unknown[0], days, 0, false, 0},
	} {
		s := mustSurvey(t, Question{
			Schema: schema, AsOf: began.AddDate(0, 0, c.after), Result: halves(n), Against: [][]Profile{{c.older}},
		}, joined(c.later))
		d := Compare(c.older, s.Against[0][0], same90, Previous)
		if len(d.Traits) != c.compared || (len(d.Causes) > 0) != c.drifts {
			t.Errorf("%s: %+v", c.what, d)
		}
	}
}

// Many share a whole day; all of them would pass an edge together if their days were counted to the hour.
func TestTheHourOfARunIsNoDrift(t *testing.T) {
	const n = 400
	began := time.Date(2024, 12, 1, 7, 9, 11, 0, time.UTC)
	seen := func(later int) (users []traits.Flat) {
		for i := range n {
			day := time.Date(2024, 12, 1+later-i/2%5, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
			users = append(users, traits.Flat{Values: []traits.Value{{Path: "seen", Kind: traits.Text, Text: day}}})
		}
		return users
	}
	schema := traits.Schema{Traits: []traits.Trait{{Path: "seen", Type: traits.TypeDate, Weight: 1}}}
	older := mustSurvey(t, Question{Schema: schema, AsOf: began, Result: halves(n)}, seen(0)).Profiles[0]
	for _, after := range []time.Duration{-7 * time.Hour, -time.Second, time.Second, 16 * time.Hour} {
		s := mustSurvey(t, Question{
			Schema: schema, AsOf: began.AddDate(0, 0, 10).Add(after), Result: halves(n), Against: [][]Profile{{older}},
		}, seen(10))
		if d := Compare(older, s.Against[0][0], same90, Previous); len(d.Traits) != 1 || len(d.Causes) > 0 {
			t.Errorf("%s later in the day: %+v", after, d)
		}
	}
}

func TestAProfileIsItsOwnFrame(t *testing.T) {
	users := shoppers(t, 600, draws(6))
	q := Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: halves(600)}
	s := mustSurvey(t, q, users)
	q.Against = [][]Profile{s.Profiles[:1], s.Profiles[1:]}
	again := mustSurvey(t, q, users)
	for c := range s.Profiles {
		if diff := cmp.Diff(s.Profiles[c], again.Against[c][0]); diff != "" {
			t.Errorf("cluster %d: %s", c, diff)
		}
	}
}

func TestManyUsersAreSampled(t *testing.T) {
	const n = 30_000
	users := func(yield func(int, traits.Flat) bool) {
		for i := range n {
			if !yield(i, traits.Flat{Values: []traits.Value{{Path: "age", Kind: traits.Number, Number: float64(i)}}}) {
				return
			}
		}
	}
	schema := traits.Schema{Traits: []traits.Trait{{Path: "age", Type: traits.TypeNumber, Weight: 1}}}
	s := testkit.Must(Survey(context.Background(), Question{Schema: schema, AsOf: asOf, Result: halves(n)}, users))(t)
	p := s.Profiles[0]
	if p.Users != n/2 || p.Total != n || p.Traits[0].Users != surveyRows {
		t.Fatalf("%+v", p)
	}
	for i, edge := range p.Traits[0].Edges {
		if want := float64(n*(i+1)) / maxBins; edge < want-900 || edge > want+900 {
			t.Errorf("edge %d is at %v, not near %v", i, edge, want)
		}
	}
}

func TestUsersThatTheRunDoesNotKnowAreAMistake(t *testing.T) {
	_, err := Survey(context.Background(), Question{AsOf: asOf, Result: halves(4)}, counted(make([]traits.Flat, 5)))
	if err == nil {
		t.Error("a fifth user of four was counted")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Survey(ctx, Question{AsOf: asOf, Result: halves(4)}, counted(make([]traits.Flat, 4))); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestCellsHaveNames(t *testing.T) {
	for want, at := range map[string][2]float64{
		"50°N 10°E": {52.5, 13.4}, "0°N 0°E": {0, 0}, "5°S 5°W": {-0.1, -0.1}, "85°N 175°E": {90, 180}, "90°S 180°W": {-90, -180},
	} {
		if got := cell(at[0], at[1]); got != want {
			t.Errorf("%v: %q, not %q", at, got, want)
		}
	}
}

func FuzzSurvey(f *testing.F) {
	f.Add([]byte(`{"plan":"pro","n":1,"tags":["a"],"d":"2024-01-01","g":{"lat":1,"lon":2},"b":true}`), []byte(`{"plan":"\u0000","n":-1e149}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var users []traits.Flat
		for i := range 60 {
			flat, err := traits.Flatten([][]byte{a, b}[i%2])
			if err != nil {
				return
			}
			users = append(users, flat)
		}
		q := Question{Schema: traits.Infer(named(users), nil), AsOf: asOf, Result: halves(60)}
		s := mustSurvey(t, q, users)
		q.Against = [][]Profile{s.Profiles[:1], s.Profiles[1:]}
		again := mustSurvey(t, q, users)
		if diff := cmp.Diff(s.Profiles[1], again.Against[1][0]); diff != "" {
			t.Fatal(diff)
		}
		if s.Labels[0].Text == s.Labels[1].Text || strings.ContainsFunc(s.Labels[0].Text, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q and %q", s.Labels[0].Text, s.Labels[1].Text)
		}
	})
}

// What is recorded outlives those it was learnt from.
func TestASurveyKeepsNobodysNumber(t *testing.T) {
	const users = 181
	random, said, own := draws(7), make([]traits.Flat, users), map[float64]bool{}
	for i := range users {
		n, born := 9_000_000_000+random.IntN(100_000_000), asOf.Add(-time.Duration(9000+i*i)*24*time.Hour)
		own[float64(n)], own[asOf.Sub(born).Hours()/24] = true, true
		var err error
		said[i], err = traits.Flatten(fmt.Appendf(nil, `{"n": %d, "born": %q, "plan": "p%d"}`, n, born.Format(time.RFC3339), i%2))
		if err != nil {
			t.Fatal(err)
		}
	}
	// Nearly all differ and are as long, which an identifier's values are; here it is none.
	schema := traits.Infer(named(said), map[string]traits.Override{"n": {Type: traits.TypeNumber}})
	s := mustSurvey(t, Question{Schema: schema, AsOf: asOf, Result: halves(users)}, said)
	var kept []float64
	for c, p := range s.Profiles {
		for _, of := range p.Traits {
			kept = append(kept, of.Edges...)
		}
		for _, d := range s.Labels[c].Distinctions {
			kept = append(kept, d.Here, d.All)
		}
	}
	for _, x := range kept {
		if own[x] {
			t.Errorf("%v is somebody's", x)
		}
	}
	if len(kept) < 24 { // seven bins of two traits, twice
		t.Errorf("only %v were kept", kept)
	}
}
