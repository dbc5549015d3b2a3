// Package esdbstore keeps the log in EventStoreDB or KurrentDB. It always
// speaks with the node that leads, finds the new leader when there is one,
// and waits for nothing without a bound.
//
// It speaks the server's protocol through the stubs of EventStore-Client-Go,
// not through that module's Client: the Client ends the process when an event
// lacks its creation time, panics when it is closed amid a call, never asks
// for the leader in spite of its options, and is dead for good once a search
// for nodes has failed. Its connection strings are understood as they are.
package esdbstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"kindred/backoff"
	"kindred/eventstore"
	"kindred/eventstore/tail"
)

const (
	defaultPatience = 10 * time.Second
	attempts        = 3 // a single attempt takes at most this part of the patience
	firstPause      = 10 * time.Millisecond
	longestPause    = 500 * time.Millisecond
	// callsAtOnce stays below the 100 that a server takes over one connection: it
	// counts calls that were given up for as long as it works on them.
	// limit: log | calls over the connection to KurrentDB | {callsAtOnce}
	callsAtOnce = 90
)

var errClosed = errors.New("the event store was closed")

// Options of a Store.
type Options struct {
	Entropy  io.Reader     // such as crypto/rand.Reader, which many goroutines may read
	Logger   *slog.Logger  // nil discards
	Patience time.Duration // how long a call waits for a leader that answers; 0 is 10 s
}

// Store is a log in EventStoreDB.
type Store struct {
	leader   *leader
	logger   *slog.Logger
	entropy  io.Reader
	patience time.Duration
	slots    chan struct{} // a semaphore: one for each call under way

	tail      *tail.Tail
	listen    sync.Once
	done      context.Context //nolint:containedctx // ends with the store
	end       context.CancelFunc
	listeners sync.WaitGroup
}

var _ eventstore.Store = (*Store)(nil)

// Open connects to the servers that url names: esdb://user:password@host:2113
// or kurrentdb://…, with "+discover" for a name that stands for a cluster, and
// with several hosts, divided by commas, that know the cluster. Its settings
// are those of EventStore-Client-Go; nodePreference and the deadlines are
// passed over. Open fails with ErrUnavailable where no leader answers.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if o.Entropy == nil {
		return nil, errors.New("open the event store: no source of entropy was given")
	}
	config, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	l, err := newLeader(config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		leader: l, entropy: o.Entropy,
		logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), patience: cmp.Or(o.Patience, defaultPatience),
		slots: make(chan struct{}, callsAtOnce),
	}
	s.done, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.tail = tail.New(source{s}, s.done.Done(), errClosed)
	err = s.mayReadAll(ctx)
	if err == nil {
		_, err = s.Epoch(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the event store: %w", err), s.Close())
	}
	return s, nil
}

// mayReadAll reads one event of the whole log: a user that may append to streams
// and read them need not be allowed that.
func (s *Store) mayReadAll(ctx context.Context) error {
	err := s.call(ctx, func(ctx context.Context, streams api.StreamsClient) error {
		_, err := read(ctx, streams, all(position{}, api.ReadReq_Options_Forwards, 1))
		return err
	})
	if status.Code(err) == codes.PermissionDenied {
		return fmt.Errorf("its user may not read $all: it must be in $admins, or in the ACL of $all: %w", err)
	}
	return err
}

// Close ends all calls and subscriptions, and the connection.
func (s *Store) Close() error {
	s.end()
	err := s.leader.close()
	s.listen.Do(func() {}) // nothing begins to listen any more
	s.listeners.Wait()
	return err
}

// call asks the leader until it answers. What passes by itself (nodes that are
// down, busy, or no longer the leader) is asked again, at most as long as the
// patience lasts, and is ErrUnavailable then.
func (s *Store) call(ctx context.Context, ask func(context.Context, api.StreamsClient) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	defer context.AfterFunc(s.done, cancel)() //nolint:contextcheck // the store's end ends its calls
	rest := backoff.Backoff{First: firstPause, Most: longestPause}
	for {
		err := s.attempt(within, ask)
		if err == nil || !passing(err) {
			return err
		}
		if rest.Wait(within) == nil {
			continue
		}
		switch {
		case s.done.Err() != nil:
			return errClosed
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, ctx.Err())
		}
		return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
	}
}

func (s *Store) attempt(ctx context.Context, ask func(context.Context, api.StreamsClient) error) error {
	select { // its time begins after
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.done.Done():
		return errClosed
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	briefly, cancel := context.WithTimeout(ctx, s.patience/attempts)
	defer cancel()
	defer context.AfterFunc(s.done, cancel)() //nolint:contextcheck // the store's end ends its calls //nolint:contextcheck // the store's end ends its calls
	l, err := s.link(briefly)
	if err != nil {
		return err
	}
	err = ask(withLeader(briefly), l.streams)
	if err != nil && passing(err) && ctx.Err() == nil { // else it was the caller that gave up
		s.leader.suspect(l, err)
	}
	return err
}

// link is the connection to the leader.
func (s *Store) link(ctx context.Context) (*link, error) {
	l, changed, err := s.leader.link(ctx)
	if changed {
		s.logger.InfoContext(ctx, "connected to the leader of the event store", "address", l.address)
	}
	return l, err
}

// withLeader lets a node that does not lead refuse, also what it could read
// from its own copy of the log, which may be behind.
func withLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}

// movedError: a node said that another one leads.
type movedError struct {
	address string
	err     error
}

func (e *movedError) Error() string { return fmt.Sprintf("%s leads: %v", e.address, e.err) }
func (e *movedError) Unwrap() error { return e.err }

// told reads what a call's end says: a node that does not lead tells in the
// trailer which one does, and one that takes only small appends how small.
func told(err error, trailer metadata.MD) error {
	last := func(key string) string {
		if v := trailer.Get(key); len(v) > 0 {
			return v[len(v)-1]
		}
		return ""
	}
	if last("exception") == "maximum-append-size-exceeded" {
		return fmt.Errorf("%w: the server takes appends of %s bytes: %w", eventstore.ErrTooLarge, last("maximum-append-size"), err)
	}
	host, port := last("leader-endpoint-host"), last("leader-endpoint-port")
	if last("exception") != "not-leader" || host == "" || port == "" {
		return err
	}
	return &movedError{address: host + ":" + port, err: err}
}

// passing says whether a failure may be gone when the same is asked again.
func passing(err error) bool {
	if _, moved := errors.AsType[*movedError](err); moved || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	s, spoken := status.FromError(err)
	if !spoken {
		return false
	}
	switch s.Code() {
	case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal,
		codes.ResourceExhausted: // too many calls at once over one connection
		return true
	default:
		return false
	}
}
