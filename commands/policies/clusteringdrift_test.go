package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/projections"
)

// rerun gives the users other traits, and divides them again.
func (o *clusteringFixture) rerun(call commands.Call, layer id.ConsentLayer, users, k int, traits func(i int) string) commands.Run {
	o.Helper()
	for i := range users {
		if _, err := o.ChangeTraits(o.Context(), call, commands.UserRef(fmt.Sprint("ext:u", i)), json.RawMessage(traits(i))); err != nil {
			o.Fatal(err)
		}
	}
	ended := len(o.endedRuns())
	run := o.request(call, layer, k)
	o.until(o.process(o.store, 1), o.ends(ended+1))
	return run
}

// One of three groups visits more, stays so, and comes back again and again.
func TestEachDriftIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 180, kinds)
		var told []int
		for run, more := range []int{0, 4, 4, 0, 4, 0, 0} {
			before := len(facts[event.ClusterDriftDetected](o))
			o.rerun(call, layer, 180, 3, func(i int) string {
				if i%3 > 0 {
					return kinds(i)
				}
				return fmt.Sprintf(`{"age":%d,"plan":"p0","visits":%d}`, 20+i/3%5, i/3%4+more)
			})
			if n := len(facts[event.ClusterDriftDetected](o)) - before; n > 0 {
				told = append(told, run)
			}
		}
		if formed := facts[event.ClusterFormed](o); len(formed) != 3 {
			t.Fatalf("%d clusters were formed", len(formed))
		}
		if want := []int{1, 3, 4, 5}; !slices.Equal(told, want) {
			t.Errorf("drift is told at the runs %v, want %v", told, want)
		}
	})
}

// An import leaves a column out: the schema does not know the trait any more, and that is told once. Of what the client
// has set aside meanwhile nothing is told.
func TestATraitThatNobodySaysAnyMoreIsTold(t *testing.T) {
	for _, ignored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 180, kinds)
			o.rerun(call, layer, 180, 3, kinds)
			if ignored {
				if _, err := o.OverrideTraits(o.Context(), call, json.RawMessage(`{"visits":{"ignore":true}}`)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				o.rerun(call, layer, 180, 3, func(i int) string {
					return fmt.Sprintf(`{"age":%d,"plan":"p%d","visits":null}`, 20+25*(i%3)+i/3%5, i%3)
				})
			}
			told := 0
			for _, d := range facts[event.ClusterDriftDetected](o) {
				for _, c := range d.Causes {
					if told++; c.Trait != "visits" || c.Level != clustering.MissingLevel || c.After != 1 {
						t.Errorf("ignored %t: %+v", ignored, c)
					}
				}
			}
			if want := map[bool]int{false: 3}[ignored]; told != want {
				t.Errorf("ignored %t: %d are told, want %d", ignored, told, want)
			}
		})
	}
}

// A cluster is too small to be judged for a while, or its first profile is gone.
func TestDriftThatNobodyCanJudgeStaysTold(t *testing.T) {
	standing := []event.DriftCause{{Kind: "trait", Baseline: "first", Trait: "age", Amount: 0.5, Severity: "moderate"}}
	for name, baselines := range map[string][]baseline{
		"too small": {{name: clustering.Previous}, {name: clustering.First}},
		"gone":      {{name: clustering.Previous, drift: clustering.Drift{Judged: true}}},
	} {
		k := kept{was: event.ClusterState{First: event.RunAttempt{Run: "run_1"}, Standing: standing}, baselines: baselines}
		fresh, still := k.told(event.RunAttempt{Run: "run_2"})
		if diff := cmp.Diff(standing, recorded(still)); diff != "" || len(fresh) > 0 {
			t.Errorf("%s: %v is told, and of what stood: %s", name, fresh, diff)
		}
	}
}

