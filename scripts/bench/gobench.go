package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// goRow is a row that a Go benchmark measures, in its own process on the same
// PostgreSQL.
type goRow struct {
	row     string
	folder  string
	pattern string // of -bench
	time    string // of -benchtime
	count   int
	full    bool // not with --quick, unless asked for
	metrics []metric
}

// metric is a figure that benchmarks report.
type metric struct {
	of     string // the end of the benchmark's name, as it is printed
	metric string // the unit that it is reported in
	name   string // of the figure
	unit   string // of the figure
	scale  float64
	beside string // the metric that it is held against; may be empty
	target *Target
}

func goRows() []goRow {
	recall := func(of, name string) []metric {
		return []metric{
			{of: of, metric: "recall", name: "top 20 of 1M, " + name + ", recall", scale: 1, target: atLeast(0.95)},
			{of: of, metric: "queries/s", name: "top 20 of 1M, " + name, unit: "queries/s", scale: 1, target: atLeast(1000)},
		}
	}
	structureless := recall("/structureless", "structureless")
	structureless[1].target = nil // at any speed
	var alarms []metric
	for _, n := range []string{"50 and 50", "50 and 1000", "1000 and 50", "100 and 100", "500 and 500", "5000 and 5000"} {
		of := "/" + strings.ReplaceAll(n, " ", "_") + "_users"
		alarms = append(alarms, metric{of: of, metric: "%", name: "false alarms of drift, " + n + " users", unit: "%", scale: 1, target: atMost(2)})
	}
	var filtered []metric
	for _, world := range []string{"10 mixed traits", "structureless"} {
		least := 1000.0
		if world == "structureless" {
			least = 500
		}
		for _, share := range []string{"0.5", "0.1", "0.01", "0.001"} {
			for _, some := range []bool{false, true} {
				of := fmt.Sprintf("/%s/share_%s/of_some_traits_%t", strings.ReplaceAll(world, " ", "_"), share, some)
				name := fmt.Sprintf("top 20 of 1M, %s, of a share of %s", world, share)
				if some {
					name += ", under a layer"
				}
				filtered = append(filtered,
					metric{of: of, metric: "recall", name: name + ", recall", scale: 1, target: atLeast(0.95)},
					metric{of: of, metric: "queries/cpu-s", name: name, unit: "queries/cpu-s", scale: 1, target: atLeast(least)})
			}
		}
	}
	return []goRow{
		{row: "token", folder: "httpapi/auth", pattern: "Authenticate$/^cached$", time: "200ms", count: 5, metrics: []metric{
			{of: "cached/ES256", metric: "ns/op", name: "token check, cached", unit: "µs", scale: 1e-3, target: atMost(5)},
			{of: "cached/EdDSA", metric: "ns/op", name: "token check, cached, of a login", unit: "µs", scale: 1e-3, target: atMost(5)},
		}},
		{row: "top", folder: "domain/matching", pattern: "Top$/^100000_users", time: "300x", count: 3, full: true, metrics: []metric{
			{of: "100000_users,_0%_missing", metric: "p50-µs", name: "top 20 of 100k, exact, p50", unit: "ms", scale: 1e-3, target: atMost(5)},
			{of: "100000_users,_20%_missing", metric: "p50-µs", name: "top 20 of 100k, 20 % missing, p50", unit: "ms", scale: 1e-3, target: atMost(5)},
		}},
		{row: "matches", folder: "e2e", pattern: "Matches$", time: "200x", count: 1, full: true, metrics: []metric{
			{of: "record=false", metric: "p50-ms", name: "POST matches of 100k, p50", unit: "ms", scale: 1, target: atMost(15)},
			{of: "record=true", metric: "p50-ms", name: "POST matches of 100k, recorded, p50", unit: "ms", scale: 1},
			{
				of: "/filtered", metric: "p50-ms", beside: "without-p50-ms", name: "POST matches of 100k with a known filter, p50, beside without",
				unit: "ms", scale: 1, target: ratioAtMost(1.3),
			},
			{of: "record=false", metric: "cold-s", name: "POST matches of 100k, population read", unit: "s", scale: 1},
		}},
		{row: "recall", folder: "domain/matching", pattern: "Million$", time: "2000x", count: 1, full: true, metrics: append(append(append(append(
			recall("/10_mixed_traits", "10 mixed traits"),
			recall("/1_number", "1 number")...), recall("/2_numbers", "2 numbers")...), recall("/3_numbers", "3 numbers")...), structureless...)},
		{row: "filtered", folder: "domain/matching", pattern: "Marked$", time: "200x", count: 1, full: true, metrics: filtered},
		{row: "feed", folder: "e2e", pattern: "Feed$/^first_page_of_20$", time: "300x", count: 1, full: true, metrics: []metric{
			{of: "first_page_of_20", metric: "p99-ms", name: "GET feed of 100k, first page, p99", unit: "ms", scale: 1, target: atMost(50)},
		}},
		{row: "spends", folder: "e2e", pattern: "Spends$", time: "20000x", count: 1, full: true, metrics: []metric{
			{of: "campaigns=1/callers=32", metric: "spends/s", name: "spends on one campaign, 32 callers", unit: "spends/s", scale: 1, target: atLeast(1000)},
			{of: "campaigns=1/callers=200", metric: "spends/s", name: "spends on one campaign, 200 callers", unit: "spends/s", scale: 1, target: atLeast(1000)},
			{of: "campaigns=100/callers=200", metric: "spends/s", name: "spends on 100 campaigns", unit: "spends/s", scale: 1, target: atLeast(3000)},
		}},
		{row: "spends", folder: "e2e", pattern: "SpendsAfterMany$", time: "50000x", count: 1, full: true, metrics: []metric{
			{
				of: "/late", metric: "spends/s", beside: "early-spends/s", name: "spends on one campaign after a million, beside its first",
				unit: "spends/s", scale: 1, target: ratioAtLeast(0.8),
			},
		}},
		{row: "clusters", folder: "e2e", pattern: "Clustering$", time: "3x", count: 1, full: true, metrics: []metric{
			{of: "Clustering", metric: "ns/op", name: "clustering of 100k, k chosen", unit: "s", scale: 1e-9, target: atMost(20)},
		}},
		{row: "fit", folder: "domain/clustering", pattern: "BesideTheReference$", time: "1x", count: 5, full: true, metrics: []metric{
			{of: "/tight", metric: "cpu-s", beside: "reference-cpu-s", name: "fit of 100k × 64, tight, beside scikit-learn", unit: "cpu-s", scale: 1, target: ratioAtMost(1.5)},
			{of: "/loose", metric: "cpu-s", beside: "reference-cpu-s", name: "fit of 100k × 64, loose, beside scikit-learn", unit: "cpu-s", scale: 1, target: ratioAtMost(1.5)},
		}},
		{row: "drift", folder: "domain/clustering", pattern: "FalseAlarms$", time: "1x", count: 1, full: true, metrics: alarms},
		{row: "million", folder: "domain/clustering", pattern: "Million$//^given$", time: "1x", count: 1, full: true, metrics: []metric{
			{of: "/tight/given", metric: "ns/op", name: "fit of 1M × 64, tight", unit: "s", scale: 1e-9, target: atMost(60)},
			{of: "/tight/given", metric: "peak-MiB", name: "fit of 1M × 64, tight, peak memory", unit: "MiB", scale: 1, target: atMost(1.2 * 1024)},
			{of: "/loose/given", metric: "ns/op", name: "fit of 1M × 64, loose", unit: "s", scale: 1e-9, target: atMost(60)},
			{of: "/loose/given", metric: "peak-MiB", name: "fit of 1M × 64, loose, peak memory", unit: "MiB", scale: 1, target: atMost(1.2 * 1024)},
		}},
	}
}

