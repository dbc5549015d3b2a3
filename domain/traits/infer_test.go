package traits

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

type user struct {
	id   string
	flat Flat
}

func flat(t testing.TB, doc string) Flat {
	t.Helper()
	return testkit.Must(Flatten([]byte(doc)))(t)
}

func each(users []user) iter.Seq2[string, Flat] {
	return func(yield func(string, Flat) bool) {
		for _, u := range users {
			if !yield(u.id, u.flat) {
				return
			}
		}
	}
}

// column infers the one trait "a" from its JSON values, one user each.
func column(t testing.TB, values []string, overrides map[string]Override) Trait {
	t.Helper()
	var users []user
	for i, v := range values {
		users = append(users, user{fmt.Sprint("u", i), flat(t, `{"a":`+v+`}`)})
	}
	s := Infer(each(users), overrides)
	if len(s.Traits) != 1 {
		t.Fatalf("%d traits", len(s.Traits))
	}
	return s.Traits[0]
}

func generate(n int, value func(i int) string) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = value(i)
	}
	return values
}

func TestTypeIsThatOfNineteenInTwenty(t *testing.T) {
	mixed := func(n, odd int, most func(i int) string, other string) []string {
		return generate(n, func(i int) string {
			if i < odd {
				return other
			}
			return most(i)
		})
	}
	constant := func(s string) func(int) string { return func(int) string { return s } }
	number := func(i int) string { return fmt.Sprint(i) }
	level := func(levels int) func(int) string {
		return func(i int) string { return fmt.Sprintf(`"l%d"`, i%levels) }
	}
	tests := []struct {
		name   string
		values []string
		want   Type
	}{
		{"95 numbers", mixed(100, 5, number, `"x"`), TypeNumber},
		{"94 numbers", mixed(100, 6, number, `"x"`), TypeExcluded},
		{"numbers and nulls", append(mixed(100, 5, number, `"x"`), slices.Repeat([]string{"null"}, 500)...), TypeNumber},
		{"bools", mixed(20, 1, constant("true"), "1"), TypeBool},
		{"fewer bools", mixed(20, 2, constant("true"), "1"), TypeExcluded},
		{"places", mixed(20, 1, constant(`{"lat":1,"lon":2}`), `{"lat":1000,"lon":2}`), TypeGeo},
		{"places, too many of them nowhere", mixed(20, 2, constant(`{"lat":1,"lon":2}`), `{"lat":1000,"lon":2}`), TypeExcluded},
		{"sets", mixed(20, 1, constant(`["x"]`), `[{}]`), TypeSet},
		{"dates", mixed(40, 2, func(i int) string { return []string{`"2024-02-29"`, `"2024-02-29T12:00:00.5+01:00"`}[i%2] }, `"soon"`), TypeDate},
		{"dates that are not in the calendar", constantly(20, `"2023-02-29"`), TypeCategory},
		{"fifty levels among many", generate(100, level(50)), TypeCategory},
		{"more than half are distinct", generate(99, level(50)), TypeExcluded},
		{"fifty users, half distinct", generate(50, level(25)), TypeCategory},
		{"fifty users, most distinct", generate(50, level(26)), TypeExcluded},
		{"few users, all distinct", generate(49, level(49)), TypeCategory},
		{"many levels, a fifth", generate(300, level(60)), TypeCategory},
		{"many levels, above a fifth", generate(299, level(60)), TypeExcluded},
		{"free text", generate(100, func(i int) string { return fmt.Sprintf(`"%s %d"`, strings.Repeat("word ", 60), i) }), TypeExcluded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := column(t, test.values, nil); got.Type != test.want {
				t.Errorf("%s, not %s", got.Type, test.want)
			}
		})
	}
}

func constantly(n int, value string) []string { return slices.Repeat([]string{value}, n) }

func TestMeasuresOfNumbers(t *testing.T) {
	got := column(t, generate(101, func(i int) string { return fmt.Sprint(2 * i) }), nil).Numbers
	if want := (Numbers{Min: 0, P1: 0, P25: 51, P50: 101, P75: 151, P99: 208, Max: 200}); got != want {
		t.Errorf("got %+v", got)
	}
	if n := column(t, generate(10, func(i int) string { return fmt.Sprint(i - 1) }), nil).Numbers; n.LogSD != 0 || n.P1 != -1 || n.P50 != 3.5 || n.SD != 2.9 {
		t.Errorf("got %+v", n)
	}
}

