package matching

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain/traits"
	"kindred/testkit"
)

func TestPairExplainsItsScore(t *testing.T) {
	s := traits.Schema{Traits: []traits.Trait{
		{Path: "age", Type: traits.TypeNumber, Weight: 2, Numbers: traits.Numbers{P1: 20, P99: 60}},
		{Path: "flag", Type: traits.TypeBool, Weight: 1},
		{Path: "home", Type: traits.TypeGeo, Weight: 1},
		{Path: "joined", Type: traits.TypeDate, Weight: 1, Numbers: traits.Numbers{P1: 20000, P99: 20100}},
		{Path: "plan", Type: traits.TypeCategory, Weight: 4, Expected: 0.3},
		{Path: "same", Type: traits.TypeNumber, Weight: 1, Numbers: traits.Numbers{P1: 3, P99: 3}},
		{Path: "secret", Type: traits.TypeBool, Weight: 1, Sensitive: true},
		{Path: "tags", Type: traits.TypeSet, Weight: 2},
		{Path: "text", Type: traits.TypeExcluded, Weight: 1},
	}}
	p := populate(s, []person{
		{"a", flat(t, `{"age":30,"flag":true,"home":{"lat":0,"lon":0},"joined":"2025-01-01","plan":"x","same":1,"secret":true,"tags":["1","2","3"],"text":"t"}`)},
		{"b", flat(t, `{"age":40,"flag":false,"home":{"lat":0,"lon":9},"joined":"2025-01-26","same":9,"secret":true,"tags":["2","3","4"],"text":"t"}`)},
	})
	got, ok, err := p.Pair("a", "b", nil)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	geo := math.Exp(-6371.0088 * math.Pi / 20 / 1000)
	want := Match{
		User: "b", Score: (2*0.75 + 0 + geo + 0.75 + 2*0.5 + 4*0.3) / 11, Coverage: 7.0 / 11,
		Terms: []Term{
			{"age", 2, 0.75, 1.5 / 11, false},
			{"tags", 2, 0.5, 1.0 / 11, false},
			{"joined", 1, 0.75, 0.75 / 11, false},
			{"home", 1, geo, geo / 11, false},
			{"flag", 1, 0, 0, false},
			{"plan", 4, 0.3, 1.2 / 11, true},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Error(diff)
	}
	if _, ok, err := p.Pair("a", "b", func(path string) bool { return path == "plan" || path == "secret" }); ok || err != nil {
		t.Errorf("b has no plan, and the secret takes no part: %v, %v", ok, err)
	}
	if _, _, err := p.Pair("a", "c", nil); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsMissingCountsAsItsExpectedSimilarity(t *testing.T) {
	s := traits.Schema{Traits: []traits.Trait{
		{Path: "a", Type: traits.TypeBool, Weight: 1, Expected: 0.5}, {Path: "b", Type: traits.TypeBool, Weight: 9, Expected: 0.4},
	}}
	p := populate(s, []person{
		{"little", flat(t, `{"a":true}`)},
		{"all", flat(t, `{"a":true,"b":true}`)},
		{"twin", flat(t, `{"a":true,"b":true}`)},
		{"other", flat(t, `{"b":true}`)},
		{"nothing", flat(t, `{}`)},
	})
	for _, c := range []struct {
		one, two        string
		score, coverage float64
	}{
		{"little", "all", (1 + 9*0.4) / 10, 0.1}, // a tenth of the weight in common is enough
		{"all", "twin", 1, 1},
		{"all", "other", (0.5 + 9) / 10, 0.9},
	} {
		m, ok, _ := p.Pair(c.one, c.two, nil)
		if !ok || math.Abs(m.Score-c.score) > 1e-12 || math.Abs(m.Coverage-c.coverage) > 1e-12 {
			t.Errorf("%s and %s: %+v, %v", c.one, c.two, m, ok)
		}
	}
	for _, two := range []string{"other", "nothing"} {
		if m, ok, _ := p.Pair("little", two, nil); ok {
			t.Errorf("no shared trait is no match: %+v", m)
		}
	}
	if top, _ := p.Top(Query{User: "all", Limit: 9}); len(top) != 3 || top[0].User != "twin" || top[1].User != "other" || top[2].User != "little" {
		t.Errorf("got %+v", top)
	}
	if top, _ := p.Top(Query{User: "little", Limit: 9}); len(top) != 2 {
		t.Errorf("who says little is compared with all who say the same: %+v", top)
	}
}

func TestWhatNeitherHasSaidDoesNotCountBeyondAFifth(t *testing.T) {
	s := traits.Schema{Traits: []traits.Trait{
		{Path: "a", Type: traits.TypeBool, Weight: 1, Expected: 0.5},
		{Path: "b", Type: traits.TypeBool, Weight: 1, Expected: 0.4},
		{Path: "c", Type: traits.TypeBool, Weight: 6, Expected: 0.3},
		{Path: "d", Type: traits.TypeBool, Weight: 2, Expected: 0.7},
	}}
	p := populate(s, []person{
		{"little", flat(t, `{"a":true}`)},
		{"as little", flat(t, `{"a":true}`)},
		{"more", flat(t, `{"a":true,"b":true}`)},
		{"much", flat(t, `{"a":true,"c":true}`)},
		{"as much", flat(t, `{"c":true}`)},
	})
	for _, c := range []struct {
		one, two string
		want     float64
		terms    int
	}{
		{"much", "as much", (0.5 + 6) / 7, 2},
		{"much", "more", (1 + 0.4 + 6*0.3) / 8, 3},
		{"little", "more", (1 + 0.4) / 2, 2},
		// One of ten has been said: of the other nine count as much as makes two.
		{"little", "as little", (1 + (0.4+6*0.3+2*0.7)/9) / 2, 4},
	} {
		m, ok, _ := p.Pair(c.one, c.two, nil)
		if !ok || math.Abs(m.Score-c.want) > 1e-12 || len(m.Terms) != c.terms {
			t.Errorf("%s and %s: %+v, not %v", c.one, c.two, m, c.want)
		}
		weights, sum := 0.0, 0.0
		for _, term := range m.Terms {
			weights += term.Weight
			sum += term.Weight * term.Similarity
		}
		if math.Abs(sum/weights-c.want) > 1e-12 {
			t.Errorf("%s and %s: the terms %+v say %v", c.one, c.two, m.Terms, sum/weights)
		}
	}
}

// In a world where half say little, those are not everybody's best match.
func TestWhoSaysLittleIsNotEverybodysMatch(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 10))
	const all = 1500
	people := make([]person, all)
	for i := range people { // how much is said differs from one to the next
		people[i] = person{fmt.Sprintf("usr_%05d", i), flat(t, document(random, random.Float64()*0.95))}
	}
	p := populate(learn(people, nil), people)
	shown := make([]int, 0, all)
	times := make(map[string]int)
	said := 0
	for _, someone := range people {
		top := testkit.Must(p.Top(Query{User: someone.id, Limit: 10}))(t)
		for _, m := range top {
			times[m.User]++
		}
		if len(someone.flat.Values) > 0 {
			said++
		}
	}
	never := 0
	for _, someone := range people {
		shown = append(shown, times[someone.id])
		if times[someone.id] == 0 && len(someone.flat.Values) > 0 {
			never++
		}
	}
	if g := gini(shown); g > 0.5 {
		t.Errorf("the Gini coefficient of being shown is %.2f", g)
	}
	if never*100 > 6*said {
		t.Errorf("%d of %d are never shown", never, said)
	}
	t.Logf("gini %.2f, never shown %d of %d", gini(shown), never, said)
}

