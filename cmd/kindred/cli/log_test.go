package cli

import (
	"bytes"
	"encoding/json"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kindred/app"
)

func TestLinesOfTheLogArriveInOrderAndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		lines := &logLines{out: &out}
		logger := newLogger(lines, noSettings).With("a", 1).WithGroup("g")
		arrived := func(want ...string) {
			t.Helper()
			lines.mu.Lock()
			defer lines.mu.Unlock()
			for _, word := range want {
				if !strings.Contains(out.String(), "msg="+word) {
					t.Errorf("%s has not arrived: %q", word, out.String())
				}
			}
			if got := strings.Count(out.String(), "\n"); got != len(want) {
				t.Errorf("%d lines, not %d: %q", got, len(want), out.String())
			}
			out.Reset()
		}
		logger.Info("first", "b", 2)
		arrived()
		time.Sleep(logDelay)
		synctest.Wait()
		arrived("first")

		logger.Info("second")
		logger.Error("third")
		arrived("second", "third") // an error takes along what came before it

		logger.Info("fourth")
		if err := lines.flush(); err != nil {
			t.Fatal(err)
		}
		arrived("fourth")

		logger.Info("long", "text", strings.Repeat("x", logAtOnce))
		arrived("long")
	})
}

func TestWhatLibrariesQuoteIsNotLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	library := log.New(libraryLog{newLogger(&out, noSettings)}, "", 0)
	library.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "ada@lovelace.example", "ada")
	if got := out.String(); !strings.Contains(got, "Unsolicited response") || strings.Contains(got, "ada") || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q", got)
	}
}

func TestTheLogIsJSONAndAsLoudAsIsChosen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := newLogger(&out, func(name string) string {
		return map[string]string{"KINDRED_LOG_FORMAT": "json", "KINDRED_LOG_LEVEL": "warn"}[name]
	})
	logger.Info("quiet")
	logger.Warn("loud", "n", 1)
	var line struct {
		Level, Msg string
		N          int
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "WARN" || line.Msg != "loud" || line.N != 1 {
		t.Errorf("%v: %s", err, &out)
	}
	for name, value := range map[string]string{"KINDRED_LOG_FORMAT": "xml", "KINDRED_LOG_LEVEL": "loud"} {
		_, err := app.ReadConfig(func(asked string) string { return map[string]string{name: value}[asked] })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func noSettings(string) string { return "" }
