package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// repetitions of what takes long.
func (b *bench) repetitions() int { return min(b.o.rounds, 3) }

// tool runs a command of kindred beside the service, and returns how long it
// took.
func (b *bench) tool(ctx context.Context, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, b.o.kindred, args...)
	cmd.Env = b.kindred.cmd.Env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("kindred %s: %w: %s", args[0], err, lastLine(out.String()))
	}
	return time.Since(began), nil
}

const countUserEvents = `SELECT count(*) FROM events WHERE type LIKE 'end_user.%'`

// measureRebuild builds the read model of users anew, as it is and with a bulk
// of users more: beside a service that nobody uses, and beside one that serves,
// where the rebuild gives way.
func measureRebuild(ctx context.Context, b *bench) ([]Figure, error) {
	var figures []Figure
	var first []float64 // rates
	for _, grown := range []bool{false, true} {
		if grown {
			if err := b.needBulk(ctx); err != nil {
				return figures, err
			}
		}
		events, err := b.count(ctx, countUserEvents)
		if err != nil {
			return figures, err
		}
		calm, err := requests(ctx, b.small.addr, getUser(b.small), calmReads(b.calm()))
		if err != nil {
			return figures, err
		}
		var rates, throttled, meanwhile, before []float64
		for range b.repetitions() {
			alone, err := b.tool(ctx, "projections", "rebuild", "users")
			if err != nil {
				return figures, err
			}
			took, read, err := b.rebuild(ctx)
			if err != nil {
				return figures, err
			}
			rates, throttled = append(rates, events/alone.Seconds()), append(throttled, events/took.Seconds())
			meanwhile, before = append(meanwhile, read.P99), append(before, calm.P99)
		}
		name := "rebuild of users, " + number(events) + " events"
		figures = append(figures,
			measured("rebuild", name, "events/s", rates, nil, atLeast(50_000)),
			measured("rebuild", name+", beside GET user", "events/s", throttled, rates, nil),
			measured("rebuild", name+", GET user meanwhile, p99", "ms", meanwhile, before, ratioAtMost(2)))
		if grown {
			figures = append(figures, measured("rebuild", "rebuild of users, rate with more beside rate with less", "events/s", rates, first, ratioAtLeast(0.8)))
		}
		first = rates
	}
	return figures, nil
}

// rebuild returns how long it took beside reads, and how those did meanwhile.
func (b *bench) rebuild(ctx context.Context) (took time.Duration, read outcome, err error) {
	during, done := context.WithCancel(ctx)
	defer done()
	ended := make(chan error, 1)
	go func() {
		var err error
		took, err = b.tool(ctx, "projections", "rebuild", "users")
		done()
		ended <- err
	}()
	read, err = requests(during, b.small.addr, getUser(b.small), calmReads(goBenchTimeout))
	return took, read, errors.Join(<-ended, err)
}

// calmReads are few enough to be no load of their own.
func calmReads(length time.Duration) pace {
	return pace{workers: 4, length: length, every: 10 * time.Millisecond}
}

func (b *bench) count(ctx context.Context, query string) (n float64, err error) {
	conn, err := pgx.Connect(ctx, b.kindred.database)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return n, conn.QueryRow(ctx, query).Scan(&n)
}

// measureHistory exports the history of a client with many users, and verifies
// the export.
func measureHistory(ctx context.Context, b *bench) ([]Figure, error) {
	if err := b.needBulk(ctx); err != nil {
		return nil, err
	}
	file := filepath.Join(b.fixture.dir, "export.ndjson")
	var events float64
	var exports, verifications, memory []float64
	for round := range b.repetitions() {
		during, done := context.WithCancel(ctx)
		samples, memoryErr := make(chan []float64, 1), error(nil)
		go func() {
			var s []float64
			s, memoryErr = watchMemory(during, b.kindred.PID())
			samples <- s
		}()
		began := time.Now()
		n, err := b.export(ctx, file)
		took := time.Since(began)
		done()
		sampled := <-samples
		if err = errors.Join(err, memoryErr); err != nil {
			return nil, err
		}
		events = float64(n)
		exports = append(exports, events/took.Seconds())
		if round == 0 {
			memory = sampled
		}
		took, err = b.tool(ctx, "history", "verify", "--jwks", "http://"+b.kindred.addr+"/.well-known/audit-jwks.json", file)
		if err != nil {
			return nil, err
		}
		verifications = append(verifications, events/took.Seconds())
	}
	name := "export of " + number(events) + " events"
	return []Figure{
		measured("history", name, "events/s", exports, nil, atLeast(50_000)),
		memoryFigure("history", name+", memory, second half beside first", memory, nil),
		measured("history", "verify "+number(events)+" events", "events/s", verifications, nil, atLeast(100_000)),
	}, nil
}

// export writes a client's whole history to a file and counts its events.
func (b *bench) export(ctx context.Context, file string) (events int, err error) {
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.kindred.addr+"/api/v1/clients/"+b.bulk.id+"/history", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/x-ndjson")
	r.Header.Set("Authorization", "Bearer "+b.bulk.token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("export: %d", answer.StatusCode)
	}
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	lines := lineCounter{}
	_, err = io.Copy(io.MultiWriter(out, &lines), answer.Body)
	return lines.n - 1, errors.Join(err, out.Close()) // the last line is a head
}

type lineCounter struct{ n int }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.n += bytes.Count(p, []byte{'\n'})
	return len(p), nil
}