// Fifty clusters in which everything drifts, or one.
func TestWhatIsShownOfClustersFitsIntoOneAppend(t *testing.T) {
	for _, tt := range []struct{ clusters, traits, shown int }{{1, 200, 20}, {20, 200, 10}, {50, 200, 2}} {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 0, kinds)
		run := o.request(call, layer, tt.clusters)
		number, _, err := o.StartRun(t.Context(), call, event.RunScope{Layer: layer}, run.Run)
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{run: projections.OpenRun{Client: call.Client, Run: projections.Run{ID: run.Run, Layer: layer}}, number: number}
		a.result.Spreads = make([]float64, tt.clusters)
		ids := id.Derived("clusters")
		drift := clustering.Drift{Judged: true}
		var label clustering.Label
		for i := range tt.traits {
			path := fmt.Sprintf("%s%03d", strings.Repeat("x", traits.MaxPathBytes-3), i)
			drift.Causes = append(drift.Causes, clustering.Cause{Kind: clustering.CauseTrait, Baseline: clustering.First, Trait: path, Amount: 0.5})
			drift.Traits = append(drift.Traits, clustering.TraitDrift{Path: path, PSI: 0.5, Limit: 0.25})
			if i < 10 {
				label.Distinctions = append(label.Distinctions, clustering.Distinction{Path: path, Level: path})
			}
		}
		f := findings{ancestors: make([][]id.Cluster, tt.clusters)}
		for range tt.clusters {
			a.clusters = append(a.clusters, id.Next[id.Cluster](ids))
			f.labels = append(f.labels, label)
			f.kept = append(f.kept, &kept{
				now: drift.Causes, baselines: []baseline{{name: clustering.Previous, drift: drift}, {name: clustering.First, drift: drift}},
			})
		}
		division, err := f.division(a, make([]commands.Assigned, tt.clusters))
		if err == nil {
			err = o.CompleteRun(t.Context(), call, division)
		}
		if err != nil {
			t.Errorf("%d clusters with %d traits: %v", tt.clusters, tt.traits, err)
			continue
		}
		told := facts[event.ClusterDriftDetected](o)
		if len(told) != tt.clusters || len(facts[event.ClusteringCompleted](o)) != 1 {
			t.Errorf("of %d clusters %d have drifted", tt.clusters, len(told))
		}
		for i, lives := range facts[event.ClusterKept](o) {
			for _, c := range lives.Comparisons {
				if len(c.Causes) != tt.shown || len(c.Traits) != tt.shown || len(told[i].Causes) != tt.shown || len(lives.Distinctions) != min(10, tt.shown) {
					t.Fatalf("%d clusters with %d traits: %d causes, %d traits and %d distinctions are shown, %d causes told; want %d",
						tt.clusters, tt.traits, len(c.Causes), len(c.Traits), len(lives.Distinctions), len(told[i].Causes), tt.shown)
				}
			}
		}
	}
}

// Whoever follows clusters learns what became of each: those of two groups that grow into one,
// and those of one that falls apart.
func TestWhatBecameOfAClusterIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 120, kinds)
		three := o.request(call, layer, 3)
		o.until(o.process(o.store, 1), o.ends(1))
		o.rerun(call, layer, 120, 2, func(i int) string { return kinds(min(i%3, 1) + i/3*3) })
		retired := facts[event.ClusterRetired](o)
		kept := map[id.Cluster]event.ClusterKept{}
		for _, k := range facts[event.ClusterKept](o) {
			kept[k.Cluster] = k
		}
		if len(retired) != 1 || len(kept) != 2 || len(retired[0].Descendants) != 1 {
			t.Fatalf("of %s, kept are %v, and retired %v", three.Run, kept, retired)
		}
		grown := kept[retired[0].Descendants[0]]
		if want := []id.Cluster{retired[0].Cluster}; !slices.Equal(grown.Ancestors, want) {
			t.Errorf("the cluster that the retired one went into has the ancestors %v, not %v", grown.Ancestors, want)
		}

		before := facts[event.ClusterFormed](o)
		o.rerun(call, layer, 120, 3, kinds)
		if again := facts[event.ClusterRetired](o); len(again) != 1 {
			t.Errorf("retired are %v", again)
		}
		formed := facts[event.ClusterFormed](o)[len(before):]
		if len(formed) != 1 || !slices.Equal(formed[0].Ancestors, []id.Cluster{grown.Cluster}) {
			t.Errorf("formed are %v, of %s", formed, grown.Cluster)
		}
	})
}
