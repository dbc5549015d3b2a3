package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/cmd/kindred/cli"
	"kindred/httpapi/httpapitest"
)

// atOnce is how many tests run at a time, unless -parallel says so: most wait for
// what a kindred does by itself.
const atOnce = 4

func TestMain(m *testing.M) {
	if os.Getenv(asKindred) != "" {
		go func() { // whoever started us holds the other end
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		os.Exit(cli.Main())
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err) // it is a number
		}
	}
	code := m.Run()
	for _, r := range []*run{storyRun, contractRun} {
		if r.end(); r.Failed() {
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the one service of all stories that ask no more of it than to be a client
// of their own. PgBouncer stands before its database.
func shared(t testing.TB) *service {
	t.Helper()
	return storyRun.view(t, func() *service { return startService(storyRun, pooled(storyRun), forMany) })
}

// sharedContract is the same for those of the contract. It must not fail at anything,
// whoever asked; that is checked when the run ends.
func sharedContract(t testing.TB) *service {
	t.Helper()
	return contractRun.view(t, func() *service { return keepContract(contractRun, forMany) })
}

// storyRun and contractRun are what the shared services belong to.
var storyRun, contractRun = &run{began: context.Background()}, &run{began: context.Background()}

// view is the service of a run, started by whoever comes first, as one test sees it.
func (r *run) view(t testing.TB, start func() *service) *service {
	t.Helper()
	r.once.Do(func() { r.service = start() })
	if r.service == nil {
		t.Fatal("the service that tests share has not started")
	}
	s := *r.service
	s.TB = t
	s.client = httpapitest.Client(t, s.base)
	s.client.Timeout = time.Minute
	return &s
}

// run is the run of all tests, for what outlives each.
type run struct {
	testing.TB                 // nil: a run is asked for no more than what follows
	began      context.Context //nolint:containedctx // it carries what services share
	once       sync.Once
	service    *service // nil: no test has asked for it

	mu     sync.Mutex
	failed bool
	undo   []func()
}

func (*run) Helper() {}

func (r *run) Context() context.Context { return r.began }

func (r *run) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undo = append(r.undo, f)
}

func (r *run) TempDir() string {
	dir, err := os.MkdirTemp("", "kindred-e2e-")
	if err != nil {
		r.Fatalf("make a directory: %v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *run) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "the service that tests share: %s\n", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (r *run) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *run) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *run) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Fatalf fails the run at once: nothing can be told to who is not there.
func (r *run) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.end()
	os.Exit(1)
}

func (r *run) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// end undoes what was done, the last first.
func (r *run) end() {
	r.mu.Lock()
	undo := r.undo
	r.undo = nil
	r.mu.Unlock()
	for _, f := range slices.Backward(undo) {
		f()
	}
}
