package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"kindred/domain/event"
	"kindred/domain/id"
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
)

// foundation is what every command of the service stands on: the database, the
// key vault, the log and the projector.
type foundation struct {
	config   Config
	logger   *slog.Logger
	tool     bool            // may stand beside a running service
	memory   int64           // bytes that the process may use: what is large takes a share of it
	local    *postgres.Local // nil where a database is configured
	pool     *pgxpool.Pool
	reads    *pgxpool.Pool // for what requests only read
	control  *pgxpool.Pool // for what must not wait behind the work: leases, revocations
	vault    *seal.Vault
	epochs   *epochs.Epochs
	log      *eventstore.Log
	metrics  *prometheus.Registry
	progress *projector.Progress
	runner   *projector.Runner
	// populations are the users in memory, for matches and feeds alike; set
	// with the commands.
	populations *projections.Populations

	draining atomic.Bool // about to stop: not ready any more
	closers  []func()
}

const (
	controlConns    = 4
	readConns       = 12
	readWithin      = 5 * time.Second // a statement that only reads, for a request
	giveBackTimeout = 2 * time.Second
)

// newFoundation is one of which nothing is open.
func newFoundation(config Config, logger *slog.Logger, tool bool) *foundation {
	f := &foundation{config: config, logger: logger, tool: tool, memory: memoryLimit(), metrics: prometheus.NewRegistry()}
	registerProcess(f.metrics)
	return f
}

// found opens the foundation, in order. Close it in any case.
func found(ctx context.Context, config Config, logger *slog.Logger, tool bool) (*foundation, error) {
	f := newFoundation(config, logger, tool)
	for _, step := range []func(context.Context) error{f.openDatabase, f.openVault, f.openLog} {
		if err := step(ctx); err != nil {
			f.close()
			return nil, err
		}
	}
	f.progress = projector.NewProgress(f.pool, logger)
	f.progress.Outside = httpapi.WaitOutside
	f.vault.Server = f.progress.Server
	f.runner = &projector.Runner{
		Pool: f.pool, Leases: f.control, Log: f.log, Name: processName(), Logger: logger, Now: time.Now,
		Large: semaphore.NewWeighted(1), Progress: f.progress, Metrics: projector.NewMetrics(f.metrics),
	}
	if f.local == nil {
		return f, nil
	}
	// The private database has one owner at a time: whoever led before is dead.
	if err := f.runner.EndLeases(ctx); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close undoes what was opened, the last first.
func (f *foundation) close() {
	for _, undo := range slices.Backward(f.closers) {
		undo()
	}
}

func (f *foundation) openDatabase(ctx context.Context) error {
	url, err := f.databaseURL(ctx)
	if err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	// What is made without a schema, such as a partition of the delivery log,
	// must not come to stand in that of a read model, which a rebuild replaces.
	path := append([]string{"public"}, projector.SearchPath(projections.All()...)...)
	name := "" // of a service
	if f.tool {
		name = projector.ToolName
	}
	if f.pool, err = postgres.Open(ctx, url, postgres.Options{SearchPath: path, AppName: name}); err != nil {
		return err
	}
	f.closers = append(f.closers, f.pool.Close)
	registerPool(f.metrics, "work", f.pool)
	// Reads have connections of their own, so that slow ones keep no write waiting.
	f.reads, err = postgres.Open(ctx, url, postgres.Options{
		SearchPath: path, MaxConns: readConns, AppName: "kindred reads", StatementTimeout: readWithin,
	})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, f.reads.Close)
	registerPool(f.metrics, "reads", f.reads)
	f.control, err = postgres.Open(ctx, url, postgres.Options{SearchPath: path, MaxConns: controlConns, AppName: "kindred control"})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, f.control.Close)
	registerPool(f.metrics, "control", f.control)
	return nil
}

// databaseURL is the configured database, or the private one, which is started
// unless a tool finds it running under a service.
func (f *foundation) databaseURL(ctx context.Context) (string, error) {
	if f.config.DatabaseURL != "" {
		return f.config.DatabaseURL, nil
	}
	local, err := postgres.StartLocal(ctx, f.config.DataDir, f.logger)
	if f.tool && errors.Is(err, postgres.ErrInUse) {
		return postgres.LocalURL(ctx, f.config.DataDir, f.logger)
	}
	if err != nil {
		return "", err
	}
	f.local = local
	f.closers = append(f.closers, func() {
		if err := local.Stop(context.WithoutCancel(ctx)); err != nil {
			f.logger.ErrorContext(ctx, "local database not stopped in order", "error", err)
		}
	})
	return local.URL(), nil
}

