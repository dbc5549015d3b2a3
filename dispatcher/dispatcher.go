// Package dispatcher delivers the public events to the webhooks that asked for
// them: at least once, signed, on the schedule of the contract, and never to an
// address that is not public. One endpoint that hangs does not slow another.
//
// It follows the log as a projection does, with a queue in Postgres that is
// filled in the same transaction as its checkpoint. Whether an event falls into
// a pause is decided by the order of the log. Any number of processes work the
// queue; what a dead one held is taken over within seconds.
package dispatcher

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/postgres"
)

// Dispatcher fills and works the queue of deliveries. It is a projection
// (Name, Version, Apply), and Run sends.
type Dispatcher struct {
	Pool    *pgxpool.Pool
	Control *pgxpool.Pool // for signs of life alone, so that no work keeps them waiting; nil: Pool
	// Listener hears of what comes into the queue; nil: a connection of its own does.
	Listener *postgres.Listener
	Secrets  Secrets
	Guard    *Guard
	Metrics  *Metrics
	Logger   *slog.Logger
	Tracing  trace.TracerProvider // nil: attempts are not traced
	Now      func() time.Time     // dates attempts; leases and due times are the database's
	// ExternalIDs names users as their client does, for clients that want that. Those who are
	// erased are left out; where it does not know one, it is [event.ErrUnnamed].
	ExternalIDs func(ctx context.Context, client id.Client, users []id.User) (map[id.User]string, error)
	Config      Config
	// SilentThrough is where in the log begins what is to be delivered: up to
	// there it was another's to deliver. Subscriptions are followed all the same.
	SilentThrough eventstore.Position

	resolver *net.Resolver // nil: the system's
	filters  filters
}

// Secrets opens the signing secrets of subscriptions; *seal.Vault does.
type Secrets interface {
	Open(ctx context.Context, subject string, p seal.Place, box *event.Box) ([]byte, error)
}

// Config is what an operator may choose. A zero field means its default.
type Config struct {
	RetryDelays []time.Duration // after each failed attempt; 30 s, 1, 2, 4 and 8 min
	Timeout     time.Duration   // of an attempt, from dialling to the end of the answer; 10 s
	Lease       time.Duration   // how long a claim keeps others off; at least the time-out and 5 s; 2 time-outs and 10 s
	Poll        time.Duration   // how often the queue is looked at unasked; 1 s
	Retention   time.Duration   // of deliveries that have ended and of attempts; 30 days

	// Attempts in flight, in this process.
	FirstAttempts int // 512
	Retries       int // 256; a budget of their own, so that neither kind starves the other
	PerEndpoint   int // of each kind, to one endpoint; 64, fewer while it fails
}

const (
	// limit: webhooks | time that a receiver has | `KINDRED_WEBHOOK_TIMEOUT`, {defaultTimeout}
	defaultTimeout = 10 * time.Second
	// limit: webhooks | deliveries in the log | {retention} after they end
	retention = 30 * 24 * time.Hour
	// limit: deliveries | attempts of a process that are under way | {firstAttempts} first ones and {retriesAtOnce} retries
	firstAttempts = 512
	retriesAtOnce = 256
	// limit: deliveries | attempts of an endpoint that a process makes at a time | {perEndpoint} of each kind, fewer while it fails
	perEndpoint = 64
)

func (c Config) withDefaults() Config {
	if len(c.RetryDelays) == 0 {
		c.RetryDelays = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Lease = max(cmp.Or(c.Lease, 2*c.Timeout+10*time.Second), c.Timeout+5*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Retention = cmp.Or(c.Retention, retention)
	c.FirstAttempts = cmp.Or(c.FirstAttempts, firstAttempts)
	c.Retries = cmp.Or(c.Retries, retriesAtOnce)
	c.PerEndpoint = cmp.Or(c.PerEndpoint, perEndpoint)
	return c
}