// gini is 0 where all are equal and 1 where one has everything.
func gini(counts []int) float64 {
	slices.Sort(counts)
	var sum, ranked float64
	for i, n := range counts {
		sum += float64(n)
		ranked += float64(n) * float64(i+1)
	}
	n := float64(len(counts))
	return 2*ranked/(n*sum) - (n+1)/n
}

func TestAmongEqualsNobodyIsAlwaysTheFirst(t *testing.T) {
	people := make([]person, 400)
	for i := range people {
		people[i] = person{fmt.Sprintf("usr_%05d", i), flat(t, `{"a":true}`)}
	}
	p := populate(traits.Schema{Traits: []traits.Trait{{Path: "a", Type: traits.TypeBool, Weight: 1}}}, people)
	times := make(map[string]int)
	for _, someone := range people {
		top, _ := p.Top(Query{User: someone.id, Limit: 10})
		again, _ := p.Top(Query{User: someone.id, Limit: 10})
		if !cmp.Equal(top, again) {
			t.Fatal("the same question has two answers")
		}
		for _, m := range top {
			times[m.User]++
		}
	}
	lowest, highest := 0, 0
	for i := range 40 {
		lowest += times[people[i].id]
		highest += times[people[len(people)-1-i].id]
	}
	if lowest*2 > highest*3 || highest*2 > lowest*3 || len(times) < 390 {
		t.Errorf("the lowest tenth of ids is shown %d times, the highest %d, %d users at all", lowest, highest, len(times))
	}
}

