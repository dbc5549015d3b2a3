package projector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// uneven is names, where a name that begins with "slow" takes a whole batch.
type uneven struct {
	names
	slow func(ctx context.Context) error // is called with each that is applied in slices
}

func (uneven) ApplyTogether(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) ([]eventstore.Recorded, error) {
	return batch, nil
}

func (u uneven) ApplyClient(ctx context.Context, tx pgx.Tx, _ *eventstore.Log, _ id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	for _, r := range batch {
		e, ok := r.Event.(event.ClientRenamed)
		if !ok || !strings.HasPrefix(e.Name, "slow") {
			continue
		}
		if err := spend(projector.BatchSteps + 1); err != nil {
			return err
		}
		if u.slow != nil {
			if err := u.slow(ctx); err != nil {
				return err
			}
		}
	}
	return u.Apply(ctx, tx, batch)
}

// hurried is a runner whose clock runs ahead, so that slow clients return soon.
func (w *fixture) hurried(r *projector.Runner) *projector.Runner {
	var hours atomic.Int64
	r.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Add(1)) * time.Hour) }
	return r
}

func (w *fixture) returned(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "nobody is slow any more", func() bool { return w.one(t, `SELECT count(*) FROM quarantine`) == 0 })
}

func TestASlowClientHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	model := uneven{slow: func(ctx context.Context) error {
		once.Do(func() { close(begun) })
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	background(t, func(ctx context.Context) error { return w.hurried(w.runner("a")).Run(ctx, model) })
	w.rename(t, acme, "fast")
	w.rename(t, acme, "slow 1", "slow 2", "fast again")
	<-begun
	for i := range 20 {
		want := fmt.Sprint("bolt ", i)
		w.rename(t, bolt, want)
		w.rename(t, acme, fmt.Sprint("meanwhile ", i))
		if got, err := w.newest(t.Context(), bolt, false); err != nil || got != want {
			t.Fatalf("the other client got %q, %v; want %q", got, err, want)
		}
	}
	if got, err := w.newest(t.Context(), acme, true); err != nil || got != "fast" && got != "" {
		t.Errorf("the slow client is at %q, %v", got, err)
	}
	close(release)
	w.rename(t, acme, "slow 3", "last")
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "last" {
		t.Errorf("the slow client got %q, %v", got, err)
	}
	w.returned(t)
	w.rename(t, acme, "with the others")
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "with the others" {
		t.Errorf("the client that was slow got %q, %v", got, err)
	}
	w.complete(t)
}

// measured is uneven that notes how many steps the longest batch of a client took.
type measured struct {
	uneven
	longest *atomic.Int64
}

func (m measured) ApplyClient(ctx context.Context, tx pgx.Tx, log *eventstore.Log, client id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	var took int64
	err := m.uneven.ApplyClient(ctx, tx, log, client, batch, func(steps int) error { took += int64(steps); return spend(steps) })
	if err == nil {
		m.longest.Store(max(m.longest.Load(), took))
	}
	return err
}

// How long a slice is to be is told by those before it, of which there is none for the first, and whose events
// may have taken less.
func TestASliceThatTakesTooLongIsBrokenOff(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	model := measured{longest: new(atomic.Int64)}
	w.rename(t, acme, numbered("slow", 16)...)
	w.rename(t, acme, numbered("fast", 200)...)
	last := numbered("slow", 32)
	w.rename(t, acme, last...)
	background(t, func(ctx context.Context) error { return w.hurried(w.runner("a")).Run(ctx, model) })
	testkit.Eventually(t, "all of the slow client is applied", func() bool {
		got, err := w.newest(t.Context(), acme, true)
		return err == nil && got == last[len(last)-1]
	})
	if longest := model.longest.Load(); longest > 7*projector.BatchSteps {
		t.Errorf("a slice took %d steps", longest)
	}
	w.returned(t)
	w.complete(t)
}

// TestSlowClientsSurviveCrashes crashes at every commit on the way.
func TestSlowClientsSurviveCrashes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, client := range []id.Client{acme, bolt, "cli_c", "cli_d", acme, bolt} {
		w.rename(t, client, "fast", "slow 1", "slow 2")
	}
	last := w.rename(t, "cli_new", numbered("new", 5)...)
	crashed := w.crashes(t, func(r *projector.Runner) error {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.hurried(r).Run(ctx, uneven{}) }()
		process := r.Pool.Config().ConnConfig.Tracer.(*crashing)
		dead := false
		testkit.Eventually(t, "it has crashed or applied everything", func() bool {
			dead = process.dead.Load()
			var done bool
			err := w.pool.QueryRow(t.Context(), `
				SELECT position >= $1 AND NOT EXISTS (SELECT FROM quarantine) FROM checkpoints WHERE name = 'names_2'`, last).Scan(&done)
			return dead || err == nil && done
		})
		stop()
		if err := <-ended; dead || err != nil {
			return errors.Join(errTest, err)
		}
		return nil
	})
	if t.Logf("crashed %d times", crashed); crashed < 8 {
		t.Error("it hardly ever crashed on the way")
	}
	w.complete(t)
	w.tidy(t)
}

