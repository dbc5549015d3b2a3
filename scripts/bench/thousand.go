package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A client of as many segments as there may be, whose users have 30 traits and the day on which they were
// seen. A rule reads two traits or three, names some 5 % of the users, and every fifth has a window.
const (
	manySegments = 1_000
	manyTraits   = 15 // of numbers, and as many of words
	manyChanges  = 2_000
	// manyWriters change so many users a second together, each its next one once the last is answered.
	manyWriters = 64
	seenDays    = 90
	lookEvery   = 20 * time.Millisecond
)

func manyRule(random *rand.Rand, n int) string {
	rule := fmt.Sprintf(`traits.n%d >= %d && traits.w%d == "v%d"`, random.IntN(manyTraits), 60+random.IntN(40), random.IntN(manyTraits), random.IntN(4))
	if n%5 == 0 {
		rule += fmt.Sprintf(` && within(traits.seen, "%dd")`, seenDays/2+random.IntN(seenDays))
	}
	return rule
}

func manyPerson(random *rand.Rand, external string) []byte {
	seen := time.Now().Add(-time.Duration(random.IntN(seenDays*24)) * time.Hour).UTC().Format(time.RFC3339)
	line := fmt.Appendf(nil, `{"external_id":"%s","traits":{"seen":"%s"`, external, seen)
	for i := range manyTraits {
		line = fmt.Appendf(line, `,"n%d":%d,"w%d":"v%d"`, i, random.IntN(100), i, random.IntN(4))
	}
	return append(line, "}}"...)
}

func manyChange(random *rand.Rand) []byte {
	return fmt.Appendf(nil, `{"traits":{"n%d":%d,"w%d":"v%d"}}`, random.IntN(manyTraits), random.IntN(100), random.IntN(manyTraits), random.IntN(4))
}

// measureThousand imports users under a thousand rules, changes them, and builds the segments anew.
func measureThousand(ctx context.Context, b *bench) (figures []Figure, err error) {
	const row = "thousand"
	fresh := population{addr: b.small.addr, http: &http.Client{}}
	c, err := fresh.client(ctx, b.o.clients+1, 0, false)
	if err != nil {
		return nil, err
	}
	users := b.o.users
	path := filepath.Join(b.fixture.dir, "many.ndjson")
	if err := writeMany(path, users); err != nil {
		return nil, err
	}
	random, segment := draws(3), ""
	for n := range manySegments {
		var s struct{ ID string }
		body, err := json.Marshal(map[string]string{"name": "bench", "rule": manyRule(random, n)})
		if err != nil {
			return nil, err
		}
		if err := fresh.send(ctx, http.MethodPost, segmentsPath, c.token, body, &s); err != nil {
			return nil, err
		}
		segment = s.ID
	}
	if err := fresh.ready(ctx, c, segment); err != nil {
		return nil, err
	}
	before, err := residentMemory(b.kindred.PID())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := fresh.stream(ctx, c, path, users); err != nil {
		return nil, err
	}
	took, ended := time.Since(began), time.Now()
	if err := fresh.ready(ctx, c, segment); err != nil {
		return nil, err
	}
	ofMillion := float64(users) / 1_000_000 // for which the times are promised
	name := fmt.Sprintf("%s users under %s rules", number(float64(users)), number(manySegments))
	figures = append(figures,
		measured(row, "import of "+name, "users/s", []float64{float64(users) / took.Seconds()}, nil, atLeast(10_000)),
		measured(row, "import of "+name+", until members are right", "s", []float64{time.Since(ended).Seconds()}, nil, atMost(60*ofMillion)))
	changed, lag, err := fresh.changeMany(ctx, c, users, b.calm()*5)
	if err != nil {
		return figures, err
	}
	after, err := residentMemory(b.kindred.PID())
	if err != nil {
		return figures, err
	}
	figures = append(figures,
		measured(row, "changes, "+name, "users/s", []float64{changed.PerSecond}, nil, atLeast(manyChanges*.95)),
		measured(row, "changes, "+name+", acknowledged to members right, p99", "ms", []float64{lag}, nil, atMost(1000)),
		measured(row, "memory more with "+name, "MiB", []float64{after - before}, nil, atMost(300)))
	for _, part := range []string{"segment_blocks", "segment_changes", "segment_users"} {
		size, err := b.size(ctx, part)
		if err != nil {
			return figures, err
		}
		figures = append(figures, measured(row, part+" of "+name, "MiB", []float64{size}, nil, nil))
	}
	// What the live model is behind is no part of a rebuild, which would rest beside it.
	if err := fresh.ready(ctx, c, segment); err != nil {
		return figures, err
	}
	rebuilt, err := b.tool(ctx, "projections", "rebuild", "segments")
	if err != nil {
		return figures, err
	}
	// The goal is for a million users who are created: there are few, and each was changed more than once.
	events, err := b.number(ctx, `SELECT count(*)::float8 FROM events WHERE client = $1 AND type LIKE 'end_user.%'`, c.id)
	if err != nil {
		return figures, err
	}
	return append(figures, measured(row, fmt.Sprintf("rebuild of %s, %s events", name, number(events)), "s", []float64{rebuilt.Seconds()}, nil, atMost(600*events/1_000_000))), nil
}

