package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"kindred/commands"
	"kindred/commands/policies"
	"kindred/dispatcher"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/eventstore/replay"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/projections"
	"kindred/projections/segments"
)

const (
	// drainPause lets load balancers see that this process is not ready any
	// more before it stops listening, and callers leave their connections.
	drainPause   = 200 * time.Millisecond
	drainTimeout = httpapi.StreamGrace + 3*time.Second // for the answers of imports that are ended
)

// Hashing is how dear a password is to hash, and on how many cores at a time.
type Hashing struct {
	Cost  auth.Cost // zero: the recommended one
	Cores int
}

// Serve runs the roles of this process until ctx ends or one of them fails.
// Once it serves, it tells ready what it is configured as, with the addresses it
// really listens on.
// Faults: building, busy, catching_up, idempotency_key_reused, in_flight, invalid, invalid_token, overloaded,
// projection_unknown, quarantined, read_too_slow, stale, too_large, unavailable, unverifiable.
func Serve(ctx context.Context, config Config, logger *slog.Logger, hashing Hashing, ready func(Config)) error {
	listener, measures, err := listen(ctx, &config)
	if err != nil {
		return err
	}
	defer listener.Close()
	if measures != nil {
		defer measures.Close()
	}
	a, err := open(ctx, config, logger, false)
	if err != nil {
		return err
	}
	defer a.Close()
	switch unfinished, err := replay.Unfinished(ctx, a.Pool); {
	case err != nil:
		return err
	case unfinished: // it would deliver what the other kindred has delivered
		return errors.New("a replay into this database has not ended well: run kindred history replay again, or begin with an empty database")
	}
	if err := a.makeLookups(ctx); err != nil {
		return err
	}
	if err := a.openTracing(ctx); err != nil {
		return err
	}
	guard := dispatcher.NewGuard(config.AllowNetworks...)
	passwords := auth.NewPasswords(rand.Reader, hashing.Cost)
	c, err := a.Commands(passwords, guard)
	if err != nil {
		return err
	}

	// What follows the log outlives the server, so that the last requests are
	// still answered.
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, behind := errgroup.WithContext(behind)
	group.Go(func() error { a.Progress.Run(behind); return nil })
	group.Go(func() error { a.populations.Run(behind); return nil })
	if config.has(RoleProjections) {
		for _, model := range projections.All() {
			group.Go(func() error { return a.Runner.Run(behind, model) })
		}
		group.Go(func() error { return a.rebuilds().Run(behind) })
	}
	if config.has(RolePolicies) {
		a.runPolicies(behind, group, c)
	}
	if config.has(RoleDispatcher) {
		a.dispatch(behind, group, guard)
	}
	if a.local != nil {
		group.Go(func() error {
			select {
			case <-a.local.Done():
				return fmt.Errorf("the local database has ended: %w", a.local.Err())
			case <-behind.Done():
				return nil
			}
		})
	}
	if measures != nil {
		group.Go(func() error { return a.serveMetrics(behind, measures) })
	}
	handler := a.health()
	if config.has(RoleAPI) {
		w, err := a.web(ctx, c, passwords, hashing.Cores)
		if err != nil {
			return errors.Join(err, stopped(stop, group))
		}
		w.run(behind, group, logger)
		for _, ends := range []context.Context{ctx, behind} { // streams end before the server waits for its requests
			defer context.AfterFunc(ends, w.follows.Stop)() //nolint:contextcheck // it ends what is under way, whatever the context
		}
		handler = w.handler
	}
	if a.local != nil {
		if err := a.local.Announce(config.Listen); err != nil {
			return errors.Join(err, stopped(stop, group))
		}
	}
	logger.InfoContext(ctx, "serving", "address", config.Listen, "public_url", config.PublicURL, "roles", config.Roles)
	ready(config)
	err = errors.Join(a.serveHTTP(ctx, behind, listener, handler), stopped(stop, group))
	logger.InfoContext(ctx, "stopped")
	return err
}

// runPolicies runs what the role policies does, in group until ctx ends.
func (a *App) runPolicies(ctx context.Context, group *errgroup.Group, c *commands.Commands) {
	queue := projections.MatchQueue{Reader: a.Reader()}
	metrics := policies.NewMetrics(a.metrics)
	run := policies.Policies{
		Commands: c, Claims: projections.Claims{Reader: a.Reader()}, Matching: queue, Sandboxes: projections.Sandboxes{Reader: a.Reader()},
		RecordEndings:  func(ctx context.Context) (bool, error) { return dispatcher.Endings{Pool: a.Pool}.Record(ctx, c) },
		DisableFailing: func(ctx context.Context) error { return dispatcher.DisableFailing(ctx, a.Pool, c) },
		Campaigns:      projections.Campaigns{Reader: a.Reader()}, Segments: segments.New(a.Reader()), Now: time.Now, Logger: a.logger, Metrics: metrics,
		NoneBuilding: &projector.NegativeCache{Progress: a.Progress, Of: segments.Model{}},
		Subscriber:   &projector.Subscriber{Runner: a.Runner, Wants: policies.Wants},
	}
	group.Go(func() error { return a.Runner.Run(ctx, queue) })
	group.Go(func() error { return run.Run(ctx) })
	group.Go(func() error { return a.clustering(c, metrics).Run(ctx) })
	group.Go(func() error { return a.imports(c).Run(ctx) })
	group.Go(func() error { return a.Rotation().Run(ctx) })
}