func TestWhoAgreesInNothingIsNoMatch(t *testing.T) {
	s := traits.Schema{Traits: []traits.Trait{{Path: "a", Type: traits.TypeBool, Weight: 1}, {Path: "b", Type: traits.TypeBool, Weight: 0.00004}}}
	p := populate(s, []person{
		{"one", flat(t, `{"a":true,"b":true}`)},
		{"opposite", flat(t, `{"a":false,"b":false}`)},
		{"hardly", flat(t, `{"a":false,"b":true}`)},
		{"alike", flat(t, `{"a":true,"b":false}`)},
	})
	for _, other := range []string{"opposite", "hardly"} { // the second would be told as 0.0000
		if m, ok, _ := p.Pair("one", other, nil); ok {
			t.Errorf("%s: %+v", other, m)
		}
	}
	if score, ok, _ := p.Like(flat(t, `{"a":false,"b":false}`), "one"); ok || score != 0 {
		t.Errorf("like: %v, %v", score, ok)
	}
	if top, _ := p.Top(Query{User: "one", Limit: 9}); len(top) != 1 || top[0].User != "alike" {
		t.Errorf("got %+v", top)
	}
}

func TestScoresAreSymmetricAndOneForOneself(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	people := crowd(t, random, 300, 0.4)
	p := populate(learn(people, nil), people)
	for range 20_000 {
		a, b := people[random.IntN(len(people))].id, people[random.IntN(len(people))].id
		ab, okAB, _ := p.Pair(a, b, nil)
		ba, okBA, _ := p.Pair(b, a, nil)
		if okAB != okBA || ab.Score != ba.Score || ab.Coverage != ba.Coverage || ab.Score < 0 || ab.Score > 1 {
			t.Fatalf("%s %s: %+v and %+v", a, b, ab, ba)
		}
		if own, ok, _ := p.Pair(a, a, nil); ok && own.Score != 1 && own.Coverage == 1 && !own.Terms[len(own.Terms)-1].Missing {
			t.Fatalf("%s with itself: %v", a, own.Score)
		}
	}
}

func TestReadersAndAWriterTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	people := crowd(t, random, 400, 0.2)
	p := populate(learn(people, nil), people)
	var group sync.WaitGroup
	for reader := range 3 {
		group.Go(func() {
			for i := range 150 {
				user := people[(reader*131+i)%200].id // the writer leaves these
				matches, err := p.Top(Query{User: user, Limit: 20})
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range matches {
					if m.User == user || m.User == "" || m.Score > 1 {
						t.Errorf("%s matched %+v", user, m)
					}
				}
			}
			p.Distribution(1, nil)
		})
	}
	for i := range 3000 {
		someone := people[200+i%200]
		if i%3 == 0 {
			p.Remove(someone.id)
		} else {
			p.Put(someone.id, someone.flat)
		}
	}
	group.Wait()
}

