package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"kindred/domain/clustering"
	"kindred/domain/matching"
	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

var asOf = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// population is users as a run reads them.
type population struct {
	flats   []traits.Flat
	schema  traits.Schema
	encoder *traits.Encoder
	clustering.Points
}

func (e *evaluation) population(people []string) (p population, err error) {
	p.flats = make([]traits.Flat, len(people))
	for i, said := range people {
		if p.flats[i], err = traits.Flatten([]byte(said)); err != nil {
			return p, err
		}
	}
	p.schema = traits.Infer(p.named, nil)
	p.encoder = p.schema.Encoder(asOf)
	p.Dims = len(p.encoder.Dimensions())
	for _, flat := range p.flats {
		p.Data = p.encoder.Append(p.Data, flat)
	}
	return p, nil
}

func (p population) named(yield func(string, traits.Flat) bool) {
	for i, flat := range p.flats {
		if !yield(name(i), flat) {
			return
		}
	}
}

func name(i int) string { return fmt.Sprintf("usr_%07d", i) }

func (e *evaluation) run(p population, o clustering.Options) (clustering.Result, error) {
	o.Threads = e.threads
	return clustering.Fit(e, p.Points, o)
}

func (e *evaluation) judge(p population, run clustering.Result) (clustering.Verdict, error) {
	trial := clustering.Trial{
		Points: clustering.Points{Dims: p.Dims}, Traits: clustering.Spans(p.schema, p.encoder), K: run.K, Seed: e.seed, Threads: e.threads,
	}
	for _, i := range clustering.DrawJudged(p.Len(), p.Dims, e.seed) {
		trial.Points.Data = append(trial.Points.Data, p.Data[i*p.Dims:][:p.Dims]...)
		trial.Assigned = append(trial.Assigned, run.Assignments[i])
	}
	found, err := clustering.Judge(e, trial)
	return found.Verdict, err
}

// survey profiles the clusters of a run, also in the bins of older ones.
func survey(ctx context.Context, p population, run clustering.Result, against [][]clustering.Profile) (clustering.Surveyed, error) {
	return clustering.Survey(ctx, clustering.Question{Schema: p.schema, AsOf: asOf, Result: run, Seed: 1, Against: against}, slices.All(p.flats))
}

// labelsF1 is how well the two traits that a label names tell who is in a cluster: the
// harmonic mean of precision and recall, a number on the side of the cluster's median from
// halfway to everybody's.
func (p population) labelsF1(run clustering.Result) (of []float64) {
	surveyed, err := survey(context.Background(), p, run, nil)
	if err != nil {
		panic(err) // nothing ends the context
	}
	for c, label := range surveyed.Labels {
		rule := label.Distinctions[:min(2, len(label.Distinctions))]
		both, told := 0, 0
		for i, flat := range p.flats {
			if len(rule) == 0 || !p.fits(flat, rule) {
				continue
			}
			if told++; int(run.Assignments[i]) == c {
				both++
			}
		}
		of = append(of, 2*float64(both)/float64(told+run.Sizes[c]))
	}
	return of
}

func (p population) fits(flat traits.Flat, rule []clustering.Distinction) bool {
	return !slices.ContainsFunc(rule, func(d clustering.Distinction) bool {
		at := slices.IndexFunc(p.schema.Traits, func(t traits.Trait) bool { return t.Path == d.Path })
		v, ok := p.schema.Traits[at].Read(flat)
		if d.Level != "" {
			return (ok && v.Text == d.Level) != (d.Effect > 0)
		}
		return !ok || (v.Number > (d.Here+d.All)/2) != (d.Effect > 0)
	})
}

// matches counts how often each user is shown to others, where some fill in
// a fifth and others all.
func (e *evaluation) matches(what string, people []string) error {
	if len(people) == 0 {
		return nil
	}
	p, err := e.population(people)
	if err != nil {
		return err
	}
	random := splitmix.Source(e.seed)
	for i := range p.flats {
		share := 0.2 + 0.8*random.Float64()
		p.flats[i].Values = slices.DeleteFunc(p.flats[i].Values, func(traits.Value) bool { return random.Float64() > share })
	}
	all := matching.New(traits.Infer(p.named, nil))
	for i, flat := range p.flats {
		all.Put(name(i), flat)
	}
	shown := map[string]int{}
	for i := range p.flats {
		shown[name(i)] += 0
		best, err := all.Top(matching.Query{User: name(i), Limit: 10})
		if err != nil {
			return err
		}
		for _, m := range best {
			shown[m.User]++
		}
	}
	counts := slices.Sorted(maps.Values(shown))
	sum, weighted, never := 0.0, 0.0, 0
	for i, n := range counts {
		sum += float64(n)
		weighted += float64(i+1) * float64(n)
		if n == 0 {
			never++
		}
	}
	n := float64(len(counts))
	gini, unseen := 2*weighted/(n*sum)-(n+1)/n, 100*float64(never)/n
	e.row("Gini of being shown in the top 10, "+what, fmt.Sprintf("%.2f", gini), "<= 0.5", gini <= 0.5)
	e.row("never shown, "+what, fmt.Sprintf("%.1f %%", unseen), "<= 5 %", unseen <= 5)
	return nil
}

