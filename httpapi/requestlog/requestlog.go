// Package requestlog keeps the latest requests of each client in Postgres, for its
// developers to look at: which operation was called with which key, what came of it and
// when; never a path, a query or a body. It may lose a second, and slows no request: what
// is too much is counted.
package requestlog

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/postgres"
)

const (
	// limit: kept | requests in the log of requests | {retention}, of which a day ends whole
	retention = 7 * 24 * time.Hour
	// perSecond are the requests of a client that are listed of one second, beside
	// failedPerSecond that failed: else a client that is refused 2,000 times a second would
	// fill the list for all, and the disk.
	// limit: client | requests a second that are listed | the first {perSecond}, and {failedPerSecond} that failed with 500 or more | counted in `omitted`
	perSecond, failedPerSecond = 10, 50
	// maxListed bounds what a process writes of a second, and maxRows what it does with
	// what failed.
	// limit: models | requests of a second that a process lists | {maxListed}, and up to {maxRows} with what failed
	maxListed = 1_000
	maxRows   = 4_000
	// maxLooked bounds what a page with a filter looks at.
	// limit: models | requests that a page with a filter looks at | {maxLooked}, then the next page
	maxLooked = 10_000

	writeEvery    = time.Second
	writeWithin   = 10 * time.Second
	maintainEvery = time.Hour
)

// Log is the table request_log. [Log.Run] must run beside it.
type Log struct {
	Pool   *pgxpool.Pool // writes
	Reads  *pgxpool.Pool
	Now    func() time.Time
	Logger *slog.Logger

	mu      sync.Mutex
	second  int64                // that is being counted, in Unix time
	listed  map[id.Client]listed // of that second
	rows    []httpapi.Answered
	omitted map[id.Client]int64
}

// listed are how many requests of a second are listed.
type listed struct{ succeeded, failed int }

// clockBack is for how long a second that is past counts with the one that is counted;
// behind that the clock has gone back.
const clockBack = 60

// Note takes a request to be written soon. It waits for nothing.
func (l *Log) Note(a httpapi.Answered) {
	second, failed := a.At.Add(a.Duration).Unix(), a.Status >= http.StatusInternalServerError
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listed == nil {
		l.listed, l.omitted = map[id.Client]listed{}, map[id.Client]int64{}
	}
	if second > l.second || second < l.second-clockBack {
		l.second = second
		clear(l.listed)
	}
	count := l.listed[a.Client]
	var tooMany bool
	most := maxListed
	if failed {
		count.failed++
		tooMany, most = count.failed > failedPerSecond, maxRows
	} else {
		count.succeeded++
		tooMany = count.succeeded > perSecond
	}
	if tooMany || len(l.rows) >= most {
		l.omitted[a.Client]++
		return
	}
	l.listed[a.Client] = count
	l.rows = append(l.rows, a)
}

// Run writes what was noted, every second and at the end, and keeps the table within its
// retention.
func (l *Log) Run(ctx context.Context) {
	var maintained time.Time
	var seldom backoff.Seldom
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		if l.Now().Sub(maintained) >= maintainEvery {
			if err := l.maintain(ctx); err == nil {
				maintained = l.Now()
			} else if ctx.Err() == nil {
				seldom.Do(func() { l.Logger.WarnContext(ctx, "log of requests not maintained", "error", err) })
			}
		}
		select {
		case <-tick.C:
			if err := l.write(ctx); err != nil && ctx.Err() == nil {
				seldom.Do(func() { l.Logger.WarnContext(ctx, "requests not listed", "error", err) })
			}
		case <-ctx.Done():
			if err := l.write(context.WithoutCancel(ctx)); err != nil {
				l.Logger.WarnContext(ctx, "last requests not listed", "error", err)
			}
			return
		}
	}
}

const (
	// A second may be lost: nobody waits for the disk.
	loseSome = `SET LOCAL synchronous_commit = off`

	countOmitted = `
INSERT INTO request_omissions AS o (client, day, omitted)
SELECT client, $3, n FROM unnest($1::text[], $2::bigint[]) AS t (client, n) ORDER BY client
ON CONFLICT (client, day) DO UPDATE SET omitted = o.omitted + excluded.omitted`
)

func columns() []string {
	return []string{"client", "at", "request", "method", "route", "status", "duration_us", "key"}
}

