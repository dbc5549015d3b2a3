package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
)

// Status is how a follower of the log does.
type Status struct {
	Name        string // an id; "policy_…" for a policy, "…_rebuild" while one is built
	Position    eventstore.Position
	Events      int64     // passed since the beginning of the log
	UpdatedAt   time.Time // of the last progress
	Leader      string    // the process that leads now; empty: none
	Quarantined []Quarantined
	LeftOut     []LeftOut
}

// Quarantined is a client whose part has stopped.
type Quarantined struct {
	Client   id.Client
	Position eventstore.Position
	Event    id.Event
	Reason   string
	At       time.Time
}

const selectQuarantinesOf = `
SELECT projection, client, position, event_id, reason, at FROM quarantine WHERE client = $1 AND NOT paused`

// QuarantinesOf tells where one client's part has stopped, by projection id.
func QuarantinesOf(ctx context.Context, pool *pgxpool.Pool, client id.Client) (map[string]Quarantined, error) {
	found := map[string]Quarantined{}
	rows, err := pool.Query(ctx, selectQuarantinesOf, client)
	if err == nil {
		var projectionID string
		var q Quarantined
		_, err = pgx.ForEachRow(rows, []any{&projectionID, &q.Client, &q.Position, &q.Event, &q.Reason, &q.At}, func() error {
			found[projectionID] = q
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list quarantines of %s: %w", client, err)
	}
	return found, nil
}

const countLeftOutOf = `SELECT projection, count(*) FROM left_out WHERE client = $1 GROUP BY projection`

// LeftOutOf counts the events that were left out of one client, by projection id.
func LeftOutOf(ctx context.Context, pool *pgxpool.Pool, client id.Client) (map[string]int64, error) {
	counts := map[string]int64{}
	rows, err := pool.Query(ctx, countLeftOutOf, client)
	if err == nil {
		var projectionID string
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&projectionID, &n}, func() error {
			counts[projectionID] = n
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("count what was left out of %s: %w", client, err)
	}
	return counts, nil
}

const selectStatus = `
SELECT c.name, c.position, c.events, c.updated_at,
	coalesce((SELECT holder FROM leases WHERE leases.name = c.name AND ` + leaseInForce + `), '')
FROM checkpoints c ORDER BY c.name`

// At most as many quarantined clients as a person can read.
const selectQuarantine = `
SELECT projection, client, position, event_id, reason, at FROM quarantine WHERE NOT slow ORDER BY at DESC LIMIT 1000`

const selectAllLeftOut = `SELECT projection, ` + leftOutColumns + ` FROM left_out ORDER BY at DESC, position DESC LIMIT 1000`

// List tells how every follower does, by name.
func List(ctx context.Context, pool *pgxpool.Pool) ([]Status, error) {
	rows, _ := pool.Query(ctx, selectStatus) // what it fails with, its rows end with
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Status, err error) {
		err = row.Scan(&s.Name, &s.Position, &s.Events, &s.UpdatedAt, &s.Leader)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list projections: %w", err)
	}
	at := make(map[string]int, len(list))
	for i, s := range list {
		at[s.Name] = i
	}
	rows, _ = pool.Query(ctx, selectQuarantine) // what it fails with, its rows end with
	var name string
	var q Quarantined
	_, err = pgx.ForEachRow(rows, []any{&name, &q.Client, &q.Position, &q.Event, &q.Reason, &q.At}, func() error {
		if i, found := at[name]; found {
			list[i].Quarantined = append(list[i].Quarantined, q)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list quarantined clients: %w", err)
	}
	rows, _ = pool.Query(ctx, selectAllLeftOut) // what it fails with, its rows end with
	var o LeftOut
	_, err = pgx.ForEachRow(rows, []any{&name, &o.Client, &o.Position, &o.Event, &o.Type, &o.Reason, &o.At}, func() error {
		if i, found := at[name]; found {
			list[i].LeftOut = append(list[i].LeftOut, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list what was left out: %w", err)
	}
	return list, nil
}

const (
	selectFurthest = `SELECT coalesce(max(events), 0) FROM checkpoints`
	modelBuilt     = `SELECT EXISTS (SELECT FROM checkpoints WHERE name = $1 AND position <> '')`
	selectServed   = `
SELECT EXISTS (SELECT FROM leases WHERE ` + leaseInForce + `)
	OR EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + postgres.DefaultName + `')`
)

// Followed is how many events the followers of a log have passed that are furthest.
func Followed(ctx context.Context, pool *pgxpool.Pool) (events int64, err error) {
	err = pool.QueryRow(ctx, selectFurthest).Scan(&events)
	return events, err
}

// Built says whether a read model has been built as it is declared now.
func Built(ctx context.Context, pool *pgxpool.Pool, model ReadModel) (built bool, err error) {
	err = pool.QueryRow(ctx, modelBuilt, ID(model)).Scan(&built)
	return built, err
}

// Served says whether a service runs on a database: whether a process leads anything, or has the
// connections of a service, as one does that only answers requests. It waits for leases that nobody
// renews, such as those that a dump holds, and for connections of tools that just begin: as long as
// a lease lasts.
func Served(ctx context.Context, pool *pgxpool.Pool) (served bool, err error) {
	lasting, cancel := context.WithTimeout(ctx, leaseTime+standbyPoll)
	defer cancel()
	for {
		err = pool.QueryRow(ctx, selectServed).Scan(&served)
		if err != nil || !served || backoff.Sleep(lasting, standbyPoll) != nil {
			return served, err
		}
	}
}
