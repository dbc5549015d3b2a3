// Bench measures kindred as its users meet it: the real binary over HTTP, on a
// PostgreSQL that flushes, beside the ceiling in the same run.
//
// The ceiling is a second server process with bare gorilla/mux and pgx handlers
// that run one statement each on the same PostgreSQL, with a pool of the same
// size and the same server settings. Machines are noisy, so that ratios count:
// both sides take turns, at least five times, and each ratio is the median over
// the turns, with the least and the greatest beside it.
//
//	make bench                              # all of it: 100,000 users, 1,000 clients
//	make bench BENCH="--quick"              # 10,000 users, 50 clients, runs of 1 s
//	make bench BENCH="--quick --rows user,create --out after.json"
//	make bench-compare A=before.json B=after.json
//
// Everything that it starts ends with it, and its data is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out, say io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "ceiling":
		return serveCeiling(ctx)
	case len(args) > 0 && args[0] == "compare":
		return compare(args[1:], out)
	}
	o, err := parse(args, say)
	if err != nil {
		return err
	}
	report, err := run(ctx, o, say)
	if len(report.Figures) > 0 {
		err = errors.Join(err, printTable(out, report), report.write(o.out))
	}
	return err
}

func compare(files []string, out io.Writer) error {
	if len(files) != 2 {
		return errors.New("compare takes two files: bench compare before.json after.json")
	}
	a, err := readReport(files[0])
	if err != nil {
		return err
	}
	b, err := readReport(files[1])
	if err != nil {
		return err
	}
	return printComparison(out, a, b)
}

// options are what a run may be asked for.
type options struct {
	quick          bool
	rows           []string // empty: all
	out, log       string
	kindred        string
	users, clients int
	lines          int // of an import
	segments       int // of the write-ahead log, that are there to be used again
	rounds         int
	warm, run      time.Duration
}

func parse(args []string, say io.Writer) (options, error) {
	o := options{users: 100_000, clients: 1_000, lines: 1_000_000, segments: 550, warm: time.Second, run: 3 * time.Second}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(say)
	flags.BoolVar(&o.quick, "quick", false, "10,000 users of 50 clients, an import of 50,000, runs of 1 s, only the rows that take seconds")
	rows := flags.String("rows", "", "only these, with commas between: "+strings.Join(rowNames(), ","))
	flags.StringVar(&o.out, "out", "bench.json", "the file that the figures go to")
	flags.StringVar(&o.kindred, "kindred", "bin/kindred", "the binary to be measured")
	flags.StringVar(&o.log, "log", "", "the file that the servers' logs go to; nowhere by default")
	flags.IntVar(&o.rounds, "rounds", 5, "how often both sides take their turn")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.users, o.clients, o.lines, o.segments, o.warm, o.run = 10_000, 50, 50_000, 100, 300*time.Millisecond, time.Second
	}
	if *rows != "" {
		o.rows = strings.Split(*rows, ",")
	}
	for _, name := range o.rows {
		if !slices.Contains(rowNames(), name) {
			return o, fmt.Errorf("there is no row %q, only %s", name, strings.Join(rowNames(), ", "))
		}
	}
	if flags.NArg() > 0 || o.rounds < 1 {
		return o, fmt.Errorf("not understood: %s", strings.Join(args, " "))
	}
	return o, nil
}

func (o options) wants(r row) bool {
	if len(o.rows) == 0 {
		return !o.quick || !r.full
	}
	return slices.Contains(o.rows, r.name)
}
