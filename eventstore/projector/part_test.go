package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// spoilt is a fixture whose live model holds of acme what the log does not say.
func spoilt(t *testing.T) (w *fixture, stop func()) {
	t.Helper()
	w = newFixture(t)
	stop = background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.rename(t, bolt, numbered("bolt", 20)...)
	w.passed(t, "names_2", w.rename(t, acme, numbered("acme", 1200)...))
	if _, err := w.pool.Exec(t.Context(), `UPDATE renamings SET name = 'wrong' WHERE name LIKE '%7'`); err != nil {
		t.Fatal(err)
	}
	return w, stop
}

func (w *fixture) wrong(t *testing.T, client id.Client) int {
	t.Helper()
	return w.one(t, `SELECT count(*) FROM renamings WHERE name = 'wrong' AND client = $1`, client)
}

// TestAPartIsRebuiltWhileAllGoOn has both clients write and read what they
// have just written, the one that is rebuilt as well as the other.
func TestAPartIsRebuiltWhileAllGoOn(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, client := range []id.Client{acme, bolt} {
		mine := newFixtureOn(w.pool, w.log.Store)
		mine.progress, mine.ends[client] = w.progress, w.ends[client]
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				want := fmt.Sprint(client, " writes ", i)
				mine.rename(t, client, want)
				if got, err := mine.newest(t.Context(), client, false); err != nil || got != want {
					t.Errorf("%s got %q, %v; want %q", client, got, err, want)
					return
				}
			}
		})
	}
	for range 3 {
		var last projector.Rebuilding
		if err := w.builder().RebuildClient(t.Context(), names{}, acme, func(r projector.Rebuilding) { last = r }); err != nil {
			t.Error(err)
		}
		if last.Phase != projector.Replacing || last.Events < 1200 || last.Expected != last.Events {
			t.Errorf("reported %+v", last)
		}
	}
	close(stop)
	all.Wait()
	if w.wrong(t, acme) != 0 || w.wrong(t, bolt) != 2 {
		t.Errorf("%d wrong rows of the client that was rebuilt, %d of the other", w.wrong(t, acme), w.wrong(t, bolt))
	}
	if _, err := w.pool.Exec(t.Context(), `DELETE FROM renamings WHERE name = 'wrong'`); err != nil {
		t.Fatal(err)
	}
	if err := w.builder().RebuildClient(t.Context(), names{}, bolt, nil); err != nil {
		t.Fatal(err)
	}
	w.passed(t, "names_2", w.rename(t, "cli_new", "last"))
	w.complete(t)
	w.tidy(t)
	if known := w.progress.Known(); len(known) != 1 { // else one more stayed for each client
		t.Errorf("the process keeps the progress of %q", known)
	}
}

// A client rebuilds its parts as often as it asks: whoever leads then gives way, which is no trouble.
func TestThatALeaderGivesWayToARebuildIsNoWarning(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var logged syncBuffer
	r := w.builder()
	r.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	last := w.rename(t, acme, "x")
	background(t, func(ctx context.Context) error { return r.Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it has given way", func() bool { return strings.Contains(logged.String(), "leadership lost") })
	if log := logged.String(); strings.Contains(log, "level=WARN") {
		t.Errorf("the log says %s", log)
	}
}

// tidy checks that nothing is left of a rebuild.
func (w *fixture) tidy(t *testing.T) {
	t.Helper()
	for _, sql := range []string{
		`SELECT count(*) - 1 FROM pg_namespace WHERE nspname LIKE 'names%'`,
		`SELECT count(*) - 1 FROM checkpoints`, `SELECT count(*) FROM quarantine`,
	} {
		if n := w.one(t, sql); n != 0 {
			t.Errorf("%d more than there should be: %s", n, sql)
		}
	}
}

// TestAPartIsReplacedAfterACrash crashes at every commit on the way.
func TestAPartIsReplacedAfterACrash(t *testing.T) {
	t.Parallel()
	w, stop := spoilt(t)
	w.rename(t, acme, numbered("more", 900)...)
	stop() // the part is ahead of the live model, which stands still for now
	reached := w.crashes(t, func(r *projector.Runner) error { return r.RebuildClient(t.Context(), names{}, acme, nil) })
	if t.Logf("crashed %d times", reached); reached < 8 {
		t.Error("it hardly ever crashed on the way")
	}
	stop = background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "last"))
	stop()
	if n := w.wrong(t, acme); n != 0 {
		t.Errorf("%d rows are wrong", n)
	}
	if _, err := w.pool.Exec(t.Context(), `UPDATE renamings SET name = 'bolt 7' WHERE name = 'wrong'`); err != nil {
		t.Fatal(err)
	}
	w.complete(t)
	w.tidy(t)
}

