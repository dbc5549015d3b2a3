package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	reconnectAfter = 250 * time.Millisecond
	silence        = 5 * time.Second // until it is asked whether the connection lives
	pingTimeout    = 5 * time.Second
)

// Listener hears the notifications of one database, on one connection for all of a
// process. It connects when the first channel is followed, and again 250 ms after
// the connection was lost; a server that has gone without a word is noticed within
// 10 s. Any goroutine may use it.
type Listener struct {
	config *pgx.ConnConfig
	logger *slog.Logger

	mu        sync.Mutex // held while somebody is told
	followers []*follower
	wake      func()             // ends the wait for a notification, since somebody has come
	stop      context.CancelFunc // ends the run; nil: nobody follows
	ended     chan struct{}      // by the run
}

// Follow is what somebody wants to be told of a channel. The functions must be
// quick, as nobody else hears anything meanwhile, and may not use the Listener.
type Follow struct {
	Channel string // an SQL identifier
	// Begin tells that the channel is heard from now on, on this run of the server;
	// what was said before may have been missed.
	Begin func(run int64)
	Heard func(payload string)
	// Lost, which may be nil, tells that nothing is heard until Begin.
	Lost func()
}

type follower struct {
	Follow
	begun bool
}

// NewListener makes a Listener that connects as a pool's connections do. A nil
// logger is silent.
func NewListener(config *pgx.ConnConfig, logger *slog.Logger) *Listener {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Listener{config: config.Copy(), logger: logger, wake: func() {}}
}

// Shared is l, or where that is nil a Listener of the caller's own.
func (l *Listener) Shared(pool *pgxpool.Pool, logger *slog.Logger) *Listener {
	if l != nil {
		return l
	}
	return NewListener(pool.Config().ConnConfig, logger)
}

// Follow hears a channel until ctx ends. After it has returned, nothing is told.
func (l *Listener) Follow(ctx context.Context, f Follow) {
	mine := &follower{Follow: f}
	l.mu.Lock()
	l.followers = append(l.followers, mine)
	if l.stop == nil {
		listening, stop := context.WithCancel(context.WithoutCancel(ctx))
		l.stop, l.ended = stop, make(chan struct{})
		go l.run(listening, l.ended)
	}
	l.wake()
	l.mu.Unlock()

	<-ctx.Done()

	l.mu.Lock()
	l.followers = slices.DeleteFunc(l.followers, func(f *follower) bool { return f == mine })
	if len(l.followers) > 0 {
		l.mu.Unlock()
		return
	}
	l.stop()
	l.stop = nil
	ended := l.ended
	l.mu.Unlock()
	<-ended
}

// tell does something with each follower, unless ctx has ended: then they are
// another run's, or nobody's.
func (l *Listener) tell(ctx context.Context, say func(*follower)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.followers {
		if ctx.Err() == nil {
			say(f)
		}
	}
}

// run keeps a connection until ctx ends. That nothing is heard is logged once, however long
// it lasts.
func (l *Listener) run(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	for told := false; ctx.Err() == nil; {
		err := l.listen(ctx)
		l.tell(ctx, func(f *follower) {
			if f.begun {
				told = false
			}
			if f.begun && f.Lost != nil {
				f.Lost()
			}
			f.begun = false
		})
		if ctx.Err() == nil && !told {
			l.logger.WarnContext(ctx, "notifications of the database are not heard, trying until they are", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

// listen hears on one connection until it fails.
func (l *Listener) listen(ctx context.Context) error {
	conn, run, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer closeBounded(ctx, conn)
	listened := map[string]bool{}
	for {
		silent, wake := context.WithTimeout(ctx, silence)
		l.mu.Lock()
		l.wake = wake
		l.mu.Unlock()
		if err = l.begin(ctx, conn, run, listened); err == nil {
			err = l.hear(ctx, silent, conn)
		}
		wake()
		if err != nil {
			return err
		}
	}
}

func (l *Listener) connect(ctx context.Context) (conn *pgx.Conn, run int64, err error) {
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err = pgx.ConnectConfig(bounded, l.config)
	if err != nil {
		return nil, 0, fmt.Errorf("connect: %w", err)
	}
	if run, err = RunOf(bounded, conn); err != nil {
		closeBounded(ctx, conn)
	}
	return conn, run, err
}

func closeBounded(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
	Cleaned(ctx, conn)
}

// Cleaned waits until what closing a connection asks of its server is done: where a wait on
// it was given up, to cancel that. PgBouncer 1.18 ends where a process ends in between.
func Cleaned(ctx context.Context, conn *pgx.Conn) {
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// begin listens to the channels of the followers there are, and tells these.
func (l *Listener) begin(ctx context.Context, conn *pgx.Conn, run int64, listened map[string]bool) error {
	var channels []string
	l.tell(ctx, func(f *follower) {
		if !listened[f.Channel] {
			channels = append(channels, f.Channel)
		}
	})
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return fmt.Errorf("listen to %s: %w", channel, err)
		}
		listened[channel] = true
	}
	l.tell(ctx, func(f *follower) {
		if listened[f.Channel] && !f.begun {
			f.begun = true
			f.Begin(run)
		}
	})
	return nil
}

// hear waits for one notification, and hands it on. In silence it asks whether the
// server is there.
func (l *Listener) hear(ctx, silent context.Context, conn *pgx.Conn) error {
	said, err := conn.WaitForNotification(silent)
	switch {
	case err == nil:
		l.tell(ctx, func(f *follower) {
			if f.begun && f.Channel == said.Channel {
				f.Heard(said.Payload)
			}
		})
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(silent.Err(), context.Canceled): // somebody has come
		return nil
	case silent.Err() == nil:
		return fmt.Errorf("listen: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := conn.Ping(bounded); err != nil {
		return fmt.Errorf("listen: the server does not answer: %w", err)
	}
	return nil
}
