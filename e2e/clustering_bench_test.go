package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"kindred/httpapi"
)

// mixed are traits of eight groups that overlap a little.
func mixed(random *rand.Rand) string {
	group := random.IntN(8)
	pick := func(levels ...string) string {
		if random.IntN(10) == 0 {
			return levels[random.IntN(len(levels))]
		}
		return levels[group%len(levels)]
	}
	return fmt.Sprintf(`{"age":%.0f,"spend":%.2f,"visits":%.0f,"plan":%q,"city":%q,"vip":%t,"likes":["a%d","b%d"],"joined":"20%02d-0%d-11","score":%.3f,"hours":%.1f}`,
		20+6*float64(group)+3*random.NormFloat64(), 100*float64((group*3)%8)+40*random.NormFloat64(), 5*float64((group*5)%8)+4*random.NormFloat64(),
		pick("free", "pro", "team"), pick("berlin", "paris", "rome", "oslo", "wien"), group%2 == 0, group, random.IntN(20),
		10+group, 1+random.IntN(9), float64((group*7)%8)+random.NormFloat64(), float64(group)/2+random.NormFloat64())
}

// BenchmarkClustering says how long a run with automatic k takes from its
// request to its end, on 100,000 users, and its phases.
func BenchmarkClustering(b *testing.B) {
	const users = 100_000
	a := startService(b).signUp()
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	for from := 0; from < users; from += 10_000 {
		var lines strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&lines, `{"external_id":"u%d","traits":%s}`+"\n", from+i, mixed(random))
		}
		want[httpapi.ImportResult](b, http.StatusOK, a.send("POST", "/api/v1/users/import", lines.String(), header("Content-Type", "application/x-ndjson")))
	}
	b.Logf("import: %.1f s", time.Since(began).Seconds())
	layer := a.createLayer("age", "spend", "visits", "plan", "city", "vip", "likes", "joined", "score", "hours")
	began = time.Now()
	for a.send("POST", layersPath+"/"+string(layer.ID)+"/grants", map[string]any{"all": true}).Status != http.StatusOK {
		b.Log("not all grants were recorded in time; repeated")
	}
	b.Logf("grants: %.1f s", time.Since(began).Seconds())
	for b.Loop() {
		began, phase := time.Now(), ""
		run := a.cluster(layer)
		for run.EndedAt == nil && time.Since(began) < 10*time.Minute {
			time.Sleep(20 * time.Millisecond)
			run = want[httpapi.ClusteringRun](b, http.StatusOK, a.get(runsPath+"/"+string(run.ID)))
			if run.Progress != nil && run.Progress.Phase != phase {
				phase = run.Progress.Phase
				b.Logf("%6.2f s %s (%.0f %%)", time.Since(began).Seconds(), phase, 100*run.Progress.Share)
			}
		}
		b.Logf("%s: %d clusters, silhouette %.2f", run.Status, len(run.Clusters), run.Quality.Silhouette)
	}
}
