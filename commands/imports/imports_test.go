package imports_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"kindred/commands"
	"kindred/commands/imports"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const maxLine = 64

// errNoLog is trouble that passes.
var errNoLog = errors.New("no log")

// fixture is a spool and a worker that writes down what it is told to apply.
type fixture struct {
	*imports.Worker
	pool    *pgxpool.Pool
	master  seal.MasterKeys
	vault   *seal.Vault
	applied map[id.Client]string
	seeds   []string
	order   []id.Client
	broken  int   // so many times, applying fails
	trouble error // with this, where it is set
	head    eventstore.Position
	begun   []eventstore.Position
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{pool: pgtest.New(t), applied: map[id.Client]string{}}
	w.master = keystest.NewMaster(t)
	w.vault = seal.New(pgkeys.Keys{Pool: w.pool}, w.master, rand.Reader)
	w.Worker = &imports.Worker{
		Spool: &imports.Spool{Pool: w.pool, Secrets: w.vault, Entropy: rand.Reader, Now: time.Now, LogEnd: w.end}, Apply: w.apply,
		Passing: func(err error) bool { return errors.Is(err, errNoLog) },
		Logger:  slog.New(slog.DiscardHandler),
	}
	return w
}

func (w *fixture) end(context.Context) (eventstore.Position, error) { return cmp.Or(w.head, "7"), nil }

// apply creates a user for each line, but for those that begin with "there" or "same"; it refuses
// what begins with "bad".
func (w *fixture) apply(_ context.Context, call commands.Call, _ string, body io.Reader) (commands.ImportReport, error) {
	w.seeds, w.begun = append(w.seeds, strings.Join(call.Seed, " ")), append(w.begun, call.Begun)
	if w.broken > 0 {
		w.broken--
		return commands.ImportReport{}, cmp.Or(w.trouble, errors.New("broken"))
	}
	all, err := io.ReadAll(body)
	w.applied[call.Client] += string(all)
	w.order = append(w.order, call.Client)
	if call.Accepted != "7" || call.Actor != "key_1" && call.Actor != "" || !slices.Contains(call.Seed, string(call.Import)) {
		err = errors.Join(err, fmt.Errorf("applied on behalf of %+v", call))
	}
	var report commands.ImportReport
	for n, line := range strings.Split(strings.TrimSuffix(string(all), "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "bad"):
			report.Failed++
			report.Errors = append(report.Errors, commands.LineError{Line: n + 1, Fault: fault.New(fault.Invalid, "bad", "Bad.")})
		case strings.HasPrefix(line, "there"):
			report.Updated++
		case strings.HasPrefix(line, "same"):
			report.Unchanged++
		default:
			report.Created++
		}
	}
	return report, err
}

