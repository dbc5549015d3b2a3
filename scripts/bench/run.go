package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// bench is a run under way.
type bench struct {
	o       options
	say     io.Writer
	fixture *fixture
	kindred *server
	small   *population // who kindred was filled with
	ceiling *server
	bulk    *bulk // nil until it is imported

	imported []Figure // what it was like to import it
}

// row is a part of the run that can be asked for by its name.
type row struct {
	name    string
	full    bool // not with --quick, unless asked for
	measure func(context.Context, *bench) ([]Figure, error)
}

func rows() []row {
	// What makes the smaller one grow comes after the growth.
	all := []row{{"grow", true, measureGrowth}}
	for _, r := range requestRows() {
		all = append(all, row{r.row, false, func(ctx context.Context, b *bench) ([]Figure, error) { return b.measure(ctx, r) }})
	}
	all = append(all,
		row{"start", false, measureStart},
		row{"append", false, measureAppend},
		row{"rebuild", false, measureRebuild},
		row{"import", false, measureImport},
		row{"history", false, measureHistory},
		row{"streams", false, measureStreams},
		row{"pull", false, measurePull},
		row{"segments", true, measureSegments},
		row{"thousand", true, measureThousand},
		row{"overload", false, measureOverload},
		row{"greedy", false, measureGreedy},
	)
	for _, r := range goRows() {
		all = append(all, row{r.row, r.full, func(ctx context.Context, b *bench) ([]Figure, error) { return b.measureGo(ctx, r) }})
	}
	return all
}

func rowNames() []string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return slices.Compact(names)
}

// run measures all rows that are wanted. A row that fails is reported as
// skipped, with its error, and does not keep the others from being measured.
func run(ctx context.Context, o options, say io.Writer) (report Report, err error) {
	report = newReport(ctx, o, time.Now())
	b := &bench{o: o, say: say}
	b.fixture, err = build(ctx, o, say)
	if b.fixture != nil {
		defer func() { err = errors.Join(err, b.fixture.tearDown(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return report, err
	}
	if err := b.populate(ctx); err != nil {
		return report, err
	}
	for _, r := range rows() {
		if !o.wants(r) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(say, "%s\n", r.name)
		figures, failed := r.measure(ctx, b)
		if failed != nil {
			figures = append(figures, skipped(r.name, r.name, failed.Error()))
			err = errors.Join(err, fmt.Errorf("%s: %w", r.name, failed))
		}
		report.Figures = append(report.Figures, figures...)
	}
	return report, errors.Join(err, ctx.Err())
}

// populate starts kindred and the ceiling, with the same users in both.
func (b *bench) populate(ctx context.Context) error {
	fmt.Fprintf(b.say, "filling kindred with %s users of %s clients through its API\n", number(float64(b.o.users)), number(float64(b.o.clients)))
	began := time.Now()
	var err error
	if b.kindred, err = b.fixture.kindred(ctx, "small"); err != nil {
		return err
	}
	if b.small, err = seed(ctx, b.say, b.kindred, b.o.clients, b.o.users, true); err != nil {
		return err
	}
	database, err := b.fixture.database(ctx, "ceiling")
	if err != nil {
		return err
	}
	if err := b.small.fill(ctx, database); err != nil {
		return fmt.Errorf("fill the ceiling: %w", err)
	}
	if b.ceiling, err = b.fixture.bare(ctx, database); err != nil {
		return err
	}
	fmt.Fprintf(b.say, "ready after %s\n", time.Since(began).Round(time.Second))
	return nil
}