// Whoever knows all that is kept, and the numbers of all other users, does not find that of the last one.
func TestNumbersOfFewTellNobodys(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   Numbers
	}{
		{[]string{"-1", "3"}, Numbers{Min: -1, Max: 3, P1: -4, P25: -2, P50: 0, P75: 2, P99: 4}},
		{[]string{"30", "45", "41"}, Numbers{Min: 30, Max: 45, P1: 16, P25: 24, P50: 32, P75: 40, P99: 48}},
		{[]string{"1980", "1995"}, Numbers{Min: 1980, Max: 1995, P1: 1920, P25: 1952, P50: 1984, P75: 2016, P99: 2048}},
		{[]string{"123456", "123457"}, Numbers{Min: 123456, Max: 123457, P1: 122880, P25: 124928, P50: 126976, P75: 129024, P99: 131072}},
		{[]string{"-7.5", "-7.25"}, Numbers{Min: -7.5, Max: -7.25, P1: -7.5, P25: -7.375, P50: -7.25, P75: -7.125, P99: -7}},
		{[]string{`"2020-01-01"`, `"2020-01-02"`}, Numbers{Min: 18262, Max: 18263, P1: 17920, P25: 18048, P50: 18176, P75: 18304, P99: 18432}},
	} {
		if got := column(t, c.values, nil).Numbers; got != c.want {
			t.Errorf("%s: got %+v", c.values, got)
		}
	}
	// Whoever is the least, in the middle or the most of so many: it may have many other numbers.
	all, alike := 0, 0
	for _, n := range []int{2, 3, 9, 10, 19, 50, 100} {
		for _, one := range []int{0, n / 2, n - 1} {
			about := func(by int) Trait {
				return column(t, generate(n, func(i int) string {
					x := 20_000 + 30_000*i/n + i*i%7
					if i == one {
						x += by
					}
					return fmt.Sprint(x)
				}), nil)
			}
			kept := about(0)
			for by := -1000; by <= 1000; by += 50 {
				got := about(by)
				if all++; got.Numbers.told() == kept.Numbers.told() && got.Expected == kept.Expected {
					alike++
				}
			}
		}
	}
	if 2*alike < all {
		t.Errorf("only %d of %d numbers are alike", alike, all)
	}
	// One of many is far from them: but for the powers of two, nothing tells how far.
	far := func(x int) Trait {
		return column(t, append(generate(120, func(i int) string { return fmt.Sprint(1_000_000 + 977*i) }), fmt.Sprint(x)), map[string]Override{"a": {Type: TypeNumber}})
	}
	if one, other := far(7_021_351_605), far(4_500_000_000); one.Numbers.told() != other.Numbers.told() || one.Expected != other.Expected || one.Numbers.SD != 0 {
		t.Errorf("%+v %v, and of another %+v %v", one.Numbers, one.Expected, other.Numbers, other.Expected)
	}
}

// told is what is kept beside the powers of two.
func (n Numbers) told() Numbers {
	n.Min, n.Max = 0, 0
	return n
}

func TestLevelsAreTheMostFrequentThenByName(t *testing.T) {
	got := column(t, generate(200, func(i int) string { return fmt.Sprintf(`"l%02d"`, min(i%40, 33)) }), nil)
	if len(got.Levels) != CategoryLevels || got.Distinct != 34 {
		t.Fatalf("%d of %d levels", len(got.Levels), got.Distinct)
	}
	if got.Levels[0] != (Level{"l33", 35}) || got.Levels[1] != (Level{"l00", 5}) || got.Levels[30] != (Level{"l29", 5}) {
		t.Errorf("got %v", got.Levels)
	}
}

func TestOrderOfArrivalIsIrrelevant(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var users []user
	for i := range SampleSize + 2000 {
		doc := fmt.Sprintf(`{"n":%g,"c":"l%d","s":["%d","%d"],"d":"20%02d-01-01"}`,
			random.NormFloat64()*1e3, random.IntN(40), random.IntN(90), random.IntN(90), random.IntN(99))
		if i%3 == 0 {
			doc = fmt.Sprintf(`{"rare%d":1,"n":0.1}`, i%900)
		}
		users = append(users, user{fmt.Sprintf("usr_%d", i), flat(t, doc)})
	}
	want := Infer(each(users), nil)
	if want.Sampled != SampleSize || len(want.Traits) != MaxPaths || want.Skipped == 0 {
		t.Fatalf("%d sampled, %d traits, %d skipped", want.Sampled, len(want.Traits), want.Skipped)
	}
	for range 5 {
		random.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
		if diff := cmp.Diff(want, Infer(each(users), nil)); diff != "" {
			t.Fatal(diff)
		}
	}
	if first := Infer(each(users[:SampleSize]), nil); cmp.Equal(want, first) {
		t.Error("the first users alone gave the same schema: the test shows nothing")
	}
}

