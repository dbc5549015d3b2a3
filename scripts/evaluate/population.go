package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
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

// judge finds the verdict on a run that was asked for so many clusters; 0: it chose.
func (e *evaluation) judge(p population, run clustering.Result, asked int) (clustering.Verdict, error) {
	trial := clustering.Trial{
		Points: clustering.Points{Dims: p.Dims}, Traits: clustering.Spans(p.schema, p.encoder), K: run.K, Asked: asked, Seed: e.seed, Threads: e.threads,
	}
	for _, i := range clustering.DrawJudged(p.Len(), p.Dims, e.seed) {
		trial.Points.Data = append(trial.Points.Data, p.Data[i*p.Dims:][:p.Dims]...)
		trial.Assigned = append(trial.Assigned, run.Assignments[i])
	}
	found, err := clustering.Judge(e, trial)
	return found.Verdict, err
}

// survey profiles the clusters of a run, also by earlier ones where q names them.
func survey(ctx context.Context, p population, run clustering.Result, q clustering.Question) (clustering.Surveyed, error) {
	q.Schema, q.AsOf, q.Result, q.Seed = p.schema, asOf, run, 1
	return clustering.Survey(ctx, q, slices.All(p.flats))
}

// labelsF1 is how well the conditions that a label names tell who is in a cluster, among
// all users: the harmonic mean of precision and recall.
func (p population) labelsF1(run clustering.Result) (of []float64) {
	surveyed, err := survey(context.Background(), p, run, clustering.Question{})
	if err != nil {
		panic(err) // nothing ends the context
	}
	for c, label := range surveyed.Labels {
		both, told := 0, 0
		for i, flat := range p.flats {
			if len(label.Conditions) == 0 || !p.fits(flat, label.Conditions) {
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

func (p population) fits(flat traits.Flat, all []clustering.Condition) bool {
	return !slices.ContainsFunc(all, func(c clustering.Condition) bool { return !p.meets(flat, c) })
}

func (p population) meets(flat traits.Flat, c clustering.Condition) bool {
	at := slices.IndexFunc(p.schema.Traits, func(t traits.Trait) bool { return t.Path == c.Path })
	v, ok := p.schema.Traits[at].Read(flat)
	if c.Level != "" {
		return (ok && v.Text == c.Level) != c.Not
	}
	return ok && v.Number > c.Over && v.Number <= c.UpTo
}

// mostSearched are conditions of the labels that ceiling looks for.
const mostSearched = 5

// ceiling is the mean F1 of the best labels of so many conditions that are found, by place:
// of ranges between 24 quantiles and of levels, held or not, where each step goes on from the
// best of the one before, 150 and fewer.
func (p population) ceiling(run clustering.Result) (of [1 + mostSearched]float64) {
	words := (p.Len() + 63) / 64
	var sets [][]uint64
	add := func(holds func(i int) bool) {
		set := make([]uint64, words)
		for i := range p.flats {
			if holds(i) {
				set[i/64] |= 1 << (i % 64)
			}
		}
		sets = append(sets, set)
	}
	for _, t := range p.schema.Traits {
		var values []float64
		levels := map[string]bool{}
		number, text := make([]float64, p.Len()), make([]string, p.Len())
		for i, flat := range p.flats {
			v, ok := t.Read(flat)
			number[i], text[i] = v.Number, v.Text
			if !ok {
				number[i] = math.NaN()
			} else if t.Type == traits.TypeNumber {
				values = append(values, v.Number)
			} else {
				levels[v.Text] = true
			}
		}
		for level := range levels {
			add(func(i int) bool { return text[i] == level })
			add(func(i int) bool { return text[i] != level })
		}
		const parts = 24
		slices.Sort(values)
		edge := func(part int) float64 {
			switch part {
			case 0:
				return math.Inf(-1)
			case parts:
				return math.Inf(1)
			}
			return values[len(values)*part/parts]
		}
		for from := 0; from < parts && len(values) > 0; from++ {
			for to := from + 1; to <= parts; to++ {
				add(func(i int) bool { return number[i] > edge(from) && number[i] <= edge(to) })
			}
		}
	}
	everybody := make([]uint64, words)
	for w := range everybody {
		everybody[w] = math.MaxUint64
	}
	for c := range run.K {
		in := make([]uint64, words)
		for i, a := range run.Assignments {
			if int(a) == c {
				in[i/64] |= 1 << (i % 64)
			}
		}
		guesses := []guess{{set: everybody}}
		for n := 1; n <= mostSearched; n++ {
			guesses = longer(guesses, sets, in, run.Sizes[c], 150>>(2*(n-1)))
			of[n] += guesses[0].f1 / float64(run.K)
		}
	}
	return of
}

// guess is who meets some conditions.
type guess struct {
	set []uint64
	f1  float64
}

// longer are the best guesses that have one condition more, or the same twice.
func longer(guesses []guess, sets [][]uint64, in []uint64, size, most int) (longer []guess) {
	type step struct {
		guess, set int
		f1         float64
	}
	best := map[float64]step{} // those with one F1 are the same, nearly
	for g, guess := range guesses {
		for s, set := range sets {
			told, right := 0, 0
			for w := range set {
				both := guess.set[w] & set[w]
				told += bits.OnesCount64(both)
				right += bits.OnesCount64(both & in[w])
			}
			f1 := 2 * float64(right) / float64(told+size)
			if _, known := best[f1]; !known {
				best[f1] = step{g, s, f1}
			}
		}
	}
	f1s := slices.Sorted(maps.Keys(best))
	slices.Reverse(f1s)
	for _, f1 := range f1s[:min(len(f1s), max(1, most))] {
		both := slices.Clone(guesses[best[f1].guess].set)
		for w := range both {
			both[w] &= sets[best[f1].set][w]
		}
		longer = append(longer, guess{both, f1})
	}
	return longer
}

// matches counts how often each user who has matches is shown to others, where some fill
// in a fifth and others all.
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
		best, err := all.Top(matching.Query{User: name(i), Limit: 10})
		if err != nil {
			return err
		}
		if len(best) == 0 {
			continue // who shares no trait with anybody is no match
		}
		shown[name(i)] += 0
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
	e.row("never shown, "+what, fmt.Sprintf("%.1f %%, and %d say nothing", unseen, p.Len()-len(counts)), "<= 5 %", unseen <= 5)
	return nil
}

// change is what becomes of users until a later run.
type change struct {
	what  string
	stays func(random *splitmix.Source, i int) bool
	drops bool    // who does not stay is gone; else somebody new of the same persona comes
	moved float64 // standard deviations of numbers, of those who do not stay: they are the same people
	more  int     // clusters that the later run is asked for beyond those of the first; else it keeps them
	told  bool    // it is drift
}

// drift compares runs of users who have not changed, and of some who have.
func (e *evaluation) drift() error {
	for _, users := range []int{1_200, 4_000} {
		if err := e.driftOf(users); err != nil {
			return err
		}
	}
	return nil
}

func (e *evaluation) driftOf(users int) error {
	const personas, apart, times = 4, 1.2, 20
	older, err := e.population(world(e.seed, users, personas, apart))
	if err != nil {
		return err
	}
	run, err := e.run(older, clustering.Options{Seed: e.seed})
	if err != nil {
		return err
	}
	surveyed, err := survey(e, older, run, clustering.Question{})
	if err != nil {
		return err
	}
	all := func(*splitmix.Source, int) bool { return true }
	none := func(*splitmix.Source, int) bool { return false }
	for _, c := range []change{
		{what: "another seed", stays: all},
		{what: "a random two thirds", stays: func(r *splitmix.Source, _ int) bool { return r.IntN(3) > 0 }, drops: true},
		{what: "a tenth replaced", stays: func(r *splitmix.Source, _ int) bool { return r.IntN(10) > 0 }},
		{what: "all replaced", stays: none},
		{what: "cut into one more", stays: all, more: 1},
		{what: "cut into one less", stays: all, more: -1},
		{what: "numbers moved by 0.3 standard deviations", stays: none, moved: 0.3, told: true},
	} {
		told, lost := 0, 0
		for seed := range uint64(times) {
			alarm, gone, err := e.later(c, older, run, surveyed, worldMoved(e.seed, e.seed+1+seed, users, personas, apart, c.moved), seed)
			if err != nil {
				return err
			}
			lost += gone
			if alarm {
				told++
			}
		}
		what := fmt.Sprintf("%s, %d users", c.what, users)
		if c.told {
			e.row("drift told, "+what, fmt.Sprintf("%d of %d", told, times), ">= 95 %", told*20 >= times*19)
			continue
		}
		e.row("drift told where nobody has changed, "+what, fmt.Sprintf("%d of %d", told, times), "<= 2 %", told*50 <= times)
		if c.more == 0 {
			e.row("clusters that lost their ids, "+what, fmt.Sprintf("%d of %d", lost, times*run.K), "0", lost == 0)
		}
	}
	return nil
}

// later changes users, and says whether the next run tells drift of a cluster, and how
// many clusters of the first run are not found again.
func (e *evaluation) later(c change, older population, run clustering.Result, surveyed clustering.Surveyed, others []string, seed uint64) (told bool, lost int, err error) {
	random := splitmix.Source(e.seed + seed)
	now := population{schema: older.schema, encoder: older.encoder, Points: clustering.Points{Dims: older.Dims}}
	by := clustering.Division{Encoder: older.encoder, Centroids: run.Centroids}
	for i, flat := range older.flats {
		then := run.Assignments[i]
		if !c.stays(&random, i) {
			if c.drops {
				continue
			}
			if flat, err = traits.Flatten([]byte(others[i])); err != nil {
				return false, 0, err
			}
			if c.moved == 0 {
				then = clustering.Nobody
			}
		}
		now.flats, by.Then = append(now.flats, flat), append(by.Then, then)
		now.Data = now.encoder.Append(now.Data, flat)
	}
	o := clustering.Options{Seed: e.seed + 7*seed, Warm: run.Centroids, Keep: run.K}
	if c.more != 0 {
		o.K = run.K + c.more
	}
	again, err := e.run(now, o)
	if err != nil {
		return false, 0, err
	}
	overlap, known := clustering.NewOverlap(run.K, again.K), clustering.NewOverlap(run.K, again.K)
	for i, then := range by.Then {
		if then != clustering.Nobody {
			known[then][again.Assignments[i]]++
		} else {
			then = uint16(by.Divide(now.flats[i])) //nolint:gosec // G115: few clusters
		}
		overlap[then][again.Assignments[i]]++
	}
	succession := overlap.Succession()
	q := clustering.Question{Against: make([][]clustering.Profile, again.K), Divisions: []clustering.Division{by}, Earlier: make([][]clustering.Earlier, again.K)}
	for j, i := range succession.Keeps {
		if i >= 0 {
			q.Against[j], q.Earlier[j] = []clustering.Profile{surveyed.Profiles[i]}, []clustering.Earlier{{Cluster: i}}
		}
	}
	found, err := survey(e, now, again, q)
	if err != nil {
		return false, 0, err
	}
	for j, i := range succession.Keeps {
		if i >= 0 && len(clustering.CompareCut(surveyed.Profiles[i], found.Against[j][0], known.Members(i, j), found.Cuts[j][0], clustering.Previous).Causes) > 0 {
			told = true
		}
	}
	return told, len(succession.Retired), nil
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}
