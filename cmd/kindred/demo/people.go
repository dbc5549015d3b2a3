package demo

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// person is a line of an import.
type person struct {
	ExternalID string         `json:"external_id"`
	Traits     map[string]any `json:"traits"`
}

// scenes are what made-up people lean towards. Being alike comes from sharing
// one.
var scenes = []struct {
	interests []string
	plans     []string // the likelier ones are named more often
	age       float64
	hours     float64 // a week
}{
	{[]string{"climbing", "trail running", "skiing", "camping"}, []string{"pro", "pro", "plus"}, 29, 44},
	{[]string{"jazz", "vinyl", "wine", "opera"}, []string{"plus", "pro"}, 52, 38},
	{[]string{"chess", "go", "programming", "synthesizers"}, []string{"free", "plus", "pro"}, 34, 42},
	{[]string{"baking", "gardening", "board games", "picnics"}, []string{"free", "plus"}, 41, 30},
	{[]string{"football", "gaming", "street food", "hip hop"}, []string{"free", "free", "plus"}, 23, 24},
}

var cities = []struct {
	name     string
	lat, lon float64
}{
	{"Lisbon", 38.72, -9.14},
	{"Berlin", 52.52, 13.40},
	{"Lagos", 6.52, 3.38},
	{"Osaka", 34.69, 135.50},
	{"Montreal", 45.50, -73.57},
	{"Recife", -8.05, -34.88},
}

var names = []string{
	"amara", "bruno", "chiara", "deniz", "emeka", "freja", "gus", "hana", "ines", "joao", "keiko", "luca", "maya",
	"nils", "olga", "pia", "quim", "rosa", "sami", "tove", "uma", "vera", "wim", "xenia", "yuto", "zofia",
}

// madeUpPaths are the traits that a scene leans towards.
var madeUpPaths = []string{"age", "hours_per_week", "interests", "plan", "premium"}

// madeUp makes up n people with mixed traits: numbers, words, sets, places,
// dates and answers, some of them missing. The same seed makes the same people.
func madeUp(seed uint64, n int) iter.Seq2[person, error] {
	return func(yield func(person, error) bool) {
		chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable, and nothing secret
		first := time.Date(2021, time.January, 1, 0, 0, 0, 0, time.UTC)
		for i := range n {
			scene := scenes[chance.IntN(len(scenes))]
			city := cities[chance.IntN(len(cities))]
			plan := scene.plans[chance.IntN(len(scene.plans))]
			traits := map[string]any{
				"age":       math.Round(min(90, max(18, scene.age+6*chance.NormFloat64()))),
				"plan":      plan,
				"interests": some(chance, scene.interests),
				"premium":   plan != "free" && chance.IntN(4) > 0,
				"joined":    first.AddDate(0, 0, chance.IntN(5*365)).Format(time.DateOnly),
				"city":      city.name,
				"home": map[string]any{
					"lat": math.Round(1e4*(city.lat+0.05*chance.NormFloat64())) / 1e4,
					"lon": math.Round(1e4*(city.lon+0.05*chance.NormFloat64())) / 1e4,
				},
			}
			if chance.IntN(8) > 0 {
				traits["hours_per_week"] = math.Round(10*max(0, scene.hours+7*chance.NormFloat64())) / 10
			}
			name := fmt.Sprintf("%s-%0*d", names[chance.IntN(len(names))], len(fmt.Sprint(n)), i+1)
			if !yield(person{name, traits}, nil) {
				return
			}
		}
	}
}

// some takes one to three of a scene's interests, and now and then one of
// another scene's.
func some(chance *rand.Rand, of []string) []string {
	var taken []string
	for _, i := range chance.Perm(len(of))[:1+chance.IntN(3)] {
		taken = append(taken, of[i])
	}
	if other := scenes[chance.IntN(len(scenes))].interests; chance.IntN(3) == 0 && other[0] != of[0] {
		taken = append(taken, other[chance.IntN(len(other))])
	}
	return taken
}
