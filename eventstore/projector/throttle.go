package projector

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
)

// ToolName is the application_name of connections that do work in bulk beside
// a service; a connection with another name is a service's.
const ToolName = "kindred tool"

const (
	// busyWithin is how long ago another connection's last statement may be, before
	// a rebuild has the database for itself.
	busyWithin = 10 * time.Millisecond
	// busySeen is how many looks, one soon after the other, must each find another: a service
	// without requests sends some 50 statements a second. None sees what another saw. Where
	// they lay as far apart as steps, of seconds, a rebuild beside an idle service rested for
	// a third of its time.
	busySeen = 3
	lookAt   = busyWithin + 5*time.Millisecond // from one look to the next
	// throttledBatch keeps a step beside others so short that they hardly wait.
	throttledBatch = 500
)

// throttle keeps work in bulk from slowing whatever else uses the database: it goes as fast as it can
// while it is alone, and else takes one step at a time and rests after each as long as that took.
type throttle struct {
	pool *pgxpool.Pool

	mu     sync.Mutex // held while it looks
	looked time.Time
	others bool // were seen then
	hasten bool // it rests for nobody any more

	stepping sync.Mutex // held for a step beside others
}

func newThrottle(pool *pgxpool.Pool) *throttle { return &throttle{pool: pool} }

// step runs a step of the work.
func (t *throttle) step(ctx context.Context, work func() error) error {
	if !t.busy(ctx) {
		return work()
	}
	t.stepping.Lock()
	defer t.stepping.Unlock()
	began := time.Now() //nolint:forbidigo // a rest is measured on the process's monotonic clock
	if err := work(); err != nil {
		return err
	}
	return backoff.Sleep(ctx, time.Since(began))
}

// hurry ends the resting.
func (t *throttle) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hasten = true
}

// most is how many events a step may take.
func (t *throttle) most(ctx context.Context) int {
	if t.busy(ctx) {
		return throttledBatch
	}
	return MaxBulk
}

const countOthers = `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
	AND application_name NOT IN ($1, 'kindred control') AND (state <> 'idle' OR state_change > clock_timestamp() - $2::interval)`

// busy says whether others use the database. Where that cannot be read, none do.
func (t *throttle) busy(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasten {
		return false
	}
	if time.Since(t.looked) < lookAt {
		return t.others
	}
	t.others = true
	for look := 0; look < busySeen && t.others; look++ {
		if look > 0 && backoff.Sleep(ctx, lookAt) != nil {
			break
		}
		var others int
		err := t.pool.QueryRow(ctx, countOthers, ToolName, busyWithin).Scan(&others)
		t.others = err == nil && others > 0
	}
	t.looked = time.Now() //nolint:forbidigo // as above
	return t.others
}
