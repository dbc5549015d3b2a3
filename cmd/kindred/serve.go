package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"kindred/commands/policies"
	"kindred/dispatcher"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/projections"
)

const (
	// drainPause lets load balancers see that this process is not ready any
	// more before it stops listening; none where nothing watches.
	drainPause   = 200 * time.Millisecond
	drainTimeout = 20 * time.Second

	// heapFloor is how much of the heap may be garbage however little is in
	// use: a small heap would be collected many times a second.
	heapFloor = 64 << 20 // bytes
)

func (e environ) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve until interrupted",
		Long:  "Serve until interrupted.\n\n" + environment(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := readConfig(e.getenv)
			if err != nil {
				return err
			}
			for _, name := range misspelt(os.Environ()) {
				e.logger.WarnContext(cmd.Context(), "a variable that is no setting is ignored; kindred serve --help lists them all", "name", name)
			}
			floor := make([]byte, heapFloor) // never touched: it takes no memory itself
			forget(floor)
			defer runtime.KeepAlive(floor)
			return e.serve(cmd.Context(), config, func(at Config) { greet(e.out, at) })
		},
	}
}

// serve runs the roles of this process until ctx ends or one of them fails.
// Once it serves, it tells ready what it is configured as, with the address it
// really listens on.
func (e environ) serve(ctx context.Context, config Config, ready func(Config)) error {
	listener, measures, err := listen(ctx, &config)
	if err != nil {
		return err
	}
	defer listener.Close()
	if measures != nil {
		defer measures.Close()
	}
	f, err := found(ctx, config, e.logger, false)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.refuseReplay(ctx); err != nil {
		return err
	}
	if err := f.makeLookups(ctx); err != nil {
		return err
	}
	guard := dispatcher.NewGuard(config.AllowNetworks...)
	passwords := auth.NewPasswords(rand.Reader, e.hashing, e.cores)
	c, err := f.commands(passwords, guard)
	if err != nil {
		return err
	}

	// What follows the log outlives the server, so that the last requests are
	// still answered.
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, behind := errgroup.WithContext(behind)
	group.Go(func() error { f.progress.Run(behind); return nil })
	group.Go(func() error { f.populations.Run(behind); return nil })
	if config.has(roleProjections) {
		for _, model := range projections.All() {
			group.Go(func() error { return f.runner.Run(behind, model) })
		}
		group.Go(func() error { return f.rebuilds().Run(behind) })
	}
	if config.has(rolePolicies) {
		queue := projections.MatchQueue{Reader: f.reader()}
		metrics := policies.NewMetrics(f.metrics)
		run := policies.Policies{
			Commands: c, Claims: projections.Claims{Reader: f.reader()}, Matching: queue,
			Settle:    func(ctx context.Context) (bool, error) { return dispatcher.Endings{Pool: f.pool}.Settle(ctx, c) },
			Campaigns: projections.Campaigns{Reader: f.reader()}, Now: time.Now, Logger: e.logger, Metrics: metrics,
			Subscriber: &projector.Subscriber{Runner: f.runner, Wants: policies.Wants},
		}
		group.Go(func() error { return f.runner.Run(behind, queue) })
		group.Go(func() error { return run.Run(behind) })
		group.Go(func() error { return f.clustering(c, metrics).Run(behind) })
		group.Go(func() error { return f.imports(c).Run(behind) })
		group.Go(func() error { return f.rotation().Run(behind) })
	}
	if config.has(roleDispatcher) {
		f.dispatch(behind, group, guard)
	}
	if f.local != nil {
		group.Go(func() error {
			select {
			case <-f.local.Done():
				return fmt.Errorf("the local database has ended: %w", f.local.Err())
			case <-behind.Done():
				return nil
			}
		})
	}
	if measures != nil {
		group.Go(func() error { return f.serveMetrics(behind, measures) })
	}
	handler := f.health()
	if config.has(roleAPI) {
		w, err := f.web(ctx, c, passwords)
		if err != nil {
			return errors.Join(err, stopped(stop, group))
		}
		group.Go(func() error { return w.keyring.Run(behind) })
		group.Go(func() error { return w.revocations.Run(behind) })
		group.Go(func() error { w.repeats.Run(behind, e.logger); return nil })
		group.Go(func() error { w.feeds.Run(behind, e.logger); return nil })
		group.Go(func() error { w.auditor.Run(behind); return nil })
		group.Go(func() error { w.states.Run(behind); return nil })
		handler = w.handler
	}
	if f.local != nil {
		if err := f.local.Announce(config.Listen); err != nil {
			return errors.Join(err, stopped(stop, group))
		}
	}
	e.logger.InfoContext(ctx, "serving", "address", config.Listen, "public_url", config.PublicURL, "roles", config.Roles)
	ready(config)
	err = errors.Join(f.serveHTTP(ctx, behind, listener, handler), stopped(stop, group))
	e.logger.InfoContext(ctx, "stopped")
	return err
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
func (f *foundation) dispatch(ctx context.Context, group *errgroup.Group, guard *dispatcher.Guard) {
	d := &dispatcher.Dispatcher{
		Pool: f.pool, Control: f.control, Secrets: f.vault, Guard: guard, Metrics: dispatcher.NewMetrics(f.metrics),
		Logger: f.logger, Now: time.Now, ExternalIDs: externalIDs(projections.Users{Reader: f.reader()}),
		Config: dispatcher.Config{RetryDelays: f.config.RetryDelays, Timeout: f.config.WebhookTimeout},
	}
	group.Go(func() error { return f.runner.Run(ctx, d) })
	group.Go(func() error { return d.Run(ctx) })
}

// serveHTTP serves until ctx ends or what stands behind it fails.
func (f *foundation) serveHTTP(ctx, behind context.Context, listener net.Listener, handler http.Handler) error {
	server := httpapi.NewServer(listener.Addr().String(), handler)
	served := make(chan error, 1)
	listener = httpapi.Bounded(listener, f.config.MaxConnections, f.config.TrustedProxies)
	go func() { served <- server.Serve(httpapi.Door(listener, handler)) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-behind.Done():
	case <-ctx.Done():
	}
	f.draining.Store(true)
	time.Sleep(drainPause)
	drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drained); err != nil {
		f.logger.WarnContext(ctx, "requests cut off that were not done in time", "error", err)
		return server.Close()
	}
	return nil
}

// health is what a process serves that is no API.
func (f *foundation) health() http.Handler {
	mux, ready := http.NewServeMux(), f.ready()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			f.logger.WarnContext(r.Context(), "not ready", "error", err)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if f.config.MetricsListen == "" {
		mux.Handle("GET /metrics", httpapi.Metrics(f.metrics, time.Now))
	}
	return mux
}

// maxScrapers is how many connections may ask for metrics at a time.
const maxScrapers = 64

// serveMetrics serves metrics on an address of their own until ctx ends.
func (f *foundation) serveMetrics(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", httpapi.Metrics(f.metrics, time.Now))
	server := httpapi.NewServer(listener.Addr().String(), mux)
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // who asks for metrics now asks the next process
	defer ended()
	if err := server.Serve(httpapi.Bounded(listener, maxScrapers, nil)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