// listen opens the ports before anything else is started, and writes down the
// addresses it got. Without an address of its own for metrics there is no
// listener for them.
func listen(ctx context.Context, config *Config) (listener, measures net.Listener, err error) {
	if listener, err = listenOn(ctx, "KINDRED_LISTEN", &config.Listen); err != nil {
		return nil, nil, err
	}
	if config.PublicURL == "" {
		config.PublicURL = "http://" + config.Listen
	}
	if config.MetricsListen != "" {
		if measures, err = listenOn(ctx, "KINDRED_METRICS_LISTEN", &config.MetricsListen); err != nil {
			return nil, nil, errors.Join(err, listener.Close())
		}
	}
	return listener, measures, nil
}

// listenOn listens on an address that a setting names.
func listenOn(ctx context.Context, setting string, address *string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s; end it, or set %s to another address", *address, setting)
	case err != nil:
		return nil, fmt.Errorf("listen, as %s says: %w", setting, err)
	}
	*address = listener.Addr().String()
	return listener, nil
}

func stopped(stop context.CancelFunc, group *errgroup.Group) error {
	stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// dispatch runs the queue of deliveries and those who work it.
func (a *App) dispatch(ctx context.Context, group *errgroup.Group, guard *dispatcher.Guard) {
	d := &dispatcher.Dispatcher{
		Pool: a.Pool, Control: a.control, Listener: a.listener, Secrets: a.Vault, Guard: guard, Metrics: dispatcher.NewMetrics(a.metrics),
		Logger: a.logger, Tracing: a.tracing, Now: time.Now, ExternalIDs: a.namedForDeliveries,
		Config: dispatcher.Config{RetryDelays: a.Config.RetryDelays, Timeout: a.Config.WebhookTimeout},
	}
	group.Go(func() error { return a.Runner.Run(ctx, d) })
	group.Go(func() error { return d.Run(ctx) })
}

// namedForDeliveries names users as their client does. What it leaves out is never sent.
func (a *App) namedForDeliveries(ctx context.Context, client id.Client, users []id.User) (map[id.User]string, error) {
	return projections.Users{Reader: a.Reader()}.ExternalIDsOfAll(ctx, client, false, users)
}

// serveHTTP serves until ctx ends or what stands behind it fails.
func (a *App) serveHTTP(ctx, behind context.Context, listener net.Listener, handler http.Handler) error {
	server := httpapi.NewServer(listener.Addr().String(), a.closing(handler))
	served := make(chan error, 1)
	listener = httpapi.Bounded(listener, a.Config.MaxConnections, a.Config.TrustedProxies)
	go func() { served <- server.Serve(httpapi.Problems(listener, rand.Reader)) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-behind.Done():
	case <-ctx.Done():
	}
	a.draining.Store(true)
	time.Sleep(drainPause)
	drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drained); err != nil {
		a.logger.WarnContext(ctx, "requests cut off that were not done in time", "error", err)
		return server.Close()
	}
	return nil
}

// closing has connections end with the next answer once the process is about to stop: what a
// caller sends on one just as it is closed is lost.
func (a *App) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// health is what a process serves that is no API.
func (a *App) health() http.Handler {
	mux, ready := http.NewServeMux(), a.ready()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			if r.Context().Err() == nil { // who has hung up says nothing of the service
				a.logger.WarnContext(r.Context(), "not ready", "error", err)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if a.Config.MetricsListen == "" {
		mux.Handle("GET /metrics", httpapi.Metrics(a.metrics, time.Now))
	}
	return mux
}

// maxScrapers is how many connections may ask for metrics at a time.
// limit: edge | connections of KINDRED_METRICS_LISTEN | {maxScrapers}
const maxScrapers = 64

// serveMetrics serves metrics on an address of their own until ctx ends.
func (a *App) serveMetrics(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", httpapi.Metrics(a.metrics, time.Now))
	server := httpapi.NewServer(listener.Addr().String(), mux)
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // who asks for metrics now asks the next process
	defer ended()
	if err := server.Serve(httpapi.Bounded(listener, maxScrapers, nil)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