// crashes has work crash at every commit on its way, until it ends, and returns
// how often it crashed.
func (w *fixture) crashes(t *testing.T, work func(*projector.Runner) error) (crashed int) {
	t.Helper()
	for ; ; crashed++ {
		config := w.pool.Config()
		config.ConnConfig.Tracer = &crashing{commits: crashed}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		r := w.runner("crashes")
		r.Pool = pool
		err = work(r)
		pool.Close()
		if err == nil {
			return crashed
		}
		if err := w.runner("operator").EndLeases(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// crashing is a process that dies just before it commits once too often.
type crashing struct {
	commits int
	dead    atomic.Bool
	mu      sync.Mutex
}

// TraceQueryStart implements [pgx.QueryTracer].
func (c *crashing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if query.SQL == "commit" {
		c.commits--
	}
	if c.commits < 0 {
		c.dead.Store(true)
	}
	if !c.dead.Load() {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*crashing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestRebuildingAPartLiftsAQuarantine also where the event that caused it
// still cannot be applied: then the client stays where it is.
func TestRebuildingAPartLiftsAQuarantine(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	broken := names{before: always("bad", func() error { return errTest })}
	stop := background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, broken) })
	w.rename(t, acme, "good", "bad", "better")
	w.passed(t, "names_2", w.rename(t, bolt, "x"))
	if err := w.runner("a").RebuildClient(t.Context(), broken, acme, nil); !errors.Is(err, projector.ErrIncomplete) {
		t.Fatalf("got %v", err)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE projection = 'names_2' AND client = $1 AND NOT paused AND event_id <> ''`, acme); n != 1 {
		t.Errorf("%d clients quarantined by the same release", n)
	}
	w.passed(t, "names_2", w.rename(t, bolt, "y"))
	stop()
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	if err := w.runner("a").RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	w.passed(t, "names_2", w.rename(t, acme, "best"))
	w.complete(t)
	w.tidy(t)
}

// TestAFailedRebuildHoldsNobody makes it impossible to replace the part of a
// client, and then to let the client go as well.
func TestAFailedRebuildHoldsNobody(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	refuse := func(table string) {
		t.Helper()
		if _, err := w.pool.Exec(t.Context(), `
			CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END';
			CREATE TRIGGER refuse BEFORE DELETE ON `+table+` FOR EACH ROW EXECUTE FUNCTION public.refuse()`); err != nil {
			t.Fatal(err)
		}
	}
	refuse("renamings")
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err == nil {
		t.Fatal("the part was replaced")
	}
	w.rename(t, acme, "after")
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "after" || w.wrong(t, acme) == 0 {
		t.Errorf("got %q, %v", got, err)
	}
	refuse("public.quarantine")
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err == nil {
		t.Fatal("the part was replaced")
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND NOT paused`, acme); n != 1 {
		t.Errorf("%d quarantines", n)
	}
	if _, err := w.pool.Exec(t.Context(), `DROP FUNCTION public.refuse CASCADE`); err != nil {
		t.Fatal(err)
	}
	w.rename(t, acme, "comes meanwhile")
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "comes meanwhile" || w.wrong(t, acme) != 0 {
		t.Errorf("got %q, %v", got, err)
	}
	w.tidy(t)
}

// hinder keeps parts from being replaced until they are released. It also returns
// whether one waits for that.
func (w *fixture) hinder(t *testing.T) (waiting func() bool, release func()) {
	t.Helper()
	release = pgtest.Lock(t, w.pool, `renamings IN SHARE MODE`)
	return func() bool {
		return w.one(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'renamings'::regclass`) == 1
	}, release
}

func TestARebuildThatIsBrokenOffHoldsNobody(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	waiting, release := w.hinder(t)
	ctx, breakOff := context.WithCancel(t.Context())
	defer breakOff()
	broken := make(chan error, 1)
	go func() { broken <- w.builder().RebuildClient(ctx, names{}, acme, nil) }()
	testkit.Eventually(t, "the part is about to be replaced", waiting)
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND paused`, acme); n != 1 {
		t.Errorf("%d clients are paused", n)
	}
	breakOff()
	if err := <-broken; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients are paused or quarantined", n)
	}
	release()
	w.rename(t, acme, "after")
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "after" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err != nil || w.wrong(t, acme) != 0 {
		t.Errorf("%d rows are wrong, %v", w.wrong(t, acme), err)
	}
	w.tidy(t)
}

// gate is a way to the database that can be closed.
type gate struct {
	mu      sync.Mutex
	closed  bool
	passed  []net.Conn
	refused int
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.refused++
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		g.passed = append(g.passed, conn)
	}
	return conn, err
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed = closed; !closed {
		return
	}
	for _, conn := range g.passed {
		_ = conn.Close()
	}
	g.passed = nil
}

func (g *gate) turnedAway() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// through is a pool whose connections go through a gate.
func (w *fixture) through(t *testing.T, g *gate) *pgxpool.Pool {
	t.Helper()
	config := w.pool.Config()
	config.ConnConfig.DialFunc = g.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestARebuildWaitsForADatabaseThatIsAway has the lease end while it is.
func TestARebuildWaitsForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	waiting, release := w.hinder(t)
	way := &gate{}
	r := w.runner("tool")
	r.Leases = w.through(t, way)
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- r.RebuildClient(t.Context(), names{}, acme, nil) }()
	testkit.Eventually(t, "the part is about to be replaced", waiting)
	way.set(true)
	testkit.Eventually(t, "the lease has ended", func() bool { return !waiting() })
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND paused`, acme); n != 1 {
		t.Errorf("%d clients are paused", n)
	}
	release()
	before := way.turnedAway()
	testkit.Eventually(t, "it tries to take the lease again", func() bool { return way.turnedAway() > before+1 || len(rebuilt) > 0 })
	way.set(false)
	if err := <-rebuilt; err != nil {
		t.Fatal(err)
	}
	if n := w.wrong(t, acme); n != 0 {
		t.Errorf("%d rows are wrong", n)
	}
	w.tidy(t)
}

// TestARebuildThatTheDatabaseBrokeOffHoldsNobody has it go away once more while the client is
// resumed.
func TestARebuildThatTheDatabaseBrokeOffHoldsNobody(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	waiting, release := w.hinder(t)
	way := &gate{}
	r := w.builder()
	r.Leases, r.Pool = w.pool, w.through(t, way)
	broken := make(chan error, 1)
	go func() { broken <- r.RebuildClient(t.Context(), names{}, acme, nil) }()
	testkit.Eventually(t, "the part is about to be replaced", waiting)
	way.set(true)
	release()
	testkit.Eventually(t, "it tries to resume the client", func() bool { return way.turnedAway() > 2 || len(broken) > 0 })
	free := pgtest.Lock(t, w.pool, `quarantine IN SHARE MODE`)
	way.set(false)
	testkit.Eventually(t, "the client is about to be resumed", func() bool {
		return w.one(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'quarantine'::regclass`) == 1 || len(broken) > 0
	})
	way.set(true)
	free()
	way.set(false)
	err := <-broken
	if err == nil {
		t.Error("the part was replaced")
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients are paused or quarantined: %v", n, err)
	}
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err != nil || w.wrong(t, acme) != 0 {
		t.Errorf("%d rows are wrong, %v", w.wrong(t, acme), err)
	}
	w.tidy(t)
}