func TestDistributionIsThatOfThePopulation(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	people := crowd(t, random, 500, 0.3)
	s := learn(people, nil)
	p := populate(s, people)
	d := p.Distribution(42, nil)
	if len(d.scores) != traits.Pairs {
		t.Fatalf("%d pairs", len(d.scores))
	}
	random.Shuffle(len(people), func(i, j int) { people[i], people[j] = people[j], people[i] })
	if !cmp.Equal(d.scores, populate(s, people).Distribution(42, nil).scores) {
		t.Error("the order of arrival changed it")
	}
	if cmp.Equal(d.scores, p.Distribution(43, nil).scores) {
		t.Error("another seed draws other pairs")
	}
	// The quantiles of a sample of 10,000 lie within 2 % of those of all pairs.
	var all Distribution
	for i := range people {
		for j := range i {
			m, ok, _ := p.Pair(people[i].id, people[j].id, nil)
			if !ok {
				m.Score = noMatch
			}
			all.scores = append(all.scores, m.Score)
		}
	}
	all = sorted(all.scores...)
	for score := 0.0; score <= 1; score += 0.01 {
		if got, want := d.Percentile(score), all.Percentile(score); math.Abs(got-want) > 2 {
			t.Errorf("%.2f: percentile %.2f, not %.2f", score, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	d := sorted(noMatch, 0.2, 0.5, 0.5)
	for score, want := range map[float64]float64{0: 25, 0.2: 37.5, 0.3: 50, 0.5: 75, 0.6: 100} {
		if got := d.Percentile(score); got != want {
			t.Errorf("%v: %v, not %v", score, got, want)
		}
	}
	if got := (Distribution{}).Percentile(1); got != 0 {
		t.Errorf("of no pairs: %v", got)
	}
	people := crowd(t, rand.New(rand.NewPCG(9, 9)), 141, 0)
	if n := len(populate(learn(people, nil), people).Distribution(1, nil).scores); n != 141*140/2 {
		t.Errorf("a small population has %d pairs", n)
	}
	if n := len(New(traits.Schema{}).Distribution(1, nil).scores); n != 0 {
		t.Errorf("an empty one %d", n)
	}
}

func TestRealPeople(t *testing.T) {
	people := census(t)
	s := learn(people, nil)
	types := make(map[string]traits.Type)
	for _, trait := range s.Traits {
		types[trait.Path] = trait.Type
		if trait.Sensitive != (trait.Path == "race") {
			t.Errorf("%s: sensitive %v", trait.Path, trait.Sensitive)
		}
	}
	for path, want := range map[string]traits.Type{"age": traits.TypeNumber, "education": traits.TypeCategory, "capital_gain": traits.TypeNumber} {
		if types[path] != want {
			t.Errorf("%s is a %s", path, types[path])
		}
	}
	p := populate(s, people)
	for _, i := range []int{0, 1, 777, 30_000} {
		sameTop(t, s, people, p, Query{User: people[i].id, Limit: 20})
	}
}

// census reads 32,561 people from the copy of the UCI Adult data set that
// KINDRED_ADULT_CSV names; the test is skipped where it names none.
func census(t testing.TB) []person {
	t.Helper()
	path := os.Getenv("KINDRED_ADULT_CSV")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("KINDRED_ADULT_CSV names no file: no census to read")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.TrimLeadingSpace = true
	rows := testkit.Must(reader.ReadAll())(t)
	names := []string{
		"age", "workclass", "", "education", "education_num", "marital_status", "occupation", "relationship", "race", "sex",
		"capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
	}
	people := make([]person, len(rows))
	for i, row := range rows {
		said := make(map[string]any)
		for j, value := range row {
			if number, err := strconv.ParseFloat(value, 64); err == nil && names[j] != "" {
				said[names[j]] = number
			} else if value != "?" && names[j] != "" {
				said[names[j]] = value
			}
		}
		doc := testkit.Must(json.Marshal(said))(t)
		people[i] = person{fmt.Sprintf("usr_%05d", i), flat(t, string(doc))}
	}
	return people
}

func sorted(scores ...float64) Distribution {
	slices.Sort(scores)
	return Distribution{scores}
}
