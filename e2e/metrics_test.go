package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"kindred/app"
)

func TestMetricsAreServedOnAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := startService(t, func(c *app.Config) { c.MetricsListen = "127.0.0.1:0" })
	a := s.signUp()
	a.createUser("ada", map[string]any{"age": 31})
	page := func(path string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Config.MetricsListen+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, body
	}
	if status, body := page("/metrics"); status != http.StatusOK || !bytes.Contains(body, []byte("kindred_projection_leader")) || bytes.Contains(body, []byte(a.Client.ID)) {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if status, _ := page("/api/v1/users"); status != http.StatusNotFound {
		t.Errorf("the API is served there: %d", status)
	}
	if got := s.send("GET", "/metrics", nil); got.Status != http.StatusNotFound {
		t.Errorf("metrics are on the public address: %d", got.Status)
	}
}

func TestEveryMetricThatIsServedIsListed(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile(filepath.Join("..", "golden", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := startService(t)
	s.signUp()
	page := s.send(http.MethodGet, "/metrics", nil)
	found := regexp.MustCompile(`(?m)^# TYPE (kindred_\w+) `).FindAllSubmatch(page.Body, -1)
	if len(found) < 20 {
		t.Errorf("only %d metrics are served", len(found))
	}
	for _, name := range found {
		if !regexp.MustCompile(`(?m)^\w+ ` + string(name[1]) + `( |$)`).Match(listed) {
			t.Errorf("%s is served and in no list", name[1])
		}
	}
}
