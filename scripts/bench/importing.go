package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// bulk is a client with so many users that its history is long; made once.
type bulk struct {
	client
	lines int
}

// calmWrites is what other clients write beside an import: few enough to be
// no load of their own.
func calmWrites(length time.Duration) pace {
	return pace{workers: 4, length: length, every: 40 * time.Millisecond}
}

// measureImport streams a file of users into a new client, while others go on
// writing; once, whoever needs it.
func measureImport(ctx context.Context, b *bench) ([]Figure, error) {
	err := b.needBulk(ctx)
	return b.imported, err
}

// needBulk imports, unless that was done before.
func (b *bench) needBulk(ctx context.Context) (err error) {
	if b.bulk == nil {
		b.imported, err = b.importBulk(ctx)
	}
	return err
}

func (b *bench) importBulk(ctx context.Context) ([]Figure, error) {
	const row = "import"
	fresh := population{addr: b.small.addr, http: &http.Client{}}
	c, err := fresh.client(ctx, b.o.clients, 0, false)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.fixture.dir, "import.ndjson")
	if err := writeLines(file, b.o.lines); err != nil {
		return nil, err
	}
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	before, err := requests(ctx, b.small.addr, createUser(b.small), calmWrites(b.calm()))
	if err != nil {
		return nil, fmt.Errorf("writes before: %w", err)
	}

	importing, done := context.WithCancel(ctx)
	defer done()
	var (
		group     sync.WaitGroup
		meanwhile outcome
		writesErr error
		memory    []float64
		memoryErr error
	)
	group.Go(func() {
		meanwhile, writesErr = requests(importing, b.small.addr, createUser(b.small), calmWrites(importTimeout))
	})
	group.Go(func() { memory, memoryErr = watchMemory(importing, b.kindred.PID()) })
	began := time.Now()
	err = fresh.stream(ctx, c, file, b.o.lines)
	took := time.Since(began)
	done()
	group.Wait()
	if err = errors.Join(err, writesErr); err != nil {
		return nil, err
	}
	b.bulk = &bulk{c, b.o.lines}

	name := "import of " + number(float64(b.o.lines))
	figures := []Figure{
		measured(row, name, "users/s", []float64{float64(b.o.lines) / took.Seconds()}, nil, atLeast(15_000)),
		measured(row, name+", others' writes, p99", "ms", []float64{meanwhile.P99}, []float64{before.P99}, ratioAtMost(3)),
	}
	return append(figures, memoryFigure(row, name+", memory, second half beside first", memory, memoryErr)), nil
}

const importTimeout = 30 * time.Minute

// calm is how long writes are watched without an import beside.
func (b *bench) calm() time.Duration { return max(2*b.o.run, 3*time.Second) }

// writeLines makes a file of n new users, beforehand: who sends it has next to
// nothing to do.
func writeLines(path string, n int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	random, out := draws(2), bufio.NewWriterSize(file, 64<<10)
	for i := range n {
		_, _ = out.Write(append(person(random, "b"+strconv.Itoa(i)), '\n')) // an error stays, and Flush tells it
	}
	return errors.Join(out.Flush(), file.Sync()) // or the disk is busy with it while others write
}

// stream imports a file of n new users in one request.
func (p *population) stream(ctx context.Context, c client, path string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+importPath, file)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	r.Header.Set("Authorization", "Bearer "+c.token)
	var result struct{ Created int }
	if err := p.do(r, &result); err != nil {
		return err
	}
	if result.Created != n {
		return fmt.Errorf("%d of %d users were imported", result.Created, n)
	}
	return nil
}

const memoryEvery = 100 * time.Millisecond

// watchMemory returns the resident memory of a process in MiB, sampled until
// ctx ends.
func watchMemory(ctx context.Context, pid int) (samples []float64, err error) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		resident, err := residentMemory(pid)
		if err != nil {
			return nil, err
		}
		samples = append(samples, resident)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return samples, nil
		}
	}
}

// residentMemory of a process in MiB, on Linux.
func residentMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := bytes.Cut(status, []byte("VmRSS:"))
	kib, err := strconv.ParseFloat(firstField(string(after)), 64)
	return kib / 1024, err
}

func firstField(s string) string {
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// memoryFigure holds the most memory of the second half of something long
// against that of its first half: 1 where it is constant.
func memoryFigure(row, name string, samples []float64, err error) Figure {
	if err != nil {
		return skipped(row, name, err.Error())
	}
	half := len(samples) / 2
	if half == 0 {
		return skipped(row, name, "it was over too soon")
	}
	most := func(of []float64) []float64 { return []float64{spreadOf(of).Max} }
	return measured(row, name, "MiB", most(samples[half:]), most(samples[:half]), ratioAtMost(1.2))
}
