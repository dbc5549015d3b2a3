package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"kindred/postgres/pgtest"
)

func TestAClockThatIsWrongIsToldOf(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for ahead, want := range map[time.Duration]string{0: "", 30 * time.Second: "", time.Hour: "ahead=1h0m", -time.Hour: "ahead=-1h0m"} {
		var told bytes.Buffer
		check := reached(pool, func() time.Time { return time.Now().Add(ahead) }, slog.New(slog.NewTextHandler(&told, nil)))
		for range 2 {
			if err := check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Count(told.String(), "\n")
		if want == "" && lines != 0 || want != "" && (lines != 1 || !strings.Contains(told.String(), "level=WARN") || !strings.Contains(told.String(), want)) {
			t.Errorf("%s ahead: %q", ahead, told.String())
		}
	}
	pool.Close()
	if err := reached(pool, time.Now, slog.New(slog.DiscardHandler))(t.Context()); err == nil {
		t.Error("a database that is away is reached")
	}
}
