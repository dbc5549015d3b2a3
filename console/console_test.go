package console

import (
	"crypto/rand"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAmountsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		currency := rapid.SampledFrom([]string{"EUR", "JPY", "KWD"}).Draw(t, "currency")
		amount := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "minor")
		written := money(amount, currency)
		if read, ok := minor(strings.TrimPrefix(written, currency+" "), currency); !ok || read != amount {
			t.Fatalf("%d is written %s and read %d, %t", amount, written, read, ok)
		}
	})
	for text, want := range map[string]int64{"5": 500, "5.5": 550, " 1,000.05 ": 100005, ".5": -1, "5.005": -1, "-1": -1, "1e3": -1, "": -1, "x": -1} {
		read, ok := minor(text, "EUR")
		if !ok {
			read = -1
		}
		if read != want {
			t.Errorf("%q is read as %d, not %d", text, read, want)
		}
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"20,412": number(int64(20412)), "−1,000": number(-1000), "0": number(0), "999": number(int64(999)), "1,234,567": number(1234567.0), "0.25": number(.25),
		"91 %": percent(.91), "0.4 %": percent(.004), "0 %": percent(0), "EUR 3,182.50": money(318250, "EUR"), "JPY 500": money(500, "JPY"),
		"5 s": seconds(4200 * time.Millisecond), "3 min": seconds(200 * time.Second), "47 h": seconds(47 * time.Hour), "3 days": seconds(73 * time.Hour),
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestSigningInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/console/users?find=x": "/console/users?find=x", "": Path, "/elsewhere": Path, "//evil.example/console/": Path, "https://evil.example/console/": Path,
		`/console/\evil`: Path, "javascript:alert(1)": Path, "console/users": Path, "/console/../elsewhere": Path,
	} {
		if got := within(to); got != want {
			t.Errorf("%q leads to %q, not %q", to, got, want)
		}
	}
}

// A page that fails says so, and the process goes on.
func TestAPageThatPanicsIsAnswered(t *testing.T) {
	t.Parallel()
	pages, err := New(Config{
		API:       http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the API") }),
		PublicURL: "https://kindred.example", Now: time.Now, NewKey: rand.Text, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/console/users", nil)
	r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "e30.eyJhdWQiOiJjbGlfMSJ9.x"})
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "did not answer") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
