// Package testkit is how the tests of all packages wait: until something holds, never
// for a fixed time; how they draw, so that what failed can be drawn again; and how they
// take what may not fail.
package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// defaultPatience is many times what a loaded machine needs: only what fails waits for it.
	defaultPatience = 2 * time.Minute
	// patienceName gives slow servers more, such as 5m.
	patienceName = "KINDRED_TEST_PATIENCE"
	seedName     = "KINDRED_TEST_SEED"

	// Between two looks a test rests for a part of what it has waited already, so that
	// looking, often a request, leaves the processors to what is waited for.
	shortestRest = 2 * time.Millisecond
	longestRest  = 100 * time.Millisecond
	restPart     = 8
)

// Patience is after how long what takes moments counts as never.
func Patience() time.Duration {
	if given, err := time.ParseDuration(os.Getenv(patienceName)); err == nil {
		return given
	}
	return defaultPatience
}

// Eventually waits until a condition holds, and ends the test where it does not within
// Patience. It is called from the goroutine of the test.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for !holds() {
		waited := time.Since(began)
		if waited > Patience() {
			t.Fatalf("not within %s: %s", Patience(), what)
		}
		time.Sleep(min(max(waited/restPart, shortestRest), longestRest))
	}
}

// Must is the result of a call that may not fail, as in Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Random draws by a seed that the test logs: KINDRED_TEST_SEED has it draw the same again.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv(seedName), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d draws this again", seedName, seed)
	return rand.New(rand.NewPCG(seed, 0))
}
