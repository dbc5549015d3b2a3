// Package app is the wiring: it opens the stores, the vault, the projections, the
// dispatcher and the HTTP edge as [Config] says, and runs them. It alone may know
// every package; the command line and the end-to-end tests stand on it.
package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
	_ "time/tzdata" // analytics know every time zone, whatever the machine does

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"kindred/backoff"
	"kindred/coalesce"
	"kindred/domain/event"
	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/epochs"
	"kindred/eventstore/seal/pgkeys"
	"kindred/httpapi"
	"kindred/postgres"
	"kindred/projections"
	"kindred/projections/populations"
	"kindred/projections/readmodel"
	"kindred/semaphore"
)

// App is what every command stands on: the database, the key vault, the log and
// the projector. Close it.
type App struct {
	Config   Config
	Pool     *pgxpool.Pool
	Vault    *seal.Vault
	Epochs   *epochs.Epochs
	Log      *eventstore.Log
	Progress *projector.Progress
	Runner   *projector.Runner

	logger    *slog.Logger
	tool      bool               // may stand beside a running service
	memory    int64              // bytes that the process may use: what is large takes a share of it
	local     *postgres.Local    // nil where a database is configured
	reads     *pgxpool.Pool      // for what requests only read
	following *pgxpool.Pool      // for streams of events, and pulls that wait
	control   *pgxpool.Pool      // for what must not wait behind the work: leases, revocations
	listener  *postgres.Listener // hears what other processes say
	metrics   *prometheus.Registry
	tracing   trace.TracerProvider // nil where no collector is configured
	// populations are the users in memory, for matches and feeds alike; set
	// with the commands.
	populations *populations.Populations
	judging     readmodel.Judging
	queries     *semaphore.Semaphore // places of queries of read models, and of reads of streams, over Pool

	draining atomic.Bool // about to stop: not ready any more
	closers  []func()
}

const (
	// limit: requests | a statement that reads, in the database | {readWithin} | 503 `read_too_slow`
	readWithin = 5 * time.Second // a statement that only reads, for a request
	// limit: models | a query of a model, answer included | {answerWithin}
	answerWithin    = 30 * time.Second
	giveBackTimeout = 2 * time.Second
)

// newApp is one of which nothing is open.
func newApp(config Config, logger *slog.Logger, tool bool) *App {
	a := &App{Config: config, logger: logger, tool: tool, memory: memoryLimit(), metrics: prometheus.NewRegistry(), judging: readmodel.NewJudging()}
	registerProcess(a.metrics)
	return a
}

// Open opens all that a tool works on, which may stand beside a running service.
// Faults: overloaded.
func Open(ctx context.Context, config Config, logger *slog.Logger) (*App, error) {
	return open(ctx, config, logger, true)
}

