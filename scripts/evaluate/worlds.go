package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
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

// cloud are users without groups: six numbers, which share a factor that holds so much of
// each, and two categories.
func cloud(seed uint64, n int, shared float64) []string {
	random := splitmix.Source(seed)
	people := make([]string, n)
	for i := range people {
		said, factor := map[string]any{}, gaussian(&random)
		for d := range 6 {
			x := math.Sqrt(shared)*factor + math.Sqrt(1-shared)*gaussian(&random)
			said[fmt.Sprintf("number_%c", 'a'+d)] = math.Round(1000*x) / 10
		}
		for d := range 2 {
			said[fmt.Sprintf("level_%c", 'a'+d)] = fmt.Sprintf("l%d", min(random.IntN(4), random.IntN(4)))
		}
		people[i] = document(said)
	}
	return people
}
