package projector

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/coalesce"
	"kindred/eventstore"
	"kindred/postgres"
)

// limit: models | leases of a process that are renewed in one statement | {maxRenewals}
const maxRenewals = 1024

// Renewals prolongs the leases that a process holds by one statement for all.
type Renewals struct {
	pool   *pgxpool.Pool
	rounds coalesce.Coalescer[renewal, renewed]
}

type renewal struct {
	lease
	holder string
	length time.Duration
}

// renewed is what came of a renewal: nothing where the lease has ended or is another's, and
// where another transaction has locked its row.
type renewed struct {
	stands  eventstore.Position // the leader's checkpoint
	renewed bool
}

// NewRenewals makes the renewals of a process.
func NewRenewals(pool *pgxpool.Pool) *Renewals {
	r := &Renewals{pool: pool}
	r.rounds = coalesce.Coalescer[renewal, renewed]{Answer: r.prolong, Most: maxRenewals, Waiting: maxRenewals, Timeout: leaseTimeout}
	return r
}

// started is what renewals go by.
var started = time.Now() //nolint:forbidigo // on the process's monotonic clock

// untilRenewal is how long it is until leases of a length are renewed: all those of a
// process at the same time.
func untilRenewal(length time.Duration) time.Duration {
	every := length / 3
	return every - time.Since(started)%every
}

// Rows that somebody else has locked are passed over: none keeps the others waiting. So are leases
// that have ended: one that is given back meanwhile is not to last again.
const renewLeases = `
WITH held AS (
	SELECT l.name, asked.length FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::interval[])
		AS asked (name, epoch, holder, server, length)
	JOIN leases l ON l.name = asked.name AND l.epoch = asked.epoch AND l.holder = asked.holder
	WHERE asked.server = ` + postgres.Run + inMemory + ` AND l.expires_at > clock_timestamp()
	FOR UPDATE OF l SKIP LOCKED
), renewed AS (
	UPDATE leases l SET expires_at = clock_timestamp() + held.length FROM held WHERE l.name = held.name RETURNING l.name, l.epoch
)
SELECT r.name, r.epoch, coalesce(c.position, '') FROM renewed r LEFT JOIN checkpoints c ON c.name = r.name`

func (r *Renewals) prolong(ctx context.Context, of []renewal) ([]renewed, error) {
	names, epochs, holders := make([]string, len(of)), make([]int64, len(of)), make([]string, len(of))
	servers, lengths := make([]int64, len(of)), make([]time.Duration, len(of))
	for i, a := range of {
		names[i], epochs[i], holders[i], servers[i], lengths[i] = a.name, a.epoch, a.holder, a.server, a.length
	}
	rows, _ := r.pool.Query(ctx, renewLeases, names, epochs, holders, servers, lengths) // what it fails with, its rows end with
	type key struct {
		name  string
		epoch int64
	}
	stands := map[key]eventstore.Position{}
	var found key
	var at eventstore.Position
	if _, err := pgx.ForEachRow(rows, []any{&found.name, &found.epoch, &at}, func() error { stands[found] = at; return nil }); err != nil {
		return nil, err
	}
	all := make([]renewed, len(of))
	for i, a := range of {
		all[i].stands, all[i].renewed = stands[key{a.name, a.epoch}]
	}
	return all, nil
}