// renewing keeps the answer to the commit that ends a verify until its lease was
// prolonged after it.
type renewing struct {
	drops   atomic.Int32
	renewed chan struct{}
}

type tracedSQL struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (r *renewing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(query.SQL, "DELETE FROM checkpoints") {
		r.drops.Add(1)
	}
	return context.WithValue(ctx, tracedSQL{}, query.SQL)
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (r *renewing) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	sql, _ := ctx.Value(tracedSQL{}).(string)
	switch {
	case strings.Contains(sql, "UPDATE leases SET expires_at = clock_timestamp() + "):
		select {
		case r.renewed <- struct{}{}:
		default:
		}
	case sql == "commit" && r.drops.Load() == 2: // the first drops what an earlier run has left
		for range 2 { // the first may have been on its way
			select {
			case <-r.renewed:
			case <-ctx.Done():
			}
		}
	}
}

func TestALeaseIsProlongedWhileAVerifyEnds(t *testing.T) {
	t.Parallel()
	w, stop := spoilt(t)
	stop()
	tracer := &renewing{renewed: make(chan struct{})}
	config := w.pool.Config()
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r := w.runner("tool")
	r.Pool, r.Progress, r.Lease = pool, nil, 2*time.Second
	if checked, err := r.Verify(t.Context(), names{}, nil, func(projector.Difference) {}); err != nil || checked.Rows == 0 {
		t.Errorf("%+v, %v", checked, err)
	}
	w.tidy(t)
}

