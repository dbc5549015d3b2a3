package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Anybody may ask for what is not there. That costs no more than what is refused, however many routes there are.
func TestWhatHasNoRouteCostsNoMoreThanWhatIsRefused(t *testing.T) {
	e := newEdge(t, nil)
	allocations := func(method, path string, status int) float64 {
		return testing.AllocsPerRun(10, func() {
			w := httptest.NewRecorder()
			e.handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != status {
				t.Fatalf("%s %s: %d", method, path, w.Code)
			}
		})
	}
	refused := allocations(http.MethodGet, users+"/a%2Fb", http.StatusUnauthorized)
	for _, asked := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/a%2Fb", http.StatusNotFound},
		{http.MethodGet, users + "/a%2Fb/c/d", http.StatusNotFound},
		{"ASK", users + "/a%2Fb", http.StatusMethodNotAllowed},
	} {
		if got := allocations(asked.method, asked.path, asked.status); got > 2*refused {
			t.Errorf("%s %s: %v allocations, of what is refused %v", asked.method, asked.path, got, refused)
		}
	}
}