func TestSchemaSurvivesJSON(t *testing.T) {
	users := []user{
		{"a", flat(t, `{"n":1,"b":true,"s":["x"],"d":"2024-01-01","g":{"lat":1,"lon":2},"c":"é\"","religion":"x"}`)},
		{"b", flat(t, `{"n":0.1,"b":false,"s":[],"d":"2024-01-02","c":"","x":[{}]}`)},
	}
	want := Infer(each(users), map[string]Override{"n": {Weight: new(0.3)}, "c": {Ignore: new(true)}})
	want.Version = 7
	doc := testkit.Must(json.Marshal(want))(t)
	var got Schema
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if empty := Infer(each(nil), nil); len(empty.Traits) != 0 || empty.Sampled != 0 {
		t.Errorf("from nobody: %+v", empty)
	}
}

func TestOverridesHoldForPathsBelow(t *testing.T) {
	users := []user{{"a", flat(t, `{"habits":{"smoking":true,"drinks":3},"zip":8001,"age":"42","health":{"steps":1}}`)}}
	s := Infer(each(users), map[string]Override{
		"habits":         {Sensitive: new(true), Weight: new(99.0)},
		"habits.smoking": {Weight: new(2.0)},
		"habits.drinks":  {Sensitive: new(false)},
		"zip":            {Type: TypeCategory},
		"age":            {Type: TypeNumber, Weight: new(math.NaN())},
		"health.steps":   {Sensitive: new(false), Type: "nonsense", Ignore: new(true)},
	})
	type row struct {
		Path               string
		Type               Type
		Weight             float64
		Sensitive, Ignored bool
	}
	var got []row
	for _, trait := range s.Traits {
		got = append(got, row{trait.Path, trait.Type, trait.Weight, trait.Sensitive, trait.Ignored})
	}
	want := []row{
		{"age", TypeNumber, 1, false, false},
		{"habits.drinks", TypeNumber, MaxWeight, false, false},
		{"habits.smoking", TypeBool, 2, true, false},
		{"health.steps", TypeNumber, 1, false, true},
		{"zip", TypeCategory, 1, false, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v, ok := s.Traits[0].Read(users[0].flat); !ok || v.Number != 42 {
		t.Errorf("a declared number reads %+v, %v", v, ok)
	}
	if v, ok := s.Traits[4].Read(users[0].flat); !ok || v.Text != "8001" || s.Traits[4].Levels[0].Name != "8001" {
		t.Errorf("a declared category reads %+v, %v", v, ok)
	}
	if s.Traits[2].Participates() || s.Traits[3].Participates() || !s.Traits[4].Participates() {
		t.Error("sensitive and ignored traits take no part, the others do")
	}
}

func TestSensitiveNames(t *testing.T) {
	for path, want := range map[string]bool{
		"religion": true, "profile.healthStatus": true, "user_ethnicity": true, "sexual-orientation": true, "sexualorientation": true,
		"politicalViews": true, "race": true, "profile.Race": true, "tradeUnion.member": true, "HIV": true, "health.steps": true, "beliefs": true,
		"embrace": false, "wealth": false, "age": false, "hours_per_week": false, "trace_id": false, "union_square": false, "devotee": false,
		"cancer": true, "krebs": true, "blutgruppe": true, "blood_group": true, "is_smoker": true, "bmi": true, "bodyMassIndex": true, "verbraucher": false, "cancelled": false,
		"diabetes": true, "BloodPressure": true, "avg_glucose_level": true, "hypertension": true, "family_history.depression": true, "hispanic": true, "racegrp": true, "is_muslim": true,
		"prior_arrests": true, "vaccinated": true, "autistic": true, "hospitality": false, "hospitalised": true, "nautisme": false, "insulated": false, "alcoholic_drinks": false,
		"trace_group": false, "christiania": false, "enterprise": false, "paroles": false, "anxious": false,
		"race_time": false, "raceNumber": false, "race.day": false, "race_type": true, "day_race": true, "race_time.race": true, "orientation": true, "sexual_orientation": true,
	} {
		if got := likelySensitive(path, Rules); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestPathsThatWereCutOffUsersAreSkipped(t *testing.T) {
	wide := func(n int) Flat {
		paths := make([]string, n)
		for i := range paths {
			paths[i] = fmt.Sprintf(`"t%03d":1`, i)
		}
		return flat(t, "{"+strings.Join(paths, ",")+"}")
	}
	s := Infer(each([]user{{"a", wide(MaxPaths + 45)}, {"b", wide(MaxPaths + 3)}, {"c", flat(t, `{"z":1}`)}}), nil)
	if len(s.Traits) != MaxPaths || s.Skipped != 46 {
		t.Errorf("%d traits, %d skipped", len(s.Traits), s.Skipped)
	}
}

func TestTheOrientationOfPagesIsNotSensitive(t *testing.T) {
	for _, c := range []struct {
		path, other string
		sensitive   bool
	}{{"orientation", "Landscape", false}, {"photo.orientation", "landscape", true}, {"orientation", "gay", true}, {"sexual_orientation", "landscape", true}} {
		var users []user
		for i := range 40 {
			value := []string{"portrait", c.other}[i%2]
			users = append(users, user{fmt.Sprint(i), flat(t, fmt.Sprintf(`{%q:%q}`, c.path, value))})
		}
		s := Infer(each(users), nil)
		decided, ok := s.Recorded().Decide(nil)
		if !ok || s.Traits[0].Sensitive != c.sensitive || decided.Traits[0].Sensitive != c.sensitive {
			t.Errorf("%s of portrait and %s: %v, and recorded %v", c.path, c.other, s.Traits[0].Sensitive, decided.Traits[0].Sensitive)
		}
	}
	if !likelySensitive("race_time", wordsSince) || likelySensitive("cancer", wordsSince) {
		t.Error("names are judged by other rules than they were learnt by")
	}
}

func BenchmarkInfer(b *testing.B) {
	var users []user
	for i := range 20_000 {
		users = append(users, user{fmt.Sprint("usr_", i), flat(b, fmt.Sprintf(`{"n":%d,"c":"l%d","s":["%d"],"d":"2024-01-01","b":true}`, i, i%40, i%90))})
	}
	for b.Loop() {
		Infer(each(users), nil)
	}
}

func TestASampleIsWhatInferLooksAt(t *testing.T) {
	var users []user
	var sample Sample
	for i := range 3 * SampleSize {
		u := user{fmt.Sprint("user ", i), flat(t, fmt.Sprintf(`{"n":%d}`, i))}
		users = append(users, u)
		sample.Add(u.id)
	}
	all := Infer(each(users), nil)
	ids := sample.IDs()
	picked := slices.DeleteFunc(users, func(u user) bool { return !slices.Contains(ids, u.id) })
	if diff := cmp.Diff(all, Infer(each(picked), nil)); diff != "" || len(ids) != SampleSize {
		t.Errorf("%d ids (-all +picked):\n%s", len(ids), diff)
	}
}

func TestDecidingIsInferringUnderOtherOverrides(t *testing.T) {
	var users []user
	for i := range 200 {
		users = append(users, user{fmt.Sprint(i), flat(t, fmt.Sprintf(`{"a":{"b":%d,"c":"x%d"},"religion":"r%d","n":"%d"}`, i, i%3, i%2, i))})
	}
	weight, yes, no := 3.5, true, false
	choices := []map[string]Override{
		nil,
		{"a": {Weight: &weight}},
		{"a.b": {Ignore: &yes}, "religion": {Sensitive: &no}},
		{"a.c": {Sensitive: &yes, Weight: &weight}},
	}
	for i, from := range choices {
		for j, to := range choices {
			got, ok := Infer(each(users), from).Decide(to)
			if diff := cmp.Diff(Infer(each(users), to), got); diff != "" || !ok {
				t.Errorf("from %d to %d: %v\n%s", i, j, ok, diff)
			}
		}
	}
	for _, other := range []map[string]Override{{"n": {Type: TypeNumber}}, {"a.b": {Type: TypeNumber}}} { // the second: other values are read as it
		if _, ok := Infer(each(users), nil).Decide(other); ok {
			t.Errorf("%v needs no learning", other)
		}
		if _, ok := Infer(each(users), other).Decide(nil); ok {
			t.Errorf("without %v it needs no learning", other)
		}
		if _, ok := Infer(each(users), other).Decide(other); !ok {
			t.Errorf("%v is decided already", other)
		}
	}
}

func TestWhatIsRecordedNamesNobody(t *testing.T) {
	var users []user
	for i := range 300 {
		users = append(users, user{fmt.Sprint(i), flat(t, fmt.Sprintf(`{"town":"t%d","income":%d,"loss":%d,"tags":["all","one of %d"]}`, min(i/100, 2)+i%30/29*i, 1000+i, -5-i, i))})
	}
	s := Infer(each(users), nil)
	recorded := s.Recorded()
	if len(recorded.Traits) != len(s.Traits) {
		t.Fatalf("%d traits", len(recorded.Traits))
	}
	for i, trait := range recorded.Traits {
		for _, level := range trait.Levels {
			if level.Count < MinHolders {
				t.Errorf("%s names %s, which %d hold", trait.Path, level.Name, level.Count)
			}
		}
		was := s.Traits[i].Numbers
		if trait.Numbers.Min > was.Min || trait.Numbers.Max < was.Max || trait.Numbers.Min < 0 != (was.Min < 0) {
			t.Errorf("%s: %v..%v became %v..%v", trait.Path, was.Min, was.Max, trait.Numbers.Min, trait.Numbers.Max)
		}
		if was.Max == 1299 && (trait.Numbers.Min != 512 || trait.Numbers.Max != 2048) || was.Min == -304 && (trait.Numbers.Min != -512 || trait.Numbers.Max != -4) {
			t.Errorf("%s: %+v", trait.Path, trait.Numbers)
		}
	}
	if levels := recorded.Traits[2].Levels; recorded.Traits[2].Path != "tags" || len(levels) != 1 || levels[0].Name != "all" {
		t.Errorf("tags: %v", levels)
	}
	if diff := cmp.Diff(recorded, recorded.Recorded()); diff != "" {
		t.Errorf("recorded twice:\n%s", diff)
	}
}

func TestANumberOfOneUserIsNotKept(t *testing.T) {
	for _, number := range []string{"123456.75", "65536", "-98304.5", `"1987-06-05"`} {
		users := []user{{"one", flat(t, `{"age":30,"own":`+number+`}`)}}
		for i := range 100 {
			users = append(users, user{fmt.Sprint(i), flat(t, fmt.Sprintf(`{"age":%d}`, 20+i%50))})
		}
		s := Infer(each(users), nil)
		kept, ok := s.Kept()
		if !ok {
			t.Fatal("nothing is kept")
		}
		own := s.Traits[1]
		if own.Path != "own" || own.Type != TypeNumber && own.Type != TypeDate || own.Numbers.Min == 0 {
			t.Fatalf("%s: %+v", number, own)
		}
		asOf := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for name, as := range map[string]Schema{"recorded": s.Recorded(), "kept": kept} {
			n := as.Traits[1].Numbers
			if n.P1 != 0 || n.P25 != 0 || n.P50 != 0 || n.P75 != 0 || n.P99 != 0 || name == "kept" && n != (Numbers{}) {
				t.Errorf("%s is %s as %+v", number, name, n)
			}
			if diff := cmp.Diff(s.Encoder(asOf).Dimensions(), as.Encoder(asOf).Dimensions()); diff != "" {
				t.Errorf("%s, %s: other dimensions:\n%s", number, name, diff)
			}
		}
	}
}

// Two users who have sent one number each are told that they match, whatever number it is.
func TestFewWhoseNumberIsTheSameAreAlikeInIt(t *testing.T) {
	for _, number := range []string{"30", "31", "0", "-7", "65536", "0.3", "1e-300", "-1e9", `"1987-06-05"`} {
		for n, alike := range map[int]bool{2: true, MinHolders - 1: true, MinHolders: false} {
			users := make([]user, n)
			for i := range users {
				users[i] = user{fmt.Sprint(i), flat(t, `{"own":`+number+`}`)}
			}
			own := Infer(each(users), nil).Recorded().Traits[0]
			v, ok := own.Read(users[0].flat)
			if !ok || own.Type != TypeNumber && own.Type != TypeDate {
				t.Fatalf("%s is read as %+v", number, own)
			}
			if is := own.Numbers.Span() > 0 && own.Similarity(v, v) == 1 && own.Expected == 1; is != alike {
				t.Errorf("%s of %d users: %+v, expected %v", number, n, own.Numbers, own.Expected)
			}
		}
	}
}

func TestAQuantileIsOfTenUsers(t *testing.T) {
	near := func(xs ...float64) []float64 { return xs }
	for _, c := range []struct {
		sorted []float64
		q      float64
		want   float64
	}{
		{near(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 9), 0, 3}, // ten have it
		{near(7), 0.5, 7},
		{near(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), 0.5, 6.5},
		{near(9_000_238_217, 9_000_338_219, 9_000_438_220, 9_000_538_229, 9_000_638_231, 9_000_738_240, 9_000_838_251, 9_000_938_263, 9_001_038_270, 9_001_138_289), 0.5, 9_000_690_000},
		{near(-1, -1, -1, -1, -1, 1, 1, 1, 1, 1.001), 0.5, 0},
		{near(-1e150, 0, 0, 0, 0, 0, 0, 0, 0, 1e150), 0.5, 0},
		{near(1e-310, 1e-310, 1e-310, 1e-310, 1e-310, 1e-310, 1e-310, 1e-310, 1e-310, 1e-310+5e-324), 0.5, 0},
	} {
		if got := SharedQuantile(c.sorted, c.q); got != c.want {
			t.Errorf("SharedQuantile(%v, %v) = %v, not %v", c.sorted, c.q, got, c.want)
		}
	}
}

func TestWhatIsRecordedHasABound(t *testing.T) {
	long := strings.Repeat("x", MaxTextBytes-8)
	s := Schema{}
	for i := range MaxPaths {
		trait := Trait{Path: fmt.Sprintf("%s.%03d", strings.Repeat("p", MaxPathBytes-4), i), Type: TypeSet, Numbers: Numbers{P1: 1.0 / 3, P99: 2.0 / 3}}
		for j := range SetLevels {
			trait.Levels = append(trait.Levels, Level{fmt.Sprintf("%s %d", long, j), 4000})
		}
		s.Traits = append(s.Traits, trait)
	}
	recorded := s.Recorded()
	document, err := json.Marshal(recorded)
	if err != nil || len(document) > MaxRecorded {
		t.Errorf("%d bytes, %v", len(document), err)
	}
	if len(recorded.Traits) != MaxPaths || len(s.Traits[0].Levels) != SetLevels {
		t.Errorf("%d traits, %d levels of the original", len(recorded.Traits), len(s.Traits[0].Levels))
	}
}

func TestAKeptSchemaReadsOthersAsItsUsersWere(t *testing.T) {
	var users []user
	for i := range 400 {
		city := "Lyon"
		if i%40 == 0 {
			city = "Graz" // ten users
		} else if i%100 == 1 {
			city = "Turin" // four
		}
		users = append(users, user{fmt.Sprint(i), flat(t, fmt.Sprintf(`{"age":%d,"city":%q,"tags":["a","b%d"],"diagnosis":"%d"}`, 20+i%50, city, i%3, i%2))})
	}
	s := Infer(each(users), nil)
	kept, ok := s.Kept()
	document, err := json.Marshal(kept)
	if !ok || err != nil || strings.Contains(string(document), "Turin") || strings.Contains(string(document), "diagnosis") {
		t.Fatalf("%t %v: %s", ok, err, document)
	}
	before, after := s.Encoder(noon), kept.Encoder(noon)
	if len(before.Dimensions()) != len(after.Dimensions()) {
		t.Fatalf("%d dimensions are %d", len(before.Dimensions()), len(after.Dimensions()))
	}
	common := flat(t, `{"age":30,"city":"Graz","tags":["b1"]}`)
	if diff := cmp.Diff(before.Append(nil, common), after.Append(nil, common)); diff != "" {
		t.Error(diff)
	}
	rare, unheard := flat(t, `{"city":"Turin"}`), flat(t, `{"city":"Oslo"}`)
	if diff := cmp.Diff(before.Append(nil, unheard), after.Append(nil, rare)); diff != "" {
		t.Error(diff)
	}
}

// A number whose square is infinite would leave no schema that could be recorded.
func TestASpelledNumberIsNoLargerThanAnyOther(t *testing.T) {
	for spelled, huge := range map[string]string{
		`"%dk"`:       `"1e149M"`,
		`"%dh 30m"`:   `"` + strings.Repeat("9", 240) + `h"`,
		`"%d ft 2in"`: `"` + strings.Repeat("9", 240) + `ft"`,
	} {
		got := column(t, append(generate(99, func(i int) string { return fmt.Sprintf(spelled, i%9+1) }), huge), nil)
		_, err := json.Marshal(Schema{Traits: []Trait{got}}.Recorded())
		if err != nil || got.Type != TypeNumber || got.Numbers.Max > 1e5 {
			t.Errorf("%s beside %s: %v, %+v", spelled, huge, err, got)
		}
	}
}