func TestASlowClientIsRebuiltAndVerified(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.hurried(w.runner("live")).Run(ctx, uneven{}) })
	w.passed(t, "names_2", w.rename(t, acme, "slow at first"))
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.rename(t, acme, fmt.Sprint("slow ", i), fmt.Sprint("fast ", i))
			}
		}
	})
	for range 3 {
		if err := w.builder().RebuildClient(t.Context(), uneven{}, acme, nil); err != nil {
			t.Error(err)
		}
		if err := w.builder().Rebuild(t.Context(), uneven{}, nil); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	writing.Wait()
	w.passed(t, "names_2", w.rename(t, acme, "slow at last"))
	checked, err := w.builder().Verify(t.Context(), uneven{}, nil, func(d projector.Difference) { t.Errorf("%+v", d) })
	if err != nil || checked.Differences != 0 || checked.Rows < 2 {
		t.Errorf("%+v, %v", checked, err)
	}
	w.returned(t)
	w.complete(t)
	w.tidy(t)
}

// Whoever led the model may have ended with a client that was slow, and with events to come.
func TestAVerifyGoesOnWithWhatNobodyLeads(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	begun := make(chan struct{})
	var once sync.Once
	stop := background(t, func(ctx context.Context) error {
		return w.hurried(w.runner("live")).Run(ctx, uneven{slow: func(ctx context.Context) error {
			once.Do(func() { close(begun) })
			<-ctx.Done()
			return ctx.Err()
		}})
	})
	w.rename(t, acme, "fast", "slow 1", "slow 2")
	<-begun
	stop()
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE slow`); n != 1 {
		t.Fatalf("%d clients are slow", n)
	}
	w.rename(t, bolt, "later")
	checked, err := w.hurried(w.builder()).Verify(t.Context(), uneven{}, nil, func(d projector.Difference) { t.Errorf("%+v", d) })
	if err != nil || checked.Rows < 2 {
		t.Errorf("%+v, %v", checked, err)
	}
	w.complete(t)
	w.tidy(t)
}

// TestARebuildThatFailsLeavesASlowClientToItsLeader: what has paused it is not the rebuild.
func TestARebuildThatFailsLeavesASlowClientToItsLeader(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, uneven{}) })
	w.passed(t, "names_2", w.rename(t, acme, "slow 1", "slow 2"))
	broken, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := w.builder().RebuildClient(broken, uneven{}, acme, func(projector.Rebuilding) { cancel() }); err == nil {
		t.Error("it did not fail")
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND paused AND slow`, acme); n != 1 {
		t.Errorf("%d clients are slow", n)
	}
	w.rename(t, acme, "last")
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "last" {
		t.Errorf("the slow client got %q, %v", got, err)
	}
	w.complete(t)
}

func TestASlowClientStopsAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	model := uneven{names: names{before: always("bad", func() error { return errTest })}}
	registry := prometheus.NewRegistry()
	runner := w.hurried(w.runner("a"))
	runner.Metrics = projector.NewMetrics(registry)
	background(t, func(ctx context.Context) error { return runner.Run(ctx, model) })
	w.rename(t, acme, "slow 1", "bad", "slow 2")
	testkit.Eventually(t, "the client stops at what cannot be applied", func() bool {
		return w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND NOT paused AND NOT slow`, acme) == 1
	})
	w.rename(t, bolt, "slow too", "x")
	if got, err := w.newest(t.Context(), bolt, false); err != nil || got != "x" {
		t.Errorf("the other got %q, %v", got, err)
	}
	w.complete(t, acme)
	wantMetrics(t, registry, map[string]float64{"kindred_projection_quarantined_clients": 1, "kindred_projection_slow_clients": 0})
}
