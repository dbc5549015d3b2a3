package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

func TestMetricsAreServedOnAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := startService(t, func(c *Config) { c.MetricsListen = "127.0.0.1:0" })
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
