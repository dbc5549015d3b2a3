package projector

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
)

// ToolName is the application_name of connections that do work in bulk beside
// a service; who has another one works in a service.
const ToolName = "kindred tool"

const (
	// busyWithin is how long ago somebody else's last statement may be, before
	// a rebuild has the database for itself.
	busyWithin = 20 * time.Millisecond
	// busySeen is how many looks must find somebody in a row: a service that
	// nobody uses does a little now and then. None sees what another saw.
	busySeen = 3
	lookAt   = busyWithin + 5*time.Millisecond // from one look to the next
	// politeBatch keeps a step beside others so short that they hardly wait.
	politeBatch = 500
)

// courtesy keeps work in bulk from disturbing those who use the database
// meanwhile: it goes as fast as it can while it is alone, and else takes one
// step at a time and rests after each as long as that took.
type courtesy struct {
	pool *pgxpool.Pool

	mu     sync.Mutex // held for a look
	looked time.Time
	seen   int // looks in a row

	turn sync.Mutex // held for a step beside others
}

// newCourtesy takes the database for busy until it has looked.
func newCourtesy(pool *pgxpool.Pool) *courtesy { return &courtesy{pool: pool, seen: busySeen} }

// step runs a step of the work.
func (c *courtesy) step(ctx context.Context, work func() error) error {
	if !c.busy(ctx) {
		return work()
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	began := time.Now() //nolint:forbidigo // a rest is measured on the process's monotonic clock
	if err := work(); err != nil {
		return err
	}
	return backoff.Sleep(ctx, time.Since(began))
}

// most is how many events a step may take.
func (c *courtesy) most(ctx context.Context) int {
	if c.busy(ctx) {
		return politeBatch
	}
	return MaxBulk
}

const countOthers = `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
	AND application_name NOT IN ($1, 'kindred control') AND (state <> 'idle' OR state_change > clock_timestamp() - $2::interval)`

// busy says whether others use the database. Who cannot know is alone.
func (c *courtesy) busy(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() //nolint:forbidigo // as above
	if now.Sub(c.looked) < lookAt {
		return c.seen >= busySeen
	}
	var others int
	switch err := c.pool.QueryRow(ctx, countOthers, ToolName, busyWithin).Scan(&others); {
	case err == nil && others > 0:
		c.seen++
	default:
		c.seen = 0
	}
	c.looked = time.Now() //nolint:forbidigo // as above
	return c.seen >= busySeen
}
