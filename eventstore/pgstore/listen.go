package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
	"kindred/eventstore/tail"
	"kindred/postgres"
)

// listener tells when another process has appended.
type listener struct {
	config *pgx.ConnConfig
	tail   *tail.Tail
}

const (
	listen        = `LISTEN kindred_log`
	listenTimeout = 5 * time.Second        // for connecting
	pollInterval  = 250 * time.Millisecond // where nothing was heard
)

// run listens until ctx ends, over as many connections as it takes. Meanwhile
// the log is polled.
func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.listen(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// listen listens on one connection until it breaks.
func (l *listener) listen(ctx context.Context) {
	conn, err := l.connect(ctx)
	if err != nil {
		return // the log is polled, and the next attempt follows
	}
	defer hangUp(ctx, conn)
	l.tail.Forget()                      // a backup may have been put in place; it also rings for what came before LISTEN
	_ = postgres.Hear(ctx, conn, l.hear) // whatever ends it, the next connection follows
}

// hear takes what a commit said: the position where it ended.
func (l *listener) hear(said string) {
	position := eventstore.Position(said)
	if n, err := numberOf(position); err != nil || n == 0 { // a load says only that there is something
		l.tail.Ring()
		return
	}
	l.tail.Reached(position)
}

// poll rings every now and then, for when nothing can be heard.
func (l *listener) poll(ctx context.Context) {
	every := time.NewTicker(pollInterval)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			l.tail.Ring()
		case <-ctx.Done():
			return
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, listen); err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return conn, nil
}
