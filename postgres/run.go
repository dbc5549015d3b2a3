package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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

const (
	silence     = 5 * time.Second // until it is asked whether a connection lives
	pingTimeout = 5 * time.Second
)

// Hear hands on what is told on a connection that listens, until that fails. A
// server that has gone without a word is noticed within 10 s.
func Hear(ctx context.Context, conn *pgx.Conn, heard func(payload string)) error {
	for {
		silent, cancel := context.WithTimeout(ctx, silence)
		said, err := conn.WaitForNotification(silent)
		over := errors.Is(silent.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil:
			heard(said.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case !over:
			return fmt.Errorf("listen: %w", err)
		default:
			if err := ping(ctx, conn); err != nil {
				return fmt.Errorf("listen: the server does not answer: %w", err)
			}
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
