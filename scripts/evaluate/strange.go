package main

import (
	"fmt"
	"math"

	"kindred/domain/clustering"
	"kindred/domain/splitmix"
)

// strange is a world whose users are said of by a function of their persona.
type strange struct {
	name  string
	sizes []int // of the personas
	say   func(random *splitmix.Source, persona, i int, said map[string]any)
	times int // each user is there so often, 0: once
}

// blobs say of each persona so many numbers, its own mean each.
func blobs(seed uint64, personas, numbers int, apart float64) func(*splitmix.Source, int, int, map[string]any) {
	random := splitmix.Source(seed)
	centers := make([]float64, personas*numbers)
	for i := range centers {
		centers[i] = apart * gaussian(&random)
	}
	return func(random *splitmix.Source, persona, _ int, said map[string]any) {
		for d := range numbers {
			said[fmt.Sprintf("number_%c", 'a'+d)] = math.Round(1000*(centers[persona*numbers+d]+0.7*gaussian(random))) / 10
		}
	}
}

// levels say of each persona so many categories: its own level of each mostly.
func levels(seed uint64, personas, categories, of int, mostly float64) func(*splitmix.Source, int, int, map[string]any) {
	random := splitmix.Source(seed)
	own := make([]int, personas*categories)
	for i := range own {
		own[i] = random.IntN(of)
	}
	return func(random *splitmix.Source, persona, _ int, said map[string]any) {
		for d := range categories {
			level := own[persona*categories+d]
			if random.Float64() > mostly {
				level = random.IntN(of)
			}
			if of == 2 {
				said[fmt.Sprintf("flag_%c", 'a'+d)] = level == 1
			} else {
				said[fmt.Sprintf("level_%c", 'a'+d)] = fmt.Sprintf("l%d", level)
			}
		}
	}
}

func sizes(of ...int) []int { return of }

func equal(k, n int) (of []int) {
	for range k {
		of = append(of, n/k)
	}
	return of
}

func uneven(k int) (of []int) {
	for i := range k {
		of = append(of, 40<<(i%3)) // 40, 80, 160
	}
	return of
}

func strangeWorlds(seed uint64) []strange {
	type say = func(*splitmix.Source, int, int, map[string]any)
	and := func(all ...say) say {
		return func(random *splitmix.Source, persona, i int, said map[string]any) {
			for _, s := range all {
				s(random, persona, i, said)
			}
		}
	}
	plain := func(k int) say { return and(blobs(seed, k, 8, 1.2), levels(seed, k, 4, 6, 0.7)) }
	curve := func(at func(persona int, angle float64) (x, y float64)) say {
		return func(random *splitmix.Source, persona, _ int, said map[string]any) {
			x, y := at(persona, random.Float64())
			said["x"], said["y"] = math.Round(1e4*(x+0.06*gaussian(random)))/10, math.Round(1e4*(y+0.06*gaussian(random)))/10
		}
	}
	tags := func(random *splitmix.Source, persona, _ int, said map[string]any) {
		held := []string{}
		for t := range 20 {
			p := 0.08
			if t/5 == persona {
				p = 0.6
			}
			if random.Float64() < p {
				held = append(held, fmt.Sprintf("tag %d", t))
			}
		}
		said["tags"] = held
	}
	return []strange{
		{name: "sizes 1:10:100", sizes: sizes(20, 200, 2_000), say: plain(3)},
		{name: "2 personas", sizes: equal(2, 1_000), say: plain(2)},
		{name: "4 personas, .4 apart", sizes: equal(4, 1_000), say: and(blobs(seed, 4, 8, 0.4), levels(seed, 4, 4, 6, 0.5))},
		{name: "moons", sizes: equal(2, 1_000), say: curve(func(p int, u float64) (float64, float64) {
			return math.Cos(math.Pi*u)*float64(1-2*p) + float64(p), math.Sin(math.Pi*u)*float64(1-2*p) + 0.5*float64(p)
		})},
		{name: "rings", sizes: equal(2, 1_000), say: curve(func(p int, u float64) (float64, float64) {
			return math.Cos(2*math.Pi*u) * float64(1+2*p), math.Sin(2*math.Pi*u) * float64(1+2*p)
		})},
		{name: "24 yes or no", sizes: equal(4, 1_000), say: levels(seed, 4, 24, 2, 0.7)},
		{name: "tags", sizes: equal(4, 1_000), say: tags},
		{name: "10 categories, 2 numbers", sizes: equal(5, 1_000), say: and(blobs(seed, 5, 2, 0.8), levels(seed, 5, 10, 6, 0.7))},
		{name: "3 numbers, 1 category", sizes: equal(4, 1_000), say: and(blobs(seed, 4, 3, 1.6), levels(seed, 4, 1, 5, 0.8))},
		{name: "duplicates", sizes: equal(5, 200), say: plain(5), times: 10},
		{name: "an identifier, a constant", sizes: equal(5, 1_000), say: and(plain(5), func(random *splitmix.Source, _, i int, said map[string]any) {
			said["serial"], said["source"], said["noise"] = i*7+random.IntN(7), "web", random.Float64()
		})},
		{name: "40 users", sizes: equal(2, 40), say: plain(2)},
		{name: "60 users", sizes: equal(3, 60), say: plain(3)},
		{name: "100 users", sizes: equal(4, 100), say: plain(4)},
		{name: "5,000 users", sizes: equal(6, 5_000), say: plain(6)},
		{name: "20 personas, uneven", sizes: uneven(20), say: plain(20)},
		{name: "30 personas, uneven", sizes: uneven(30), say: plain(30)},
	}
}

func (w strange) people(seed uint64) (people []string, of []uint16) {
	random := splitmix.Source(seed ^ 0x9e3779b9)
	for persona, n := range w.sizes {
		for range n {
			said := map[string]any{}
			w.say(&random, persona, len(people), said)
			text := document(said)
			for range max(1, w.times) {
				people, of = append(people, text), append(of, uint16(persona))
			}
		}
	}
	return people, of
}

// strangers finds personas again in worlds of other kinds.
func (e *evaluation) strangers() error {
	for _, w := range strangeWorlds(e.seed) {
		people, of := w.people(e.seed)
		p, err := e.population(people)
		if err != nil {
			return err
		}
		run, _, err := e.stable(w.name, p)
		if err != nil {
			return err
		}
		ari := clustering.AdjustedRand(run.Assignments, of)
		e.row("clusters, "+w.name, fmt.Sprintf("%d of %d personas, ARI %.2f", run.K, len(w.sizes), ari), "-", true)
	}
	return nil
}
