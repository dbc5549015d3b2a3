// Command evaluate says how good the engine is on data of which the truth is known:
// made-up worlds, crowds without groups, columns as exports spell them, and census
// records where they are to be had. Each row has its goal beside it; a seed makes the
// same rows again.
//
//	go run ./scripts/evaluate [-adult FILE] [-seed N] [-only PART]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"

	"kindred/domain/clustering"
)

func main() {
	adult := flag.String("adult", os.Getenv("KINDRED_ADULT"), "the `file` adult.data of UCI, without a header")
	seed := flag.Uint64("seed", 1, "of all that is drawn")
	only := flag.String("only", "", "one `part`: matches, personas, strange, census, clouds, drift or columns")
	flag.Parse()
	e := &evaluation{Context: context.Background(), seed: *seed, threads: runtime.NumCPU()}
	people, err := readAdult(*adult)
	if err == nil {
		err = e.all(people, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(1)
	}
}

// evaluation prints rows.
type evaluation struct {
	context.Context //nolint:containedctx // it lasts as long as the program
	seed            uint64
	threads         int
}

// row prints a figure beside its goal.
func (e *evaluation) row(what, figure, goal string, reached bool) {
	mark := "  "
	if !reached {
		mark = "! "
	}
	fmt.Printf("%s%-58s %-30s %s\n", mark, what, figure, goal)
}

func (e *evaluation) all(people []string, only string) error {
	fmt.Printf("  %-58s %-30s %s\n", "what", "figure", "goal")
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"matches", func() error { return e.matches("personas", world(e.seed, 2_000, 8, 1.2)) }},
		{"matches", func() error { return e.matches("census", people) }},
		{"matches", func() error { return e.matchesOfCrowds() }},
		{"personas", e.personas},
		{"strange", e.strangers},
		{"census", func() error { return e.census(people) }},
		{"clouds", e.clouds},
		{"drift", e.drift},
		{"columns", e.columns},
	} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.do(); err != nil {
			return err
		}
	}
	return nil
}

func (e *evaluation) matchesOfCrowds() error {
	for _, c := range crowds() {
		if err := e.matches("a crowd, "+c.name, c.people(e.seed, 1_000)); err != nil {
			return err
		}
	}
	return nil
}

// personas finds made-up groups again: at other seeds, as many as there are, and with
// labels that tell who is in them.
func (e *evaluation) personas() error {
	var ari, labels, few, three, five []float64
	for _, k := range []int{3, 8, 20, 30} {
		for _, apart := range []float64{0.8, 1.2} {
			p, err := e.population(world(e.seed+uint64(k), 400+80*k, k, apart)) //nolint:gosec // G115: k is positive
			if err != nil {
				return err
			}
			run, verdict, err := e.stable(fmt.Sprintf("%d personas, %.1f apart", k, apart), p)
			if err != nil {
				return err
			}
			ari = append(ari, clustering.AdjustedRand(run.Assignments, personasOf(p.Len(), k)))
			of, ceiling := p.labelsF1(run), p.ceiling(run)
			labels, five = append(labels, of...), append(five, slices.Repeat(ceiling[5:], run.K)...)
			if k <= 8 {
				few, three = append(few, of...), append(three, slices.Repeat(ceiling[3:4], run.K)...)
			}
			if apart > 1 && (k == 8 || k == 20 || k == 30) {
				e.row(fmt.Sprintf("clusters of %d personas", k), fmt.Sprint(run.K), "within 2", max(run.K-k, k-run.K) <= 2)
			}
			if apart > 1 && verdict != clustering.Groups {
				e.row(fmt.Sprintf("verdict on %d personas, %.1f apart", k, apart), string(verdict), "groups", false)
			}
		}
	}
	e.row("mean ARI with the personas", fmt.Sprintf("%.3f", mean(ari)), ">= 0.395", mean(ari) >= 0.395)
	e.row("mean F1 of labels, 3 and 8 personas", fmt.Sprintf("%.3f", mean(few)), fmt.Sprintf(">= 0.98 of the best three conditions' %.3f", mean(three)), mean(few) >= 0.98*mean(three))
	e.row("mean F1 of labels", fmt.Sprintf("%.3f", mean(labels)), fmt.Sprintf(">= 0.9; five conditions at best %.3f", mean(five)), mean(labels) >= 0.9)
	return nil
}

// stable compares runs of several seeds, and returns the verdict on the first.
func (e *evaluation) stable(what string, p population) (clustering.Result, clustering.Verdict, error) {
	const seeds = 3
	var runs []clustering.Result
	var ks []int
	for seed := range uint64(seeds) {
		run, err := e.run(p, clustering.Options{Seed: e.seed + 100*seed})
		if err != nil {
			return run, "", err
		}
		runs, ks = append(runs, run), append(ks, run.K)
	}
	least := 1.0
	for i := range runs {
		for j := range i {
			least = min(least, clustering.AdjustedRand(runs[i].Assignments, runs[j].Assignments))
		}
	}
	verdict, err := e.judge(p, runs[0], 0)
	e.row("ARI between seeds, "+what, fmt.Sprintf("%.3f %s of %v", least, verdict, ks), ">= 0.95, or no groups", least >= 0.95 || verdict != clustering.Groups)
	return runs[0], verdict, err
}

func (e *evaluation) census(people []string) error {
	if len(people) == 0 {
		return nil
	}
	p, err := e.population(people)
	if err == nil {
		_, _, err = e.stable("census", p)
	}
	return err
}

// clouds are crowds without groups, divided into four or into as many as the run chooses.
func (e *evaluation) clouds() error {
	const each = 20
	for _, c := range crowds() {
		wrong := 0
		for seed := range uint64(each) {
			asked := []int{4, 0}[seed%2]
			p, err := e.population(c.people(e.seed+1000*seed, 300))
			if err != nil {
				return err
			}
			run, err := e.run(p, clustering.Options{K: asked, Seed: e.seed})
			if err != nil {
				return err
			}
			verdict, err := e.judge(p, run, asked)
			if err != nil {
				return err
			}
			if verdict == clustering.Groups {
				wrong++
			}
		}
		e.row("crowds called groups, "+c.name, fmt.Sprintf("%d of %d", wrong, each), "<= 5 %", wrong*20 <= each)
	}
	return nil
}
