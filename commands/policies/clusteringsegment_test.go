package policies

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/testkit"
)

// found is the last completed run of a scope, and who it put into which cluster.
func (o *clusteringFixture) found(call commands.Call, of event.RunScope) (clusters []id.Cluster, in map[id.User]id.Cluster) {
	o.Helper()
	last, err := o.LastDivision(o.Context(), call.Client, of)
	if err != nil {
		o.Fatal(err)
	}
	assigned, err := o.Assignments(o.Context(), call.Client, event.RunAttempt{Run: last.Completed.Run, Attempt: last.Completed.Attempt})
	if err != nil {
		o.Fatal(err)
	}
	in = map[id.User]id.Cluster{}
	for cluster, users := range assigned {
		clusters = append(clusters, cluster)
		for _, u := range users {
			in[u] = cluster
		}
	}
	slices.Sort(clusters)
	return clusters, in
}

// A run that is kept to a segment divides its members alone, of those who consent, and is
// compared with runs of the same segment: as if the layer's were not there, and the other way round.
func TestARunIsKeptToASegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 150, kinds)
		other := testkit.Must(o.DefineConsentLayer(t.Context(), call, "other", []string{"age"}, ""))(t)
		segment := func(of id.ConsentLayer) event.RunScope {
			t.Helper()
			made := testkit.Must(o.DefineSegment(t.Context(), call, "S", "traits.age > 1", of))(t)
			return event.RunScope{Layer: layer, Segment: made.ID}
		}
		whole, kept, second := event.RunScope{Layer: layer}, segment(layer), segment(layer)
		users := testkit.Must(o.Granted(t.Context(), call.Client, layer, "~"))(t)
		members := func(of ...id.User) map[id.User]bool {
			in := map[id.User]bool{"usr_x": true} // who does not consent
			for _, u := range of {
				in[u] = true
			}
			return in
		}
		request := func(of event.RunScope) (commands.Run, error) {
			return o.RequestRun(t.Context(), call, commands.RequestRun{RunScope: of, K: 3})
		}
		if _, err := request(kept); !fault.Is(err, "segment_building") {
			t.Errorf("a segment without members yet: %v", err)
		}
		o.in = map[id.Segment]map[id.User]bool{kept.Segment: members(users[:90]...), second.Segment: members(users[:30]...)}
		for what, of := range map[string]event.RunScope{"another layer": segment(other.ID), "no layer": segment("")} {
			if _, err := request(of); !fault.Is(err, "invalid") || fault.As(err).Fields[0].Pointer != "/segment_id" {
				t.Errorf("a segment of %s: %v", what, err)
			}
		}
		if _, err := request(event.RunScope{Layer: layer, Segment: "seg_x"}); !fault.Is(err, "segment_unknown") {
			t.Errorf("no segment: %v", err)
		}
		runs := 0
		carryOut := func(scopes ...event.RunScope) {
			t.Helper()
			for _, of := range scopes {
				if _, err := request(of); err != nil {
					t.Fatal(err)
				}
			}
			runs += len(scopes)
			o.until(o.process(o.store, 2), o.ends(runs))
		}
		wants := func(of event.RunScope, users []id.User) (clusters []id.Cluster) {
			t.Helper()
			clusters, in := o.found(call, of)
			if len(clusters) != 3 || len(in) != len(users) {
				t.Fatalf("%+v: %d clusters of %d users, not 3 of %d", of, len(clusters), len(in), len(users))
			}
			for _, u := range users {
				if in[u] == "" {
					t.Errorf("%+v: %s is in none", of, u)
				}
			}
			return clusters
		}
		// Both may be under way at once, but not two of one segment.
		if _, err := request(kept); err != nil {
			t.Fatal(err)
		}
		if _, err := request(kept); !fault.Is(err, "run_in_progress") || !strings.Contains(err.Error(), "segment") {
			t.Errorf("two runs of a segment: %v", err)
		}
		runs++
		carryOut(whole)
		all, some := wants(whole, users), wants(kept, users[:90])
		for _, c := range some {
			if slices.Contains(all, c) {
				t.Errorf("%s is of the layer, and of the segment", c)
			}
		}
		// Members come and go, and some withdraw; each keeps its own clusters.
		o.in[kept.Segment] = members(users[5:100]...)
		for _, u := range users[10:13] {
			if _, err := o.ChangeConsent(t.Context(), call, commands.ChangeConsents{Layer: layer, Users: []commands.UserRef{commands.UserRef(u)}}); err != nil {
				t.Fatal(err)
			}
		}
		granting := slices.DeleteFunc(slices.Clone(users), func(u id.User) bool { return slices.Contains(users[10:13], u) })
		carryOut(whole, kept)
		if again := wants(whole, granting); !slices.Equal(again, all) {
			t.Errorf("the layer's clusters were %v, and are %v", all, again)
		}
		if again := wants(kept, slices.DeleteFunc(slices.Clone(users[5:100]), func(u id.User) bool { return slices.Contains(users[10:13], u) })); !slices.Equal(again, some) {
			t.Errorf("the segment's clusters were %v, and are %v", some, again)
		}
		for _, e := range facts[event.ClusterDriftDetected](o) {
			for _, c := range e.Causes {
				t.Errorf("%s drifted: %+v", e.Cluster, c)
			}
		}
		// A verdict is on whom the run divided, whoever is a member now.
		o.in[kept.Segment] = members(users[:41]...)
		o.until(o.process(o.store, 2), func() bool { return len(facts[event.ClusteringJudged](o)) >= 2 })
		judged := map[int]bool{}
		for _, e := range facts[event.ClusteringJudged](o) {
			if e.Code == "" {
				judged[e.Users] = true
			}
		}
		if !judged[92] || !judged[147] {
			t.Errorf("verdicts: %+v", facts[event.ClusteringJudged](o))
		}
		// Too few members are too few, and a segment that is no more fails its runs.
		failed := func(of event.RunScope, code, says string) {
			t.Helper()
			carryOut(of)
			all := facts[event.ClusteringFailed](o)
			if last := all[len(all)-1]; last.Code != code || last.Segment != of.Segment || !strings.Contains(last.Details, says) {
				t.Errorf("%+v", last)
			}
		}
		failed(second, "not_enough_users", "There are 27 users who have granted the consent layer and are in the segment")
		if _, err := request(second); err != nil {
			t.Fatal(err)
		}
		delete(o.in, second.Segment)
		runs++
		o.until(o.process(o.store, 2), o.ends(runs))
		if all := facts[event.ClusteringFailed](o); all[len(all)-1].Code != "segment_gone" {
			t.Errorf("%+v", all[len(all)-1])
		}
		if clusters := wants(whole, granting); !slices.Equal(clusters, all) {
			t.Errorf("the layer's clusters are %v", clusters)
		}
	})
}
