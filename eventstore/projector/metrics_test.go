package projector_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
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
func TestThatALeaseIsOutOfReachIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	away, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var logged bytes.Buffer
	began, tries := time.Now(), 0
	r := w.runner("a")
	r.Leases, r.Logger = away, slog.New(slog.NewTextHandler(&logged, nil))
	r.Now = func() time.Time { // asked once a try
		if tries++; tries == 5 {
			end()
		}
		return began.Add(time.Duration(tries) * 10 * time.Second)
	}
	if err := r.Lead(ctx, "work", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(logged.String(), "lease not reachable"); tries != 5 || lines != 2 {
		t.Errorf("%d lines for %d tries in 40 s:\n%s", lines, tries, logged.String())
	}
}
