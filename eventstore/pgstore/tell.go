package pgstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// teller tells other processes how far the log reaches: after the commit, since
// one that notifies holds up all others that do while it is flushed, and once for
// all commits of tellEvery.
type teller struct {
	config  *pgx.ConnConfig
	reached atomic.Int64
	grown   chan struct{} // of capacity 1; closed when nothing more is committed
}

const (
	tell        = `SELECT pg_notify('kindred_log', $1)`
	tellEvery   = 10 * time.Millisecond
	tellTimeout = 5 * time.Second // connecting included
)

func newTeller(config *pgx.ConnConfig) *teller {
	return &teller{config: config, grown: make(chan struct{}, 1)}
}

// reach notes up to where the log was extended.
func (t *teller) reach(position int64) {
	t.reached.Store(position)
	select {
	case t.grown <- struct{}{}:
	default: // this one is yet to be told of, with the one before
	}
}

// run tells until nothing more is committed.
func (t *teller) run() {
	var conn *pgx.Conn // nil while there is none
	for range t.grown {
		conn = t.tell(conn)
		time.Sleep(tellEvery)
	}
	if conn != nil {
		hangUp(context.Background(), conn)
	}
}

// tell returns the connection to go on with. Where it fails, followers find by
// polling what they were to hear.
func (t *teller) tell(conn *pgx.Conn) *pgx.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	if conn == nil {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, t.config); err != nil {
			return nil
		}
	}
	if _, err := conn.Exec(ctx, tell, positionOf(t.reached.Load())); err != nil {
		hangUp(ctx, conn)
		return nil
	}
	return conn
}
