package projector_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestMetricsTellWhoLeadsWhatWasAppliedAndWhoStopped(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	registry := prometheus.NewRegistry()
	runner := w.runner("a")
	runner.Metrics = projector.NewMetrics(registry)
	w.rename(t, acme, "good", "forbidden")
	last := w.rename(t, bolt, "x", "y")
	background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	wantMetrics(t, registry, map[string]float64{
		"kindred_projection_leader": 1, "kindred_projection_events_total": 4, "kindred_projection_quarantined_clients": 1,
		"kindred_projection_lag_events": 0, "kindred_projection_lag_seconds": 0,
	})
}

func TestWhatWasRefusedIsToldByTheLeaderAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	registry := prometheus.NewRegistry()
	runner := w.runner("a")
	runner.Metrics = projector.NewMetrics(registry)
	last := w.rename(t, acme, "good", "forbidden")
	stop := background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	wantMetrics(t, registry, map[string]float64{"kindred_projection_leader": 1, "kindred_projection_quarantined_clients": 1})
	stop()
	wantMetrics(t, registry, map[string]float64{"kindred_projection_leader": 0, "kindred_projection_quarantined_clients": 0})
}

// Where it is gone who led, a sum of no series at all would be compared with nothing.
func TestWhoStandsByTellsThatItDoesNotLead(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	last := w.rename(t, acme, "good")
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	registry := prometheus.NewRegistry()
	runner := w.runner("b")
	runner.Metrics = projector.NewMetrics(registry)
	background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	wantMetrics(t, registry, map[string]float64{"kindred_projection_leader": 0})
}

// A policy that stopped is told to be until its event was handled, whoever does so: two that take
// turns at what neither can handle are stopped all the time.
func TestAPolicyIsToldToBeStoppedUntilAnyProcessHasHandledTheEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "good", "bad")
	registry := prometheus.NewRegistry()
	runner := w.runner("a")
	runner.Metrics, runner.Pause = projector.NewMetrics(registry), time.Second
	first := subscribe(t, &projector.Subscriber{Runner: runner, Attempts: 1})
	next(t, first).Ack()
	next(t, first).Nack()
	stopped := func() float64 { return stoppedOf(t, registry) }
	testkit.Eventually(t, "it is told that it stopped", func() bool { return stopped() == 1 })
	second := next(t, subscribe(t, &projector.Subscriber{Runner: w.runner("b")}))
	if got := nameOf(t, second); got != "bad" || stopped() != 1 {
		t.Errorf("another process is at %q, and %v are told to be stopped", got, stopped())
	}
	second.Ack()
	testkit.Eventually(t, "it is told no more", func() bool { return stopped() == 0 })
}

func TestAPolicyIsToldToBeStoppedUntilItIsSkipped(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "bad")
	registry := prometheus.NewRegistry()
	runner := w.runner("a")
	runner.Metrics, runner.Pause = projector.NewMetrics(registry), time.Second
	next(t, subscribe(t, &projector.Subscriber{Runner: runner, Attempts: 1})).Nack()
	testkit.Eventually(t, "it is told that it stopped", func() bool { return stoppedOf(t, registry) == 1 })
	if err := w.runner("b").Skip(t.Context(), "policy_match"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is told no more, though nothing else happens", func() bool { return stoppedOf(t, registry) == 0 })
}

// stoppedOf is what the metrics say of the one policy.
func stoppedOf(t *testing.T, registry *prometheus.Registry) (stopped float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kindred_projection_stopped" {
			stopped = f.Metric[0].GetGauge().GetValue()
		}
	}
	return stopped
}

func TestAClockThatIsAheadHidesNoLag(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics, now := projector.NewMetrics(registry), time.Now()
	at := func(d time.Duration) (r eventstore.Record) {
		r.RecordedAt = now.Add(d)
		return r
	}
	metrics.Behind("names_2", []eventstore.Record{at(30 * 24 * time.Hour), at(-5 * time.Minute), at(-time.Minute)}, now)
	wantMetrics(t, registry, map[string]float64{"kindred_projection_lag_events": 3, "kindred_projection_lag_seconds": 300})
	metrics.Behind("names_2", []eventstore.Record{at(30 * 24 * time.Hour)}, now)
	wantMetrics(t, registry, map[string]float64{"kindred_projection_lag_events": 1, "kindred_projection_lag_seconds": 300})
}

// wantMetrics waits until the metrics of names are as they should be.
func wantMetrics(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	testkit.Eventually(t, "all are as they should be", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		right := 0
		for _, f := range families {
			for _, m := range f.Metric {
				value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
				if expected, found := want[f.GetName()]; found && value == expected && m.Label[0].GetValue() == "names_2" {
					right++
				}
			}
		}
		return right == len(want)
	})
}

func TestMetricsNameNoClient(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	registry := prometheus.NewRegistry()
	builder := w.builder()
	builder.Metrics = projector.NewMetrics(registry)
	if err := builder.RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if strings.Contains(m.Label[0].GetValue(), string(acme)) {
				t.Errorf("%s: %s", f.GetName(), m.Label)
			}
		}
	}
}

func TestTheGaugeOfWhatWasLeftOutFollowsAResumeElsewhere(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE public.ledger (n bigint GENERATED ALWAYS AS IDENTITY, client text NOT NULL, name text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	runner := w.lenient("live", 0)
	runner.Metrics = projector.NewMetrics(registry)
	background(t, func(ctx context.Context) error { return runner.Run(ctx, ledger{cannot: "bad"}) })
	told := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kindred_projection_left_out_events" {
				return f.Metric[0].GetGauge().GetValue()
			}
		}
		return 0
	}
	w.passed(t, "ledger", w.rename(t, acme, "good", "bad", "better"))
	testkit.Eventually(t, "one is told", func() bool { return told() == 1 })
	if err := w.lenient("other", 0).Resume(t.Context(), ledger{}, acme); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "none is told", func() bool { return told() == 0 })
}

// Some 30 followers of a process try a few times a second while the database is away.
func TestThatLeasesAreOutOfReachIsToldOnceForAll(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var tries atomic.Int32
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if tries.Add(1) == 9 {
			end()
		}
		return errors.New("away")
	}
	away, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	var logged bytes.Buffer
	r := newFixture(t).runner("a")
	r.Leases, r.Logger = away, slog.New(slog.NewTextHandler(&logged, nil))
	var leading sync.WaitGroup
	for _, name := range []string{"some", "work"} {
		leading.Go(func() { _ = r.Lead(ctx, name, func(context.Context) error { return nil }) })
	}
	leading.Wait()
	if lines := strings.Count(logged.String(), "lease not reachable"); lines != 1 {
		t.Errorf("%d lines for %d tries:\n%s", lines, tries.Load(), logged.String())
	}
}
