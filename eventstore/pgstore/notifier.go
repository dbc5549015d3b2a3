package pgstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// notifier notifies other processes how far the log reaches: after the commit, since
// a commit that notifies holds up all others that do while it is flushed, and once
// for all commits of notifyEvery.
type notifier struct {
	config  *pgx.ConnConfig
	reached atomic.Int64
	grown   chan struct{} // of capacity 1; closed when nothing more is committed
}

const (
	notifyLog     = `SELECT pg_notify('kindred_log', $1)`
	notifyEvery   = 10 * time.Millisecond
	notifyTimeout = 5 * time.Second // connecting included
)

func newNotifier(config *pgx.ConnConfig) *notifier {
	return &notifier{config: config, grown: make(chan struct{}, 1)}
}

// reach notes up to where the log was extended.
func (n *notifier) reach(position int64) {
	n.reached.Store(position)
	select {
	case n.grown <- struct{}{}:
	default: // this one goes out with the one before
	}
}

// run notifies until nothing more is committed.
func (n *notifier) run() {
	var conn *pgx.Conn // nil while there is none
	for range n.grown {
		conn = n.notify(conn)
		time.Sleep(notifyEvery)
	}
	if conn != nil {
		hangUp(context.Background(), conn)
	}
}

// notify returns the connection to go on with. Where it fails, followers find by
// polling what they were to be notified of.
func (n *notifier) notify(conn *pgx.Conn) *pgx.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
	defer cancel()
	if conn == nil {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, n.config); err != nil {
			return nil
		}
	}
	if _, err := conn.Exec(ctx, notifyLog, positionOf(n.reached.Load())); err != nil {
		hangUp(ctx, conn)
		return nil
	}
	return conn
}