// write writes what was noted since. What cannot be written is counted as omitted, by the
// next one that succeeds.
func (l *Log) write(ctx context.Context) error {
	l.mu.Lock()
	rows, omitted := l.rows, l.omitted
	l.rows, l.omitted = nil, map[id.Client]int64{}
	l.mu.Unlock()
	if len(rows) == 0 && len(omitted) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	err := pgx.BeginFunc(ctx, l.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, loseSome); err != nil {
			return err
		}
		if len(rows) > 0 {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"request_log"}, columns(), pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
				r := rows[i]
				return []any{string(r.Client), r.At, string(r.ID), r.Method, r.Route, int16(r.Status), r.Duration.Microseconds(), string(r.Key)}, nil //nolint:gosec // a status of HTTP
			})); err != nil {
				return err
			}
		}
		if len(omitted) == 0 {
			return nil
		}
		var clients []string
		var counts []int64
		for client, n := range omitted {
			clients, counts = append(clients, string(client)), append(counts, n)
		}
		_, err := tx.Exec(ctx, countOmitted, clients, counts, l.Now().UTC())
		return err
	})
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.omitted[r.Client]++
	}
	for client, n := range omitted {
		l.omitted[client] += n
	}
	return fmt.Errorf("write the log of requests: %w", err)
}

const (
	lockMaintenance = `
SELECT pg_advisory_xact_lock(hashtextextended('kindred request log maintenance', 0)), set_config('lock_timeout', '5s', true), now()`

	forgetOmissions = `DELETE FROM request_omissions WHERE day < $1`
)

// maintain makes the partitions of the days to come, and drops those past the retention.
func (l *Log) maintain(ctx context.Context) error {
	return pgx.BeginFunc(ctx, l.Pool, func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(ctx, lockMaintenance).Scan(nil, nil, &now); err != nil {
			return fmt.Errorf("take the maintenance lock: %w", err)
		}
		keepFrom := now.Add(-retention)
		if err := postgres.MakePartitions(ctx, tx, "request_log", now); err != nil {
			return err
		}
		if err := postgres.DropPartitions(ctx, tx, "request_log", keepFrom); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, forgetOmissions, keepFrom.UTC())
		return err
	})
}

// Filter narrows a list of requests; what is zero lets all through.
type Filter struct {
	Least, Most   int // of the status
	Method, Route string
	Key           id.Key
}

// Place is where a request stands in the list.
type Place struct {
	At time.Time
	ID id.Request
}

const (
	// What a filter lets through is looked for among the newest alone, however few that is.
	// The last that is looked at comes with it, in the same moment: a page goes on there.
	listRequests = `
SELECT at, request, method, route, status, duration_us, key, passes, last FROM (
	SELECT *, status BETWEEN $6 AND $7 AND ($8 = '' OR method = $8) AND ($9 = '' OR route = $9) AND ($10 = '' OR key = $10) AS passes,
		row_number() OVER (ORDER BY at DESC, request DESC) = $5 AS last
	FROM (SELECT at, request, method, route, status, duration_us, key FROM request_log
		WHERE client = $1 AND (at, request) < ($2, $3) AND at >= $4 ORDER BY at DESC, request DESC LIMIT $5) newest) looked
WHERE passes OR last ORDER BY at DESC, request DESC LIMIT $11`

	sumOmitted = `SELECT coalesce(sum(omitted), 0)::bigint FROM request_omissions WHERE client = $1 AND day >= $2`
)

// List returns the requests of a client below a place, the newest first; of a zero place,
// the newest there are. more is where to look on, nil where there is no more.
func (l *Log) List(ctx context.Context, client id.Client, f Filter, below Place, limit int) (found []httpapi.Answered, more *Place, err error) {
	if below.At.IsZero() {
		below.At = l.Now().Add(24 * time.Hour)
	}
	if f.Most == 0 {
		f.Most = 999
	}
	from, looked := l.Now().Add(-retention), maxLooked
	if f == (Filter{Most: 999}) {
		looked = limit + 1
	}
	a, took, passes, last := httpapi.Answered{Client: client}, int64(0), false, false
	rows, _ := l.Reads.Query(ctx, listRequests, string(client), below.At, string(below.ID), from, looked,
		f.Least, f.Most, f.Method, f.Route, string(f.Key), limit+1) // what it fails with, its rows end with
	_, err = pgx.ForEachRow(rows, []any{&a.At, (*string)(&a.ID), &a.Method, &a.Route, &a.Status, &took, (*string)(&a.Key), &passes, &last}, func() error {
		a.Duration = time.Duration(took) * time.Microsecond
		switch {
		case passes && len(found) == limit:
			more = &Place{found[limit-1].At, found[limit-1].ID}
		case passes:
			found = append(found, a)
		}
		if last && more == nil {
			more = &Place{a.At, a.ID}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list requests: %w", err)
	}
	return found, more, nil
}

// Omitted is how many requests of a client are not listed.
func (l *Log) Omitted(ctx context.Context, client id.Client) (n int64, err error) {
	if err = l.Reads.QueryRow(ctx, sumOmitted, string(client), l.Now().Add(-retention).UTC()).Scan(&n); err != nil {
		return 0, fmt.Errorf("count omitted requests: %w", err)
	}
	return n, nil
}
