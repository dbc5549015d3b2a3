package e2e

import (
	"net/http"
	"testing"

	"kindred/httpapi"
)

// BenchmarkGrants has 32,000 users grant a layer at one request.
func BenchmarkGrants(b *testing.B) {
	const users = 32_000
	a := startService(b).signUp()
	a.populate(users)
	layer := a.createLayer("t0")
	path := layersPath + "/" + string(layer.ID)
	for b.Loop() {
		granted := want[httpapi.ConsentsChanged](b, http.StatusOK, a.send("POST", path+"/grants", map[string]any{"all": true}))
		if granted.Changed != users {
			b.Fatalf("%d were changed", granted.Changed)
		}
		b.StopTimer()
		want[httpapi.ConsentsChanged](b, http.StatusOK, a.send("POST", path+"/withdrawals", map[string]any{"all": true}))
		b.StartTimer()
	}
	b.ReportMetric(float64(users*b.N)/b.Elapsed().Seconds(), "grants/s")
}
