package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"kindred/app"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// crowded is a client whose users have all granted a layer.
func (s *service) crowded(users int, traits func(int) string) (account, httpapi.ConsentLayer) {
	s.Helper()
	a := s.signUp()
	a.importUsers(users, traits)
	layer := a.createLayer("age", "plan", "visits")
	a.grantAll(layer)
	return a, layer
}

// counted is a metric of the service, summed over its labels that match.
func (s *service) counted(metric string) (sum float64) {
	s.Helper()
	page := s.send("GET", "/metrics", nil).Body
	for _, found := range regexp.MustCompile(`(?m)^`+metric+` (\S+)$`).FindAllSubmatch(page, -1) {
		n, err := strconv.ParseFloat(string(bytes.TrimSpace(found[1])), 64)
		if err != nil {
			s.Fatal(err)
		}
		sum += n
	}
	return sum
}

func TestALargeClientLeavesRoomForSmallOnes(t *testing.T) {
	t.Parallel()
	s := startService(t)
	random := rand.New(rand.NewPCG(1, 2))
	large, first := s.crowded(600, func(int) string {
		return fmt.Sprintf(`{"age":%d,"plan":"p%d","visits":%d}`, random.IntN(90), random.IntN(8), random.IntN(1000))
	})
	layers := []httpapi.ConsentLayer{first}
	for range 2 {
		layer := large.createLayer("age", "plan", "visits")
		large.grantAll(layer)
		layers = append(layers, layer)
	}
	type of struct {
		account
		httpapi.ConsentLayer
	}
	var small []of
	for range 2 {
		a, layer := s.crowded(90, groups)
		small = append(small, of{a, layer})
	}
	var runs []httpapi.ClusteringRun
	for _, layer := range layers {
		runs = append(runs, large.cluster(layer))
	}
	wantProblem(t, http.StatusConflict, "run_in_progress", large.send("POST", runsPath, map[string]any{"consent_layer_id": first.ID}))
	lastSmall := time.Time{}
	for _, of := range small {
		run := of.ended(of.cluster(of.ConsentLayer))
		if run.Status != httpapi.RunCompleted || len(run.Clusters) != 3 {
			t.Errorf("a small run: %+v", run)
		}
		if run.EndedAt.After(lastSmall) {
			lastSmall = run.EndedAt.Time
		}
	}
	lastLarge := time.Time{}
	for _, run := range runs {
		run = large.ended(run)
		if run.Status != httpapi.RunCompleted {
			t.Errorf("a large run: %+v", run)
		}
		if run.EndedAt.After(lastLarge) {
			lastLarge = run.EndedAt.Time
		}
	}
	if !lastSmall.Before(lastLarge) {
		t.Errorf("the small runs, asked for one after the other, ended %s after all the large ones", lastSmall.Sub(lastLarge))
	}
	large.ended(large.cluster(first)) // the layer is free again
	if got := s.counted(`kindred_clustering_runs_total\{status="completed"\}`); got != 6 {
		t.Errorf("%v completed runs are counted", got)
	}
	if got := s.counted(`kindred_clustering_run_seconds_count`); got != 6 {
		t.Errorf("%v runs were measured", got)
	}
	testkit.Eventually(t, "no run is in progress", func() bool { return s.counted(`kindred_clustering_runs_in_progress`) == 0 })
}

func TestAnotherReplicaFinishesTheRunOfOneThatIsKilled(t *testing.T) {
	t.Parallel()
	p := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	a, layer := p.crowded(3_000, groups)
	run := a.cluster(layer, "seed", 5)
	testkit.Eventually(t, "the run is under way", func() bool {
		run = want[httpapi.ClusteringRun](t, http.StatusOK, a.get(runsPath+"/"+string(run.ID)))
		return run.Status == httpapi.RunRunning || run.EndedAt != nil
	})
	p.kill()
	if run.EndedAt != nil {
		t.Fatal("the run ended before its process was killed")
	}
	other := startService(t, impatient, replicaOf(p.service))
	b := a.at(other)
	hook := receive(t, http.StatusOK)
	b.subscribe(hook.URL, "", "clustering.completed", "clustering.failed")
	run = b.ended(run)
	if run.Status != httpapi.RunCompleted || len(run.Clusters) != 3 || *run.Users != 3_000 {
		t.Fatalf("got %+v", run)
	}
	var sizes int
	for _, c := range run.Clusters {
		sizes += c.Size
	}
	if sizes != 3_000 {
		t.Errorf("%d users are in clusters", sizes)
	}
	hook.next(t)
	again := b.ended(b.cluster(layer, "seed", 5))
	if again.Status != httpapi.RunCompleted || len(again.Clusters) != 3 || again.Clusters[0].ID != run.Clusters[0].ID {
		t.Errorf("the next run: %+v", again)
	}
}