func writeMany(path string, n int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	random, out := draws(4), bufio.NewWriterSize(file, 64<<10)
	for i := range n {
		_, _ = out.Write(append(manyPerson(random, fmt.Sprint("m", i)), '\n')) // an error stays, and Flush tells it
	}
	return errors.Join(out.Flush(), file.Sync())
}

// ready waits until a segment tells its members as of all that was acknowledged.
func (p *population) ready(ctx context.Context, c client, segment string) error {
	var s struct{ State string }
	return p.until(ctx, c, segmentsPath+"/"+segment, &s, func() bool { return s.State == "ready" })
}

// until asks for a path until the answer is as it should be. What waits longer for its read model than a
// request may is answered 503 until then.
func (p *population) until(ctx context.Context, c client, path string, into any, is func() bool) error {
	var err error
	for until := time.Now().Add(importTimeout); time.Now().Before(until); {
		if err = p.send(ctx, http.MethodGet, path, c.token, nil, into); err == nil && is() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("GET %s is not what was waited for: %w", path, err)
}

// changeMany changes users for so long, and returns how long it took from the answer until the user's
// segments were right, in ms: one reader asks for them of users that it has changed.
func (p *population) changeMany(ctx context.Context, c client, users int, length time.Duration) (changed outcome, lag float64, err error) {
	changing := workload{http.StatusOK, func(random *rand.Rand, buf []byte) []byte {
		return request(buf, "PATCH", fmt.Sprintf("%s/ext:m%d", usersPath, random.IntN(users)), c.token, c.id, manyChange(random))
	}}
	during, done := context.WithCancel(ctx)
	defer done()
	var lags []time.Duration
	var readErr error
	var group sync.WaitGroup
	group.Go(func() {
		random := chance()
		for during.Err() == nil && readErr == nil {
			user := fmt.Sprintf("%s/ext:m%d", usersPath, random.IntN(users))
			readErr = p.send(ctx, http.MethodPatch, user, c.token, manyChange(random), new(json.RawMessage))
			began := time.Now()
			for answered := false; readErr == nil && !answered; { // it waits 2 s at most, and is asked again
				err := p.send(ctx, http.MethodGet, user+"/segments", c.token, nil, new(json.RawMessage))
				answered = err == nil
				if time.Since(began) > segmentReadyWithin {
					readErr = err
				}
			}
			lags = append(lags, time.Since(began))
			time.Sleep(lookEvery) // it is to take little from what it measures
		}
	})
	changed, err = requests(ctx, p.addr, changing, pace{workers: manyWriters, warm: time.Second, length: length, every: manyWriters * time.Second / manyChanges})
	done()
	group.Wait()
	slices.Sort(lags)
	return changed, milliseconds(percentile(lags, 0.99)), errors.Join(err, readErr)
}

const tableSize = `
SELECT pg_total_relation_size(c.oid) / 1048576.0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind = 'r' AND n.nspname LIKE 'segments%' ORDER BY n.nspname DESC LIMIT 1`

// size is what a table of the segments takes, with its indexes, in MiB.
func (b *bench) size(ctx context.Context, table string) (mib float64, err error) {
	return b.number(ctx, tableSize, table)
}

// number reads a number of the service's database.
func (b *bench) number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	conn, err := pgx.Connect(ctx, b.kindred.database)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return n, conn.QueryRow(ctx, sql, args...).Scan(&n)
}