const goBenchTimeout = 20 * time.Minute

// measureGo runs the benchmark and picks its metrics.
func (b *bench) measureGo(ctx context.Context, r goRow) ([]Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, goBenchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", r.pattern, "-benchtime", r.time,
		"-count", strconv.Itoa(r.count), "-timeout", goBenchTimeout.String(), "./"+r.folder)
	cmd.Env = append(os.Environ(), "KINDRED_TEST_DATABASE_URL="+b.fixture.local.URL())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the test's process ends with go's
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go test ./%s: %w: %s", r.folder, errors.Join(err, ctx.Err()), lastLine(out.String()))
	}
	return r.figures(out.String()), nil
}

// figures picks the row's metrics from what go test printed.
func (r goRow) figures(out string) []Figure {
	results := parseGoBench(out)
	var figures []Figure
	for _, m := range r.metrics {
		values, beside := m.values(results, m.metric), []float64(nil)
		if m.beside != "" {
			beside = m.values(results, m.beside)
		}
		if len(values) == 0 {
			figures = append(figures, skipped(r.row, m.name, reason(out)))
			continue
		}
		figures = append(figures, measured(r.row, m.name, m.unit, values, beside, m.target))
	}
	return figures
}

// goResult is a line that a benchmark has printed.
type goResult struct {
	name    string
	metrics map[string]float64 // by unit
}

var goBenchLine = regexp.MustCompile(`^(Benchmark\S*?)(?:-\d+)?\s+\d+\s+(.*)$`)

func parseGoBench(out string) []goResult {
	var results []goResult
	for line := range strings.Lines(out) {
		match := goBenchLine.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			continue
		}
		r := goResult{match[1], map[string]float64{}}
		fields := strings.Fields(match[2])
		for i := 0; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				r.metrics[fields[i+1]] = value
			}
		}
		results = append(results, r)
	}
	return results
}

func (m metric) values(results []goResult, unit string) (values []float64) {
	for _, r := range results {
		if value, reported := r.metrics[unit]; reported && strings.HasSuffix(r.name, m.of) {
			values = append(values, value*m.scale)
		}
	}
	return values
}

var logged = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: (.+)$`)

// reason is why a benchmark gave no figure: what it says when it is skipped.
func reason(out string) string {
	if said := logged.FindStringSubmatch(out); said != nil {
		return said[1]
	}
	return "the benchmark reports no such figure"
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " / ")
}
