package httpapi

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimesAreWrittenAsTheirLayoutSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, last := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		at := time.Unix(rapid.Int64Range(first.Unix(), last.Unix()).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		if got, want := string(Time{at}.append(nil)), at.UTC().Format(timeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
