package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/projections"
)

// cloud are the traits of people of whom no trait says anything of another.
func cloud(i int) string {
	x := uint32(i)*2654435761 + 97
	draw := func() (sum int) {
		for range 6 {
			x = x*1664525 + 1013904223
			sum += int(x>>8) % 100
		}
		return sum
	}
	return fmt.Sprintf(`{"age":%d,"visits":%d,"x":%d}`, draw(), draw(), draw())
}

func TestACompletedRunIsJudged(t *testing.T) {
	for want, traits := range map[string]func(int) string{"groups": kinds, "none": cloud} {
		synctest.Test(t, func(t *testing.T) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 150, traits)
			run := o.request(call, layer, 3)
			o.until(o.process(o.store, 2), func() bool { return len(facts[event.ClusteringJudged](o)) > 0 })
			judged := facts[event.ClusteringJudged](o)
			if len(judged) != 1 || judged[0].Run != run.Run || judged[0].Verdict != want || judged[0].Users != 150 {
				t.Fatalf("%s: %+v", want, judged)
			}
			for _, c := range judged[0].Stability {
				if c.Jaccard < 0 || c.Jaccard > 1 || want == "groups" && c.Jaccard < 0.95 {
					t.Errorf("%s: the Jaccard index of %s is %.2f", want, c.Cluster, c.Jaccard)
				}
			}
			if n := len(facts[event.ClusteringCompleted](o)[0].Clusters); len(judged[0].Stability) != n {
				t.Errorf("%s: %d of %d clusters are judged", want, len(judged[0].Stability), n)
			}
			if _, err := o.CancelJudging(t.Context(), call, event.RunScope{Layer: layer}, run.Run); !fault.Is(err, "run_ended") {
				t.Errorf("a verdict that is given is cancelled: %v", err)
			}
		})
	}
}

// A verdict dies at each of its appends, before or after it; another process gives the
// same one, once.
func TestAVerdictThatDiesIsGivenOnceAndTheSame(t *testing.T) {
	var undisturbed []event.ClusteringJudged
	for _, died := range []struct {
		appends int
		after   bool
	}{{1_000, false}, {0, false}, {0, true}, {1, false}, {1, true}} {
		synctest.Test(t, func(t *testing.T) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 63, kinds)
			o.request(call, layer, 3)
			runs := o.process(o.store, 2)
			runs.Runs = unjudging{o}
			o.until(runs, o.ends(1))
			store := &mortalStore{Store: o.store, left: died.appends, after: died.after, dead: make(chan struct{})}
			given := func() bool { return len(facts[event.ClusteringJudged](o)) > 0 }
			o.until(o.process(store, 2), func() bool {
				select {
				case <-store.dead:
					return true
				default:
					return given()
				}
			})
			o.until(o.process(o.store, 2), given)
			judged := facts[event.ClusteringJudged](o)
			if undisturbed == nil {
				undisturbed = judged
			}
			if diff := cmp.Diff(undisturbed, judged, cmpopts.IgnoreUnexported(event.ClusteringJudged{})); diff != "" || judged[0].Verdict != "groups" {
				t.Errorf("%+v: %+v %s", died, judged, diff)
			}
		})
	}
}

func TestAVerdictThatCannotBeBegunIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		o.request(call, layer, 3)
		runs := o.process(o.store, 2)
		runs.Runs = unjudging{o}
		o.until(runs, o.ends(1))
		waiting, err := o.Unjudged(t.Context(), nil)
		if err != nil || len(waiting) != 1 {
			t.Fatal(waiting, err)
		}
		var log bytes.Buffer
		failing := o.process(&mortalStore{Store: o.store, dead: make(chan struct{})}, 2)
		failing.Logger = slog.New(slog.NewTextHandler(&log, nil))
		failing.judge(t.Context(), waiting[0], failing.newMemory())
		if !strings.Contains(log.String(), string(waiting[0].ID)) {
			t.Errorf("the log says %q", log.String())
		}
	})
}

// unjudging has nothing judged.
type unjudging struct{ *clusteringFixture }

func (unjudging) Unjudged(context.Context, []id.Run) ([]projections.OpenRun, error) { return nil, nil }

func TestACancelledVerdictStopsAndTheNextRunIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		run := o.request(call, layer, 3)
		runs := o.process(o.store, 2)
		runs.Runs = unjudging{o}
		o.until(runs, o.ends(1))
		reading, stopped := make(chan struct{}), make(chan struct{})
		o.reading = func(ctx context.Context) error {
			o.reading = nil
			close(reading)
			<-ctx.Done()
			close(stopped)
			return ctx.Err()
		}
		cancelled := false
		o.until(o.process(o.store, 2), func() bool {
			select {
			case <-reading:
				if !cancelled {
					cancelled = true
					if _, err := o.CancelJudging(t.Context(), call, event.RunScope{Layer: layer}, run.Run); err != nil {
						t.Error(err)
					}
				}
			default:
			}
			select {
			case <-stopped:
				return true
			default:
				return false
			}
		})
		if judged := facts[event.ClusteringJudged](o); len(judged) != 1 || judged[0].Code != "cancelled" || judged[0].Verdict != "unknown" {
			t.Fatalf("%+v", judged)
		}
		next := o.request(call, layer, 3)
		o.until(o.process(o.store, 2), func() bool { return len(facts[event.ClusteringJudged](o)) > 1 })
		if judged := facts[event.ClusteringJudged](o); judged[1].Run != next.Run || judged[1].Verdict != "groups" {
			t.Errorf("%+v", judged)
		}
	})
}

func TestWhatCannotBeJudgedSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		o.request(call, layer, 3)
		runs := o.process(o.store, 2)
		runs.Runs = unjudging{o}
		o.until(runs, o.ends(1))
		if _, err := o.RetireConsentLayer(t.Context(), call, layer); err != nil {
			t.Fatal(err)
		}
		o.until(o.process(o.store, 2), func() bool { return len(facts[event.ClusteringJudged](o)) > 0 })
		if judged := facts[event.ClusteringJudged](o)[0]; judged.Verdict != "unknown" || judged.Code != "consent_layer_gone" {
			raw, err := json.Marshal(judged)
			t.Errorf("%s %v", strings.TrimSpace(string(raw)), err)
		}
	})
}
