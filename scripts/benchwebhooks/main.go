// Benchwebhooks measures how webhooks are delivered, from the request that
// makes an event to its arrival at a receiver, on one clock. It starts all that
// it needs: a PostgreSQL server that flushes to disk, kindred, and receivers
// that are fast, slow, hanging, failing or worse.
//
//	benchwebhooks [-quick] [-runs n] [-only name,…] [-json file]
//
// It ends with one table: what was aimed at, what was reached, and beside it
// how long the same disk takes to flush and how much a bare client reaches.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchwebhooks:", err)
		os.Exit(1)
	}
}

// bench is one run of the harness.
type bench struct {
	*stack
	runs    int // of what is compared
	quick   bool
	steady  time.Duration // of the run at a steady rate
	shorter time.Duration // of each run at a steady rate that is compared
	outage  time.Duration // of the database
	rows    []row
}

// scenario measures some rows.
type scenario struct {
	name string
	run  func(context.Context, *bench) error
}

func scenarios() []scenario {
	return []scenario{
		{"steady", steadyRate},
		{"drain", drains},
		{"burst", bursts},
		{"isolation", isolation},
		{"crowd", badCompany},
		{"controls", controls},
		{"retries", retries},
		{"faults", faults},
		{"pending", pending},
	}
}

func run(ctx context.Context) (err error) {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	quick := flag.Bool("quick", false, "fewer and shorter runs; retries are followed for the first delay alone")
	only := flag.String("only", "", "names of scenarios, with commas: "+strings.Join(names, ","))
	out := flag.String("json", "bench-webhooks.json", "file for the figures")
	program := flag.String("kindred", "bin/kindred", "the program to measure")
	talk := flag.Bool("log", false, "show what kindred logs")
	runs := flag.Int("runs", 0, "runs of what is compared (default 5, and 3 of quick ones)")
	flag.Parse()
	chosen := names
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no scenario %q", name)
		}
	}

	b := &bench{runs: 5, steady: time.Minute, shorter: 10 * time.Second, outage: 30 * time.Second, quick: *quick}
	if *quick {
		b.runs, b.steady, b.shorter, b.outage = 3, 10*time.Second, 4*time.Second, 3*time.Second
	}
	if *runs > 0 {
		b.runs = *runs
	}
	if b.stack, err = startStack(ctx, *program, *talk); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	if err := b.surroundings(ctx); err != nil {
		return err
	}
	for _, s := range scenarios() {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		began := time.Now()
		if err := s.run(ctx, b); err != nil {
			b.print(os.Stdout)
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", s.name, time.Since(began).Round(100*time.Millisecond))
	}
	b.print(os.Stdout)
	return b.save(*out)
}

// save writes the figures.
func (b *bench) save(file string) error {
	text, err := json.MarshalIndent(struct {
		At    time.Time `json:"at"`
		Quick bool      `json:"quick"`
		Rows  []row     `json:"rows"`
	}{time.Now().UTC(), b.quick, b.rows}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
