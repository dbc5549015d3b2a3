package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// listener rings the bell when another process has appended.
type listener struct {
	config *pgx.ConnConfig
	grown  *bell
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
	for {
		l.grown.ring() // at first for what came before LISTEN
		silent, cancel := context.WithTimeout(ctx, listenSilence)
		_, err := conn.WaitForNotification(silent)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil || silent.Err() == nil:
			return
		case l.ping(ctx, conn) != nil:
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