func (f *foundation) openVault(ctx context.Context) error {
	master, err := f.masterKeys(ctx)
	if err != nil {
		return err
	}
	if f.epochs, err = epochs.Open(ctx, f.pool, f.epochOptions(ctx)); err != nil {
		return err
	}
	f.closers = append(f.closers, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		if err := f.epochs.Close(ctx); err != nil {
			f.logger.WarnContext(ctx, "places under an epoch not given back", "error", err)
		}
	})
	f.vault = seal.New(pgkeys.Keys{Pool: f.pool}, master, rand.Reader)
	f.vault.Epochs = f.epochs
	if f.tool {
		return nil
	}
	return f.epochs.Make(ctx)
}

func (f *foundation) epochOptions(ctx context.Context) epochs.Options {
	return epochs.Options{Path: f.config.epochDir(), Entropy: rand.Reader, Now: time.Now, Made: func(path string) {
		f.logger.InfoContext(ctx, "made a directory for epoch keys; it must last as long as the database, and its copies are made "+
			"by kindred keys snapshot alone", "directory", path)
	}}
}

// rotation ends the epochs of those who are erased.
func (f *foundation) rotation() *epochs.Rotation {
	return &epochs.Rotation{Epochs: f.epochs, Lead: f.runner.Lead, Logger: f.logger, Gather: epochs.Gather, Settle: epochs.Settle}
}

func (f *foundation) openLog(ctx context.Context) error {
	f.log = &eventstore.Log{Vault: f.vault, Registry: event.All(), Now: time.Now, Appended: countAppends(f.metrics)}
	if f.config.EventStoreURL == "" {
		store, err := pgstore.Open(ctx, f.pool)
		if err != nil {
			return err
		}
		store.Guard(f.vault)
		f.log.Store, f.log.Bulk, f.log.Confirm = store, store, store.Confirm
		f.closers = append(f.closers, store.Close)
		return nil
	}
	store, err := esdbstore.Open(ctx, f.config.EventStoreURL, esdbstore.Options{Entropy: rand.Reader, Logger: f.logger})
	if err != nil {
		return err
	}
	f.log.Store, f.log.Acknowledge = store, f.noteHead
	f.closers = append(f.closers, func() {
		if err := store.Close(); err != nil {
			f.logger.WarnContext(ctx, "event store not closed in order", "error", err)
		}
	})
	return nil
}

const noteHead = `
INSERT INTO heads (client, position) VALUES ($1, $2)
ON CONFLICT (client) DO UPDATE SET position = excluded.position WHERE heads.position < excluded.position`

// noteHead tells the readers of every replica what was just acknowledged, for
// a store that does not do so itself.
func (f *foundation) noteHead(ctx context.Context, client id.Client, at eventstore.Position) error {
	_, err := f.pool.Exec(ctx, noteHead, client, at)
	return err
}

// readyFor is how long it holds good whether the service can answer.
const readyFor = 200 * time.Millisecond

// ready says whether the service can answer: the database and the log do, the
// projections follow the log where that is this process's to see to, and whatever
// else it must know.
func (f *foundation) ready(others ...func(context.Context) error) func(context.Context) error {
	followed := &projector.Standstill{Pool: f.pool, Now: time.Now}
	if f.config.has(roleProjections) {
		for _, model := range projections.All() {
			followed.Projections = append(followed.Projections, model)
		}
	}
	reached := shared(func(ctx context.Context) error {
		if err := f.pool.Ping(ctx); err != nil {
			return fmt.Errorf("reach the database: %w", err)
		}
		head, err := f.log.Store.Head(ctx)
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
		if f.draining.Load() {
			return errors.New("stopping")
		}
		return reached(ctx)
	}
}

// shared makes a check, of 2 s at most, of which each answer is for all who ask
// meanwhile and shortly after: however many ask, they do not keep others from
// what is checked.
func shared(check func(context.Context) error) func(context.Context) error {
	var (
		turn  = make(chan struct{}, 1) // guards what follows
		until time.Time
		last  error
	)
	return func(ctx context.Context) error {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-turn }()
		if time.Now().Before(until) {
			return last
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		last = check(ctx)
		until = time.Now().Add(readyFor)
		return last
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

// isUnavailable says whether an error means that something the service stands
// on cannot be reached just now.
func isUnavailable(err error) bool {
	return errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, seal.ErrBusy) || errors.Is(err, seal.ErrLost) || errors.Is(err, seal.ErrEpoch) ||
		errors.Is(err, context.DeadlineExceeded) || pgUnavailable(err)
}