// OpenDatabase opens no more than the database, for what works where the rest
// cannot be opened.
func OpenDatabase(ctx context.Context, config Config, logger *slog.Logger) (*App, error) {
	a := newApp(config, logger, true)
	if err := a.openDatabase(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// open opens all, in order, or nothing.
func open(ctx context.Context, config Config, logger *slog.Logger, tool bool) (*App, error) {
	a := newApp(config, logger, tool)
	for _, step := range []func(context.Context) error{a.openDatabase, a.openVault, a.openLog} {
		if err := step(ctx); err != nil {
			a.Close()
			return nil, err
		}
	}
	a.Progress = projector.NewProgress(a.Pool, logger)
	a.Progress.Listener = a.listener
	a.Vault.Server = a.Progress.Server
	a.Runner = &projector.Runner{
		Pool: a.Pool, Leases: a.control, Renewals: projector.NewRenewals(a.control), Log: a.Log, Name: processName(), Logger: logger, Now: time.Now,
		Large: make(chan struct{}, 1), Progress: a.Progress, Metrics: projector.NewMetrics(a.metrics),
	}
	if a.local == nil {
		return a, nil
	}
	// The private database has one owner at a time: whoever led before is dead.
	if err := a.Runner.EndLeases(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close undoes what was opened, the last first.
func (a *App) Close() {
	for _, undo := range slices.Backward(a.closers) {
		undo()
	}
}

func (a *App) openDatabase(ctx context.Context) error {
	url, err := a.databaseURL(ctx)
	if err != nil {
		return err
	}
	if !a.tool && a.local == nil {
		a.awaitDatabase(ctx, url)
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return a.Config.unreached(err)
	}
	// What is made without a schema, such as a partition of the delivery log,
	// must not come to stand in that of a read model, which a rebuild replaces.
	path := append([]string{"public"}, projector.SearchPath(projections.All()...)...)
	name := "" // of a service
	if a.tool {
		name = projector.ToolName
	}
	work, reads := a.Config.conns()
	a.queries = &semaphore.Semaphore{Places: int(work), Waiting: queriesWaiting}
	for _, p := range []struct {
		pool  **pgxpool.Pool
		label string
		postgres.Options
	}{
		{&a.Pool, "work", postgres.Options{MaxConns: work, AppName: name}},
		// Reads have connections of their own, so that slow ones keep no write waiting.
		{&a.reads, "reads", postgres.Options{MaxConns: reads, AppName: "kindred reads", StatementTimeout: readWithin}},
		// Streams of events and pulls that wait for one take none of those.
		{&a.following, "following", postgres.Options{MaxConns: followingConns, AppName: "kindred following", StatementTimeout: readWithin}},
		{&a.control, "control", postgres.Options{MaxConns: controlConns, AppName: "kindred control"}},
	} {
		p.SearchPath = path
		if *p.pool, err = postgres.Open(ctx, url, p.Options); err != nil {
			return err
		}
		a.closers = append(a.closers, (*p.pool).Close)
		registerPool(a.metrics, p.label, *p.pool)
	}
	a.listener = postgres.NewListener(a.Pool.Config().ConnConfig, a.logger)
	return nil
}

// limit: edge | wait of a service for a database that is starting | {databaseWait}
const databaseWait = time.Minute

// awaitDatabase waits for a server that is about to start: where a machine starts both, a supervisor
// would have given up before it has recovered. What else is wrong is found by who comes next.
func (a *App) awaitDatabase(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, databaseWait)
	defer cancel()
	var (
		rest backoff.Backoff
		told backoff.Seldom
	)
	for {
		conn, err := postgres.Connect(ctx, url, postgres.DefaultName)
		if err == nil {
			_ = conn.Close(ctx) // it was only to see
			return
		}
		if !postgres.Starting(err) {
			return
		}
		told.Do(func() {
			a.logger.WarnContext(ctx, "the database takes no connection yet, trying again", "for", databaseWait, "error", a.Config.unreached(err))
		})
		if rest.Wait(ctx) != nil {
			return
		}
	}
}

// databaseURL is the configured database, or the private one, which is started
// unless a tool finds it running under a service.
func (a *App) databaseURL(ctx context.Context) (string, error) {
	if a.Config.DatabaseURL != "" {
		return a.Config.DatabaseURL, nil
	}
	local, err := postgres.StartLocal(ctx, a.Config.DataDir, a.logger)
	if a.tool && errors.Is(err, postgres.ErrInUse) {
		return postgres.LocalURL(ctx, a.Config.DataDir, a.logger)
	}
	if err != nil {
		return "", err
	}
	a.local = local
	a.closers = append(a.closers, func() {
		if err := local.Stop(context.WithoutCancel(ctx)); err != nil {
			a.logger.ErrorContext(ctx, "local database not stopped in order", "error", err)
		}
	})
	return local.URL(), nil
}

func (a *App) openVault(ctx context.Context) error {
	master, err := MasterKeys(ctx, a.Config, a.Pool, a.logger)
	if err != nil {
		return err
	}
	if a.Epochs, err = a.OpenEpochs(ctx, a.Pool); err != nil {
		return err
	}
	a.closers = append(a.closers, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		if err := a.Epochs.Close(ctx); err != nil {
			a.logger.WarnContext(ctx, "places under an epoch not given back", "error", err)
		}
	})
	a.Vault = seal.New(pgkeys.Keys{Pool: a.Pool}, master, rand.Reader)
	a.Vault.Epochs = a.Epochs
	if a.tool {
		return nil
	}
	return a.Epochs.Make(ctx)
}

// OpenEpochs opens the epochs of a database, with the keys that this configuration
// names.
func (a *App) OpenEpochs(ctx context.Context, pool *pgxpool.Pool) (*epochs.Epochs, error) {
	return epochs.Open(ctx, pool, a.epochOptions(ctx))
}

func (a *App) epochOptions(ctx context.Context) epochs.Options {
	return epochs.Options{Path: a.Config.EpochKeys(), Entropy: rand.Reader, Now: time.Now, Made: func(path string) {
		a.logger.InfoContext(ctx, "made a directory for epoch keys; it must last as long as the database, and its copies are made "+
			"by kindred keys snapshot alone", "directory", path)
	}}
}

// Rotation ends the epochs of those who are erased.
func (a *App) Rotation() *epochs.Rotation {
	return &epochs.Rotation{Epochs: a.Epochs, Lead: a.Runner.Lead, Logger: a.logger, BatchErasures: epochs.BatchErasures, KeepRetired: epochs.KeepRetired}
}

// warningGuard is a guard of appends that warns of another server, too.
type warningGuard struct {
	*seal.Vault
	logger *slog.Logger
}

func (g warningGuard) Invalidate() {
	g.logger.Warn("the database is on another server, which may lack the last commits")
	g.Vault.Invalidate()
}

func (a *App) openLog(ctx context.Context) error {
	a.Log = &eventstore.Log{Vault: a.Vault, Registry: event.All(), Now: time.Now, Appended: countAppends(a.metrics)}
	if a.Config.EventStoreURL == "" {
		store, err := pgstore.Open(ctx, a.Pool, a.listener)
		if err != nil {
			return err
		}
		store.Guard(warningGuard{a.Vault, a.logger})
		a.Log.Store, a.Log.Bulk, a.Log.Confirm, a.Log.InPlace = store, store, store.Confirm, a.Reader().InPlace
		a.closers = append(a.closers, store.Close)
		return nil
	}
	store, err := esdbstore.Open(ctx, a.Config.EventStoreURL, esdbstore.Options{Entropy: rand.Reader, Logger: a.logger})
	if err != nil {
		return err
	}
	a.Log.Store, a.Log.Acknowledge = store, projector.NoteHead(a.Pool)
	a.closers = append(a.closers, func() {
		if err := store.Close(); err != nil {
			a.logger.WarnContext(ctx, "event store not closed in order", "error", err)
		}
	})
	return nil
}

// makeLookups makes what finds those users who were created by an earlier release,
// before anybody asks for them.
func (a *App) makeLookups(ctx context.Context) error {
	n, err := a.Log.MakeLookups(ctx, pgkeys.Keys{Pool: a.Pool}, "", false)
	if n > 0 {
		a.logger.InfoContext(ctx, "made from the log what finds users by their external ids", "users", n)
	}
	return err
}

const (
	readyFor    = 200 * time.Millisecond // how long it holds good whether the service can answer
	readyWithin = 2 * time.Second
	// limit: edge | requests that wait to hear whether the service is ready | {maxAsking}
	maxAsking = 4096
	// limit: edge | queries of read models, and reads of streams, of writes and policies, that wait for a connection, all clients | {queriesWaiting}
	queriesWaiting = 4096
)

// ready says whether the service can answer: the database and the log do, the
// projections follow the log where that is this process's to see to, and whatever
// else it must know.
func (a *App) ready(others ...func(context.Context) error) func(context.Context) error {
	followed := &projector.Watchdog{Pool: a.Pool, Now: time.Now}
	if a.Config.has(RoleProjections) {
		for _, model := range projections.All() {
			followed.Projections = append(followed.Projections, model)
		}
	}
	database := reached(a.Pool, time.Now, a.logger)
	answers := shared(func(ctx context.Context) error {
		if err := database(ctx); err != nil {
			return err
		}
		head, err := a.Log.Store.Head(ctx)
		if err != nil {
			return fmt.Errorf("reach the event store: %w", err)
		}
		if err := followed.Check(ctx, head); err != nil {
			return err
		}
		for _, other := range others {
			if err := other(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return func(ctx context.Context) error {
		if a.draining.Load() {
			return httpapi.ErrStopping
		}
		return answers(ctx)
	}
}

// shared makes a check, of 2 s at most, of which each answer is for all who ask
// meanwhile and shortly after: however many ask, they do not keep others from
// what is checked.
func shared(check func(context.Context) error) func(context.Context) error {
	var (
		until time.Time // that last holds good
		last  error
	)
	together := &coalesce.Coalescer[struct{}, error]{
		Most: maxAsking, Waiting: maxAsking, Timeout: readyWithin,
		Answer: func(ctx context.Context, asking []struct{}) ([]error, error) {
			if !time.Now().Before(until) {
				last = check(ctx)
				until = time.Now().Add(readyFor)
			}
			return slices.Repeat([]error{last}, len(asking)), nil
		},
	}
	return func(ctx context.Context) error {
		ready, err := together.Ask(ctx, struct{}{})
		return cmp.Or(err, ready)
	}
}

// processName names this process among those that may lead a projection.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