// No later run would go on with what it has built.
func TestAVerifyThatIsBrokenOffLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w, stop := spoilt(t)
	stop()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	checked, err := w.builder().Verify(ctx, names{}, func(projector.Rebuilding) { interrupt() }, func(projector.Difference) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", checked, err)
	}
	w.tidy(t)
}

// TestAModelIsComparedOnceNoPartIsBeingReplaced has a client's part lack what came
// while it is paused.
func TestAModelIsComparedOnceNoPartIsBeingReplaced(t *testing.T) {
	t.Parallel()
	w, stop := spoilt(t)
	stop()
	if err := w.builder().Rebuild(t.Context(), names{}, nil); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO quarantine (projection, client, position, event_id, reason, paused) VALUES ('names_2', 'cli_acme', '', '', '', true)`,
		`DELETE FROM renamings WHERE client = 'cli_acme'`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	alone := w.builder()
	alone.Progress = nil
	if checked, err := alone.Verify(t.Context(), names{}, nil, func(projector.Difference) {}); err == nil || !strings.Contains(err.Error(), "behind the log") {
		t.Errorf("%+v, %v", checked, err)
	}
	if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		_, same, err := projector.Places(t.Context(), tx, []projector.ReadModel{names{}})
		if same {
			t.Error("it is compared")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := w.builder().RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	if checked, err := alone.Verify(t.Context(), names{}, nil, func(projector.Difference) {}); err != nil || checked.Differences != 0 {
		t.Errorf("%+v, %v", checked, err)
	}
}

// TestAPartIsBuiltFromAStoreThatCannotTellClientsApart passes everything over
// that is not the client's.
func TestAPartIsBuiltFromAStoreThatCannotTellClientsApart(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	r := w.runner("a")
	log := *w.log
	log.Store = struct{ eventstore.Store }{w.log.Store}
	r.Log = &log
	if err := r.RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Fatal(err)
	}
	if w.wrong(t, acme) != 0 || w.wrong(t, bolt) != 2 {
		t.Errorf("%d wrong rows of the client that was rebuilt, %d of the other", w.wrong(t, acme), w.wrong(t, bolt))
	}
	w.passed(t, "names_2", w.rename(t, acme, "last"))
	w.tidy(t)
}

// shared is a read model with rows that are no client's.
type shared struct{ names }

func (shared) Name() string   { return "shared" }
func (shared) Schema() string { return `CREATE TABLE anybody (x integer)` }
func (shared) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error {
	return nil
}

func TestASharedModelHasNoParts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if err := w.runner("a").RebuildClient(t.Context(), names{}, acme, nil); err == nil {
		t.Error("a part of what was never built is rebuilt")
	}
	if err := w.runner("a").Rebuild(t.Context(), shared{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.runner("a").RebuildClient(t.Context(), shared{}, acme, nil); !errors.Is(err, projector.ErrShared) {
		t.Errorf("got %v", err)
	}
}
