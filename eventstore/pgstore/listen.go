package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
)

// listener tells when another process has appended.
type listener struct {
	config *pgx.ConnConfig
	tail   *tail
}

const (
	listen        = `LISTEN kindred_log`
	listenSilence = 30 * time.Second // until it is checked that the connection lives
	listenTimeout = 5 * time.Second  // for the answer to that, and for connecting
)

// run listens until ctx ends, over as many connections as it takes. Meanwhile
// subscriptions poll.
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
		return // subscriptions poll, and the next attempt follows
	}
	defer hangUp(ctx, conn)
	l.tail.doubt() // it may be another server; it also rings for what came before LISTEN
	defer l.tail.doubt()
	for {
		silent, cancel := context.WithTimeout(ctx, listenSilence)
		said, err := conn.WaitForNotification(silent)
		cancel()
		switch {
		case err == nil:
			l.hear(said.Payload)
		case ctx.Err() != nil || silent.Err() == nil:
			return
		case l.ping(ctx, conn) != nil:
			return
		}
	}
}

// hear takes what a commit said: the position where it ended.
func (l *listener) hear(said string) {
	position, err := numberOf(eventstore.Position(said))
	if err != nil || position == 0 { // an older release says less
		l.tail.ring()
		return
	}
	l.tail.hear(position)
}

// poll rings every now and then, for when nothing can be heard.
func (l *listener) poll(ctx context.Context) {
	every := time.NewTicker(pollInterval)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			l.tail.ring()
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

func (l *listener) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
