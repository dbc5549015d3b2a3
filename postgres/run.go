package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Run is SQL for a number, a bigint, of this run of the server: when it was
// started, in microseconds. What was committed, and seen, in one run is there
// until its end. After it another one may take its place that lacks the last
// commits: the same server after it was restored, or a standby.
const Run = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

const (
	selectRun = `SELECT ` + Run
	runKey    = "run of the server"
)

// RunOf is the run of the server that a connection leads to. It is asked for
// once: no connection outlives it.
func RunOf(ctx context.Context, conn *pgx.Conn) (int64, error) {
	known := conn.PgConn().CustomData()
	if run, ok := known[runKey].(int64); ok {
		return run, nil
	}
	var run int64
	if err := conn.QueryRow(ctx, selectRun).Scan(&run); err != nil {
		return 0, fmt.Errorf("read when the server was started: %w", err)
	}
	known[runKey] = run
	return run, nil
}

// Clock is what the server's clock says.
func Clock(ctx context.Context, pool *pgxpool.Pool) (now time.Time, err error) {
	err = pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, err
}