func (w *fixture) receive(t *testing.T, client id.Client, body string) imports.Import {
	t.Helper()
	i, err := w.Receive(t.Context(), commands.Call{Client: client, Actor: "key_1"}, "merge", strings.NewReader(body), maxLine)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// finish lets the worker work until nothing waits, and returns how many turns
// that took.
func (w *fixture) finish(t *testing.T) (turns int) {
	t.Helper()
	for {
		worked, err := w.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !worked {
			return turns
		}
		turns++
	}
}

// soon ends all rests.
func (w *fixture) soon(t *testing.T) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), `UPDATE jobs SET due_at = now()`); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) get(t *testing.T, client id.Client, named id.Import) imports.Import {
	t.Helper()
	i, err := w.Get(t.Context(), client, named)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (w *fixture) rows(t *testing.T, query string) (n int) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatWasReceivedIsAppliedInTurns(t *testing.T) {
	w := newFixture(t)
	var large strings.Builder
	for n := range 60_000 { // more than two chunks
		fmt.Fprintf(&large, "a user that is not large, number %d\n", n)
	}
	first := w.receive(t, "cli_a", large.String())
	second := w.receive(t, "cli_a", "one more\nbad\nthere\nsame")
	other := w.receive(t, "cli_b", "of somebody else\n")
	if first.Status != "pending" || first.Lines != 60_000 || second.Lines != 4 {
		t.Fatalf("%+v, %+v", first, second)
	}
	if n := w.rows(t, `SELECT count(*) FROM import_chunks WHERE position('large'::bytea IN body) > 0`); n != 0 {
		t.Errorf("%d chunks are kept unsealed", n)
	}
	if _, err := w.Get(t.Context(), "cli_b", first.ID); !fault.Is(err, "import_unknown") {
		t.Errorf("another client sees it: %v", err)
	}
	turns := w.finish(t)
	if want := large.String() + "one more\nbad\nthere\nsame\n"; w.applied["cli_a"]+"\n" != want && w.applied["cli_a"] != want {
		t.Errorf("%d bytes were applied, want %d in order", len(w.applied["cli_a"]), len(want))
	}
	if turns < 5 || w.order[1] != "cli_b" {
		t.Errorf("turns went to %v", w.order)
	}
	done := w.get(t, "cli_a", second.ID)
	if done.Status != imports.Completed || done.LinesDone != 4 || done.Created != 1 || done.Updated != 2 || done.Failed != 1 || done.Errors[0].Line != 2 || done.EndedAt == nil {
		t.Errorf("%+v", done)
	}
	if done := w.get(t, "cli_a", first.ID); done.Status != imports.Completed || done.Created != 60_000 || done.LinesDone != 60_000 {
		t.Errorf("%+v", done)
	}
	if done := w.get(t, "cli_b", other.ID); done.Status != imports.Completed {
		t.Errorf("%+v", done)
	}
	if n := w.rows(t, `SELECT count(*) FROM import_chunks`); n != 0 {
		t.Errorf("%d chunks are kept after they were applied", n)
	}
}

// What takes longer to arrive comes later, and no chunk of it between those of
// another.
func TestAnImportIsAppliedAfterThoseAcceptedBeforeIt(t *testing.T) {
	w := newFixture(t)
	body, upload := io.Pipe()
	received := make(chan error)
	go func() {
		_, err := w.Receive(t.Context(), commands.Call{Client: "cli_a", Actor: "key_1"}, "merge", body, maxLine)
		received <- err
	}()
	fmt.Fprint(upload, "slow\n")                // it is open once it is read
	quick := strings.Repeat("quick\n", 600_000) // several chunks
	i := w.receive(t, "cli_a", quick)
	turn := func() {
		t.Helper()
		if worked, err := w.Turn(t.Context()); !worked || err != nil {
			t.Fatalf("%t, %v", worked, err)
		}
	}
	turn()
	if err := upload.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	turn()
	// A commit may be seen later than that of a higher number.
	if _, err := w.pool.Exec(t.Context(), `UPDATE imports SET accepted = DEFAULT WHERE id = $1 AND status = 'running'`, i.ID); err != nil {
		t.Fatal(err)
	}
	w.finish(t)
	if want := quick + "slow\n"; w.applied["cli_a"] != want {
		t.Errorf("%d bytes were applied, want %d in order", len(w.applied["cli_a"]), len(want))
	}
}

func TestLinesThatAreRefusedAreNumberedAcrossChunks(t *testing.T) {
	w := newFixture(t)
	good := strings.Repeat("good\n", 250_000)
	i := w.receive(t, "cli_a", good+strings.Repeat("bad\n", 1_500))
	w.finish(t)
	done := w.get(t, "cli_a", i.ID)
	if done.Failed != 1_500 || len(done.Errors) != 1_000 || done.Errors[0].Line != 250_001 || done.Errors[999].Line != 251_000 {
		t.Errorf("%d refused, %d told of, from line %d on", done.Failed, len(done.Errors), done.Errors[0].Line)
	}
}

// A copy of the database that was made meanwhile, and every key that is never
// destroyed, open nothing of it.
func TestTheLinesOfAnImportAreUnreadableOnceItHasEnded(t *testing.T) {
	w := newFixture(t)
	const keys = `SELECT count(*) FROM subject_keys WHERE subject LIKE 'imp_%' AND wrapped IS NOT NULL`
	i := w.receive(t, "cli_a", strings.Repeat("a line\n", 300_000)) // chunks
	var kept []byte
	if err := w.pool.QueryRow(t.Context(), `SELECT body FROM import_chunks WHERE chunk = 0`).Scan(&kept); err != nil {
		t.Fatal(err)
	}
	if _, err := w.vault.OpenSecret(t.Context(), "import "+string(i.ID)+" 0", kept); err == nil {
		t.Error("the service's own key opens it")
	}
	if n := w.rows(t, keys); n != 1 {
		t.Errorf("%d keys", n)
	}
	w.finish(t)
	if n := w.rows(t, keys); n != 0 {
		t.Errorf("%d keys are left of what was applied", n)
	}
	if _, err := seal.New(pgkeys.Keys{Pool: w.pool}, w.master, rand.Reader).OpenFor(t.Context(), "cli_a", string(i.ID), "chunk 0", kept); !errors.Is(err, seal.ErrErased) {
		t.Errorf("got %v", err)
	}

	w.receive(t, "cli_a", "one\n") // given up
	for range 10 {
		w.soon(t)
		w.broken = 1
		if _, err := w.Turn(t.Context()); err == nil {
			t.Fatal("it did not fail")
		}
	}
	broken := errors.New("the connection broke")
	if _, err := w.Receive(t.Context(), commands.Call{Client: "cli_a"}, "merge", iotest.ErrReader(broken), maxLine); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if n := w.rows(t, keys); n != 0 {
		t.Errorf("%d keys are left of what was given up and of what never came", n)
	}

	// A crash after the last chunk left the key, which the next import's end destroys.
	const crash = `UPDATE imports SET status = 'completed', ended_at = now() WHERE status = 'pending'`
	w.receive(t, "cli_a", "one\n")
	if _, err := w.pool.Exec(t.Context(), crash); err != nil {
		t.Fatal(err)
	}
	w.receive(t, "cli_b", "one\n")
	w.finish(t)
	if n := w.rows(t, keys); n != 0 {
		t.Errorf("%d keys are left after a crash", n)
	}
}

func TestWhoWasErasedSinceAnImportWasAcceptedIsKnownToItsEnd(t *testing.T) {
	w := newFixture(t)
	ada, bob := []byte("ada"), []byte("bob")
	since := func(of id.Import, want ...bool) {
		t.Helper()
		got, err := w.Since(t.Context(), "cli_a", of, [][]byte{ada, bob})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	note := func(client id.Client, lookup []byte) {
		t.Helper()
		if err := w.Note(t.Context(), client, lookup); err != nil {
			t.Fatal(err)
		}
	}
	note("cli_a", ada)
	first := w.receive(t, "cli_a", strings.Repeat("one\n", 300_000)) // two chunks
	note("cli_b", ada)
	note("cli_a", bob)
	note("cli_a", bob)
	second := w.receive(t, "cli_a", "one\n")
	since(first.ID, false, true)
	since(second.ID, false, false)
	note("cli_a", ada)
	for _, of := range []id.Import{first.ID, second.ID} { // one is at its middle, and then the other waits
		since(of, true, of == first.ID)
		if _, err := w.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		since(of, true, of == first.ID)
	}
	w.finish(t)
	if n := w.rows(t, `SELECT count(*) FROM import_erasures`); n != 0 {
		t.Errorf("%d erasures are kept after the imports' end", n)
	}
}

// keepsOnce does not destroy the first key.
type keepsOnce struct {
	imports.Secrets
	trouble error
}

func (k *keepsOnce) Destroy(ctx context.Context, client id.Client, subject string) error {
	if err := k.trouble; err != nil {
		k.trouble = nil
		return err
	}
	return k.Secrets.Destroy(ctx, client, subject)
}

// An erasure is noted for an import that ends meanwhile, and a process ends, or loses the database, while it drops
// what was not received.
func TestNothingIsLeftOfAnImportThatHasEnded(t *testing.T) {
	w := newFixture(t)
	for _, sql := range []string{
		`CREATE TABLE held ()`,
		`CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM held; RETURN NEW; END'`,
		`CREATE TRIGGER hold_up BEFORE INSERT ON import_erasures FOR EACH ROW EXECUTE FUNCTION hold_up()`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	w.receive(t, "cli_a", "one\n")
	release := pgtest.Lock(t, w.pool, "held IN ACCESS EXCLUSIVE MODE")
	noted := make(chan error)
	go func() { noted <- w.Note(t.Context(), "cli_a", []byte("ada")) }()
	testkit.Eventually(t, "the note waits", func() bool {
		return w.rows(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	w.finish(t)
	release()
	if err := <-noted; err != nil {
		t.Fatal(err)
	}

	w.Secrets = &keepsOnce{Secrets: w.vault, trouble: errors.New("no database")}
	body := io.MultiReader(strings.NewReader(strings.Repeat("a user\n", 300_000)), iotest.ErrReader(errors.New("the caller went away")))
	if _, err := w.Receive(t.Context(), commands.Call{Client: "cli_a"}, "merge", body, maxLine); err == nil {
		t.Fatal("it was received")
	}
	const left = `SELECT (SELECT count(*) FROM import_erasures) + (SELECT count(*) FROM import_chunks)`
	if w.rows(t, left) == 0 {
		t.Fatal("nothing was left to be pruned")
	}
	waits := w.receive(t, "cli_b", "one\n")
	if err := w.Note(t.Context(), "cli_b", []byte("bob")); err != nil {
		t.Fatal(err)
	}
	if err := w.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.rows(t, left); n != 2 {
		t.Errorf("%d rows are left; want those of %s, which waits", n, waits.ID)
	}
}

func TestAnEmptyImportIsComplete(t *testing.T) {
	w := newFixture(t)
	i := w.receive(t, "cli_a", "")
	w.finish(t)
	if done := w.get(t, "cli_a", i.ID); done.Status != imports.Completed || done.Lines != 0 {
		t.Errorf("%+v", done)
	}
}

func TestALineThatIsTooLongStaysTooLong(t *testing.T) {
	w := newFixture(t)
	just, over := strings.Repeat("x", maxLine), strings.Repeat("y", 10*maxLine)
	i := w.receive(t, "cli_a", just+"\n"+over+"\nend\n"+over)
	w.finish(t)
	got := strings.Split(w.applied["cli_a"], "\n")
	if i.Lines != 4 || len(got) != 5 || got[0] != just || len(got[1]) != maxLine+1 || got[2] != "end" || len(got[3]) != maxLine+1 {
		t.Errorf("applied %.200q of %d lines", got, i.Lines)
	}
}

// Of what does not arrive whole, or is too much at once, nothing is kept; what was accepted before stays.
func TestWhatIsNotReceivedIsNotKept(t *testing.T) {
	w := newFixture(t)
	w.receive(t, "cli_a", "one\n")
	gone := errors.New("the caller went away")
	body := io.MultiReader(strings.NewReader(strings.Repeat("a user\n", 300_000)), iotest.ErrReader(gone))
	if _, err := w.Receive(t.Context(), commands.Call{Client: "cli_a"}, "merge", body, maxLine); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if n := w.rows(t, `SELECT (SELECT count(*) FROM imports) + (SELECT count(*) FROM import_chunks)`); n != 2 {
		t.Errorf("%d rows are left", n)
	}
	for range 9 {
		w.receive(t, "cli_a", "one\n")
	}
	_, err := w.Receive(t.Context(), commands.Call{Client: "cli_a"}, "merge", strings.NewReader("x"), maxLine)
	if !fault.Is(err, "too_many_imports") {
		t.Errorf("got %v", err)
	}
	w.receive(t, "cli_b", "one\n")
}

// What comes slowly is kept line by line, so a receiver that keeps nothing is known to be gone.
func TestWhatComesSlowlyIsKeptInTime(t *testing.T) {
	var now time.Time
	body := strings.NewReader("one\ntwo\nthree\nfour")
	chunks, err := imports.Cut(body, maxLine, func() time.Time {
		now = now.Add(25 * time.Second)
		return now
	})
	if want := []string{"one\ntwo\nthree\n", "four"}; err != nil || !slices.Equal(chunks, want) {
		t.Errorf("cut into %q: %v", chunks, err)
	}
}

// Of an import whose process was killed while it was received, nothing waits after some minutes.
func TestWhatAKilledProcessReceivedIsForgotten(t *testing.T) {
	w := newFixture(t)
	for _, sql := range []string{
		`INSERT INTO imports (client, id, status, mode, actor, member, correlation, log_end, keyed, waiting, received_at)
			SELECT 'cli_a', 'imp_' || n, 'receiving', 'merge', '', '', '', '', true, 1, now() - n * interval '2 minutes' FROM generate_series(1, 4) n`,
		`INSERT INTO import_chunks (client, import, chunk, lines, body) SELECT client, id, 0, 1, '' FROM imports`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"imports", "import_chunks"} {
		if n := w.rows(t, `SELECT count(*) FROM `+table); n != 2 {
			t.Errorf("%d of %s are left, of 2 that may still be received", n, table)
		}
	}
}

func TestAnImportRestsAfterAFailureAndIsGivenUpAfterMany(t *testing.T) {
	w := newFixture(t)
	i := w.receive(t, "cli_a", "one\n")
	fail := func() {
		t.Helper()
		w.broken = 1
		if _, err := w.Turn(t.Context()); err == nil {
			t.Fatal("a failure is not told")
		}
	}
	soon := func() { w.soon(t) }
	fail()
	if worked, err := w.Turn(t.Context()); worked || err != nil {
		t.Errorf("it did not rest: %t, %v", worked, err)
	}
	soon()
	w.finish(t)
	if done := w.get(t, "cli_a", i.ID); done.Status != imports.Completed || done.Created != 1 {
		t.Errorf("%+v", done)
	}
	i = w.receive(t, "cli_a", "one\n")
	for range 10 {
		soon()
		fail()
	}
	if over := w.get(t, "cli_a", i.ID); over.Status != "failed" || over.EndedAt == nil {
		t.Errorf("%+v", over)
	}
	if n := w.rows(t, `SELECT count(*) FROM import_chunks`); n != 0 {
		t.Errorf("%d chunks of it are kept", n)
	}
}

func TestWhatWaitsOfADeletedClientIsGivenUpAtOnce(t *testing.T) {
	w := newFixture(t)
	i, j := w.receive(t, "cli_a", "one\n"), w.receive(t, "cli_a", "two\n")
	if err := w.vault.DestroyClient(t.Context(), "cli_a"); err != nil {
		t.Fatal(err)
	}
	w.finish(t)
	for _, over := range []imports.Import{w.get(t, "cli_a", i.ID), w.get(t, "cli_a", j.ID)} {
		if over.Status != "failed" || over.EndedAt == nil {
			t.Errorf("%+v", over)
		}
	}
	if n := w.rows(t, `SELECT (SELECT count(*) FROM import_chunks) + (SELECT count(*) FROM jobs)`); n != 0 || len(w.applied) > 0 {
		t.Errorf("%d rows are left, and applied is %v", n, w.applied)
	}
}

func TestAnImportThatEndsItsProcessEachTimeIsGivenUpAfterMany(t *testing.T) {
	w := newFixture(t)
	i := w.receive(t, "cli_a", "one\n")
	apply := w.Apply
	w.Apply = func(context.Context, commands.Call, string, io.Reader) (commands.ImportReport, error) {
		runtime.Goexit() // nothing is written down of it
		return commands.ImportReport{}, nil
	}
	for range 10 {
		ended := make(chan bool)
		go func() {
			defer close(ended)
			_, _ = w.Turn(t.Context())
		}()
		<-ended
	}
	if waits := w.get(t, "cli_a", i.ID); waits.Status != "pending" {
		t.Errorf("%+v", waits)
	}
	w.Apply = apply
	if _, err := w.Turn(t.Context()); err == nil || !strings.Contains(err.Error(), "ended its process") {
		t.Errorf("nothing is told: %v", err)
	}
	if over := w.get(t, "cli_a", i.ID); over.Status != "failed" || over.EndedAt == nil || over.Created != 0 {
		t.Errorf("%+v", over)
	}
}

// However long an outage lasts, what was accepted is applied after it.
func TestAnImportOutlastsWhatPasses(t *testing.T) {
	w := newFixture(t)
	i := w.receive(t, "cli_a", "one\n")
	for _, passing := range []error{
		errNoLog, fault.New(fault.Unavailable, "busy", "Too many changes."), context.Canceled,
	} {
		w.trouble = passing
		for range 20 {
			w.broken = 1
			if _, err := w.Turn(t.Context()); !errors.Is(err, passing) {
				t.Fatalf("the trouble is not told: %v", err)
			}
			if worked, err := w.Turn(t.Context()); worked || err != nil {
				t.Fatalf("it did not rest: %t, %v", worked, err)
			}
			w.soon(t)
		}
	}
	inner := w.Apply
	for range 20 { // the lease is lost, or the process ends
		ctx, stop := context.WithCancel(t.Context())
		w.Apply = func(context.Context, commands.Call, string, io.Reader) (commands.ImportReport, error) {
			stop()
			return commands.ImportReport{}, errors.New("broken by it")
		}
		if _, err := w.Turn(ctx); err == nil {
			t.Fatal("it was not stopped")
		}
	}
	w.Apply = inner
	w.finish(t)
	if done := w.get(t, "cli_a", i.ID); done.Status != imports.Completed || done.Created != 1 {
		t.Errorf("%+v", done)
	}
}

func TestAChunkIsAppliedAgainAsTheSame(t *testing.T) {
	w := newFixture(t)
	i := w.receive(t, "cli_a", strings.Repeat("one\n", 300_000))
	other := w.receive(t, "cli_a", "one\n")
	w.broken = 1
	if _, err := w.Turn(t.Context()); err == nil {
		t.Fatal("a failure is not told")
	}
	w.head = "9"
	w.soon(t)
	w.finish(t)
	if want := []eventstore.Position{"7", "7", "9", "9"}; !slices.Equal(w.begun, want) {
		t.Errorf("begun at %q, want %q", w.begun, want)
	}
	first, second := fmt.Sprintf("cli_a import %s 0", i.ID), fmt.Sprintf("cli_a import %s 1", i.ID)
	if want := []string{first, first, second, fmt.Sprintf("cli_a import %s 0", other.ID)}; !slices.Equal(w.seeds, want) {
		t.Errorf("seeded with %q, want %q", w.seeds, want)
	}
}

// A worker that was overtaken while it applied a chunk counts it no second time.
func TestAChunkCountsOnce(t *testing.T) {
	w := newFixture(t)
	const lines = 20_000 // more than a chunk
	i := w.receive(t, "cli_a", strings.Repeat(strings.Repeat("x", maxLine-1)+"\n", lines))
	inner := w.Apply
	w.Apply = func(ctx context.Context, call commands.Call, mode string, body io.Reader) (commands.ImportReport, error) {
		w.Apply = inner
		if worked, err := w.Turn(ctx); !worked || err != nil {
			t.Errorf("the other one: %t, %v", worked, err)
		}
		return inner(ctx, call, mode, body)
	}
	w.finish(t)
	if done := w.get(t, "cli_a", i.ID); done.Created != lines || done.LinesDone != lines || done.Status != imports.Completed {
		t.Errorf("%+v", done)
	}
}

// However a file arrives, its lines are applied as they are.
func TestLinesComeOutAsTheyWentIn(t *testing.T) {
	w := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,64}`), 1, 20).Draw(t, "lines")
		sent := strings.Join(lines, "\n") + rapid.SampledFrom([]string{"", "\n"}).Draw(t, "end")
		delete(w.applied, "cli_a")
		i, err := w.Receive(context.Background(), commands.Call{Client: "cli_a"}, "merge", iotest.OneByteReader(strings.NewReader(sent)), maxLine)
		if err != nil {
			t.Fatal(err)
		}
		if n := int64(strings.Count(strings.TrimSuffix(sent, "\n"), "\n") + 1); sent != "" && i.Lines != n {
			t.Fatalf("%d lines, want %d", i.Lines, n)
		}
		for {
			worked, err := w.Turn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if !worked {
				break
			}
		}
		if w.applied["cli_a"] != sent {
			t.Fatalf("applied %q, want %q", w.applied["cli_a"], sent)
		}
	})
}

// coming is an import that is being received. Each line is a chunk of its own; end is what follows the last.
type coming struct {
	named id.Import
	lines *io.PipeWriter
	ended chan imports.Import
}

func (w *fixture) begins(t *testing.T, client id.Client) *coming {
	t.Helper()
	var clock atomic.Int64
	w.Now = func() time.Time { return time.Unix(0, clock.Add(int64(time.Minute))) }
	body, lines := io.Pipe()
	c := &coming{lines: lines, ended: make(chan imports.Import, 1)}
	go func() {
		i, err := w.Receive(t.Context(), commands.Call{Client: client, Actor: "key_1"}, "merge", body, maxLine)
		if err != nil {
			t.Error(err)
		}
		c.ended <- i
	}()
	c.sends(t, w, 1)
	if err := w.pool.QueryRow(t.Context(), `SELECT id FROM imports WHERE client = $1 AND status = 'receiving'`, client).Scan(&c.named); err != nil {
		t.Fatal(err)
	}
	return c
}

// sends has a line come, which is then kept as the nth.
func (c *coming) sends(t *testing.T, w *fixture, nth int) {
	t.Helper()
	if _, err := io.WriteString(c.lines, "a line\n"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the line is kept", func() bool {
		return w.rows(t, `SELECT coalesce(max(chunks), 0) FROM imports WHERE status = 'receiving'`) == nth
	})
}

func (c *coming) ends(t *testing.T) imports.Import {
	t.Helper()
	if err := c.lines.Close(); err != nil {
		t.Fatal(err)
	}
	return <-c.ended
}

func TestAnImportThatComesForLongIsNotTakenForLost(t *testing.T) {
	w := newFixture(t)
	c := w.begins(t, "cli_a")
	for n := range 3 {
		if _, err := w.pool.Exec(t.Context(), `UPDATE imports SET received_at = received_at - interval '4 minutes'`); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			c.sends(t, w, n+1)
		}
		if err := w.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Get(t.Context(), "cli_a", c.named); !fault.Is(err, "import_unknown") {
		t.Errorf("before it has come to its end it is shown: %v", err)
	}
	i := c.ends(t)
	w.finish(t)
	if i = w.get(t, "cli_a", i.ID); i.Status != imports.Completed || i.Created != 3 {
		t.Errorf("it ends as %+v", i)
	}
}

func TestWhoIsErasedWhileAnImportComesIsKnown(t *testing.T) {
	w := newFixture(t)
	c := w.begins(t, "cli_a")
	if err := w.Note(t.Context(), "cli_a", []byte("erased")); err != nil {
		t.Fatal(err)
	}
	i := c.ends(t)
	if erased, err := w.Since(t.Context(), "cli_a", i.ID, [][]byte{[]byte("erased"), []byte("other")}); err != nil || !slices.Equal(erased, []bool{true, false}) {
		t.Errorf("%v, %v", erased, err)
	}
}

// One that begins to come before another, and ends after it, is behind it.
func TestImportsOfAClientAreAppliedInTheOrderInWhichTheyHaveCome(t *testing.T) {
	w := newFixture(t)
	slow := w.begins(t, "cli_a")
	w.receive(t, "cli_a", "quick\n")
	slow.ends(t)
	w.finish(t)
	if got := w.applied["cli_a"]; got != "quick\na line\n" {
		t.Errorf("applied as %q", got)
	}
}

func TestWhatIsComingCountsAsWhatWaitsAndAsWhatItsSandboxesHave(t *testing.T) {
	w := newFixture(t)
	const client, sandbox = "cli_abcdefghi-live", "cli_abcdefghi-test"
	w.MaxBytes, w.AllBytes = 4_000, 5_000
	c := w.begins(t, client)
	for waiting, want := range map[int]map[id.Client]string{
		2_300: {client: "", sandbox: "", "cli_stranger": ""},
		2_500: {client: "too_much_waiting", sandbox: "too_much_waiting", "cli_stranger": ""}, // half of all
	} {
		for by, code := range want {
			if _, err := w.pool.Exec(t.Context(), `UPDATE imports SET waiting = CASE id WHEN $1 THEN $2 ELSE 0 END`, c.named, waiting); err != nil {
				t.Fatal(err)
			}
			_, err := w.Receive(t.Context(), commands.Call{Client: by, Actor: "key_1"}, "merge", strings.NewReader("a line\n"), maxLine)
			if (err != nil) != (code != "") || code != "" && !fault.Is(err, code) {
				t.Errorf("beside %d bytes that are coming, %s: %v", waiting, by, err)
			}
		}
	}
	c.ends(t)
}

func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	w := newFixture(t)
	w.MaxBytes, w.AllBytes = 4_000, 5_000
	send := func(client id.Client, size int) error {
		_, err := w.Receive(t.Context(), commands.Call{Client: client, Actor: "key_1"}, "merge", strings.NewReader(strings.Repeat("a line.\n", size/8)), maxLine)
		return err
	}
	for _, size := range []int{4_000, 4_008} { // sealing adds some
		if err := send("cli_a", size); !fault.Is(err, "too_large") {
			t.Errorf("one of %d bytes, which never fits: %v", size, err)
		}
	}
	for i, code := range []string{"", "too_much_waiting"} {
		if err := send("cli_a", 3_000); (err != nil) != (code != "") || code != "" && !fault.Is(err, code) {
			t.Errorf("import %d: %v", i, err)
		}
	}
	if err := send("cli_b", 3_000); !fault.Is(err, "too_much_waiting") {
		t.Errorf("more than is left to the others: %v", err)
	}
	if err := send("cli_b", 1_600); err != nil {
		t.Errorf("as much as is left to the others: %v", err)
	}
	w.finish(t)
	if n := w.rows(t, `SELECT coalesce(sum(waiting), 0)::int FROM imports`); n != 0 {
		t.Errorf("afterwards %d bytes wait", n)
	}
	if err := send("cli_b", 3_000); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Each is held up where it has counted what waits, and is about to add to it.
func TestWhatWaitsIsBoundedWhereManySendAtOnce(t *testing.T) {
	w := newFixture(t)
	do := func(sql string) {
		t.Helper()
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	do(`CREATE TABLE held (); CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM held; RETURN NEW; END'`)
	const atOnce = 4
	for _, c := range []struct {
		table string
		open  int // imports, before
		bytes int64
	}{{"imports", 9, 0}, {"import_chunks", 0, 4_000}} {
		client := id.Client("cli_" + c.table)
		for range c.open {
			w.receive(t, client, "one\n")
		}
		w.MaxBytes = c.bytes
		do(`CREATE TRIGGER hold_up BEFORE INSERT ON ` + c.table + ` FOR EACH ROW EXECUTE FUNCTION hold_up()`)
		release := pgtest.Lock(t, w.pool, "held IN ACCESS EXCLUSIVE MODE")
		accepted := make(chan bool)
		for range atOnce {
			go func() {
				_, err := w.Receive(t.Context(), commands.Call{Client: client}, "merge", strings.NewReader(strings.Repeat("a line.\n", 375)), maxLine)
				accepted <- err == nil
			}()
		}
		testkit.Eventually(t, "all wait", func() bool {
			return w.rows(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == atOnce
		})
		release()
		n := 0
		for range atOnce {
			if <-accepted {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d are accepted into %s where one has room", n, c.table)
		}
		do(`DROP TRIGGER hold_up ON ` + c.table)
	}
}

// lossy are connections whose answer to what ends an import is lost, once it is armed.
type lossy struct {
	net.Conn
	armed *atomic.Bool
}

func (l lossy) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("UPDATE 1\x00")) && l.armed.CompareAndSwap(true, false) {
		return 0, errors.Join(io.ErrUnexpectedEOF, l.Close())
	}
	return n, err
}

func TestAnImportWhoseCommitIsNotAnsweredIsApplied(t *testing.T) {
	w := newFixture(t)
	config, armed := w.pool.Config(), new(atomic.Bool)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return lossy{conn, armed}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.Pool = pool
	body := &twice{Reader: strings.NewReader(strings.Repeat("one\n", 300_000)), then: func() { armed.Store(true) }}
	i, err := w.Receive(t.Context(), commands.Call{Client: "cli_a"}, "merge", body, maxLine)
	if err != nil || armed.Load() {
		t.Fatalf("not received: %v", err)
	}
	w.finish(t)
	if done := w.get(t, "cli_a", i.ID); done.Status != imports.Completed || done.Created != 300_000 {
		t.Errorf("%+v", done)
	}
}

// twice is read to its end twice, and does something then.
type twice struct {
	io.Reader
	ends int
	then func()
}

func (r *twice) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		if r.ends++; r.ends == 2 {
			r.then()
		}
	}
	return n, err
}
