package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesOfTheLogArriveInOrderAndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		lines := &logLines{out: &out}
		logger := newLogger(lines).With("a", 1).WithGroup("g")
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
		logger.Warn("third")
		arrived("second", "third") // a warning takes along what came before it

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
	library := log.New(libraryLog{newLogger(&out)}, "", 0)
	library.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "ada@lovelace.example", "ada")
	if got := out.String(); !strings.Contains(got, "Unsolicited response") || strings.Contains(got, "ada") || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q", got)
	}
}