// drift compares runs of users who have not changed, and of some who have.
func (e *evaluation) drift() error {
	const users, personas, apart, times = 1_200, 4, 1.2, 20
	older, err := e.population(world(e.seed, users, personas, apart))
	if err != nil {
		return err
	}
	run, err := e.run(older, clustering.Options{Seed: e.seed})
	if err != nil {
		return err
	}
	surveyed, err := survey(e, older, run, nil)
	if err != nil {
		return err
	}
	told := map[string]int{}
	for seed := range uint64(times) {
		same := slices.Clone(older.flats)
		for _, c := range []struct {
			what  string
			stays func(random *splitmix.Source, i int) bool
			moved float64
		}{
			{"another seed", func(*splitmix.Source, int) bool { return true }, 0},
			{"a random two thirds", func(r *splitmix.Source, _ int) bool { return r.IntN(3) > 0 }, 0},
			{"a tenth replaced", func(r *splitmix.Source, _ int) bool { return r.IntN(10) > 0 }, 0},
			{"numbers moved by 0.3 standard deviations", func(*splitmix.Source, int) bool { return false }, 0.3},
		} {
			others := worldMoved(e.seed, e.seed+1+seed, users, personas, apart, c.moved)
			random := splitmix.Source(e.seed + seed)
			later := population{schema: older.schema, encoder: older.encoder, Points: clustering.Points{Dims: older.Dims}}
			var of []int // the place among the older users; -1: somebody new
			for i := range same {
				flat, place := same[i], i
				if !c.stays(&random, i) {
					if c.what == "a random two thirds" {
						continue
					}
					if flat, err = traits.Flatten([]byte(others[i])); err != nil {
						return err
					}
					if c.moved == 0 {
						place = -1
					}
				}
				later.flats, of = append(later.flats, flat), append(of, place)
				later.Data = later.encoder.Append(later.Data, flat)
			}
			alarm, err := e.alarms(later, of, run, surveyed, seed)
			if err != nil {
				return err
			}
			if alarm {
				told[c.what]++
			}
		}
	}
	for _, what := range []string{"another seed", "a random two thirds", "a tenth replaced"} {
		e.row("drift told where nobody has changed, "+what, fmt.Sprintf("%d of %d", told[what], times), "<= 2 %", told[what]*50 <= times)
	}
	const moved = "numbers moved by 0.3 standard deviations"
	e.row("drift told, "+moved, fmt.Sprintf("%d of %d", told[moved], times), ">= 95 %", told[moved]*20 >= times*19)
	return nil
}

// alarms says whether a later run tells drift of any cluster, or keeps not all of them.
func (e *evaluation) alarms(later population, of []int, run clustering.Result, surveyed clustering.Surveyed, seed uint64) (bool, error) {
	now, err := e.run(later, clustering.Options{Seed: e.seed + 7*seed, Warm: run.Centroids, Keep: run.K})
	if err != nil {
		return false, err
	}
	overlap := clustering.NewOverlap(run.K, now.K)
	for i, place := range of {
		if place >= 0 {
			overlap[run.Assignments[place]][now.Assignments[i]]++
		}
	}
	keeps := overlap.Succession().Keeps
	against := make([][]clustering.Profile, now.K)
	for j, i := range keeps {
		if i >= 0 {
			against[j] = []clustering.Profile{surveyed.Profiles[i]}
		}
	}
	found, err := survey(e, later, now, against)
	if err != nil {
		return false, err
	}
	for j, i := range keeps {
		if i < 0 || len(clustering.Compare(surveyed.Profiles[i], found.Against[j][0], overlap.Members(i, j), clustering.Previous).Causes) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}

// adjustedRand is the adjusted Rand index (Hubert and Arabie 1985) of two divisions.
func adjustedRand(a, b []uint16) float64 {
	cells, left, right := map[[2]uint16]float64{}, map[uint16]float64{}, map[uint16]float64{}
	for i := range a {
		cells[[2]uint16{a[i], b[i]}]++
		left[a[i]]++
		right[b[i]]++
	}
	pairs := func(n float64) float64 { return n * (n - 1) / 2 }
	var both, ofLeft, ofRight float64
	for _, n := range cells {
		both += pairs(n)
	}
	for _, n := range left {
		ofLeft += pairs(n)
	}
	for _, n := range right {
		ofRight += pairs(n)
	}
	chance := ofLeft * ofRight / pairs(float64(len(a)))
	return (both - chance) / ((ofLeft+ofRight)/2 - chance)
}
