package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// used is processor time: what a figure costs, also where others use the machine.
type used struct{ kindred, postgres, bench time.Duration }

// used reads it.
func (s *stack) used() (u used, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, err
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in brackets, may hold spaces: state, ppid, …, utime and stime follow it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 13 {
			return u, fmt.Errorf("%s cannot be read", file)
		}
		const tick = 10 * time.Millisecond
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		took := time.Duration(user+system) * tick
		switch parent := fields[1]; {
		case s.kindred != nil && pid == s.kindred.Process.Pid:
			u.kindred = took
		case pid == s.database.PID(), parent == strconv.Itoa(s.database.PID()):
			u.postgres += took
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.bench = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, nil
}

// each is how much of it each of n events took, in microseconds.
func (u used) each(before used, n int) (kindred, postgres, bench float64) {
	of := func(now, before time.Duration) float64 { return float64((now - before).Microseconds()) / float64(n) }
	return of(u.kindred, before.kindred), of(u.postgres, before.postgres), of(u.bench, before.bench)
}

// costs gathers what runs of one kind took.
type costs struct{ kindred, postgres, bench []float64 }

// of measures what a run of n events takes.
func (c *costs) of(b *bench, n int, run func() error) error {
	before, err := b.used()
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	after, err := b.used()
	if err != nil {
		return err
	}
	k, p, own := after.each(before, n)
	c.kindred, c.postgres, c.bench = append(c.kindred, k), append(c.postgres, p), append(c.bench, own)
	return nil
}

// add notes them below the row that they belong to.
func (c *costs) add(b *bench) {
	b.add(row{What: "  processor time of kindred, each", Unit: "µs", Figures: c.kindred})
	b.add(row{What: "  processor time of PostgreSQL, each", Unit: "µs", Figures: c.postgres})
	b.add(row{What: "  processor time of publisher and receiver, each", Unit: "µs", Figures: c.bench})
}
