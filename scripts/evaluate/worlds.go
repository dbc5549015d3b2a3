package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"kindred/domain/splitmix"
)

// censusPeople are read of the census records.
const censusPeople = 2_000

var censusColumns = []string{
	"age", "workclass", "", "education", "education_num", "marital_status", "occupation", "relationship", "race", "sex",
	"capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
}

// readAdult reads every 16th record as traits; nothing where there is no file.
func readAdult(path string) (people []string, err error) {
	if path == "" {
		fmt.Println("  census records are left out: -adult or KINDRED_ADULT names their file")
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan() && len(people) < censusPeople; n++ {
		fields := strings.Split(lines.Text(), ", ")
		if n%16 != 0 || len(fields) != len(censusColumns) {
			continue
		}
		said := map[string]any{}
		for i, field := range fields {
			var x json.Number
			switch {
			case censusColumns[i] == "" || field == "?":
			case json.Unmarshal([]byte(field), &x) == nil:
				said[censusColumns[i]] = x
			default:
				said[censusColumns[i]] = field
			}
		}
		people = append(people, document(said))
	}
	return people, lines.Err()
}

func document(said map[string]any) string {
	raw, err := json.Marshal(said)
	if err != nil {
		panic(err) // numbers and texts
	}
	return string(raw)
}

// gaussian draws from the normal distribution, nearly.
func gaussian(random *splitmix.Source) float64 {
	sum := -6.0
	for range 12 {
		sum += random.Float64()
	}
	return sum
}

// world are users of k personas in turn, whose numbers are apart by so many standard
// deviations.
func world(seed uint64, n, k int, apart float64) []string {
	return worldMoved(seed, seed, n, k, apart, 0)
}

// worldMoved draws the users by a seed of their own, and moves their numbers by so many
// standard deviations.
func worldMoved(seed, users uint64, n, k int, apart, moved float64) []string {
	random := splitmix.Source(seed)
	type persona struct {
		numbers [8]float64
		levels  [4]int
	}
	personas := make([]persona, k)
	for i := range personas {
		for d := range personas[i].numbers {
			personas[i].numbers[d] = apart * gaussian(&random)
		}
		for d := range personas[i].levels {
			personas[i].levels[d] = random.IntN(6)
		}
	}
	random = splitmix.Source(users ^ 0x5bd1e995)
	people := make([]string, n)
	for i := range people {
		said := map[string]any{}
		for d, center := range personas[i%k].numbers {
			said[fmt.Sprintf("number_%c", 'a'+d)] = math.Round(1000*(center+0.7*(gaussian(&random)+moved))) / 10
		}
		for d, level := range personas[i%k].levels {
			if random.Float64() > 0.7 {
				level = random.IntN(6)
			}
			said[fmt.Sprintf("level_%c", 'a'+d)] = fmt.Sprintf("l%d", level)
		}
		people[i] = document(said)
	}
	return people
}

func personasOf(n, k int) []uint16 {
	of := make([]uint16, n)
	for i := range of {
		of[i] = uint16(i % k) //nolint:gosec // G115: at most 30
	}
	return of
}

// crowd is users without groups: six numbers, which share a factor that holds so much of each,
// and two categories.
type crowd struct {
	name   string
	shared float64
	shape  func(random *splitmix.Source, numbers []float64) // nil: as they are
	more   func(random *splitmix.Source, said map[string]any)
	gaps   float64 // share of what is not said
	copies int     // of each user
}

func crowds() []crowd {
	each := func(of func(x float64) float64) func(*splitmix.Source, []float64) {
		return func(_ *splitmix.Source, numbers []float64) {
			for d, x := range numbers {
				numbers[d] = of(x)
			}
		}
	}
	return []crowd{
		{name: "round"},
		{name: "correlated by 0.5", shared: 0.5},
		{name: "correlated by 0.9", shared: 0.9},
		{name: "skewed, correlated by 0.5", shared: 0.5, shape: each(math.Exp)},
		{name: "mostly 0, correlated by 0.5", shared: 0.5, shape: each(func(x float64) float64 { return max(0, x) })},
		{name: "heavy-tailed (t of 2)", shape: func(random *splitmix.Source, numbers []float64) {
			wide := math.Sqrt(-2 * math.Log(1-random.Float64()) / 2)
			for d := range numbers {
				numbers[d] /= max(wide, 1e-3)
			}
		}},
		{name: "a cube", shape: func(random *splitmix.Source, numbers []float64) {
			for d := range numbers {
				numbers[d] = random.Float64()
			}
		}},
		{name: "a ring", shape: func(random *splitmix.Source, numbers []float64) {
			angle := 2 * math.Pi * random.Float64()
			numbers[0], numbers[1] = 3*math.Cos(angle)+0.2*numbers[0], 3*math.Sin(angle)+0.2*numbers[1]
		}},
		{name: "answers of 1 to 5, correlated by 0.5", shared: 0.5, shape: each(likert)},
		{name: "one persona at three levels of noise", shape: func(random *splitmix.Source, numbers []float64) {
			noise := []float64{0.3, 1, 3}[random.IntN(3)]
			for d := range numbers {
				numbers[d] *= noise
			}
		}},
		{name: "twelve yes or no, correlated by 0.5", shared: 0.5, more: yesNo},
		{name: "yes or no, correlated by 0.9", shared: 0.9, more: yesNo},
		{name: "answers in words, correlated by 0.9", shared: 0.9, more: inWords},
		{name: "ten tags", more: tenTags},
		{name: "tags, correlated by 0.5", shared: 0.5, more: tenTags},
		{name: "duplicates", shared: 0.3, copies: 5},
		{name: "correlated, two fifths not said", shared: 0.5, gaps: 0.4},
		{name: "ten flags of 2 %, correlated by 0.5", shared: 0.5, more: func(random *splitmix.Source, said map[string]any) {
			for flag := range 10 {
				said[fmt.Sprint("flag_", flag)] = random.Float64() < 0.02
			}
		}},
		{name: "a column twice, one constant", shared: 0.3, more: func(_ *splitmix.Source, said map[string]any) {
			said["copy"], said["source"] = said["number_a"], "web"
		}},
		{name: "a band of a number", shared: 0.3, more: func(_ *splitmix.Source, said map[string]any) {
			said["band"] = fmt.Sprint("band ", math.Floor(said["number_a"].(float64)/70))
		}},
		{name: "cities and their countries", shared: 0.3, more: func(random *splitmix.Source, said map[string]any) {
			at := random.IntN(9)
			said["city"], said["country"] = fmt.Sprint("city ", at), fmt.Sprint("country ", at/3)
		}},
		{name: "a category one-hot", shared: 0.3, more: func(random *splitmix.Source, said map[string]any) {
			at := random.IntN(4)
			for level := range 4 {
				said[fmt.Sprint("is_", 'a'+level)] = 0
			}
			said[fmt.Sprint("is_", 'a'+at)] = 1
		}},
	}
}

// people are n users of a crowd.
func (c crowd) people(seed uint64, n int) []string {
	random := splitmix.Source(seed)
	people := make([]string, n)
	for i := range people {
		said, factor, numbers := map[string]any{}, gaussian(&random), make([]float64, 6)
		for d := range numbers {
			numbers[d] = math.Sqrt(c.shared)*factor + math.Sqrt(1-c.shared)*gaussian(&random)
		}
		if c.shape != nil {
			c.shape(&random, numbers)
		}
		for d, x := range numbers {
			said[fmt.Sprintf("number_%c", 'a'+d)] = math.Round(1000*x) / 10
		}
		for d := range 2 {
			said[fmt.Sprintf("level_%c", 'a'+d)] = fmt.Sprintf("l%d", min(random.IntN(4), random.IntN(4)))
		}
		if c.more != nil {
			c.more(&random, said)
		}
		for _, path := range slices.Sorted(maps.Keys(said)) {
			if random.Float64() < c.gaps {
				delete(said, path)
			}
		}
		people[i] = document(said)
		if c.copies > 0 {
			people[i] = people[i-i%c.copies]
		}
	}
	return people
}

// likert answers by 1 to 5.
func likert(x float64) float64 { return math.Round(min(max(3+1.1*x, 1), 5)) / 100 }

// inWords says a crowd's numbers as answers.
func inWords(_ *splitmix.Source, said map[string]any) {
	words := []string{"strongly disagree", "disagree", "neither", "agree", "strongly agree"}
	for d := range 6 {
		key := fmt.Sprintf("number_%c", 'a'+d)
		said[key] = words[int(100*likert(said[key].(float64)/100))-1]
	}
}

// yesNo says them as yes or no, and six more that go with them.
func yesNo(random *splitmix.Source, said map[string]any) {
	for d := range 6 {
		key := fmt.Sprintf("number_%c", 'a'+d)
		x := said[key].(float64)
		said[key], said[fmt.Sprint("flag_", d)] = x > 0, x+150*gaussian(random) > 60
	}
}

// tenTags says them by tags.
func tenTags(random *splitmix.Source, said map[string]any) {
	held := []string{}
	for d := range 10 {
		if x := said[fmt.Sprintf("number_%c", 'a'+d%6)].(float64); x+100*gaussian(random) > 100 {
			held = append(held, fmt.Sprint("tag ", d))
		}
	}
	for d := range 6 {
		delete(said, fmt.Sprintf("number_%c", 'a'+d))
	}
	said["tags"] = held
}
