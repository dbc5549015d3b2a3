package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const (
	lockLog = `SELECT pg_advisory_xact_lock(hashtextextended('kindred log', 0))`
	// As a store appends, in a transaction that the test ends.
	appendOne = `
SELECT base FROM append_stream($1, $2, true, ARRAY[$3], ARRAY[gen_random_uuid()], ARRAY['user.created'], ARRAY[1],
	ARRAY['{}'::bytea], ARRAY['{}'::bytea], ARRAY[now()])`
)

func TestAnOpenTransactionHoldsLaterAppendsBack(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
			pool := pgtest.New(t)
			store, other := open(t, pool), open(t, pool)
			slow, later := newStream(), newStream()
			tx := begin(t, pool)
			if _, err := tx.Exec(t.Context(), appendOne, slow, -1, client); err != nil {
				t.Fatal(err)
			}
			appended := appendLater(t, store, later)
			awaitLockWaiters(t, pool, 1)
			if head := headOf(t, other); head != eventstore.Start {
				t.Errorf("something is visible at %q", head)
			}
			end := tx.Rollback
			want := []eventstore.Stream{later}
			if commits {
				end, want = tx.Commit, []eventstore.Stream{slow, later}
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-appended; err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, streamsOf(t, other)); diff != "" {
				t.Errorf("the order of the log (-want +got):\n%s", diff)
			}
			wantSound(t, pool)
		})
	}
}

func TestATransactionThatBeganEarlyAppendsInItsTurn(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store, stream := open(t, pool), newStream()
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil { // as a write does
		t.Fatal(err)
	}
	mustAppend(t, store, stream, eventstore.NoStream)
	if _, err := tx.Exec(t.Context(), appendOne, stream, 0, client); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := next(t, subscribe(t, store, eventstore.Start))
	if len(records) != 2 || records[0].Revision != 0 || records[1].Revision != 1 {
		t.Errorf("a follower sees %+v", records)
	}
	wantSound(t, pool)
}

func TestAnOpenWriteInAnotherDatabaseHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	elsewhere, pool := pgtest.New(t), pgtest.New(t)
	tx := begin(t, elsewhere)
	if _, err := tx.Exec(t.Context(), `CREATE TABLE open_write ()`); err != nil {
		t.Fatal(err)
	}
	store, stream := open(t, pool), newStream()
	mustAppend(t, store, stream, eventstore.NoStream)
	if diff := cmp.Diff([]eventstore.Stream{stream}, streamsOf(t, store)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

func TestTheOrderSurvivesDumpAndRestore(t *testing.T) {
	t.Parallel()
	from, to := pgtest.New(t), pgtest.New(t)
	before := open(t, from)
	stream := newStream()
	for i := range 5 {
		mustAppend(t, before, stream, eventstore.Revision(i-1))
		mustAppend(t, before, newStream(), eventstore.NoStream)
	}
	want := next(t, subscribe(t, before, eventstore.Start))
	for _, table := range []string{"log", "events", "heads"} {
		copyTable(t, table, from, to)
	}
	after := open(t, to)
	mustAppend(t, after, stream, 4)
	got := next(t, subscribe(t, after, want[2].Position))
	if diff := cmp.Diff(want[3:], got[:len(got)-1]); diff != "" {
		t.Errorf("a follower that resumes on the restored log (-want +got):\n%s", diff)
	}
	if last := got[len(got)-1]; last.Revision != 5 || last.Position <= want[len(want)-1].Position {
		t.Errorf("the log goes on at %+v", last)
	}
	if diff := cmp.Diff(epochOf(t, before), epochOf(t, after)); diff != "" {
		t.Errorf("the epoch (-before +after):\n%s", diff)
	}
	wantSound(t, to)
}

// A constraint that is checked at the commit fails after the statement has
// already answered.
func TestAnAppendWhoseCommitFailsIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	const refuse = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused at the commit'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (new.type = 'refused') EXECUTE FUNCTION refuse()`
	if _, err := pool.Exec(t.Context(), refuse); err != nil {
		t.Fatal(err)
	}
	store := open(t, pool)
	outcomes := together(t, pool, store, 20, func(i int, e *eventstore.Proposed) {
		if i%5 == 0 {
			e.Type = "refused"
		}
	})
	for i, err := range outcomes {
		switch refused := i%5 == 0; {
		case refused && (err == nil || errors.Is(err, eventstore.ErrUnavailable)):
			t.Errorf("append %d, refused at its commit: %v", i, err)
		case !refused && err != nil:
			t.Errorf("append %d, a neighbour of refused ones: %v", i, err)
		}
	}
	if n := len(streamsOf(t, store)); n != 16 {
		t.Errorf("the log has %d events, want the 16 that were acknowledged", n)
	}
	wantSound(t, pool)
}

func TestABadRequestFailsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	outcomes := together(t, pool, store, 20, func(i int, e *eventstore.Proposed) {
		if i == 7 {
			e.Type = "no text\x00"
		}
	})
	for i, err := range outcomes {
		if (err != nil) != (i == 7) {
			t.Errorf("append %d: %v", i, err)
		}
	}
	wantSound(t, pool)
}

func TestWhatWaitsIsCommittedTogetherAndToldOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	listener := listen(t, pool)
	for i, err := range together(t, pool, store, 40, nil) {
		if err != nil {
			t.Errorf("append %d: %v", i, err)
		}
	}
	const transactions = `SELECT count(DISTINCT xmin::text) FROM events`
	var commits int
	if err := pool.QueryRow(t.Context(), transactions).Scan(&commits); err != nil || commits != 2 {
		t.Errorf("40 appends made %d commits (%v), want one for the first and one for those that gathered meanwhile", commits, err)
	}
	head := testkit.Must(store.Head(t.Context()))(t)
	if told := hear(t, listener, head); told > commits {
		t.Errorf("%d commits were told %d times", commits, told)
	}
	wantSound(t, pool)
}

func TestAStoreThatIsClosedHasToldOfItsLastCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	listener := listen(t, pool)
	for range 20 { // commits that come sooner than they are told of
		mustAppend(t, store, newStream(), eventstore.NoStream)
	}
	head := testkit.Must(store.Head(t.Context()))(t)
	store.Close()
	hear(t, listener, head)
}

func TestFollowersFindWhatNobodyTold(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	s := subscribe(t, open(t, pool), eventstore.Start)
	next(t, s)
	awaitListening(t, pool, 1) // then a store looks at the log once more
	const silently = `
INSERT INTO events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
VALUES ($1::bigint, '', 'silent', $1::bigint - 1, gen_random_uuid(), 'silent', 1, '', '', now())`
	for position := range 6 { // mostly, the follower waits already when the event comes
		seen := make(chan []eventstore.Record, 1)
		go func() {
			batch, err := s.Next(t.Context(), 10)
			if err != nil {
				t.Errorf("next: %v", err)
			}
			seen <- batch.Records
		}()
		if _, err := pool.Exec(t.Context(), silently, position+1); err != nil {
			t.Fatal(err)
		}
		select {
		case records := <-seen:
			if len(records) != 1 || records[0].Stream != "silent" {
				t.Errorf("a follower sees %+v", records)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a follower sees nothing")
		}
	}
}

// A standby that is promoted may lack the last commits, and so may a backup.
func TestFollowersSeeNothingThatTheLogHasLost(t *testing.T) {
	t.Parallel()
	for _, trial := range []struct{ own, elsewhere bool }{{true, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", trial), func(t *testing.T) {
			pool := pgtest.New(t)
			store := open(t, pool)
			writer, listening := store, 1
			if !trial.own {
				writer, listening = open(t, pool), 2
			}
			awaitListening(t, pool, listening)
			mustAppend(t, store, newStream(), eventstore.NoStream)
			slow, quick := subscribe(t, store, eventstore.Start), subscribe(t, store, eventstore.Start)
			kept := next(t, slow)
			for range 3 {
				mustAppend(t, store, newStream(), eventstore.NoStream)
			}
			for n := 0; n < 4; n += len(next(t, quick)) { // the process knows them now
			}
			for _, sql := range []string{
				`DELETE FROM events WHERE position > 1`, `UPDATE heads SET position = position_text(1)`,
			} {
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if trial.elsewhere {
				cut(t, pool)
				awaitListening(t, pool, listening)
			}
			again := subscribe(t, store, kept[0].Position)
			streams := []eventstore.Stream{newStream(), newStream()}
			for _, stream := range streams {
				mustAppend(t, writer, stream, eventstore.NoStream)
			}
			for _, s := range []eventstore.Subscription{slow, again} {
				var seen []eventstore.Stream
				for len(seen) < len(streams) {
					for _, r := range next(t, s) {
						seen = append(seen, r.Stream)
					}
				}
				if diff := cmp.Diff(streams, seen); diff != "" {
					t.Errorf("a follower sees (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestAnExhaustedPoolHoldsNoAppendBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	for range pool.Config().MaxConns {
		conn := testkit.Must(pool.Acquire(t.Context()))(t)
		defer conn.Release()
	}
	mustAppend(t, store, newStream(), eventstore.NoStream)
}

// Imports that come together wait for each other, and leave room for others.
func TestWhoAppendManyWaitForRoom(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockLog); err != nil {
		t.Fatal(err)
	}
	many := func(ctx context.Context) error {
		requests := make([]eventstore.Request, eventstore.MaxMany)
		for i := range requests {
			requests[i] = eventstore.Request{Stream: newStream(), Expected: eventstore.NoStream, Events: []eventstore.Proposed{newEvent()}}
		}
		var failed error
		for _, result := range store.AppendMany(ctx, requests) {
			if failed == nil {
				failed = result.Err
			}
		}
		return failed
	}
	outcomes := make(chan error, 9)
	for range cap(outcomes) {
		go func() { outcomes <- many(t.Context()) }()
	}
	testkit.Eventually(t, "several wait beside those being committed", func() bool { return store.Waiting() > 2*eventstore.MaxMany })
	one := appendLater(t, store, newStream())
	ctx, give := context.WithCancel(t.Context())
	gave := make(chan error, 1)
	go func() { gave <- many(ctx) }()
	give()
	if err := <-gave; !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up hears %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(outcomes) {
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
	}
	if err := <-one; err != nil {
		t.Error(err)
	}
	wantSound(t, pool)
}

func TestClosingFinishesWhatWaits(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := testkit.Must(pgstore.Open(t.Context(), pool, nil))(t)
	s := subscribe(t, store, eventstore.Start)
	next(t, s)
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockLog); err != nil {
		t.Fatal(err)
	}
	var waiting []<-chan error
	for range 10 {
		waiting = append(waiting, appendLater(t, store, newStream()))
	}
	awaitLockWaiters(t, pool, 1)
	closed := make(chan struct{})
	go func() {
		store.Close()
		close(closed)
	}()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-closed
	taken := 0
	for _, w := range waiting {
		if err := <-w; err == nil {
			taken++
		} else if !errors.Is(err, eventstore.ErrUnavailable) { // came after the closing began
			t.Error(err)
		}
	}
	if n := len(streamsOf(t, open(t, pool))); n != taken || n == 0 {
		t.Errorf("%d appends were acknowledged, the log has %d events", taken, n)
	}
	store.Close()
	if err := appendEvent(t.Context(), store, newStream(), eventstore.NoStream, newEvent()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("an append to a closed store: got %v, want ErrUnavailable", err)
	}
	for { // what was appended is still told
		batch, err := s.Next(t.Context(), 100)
		if errors.Is(err, eventstore.ErrUnavailable) {
			break
		}
		if err != nil || len(batch.Records) == 0 && !batch.CaughtUp {
			t.Fatalf("next on a closed store: %+v, %v", batch, err)
		}
	}
}

// What a key seals may be appended after the server has come back, so the key
// must have come back too.
func TestAKeyThatWasMadeOutlivesAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Durable(t)
	url := server.URL()
	key := eventstore.Key{Client: client, Subject: "usr_a"}
	key.ID, key.Under, key.Wrapped = "key", "root", []byte("wrapped")
	if made, err := open(t, connect(t, url)).MakeKeys(t.Context(), []eventstore.Key{key}); err != nil || !made[0] {
		t.Fatalf("made %v, %v", made, err)
	}
	server.Kill()
	server.Restart()
	var exists bool
	err := connect(t, url).QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM subject_keys WHERE id = $1)`, key.ID).Scan(&exists)
	if err != nil || !exists {
		t.Errorf("the key stands: %t, %v", exists, err)
	}
}

// A process that was held up for minutes may append a key under an epoch that is
// over: nobody could open what it seals.
func TestAKeyOfAnEpochThatIsOverFailsAloneAndPasses(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO epochs (id, fingerprint, keys) VALUES ('x0000000000000001', '', 1)`); err != nil {
		t.Fatal(err)
	}
	wantRefusedAlone(t, pool, keyUnder(client, "x0000000000000001/root"), keyUnder(client, "x0000000000000002/root"), eventstore.ErrUnavailable)
}

// An append may be on its way as its client is deleted: the key of what it seals would be left.
func TestAKeyOfAClientThatWasDeletedFailsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO client_keys (client, id, master, wrapped) VALUES ('cli_gone', 'a', '', ''), ($1, 'b', 'm', 'w')`, client); err != nil {
		t.Fatal(err)
	}
	wantRefusedAlone(t, pool, keyUnder(client, "root"), keyUnder("cli_gone", "root"), eventstore.ErrDeleted)
}

// keyUnder returns a key of a subject of a client.
func keyUnder(of id.Client, under string) func(subject string) eventstore.Key {
	return func(subject string) eventstore.Key {
		k := eventstore.Key{Client: of, Subject: subject}
		k.ID, k.Under, k.Wrapped = "id of "+subject, under, []byte("wrapped")
		return k
	}
}

// wantRefusedAlone appends what brings good keys together with what brings a bad one.
func wantRefusedAlone(t *testing.T, pool *pgxpool.Pool, good, bad func(subject string) eventstore.Key, want error) {
	t.Helper()
	store := open(t, pool)
	request := func(k eventstore.Key) eventstore.Request {
		return eventstore.Request{Stream: newStream(), Expected: eventstore.NoStream, Events: []eventstore.Proposed{newEvent()}, Keys: []eventstore.Key{k}}
	}
	results := store.AppendMany(t.Context(), []eventstore.Request{request(good("usr_a")), request(bad("usr_b")), request(good("usr_c"))})
	for i, fails := range []bool{false, true, false} {
		if err := results[i].Err; fails != errors.Is(err, want) || !fails && err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if made, err := store.MakeKeys(t.Context(), []eventstore.Key{bad("usr_d")}); !errors.Is(err, want) {
		t.Errorf("made %v, %v", made, err)
	}
	var stored int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM subject_keys`).Scan(&stored); err != nil || stored != 2 {
		t.Errorf("%d keys are stored, %v", stored, err)
	}
	wantSound(t, pool)
}

func TestADeadServerIsUnavailable(t *testing.T) {
	t.Parallel()
	server := pgtest.Durable(t)
	pool := connect(t, server.URL())
	store := open(t, pool)
	stream := newStream()
	mustAppend(t, store, stream, eventstore.NoStream)
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	e := newEvent()
	if err := appendEvent(ctx, store, stream, 0, e); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("append: got %v, want ErrUnavailable", err)
	}
	for name, read := range map[string]func(context.Context) error{
		"head":   func(ctx context.Context) error { _, err := store.Head(ctx); return err },
		"epoch":  func(ctx context.Context) error { _, err := store.Epoch(ctx); return err },
		"stream": func(ctx context.Context) error { _, err := store.ReadStream(ctx, stream, 0, 1); return err },
		"log":    func(ctx context.Context) error { _, err := store.ReadAll(ctx, eventstore.Start, 1); return err },
	} {
		if err := read(t.Context()); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("read %s: got %v, want ErrUnavailable", name, err)
		}
	}
	server.Restart()
	if err := appendEvent(t.Context(), store, stream, 0, e); err != nil { // the same event: it lands once
		t.Errorf("append after the restart: %v", err)
	}
	if n := len(streamsOf(t, store)); n != 2 {
		t.Errorf("the log has %d events, want 2", n)
	}
	wantSound(t, pool)
}

// A primary that vanishes without a word, as its machine may, is passed over in time for an
// append: that takes less than connecting may.
func TestAServerThatIsSilentHidesNoOther(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	behind, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := behind.Query()
	query.Set("host", "127.0.0.1,"+query.Get("host"))
	query.Set("port", fmt.Sprint(silent.Addr().(*net.TCPAddr).Port, ",", query.Get("port")))
	behind.RawQuery = query.Encode()
	mustAppend(t, open(t, connect(t, behind.String())), newStream(), eventstore.NoStream)
}

func TestAnAppendWhoseAnswerIsLostLandsOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	line := &badLine{}
	config := pool.Config()
	config.ConnConfig.DialFunc = line.dial
	bad := testkit.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(bad.Close)
	store := testkit.Must(pgstore.Open(t.Context(), bad, nil))(t)
	t.Cleanup(store.Close)
	stream := newStream()
	mustAppend(t, store, stream, eventstore.NoStream)
	for i := range 5 {
		line.loseNext.Store(true)
		mustAppend(t, store, stream, eventstore.Revision(i))
		if line.loseNext.Load() {
			t.Fatal("no answer was lost")
		}
	}
	if n := len(streamsOf(t, store)); n != 6 {
		t.Errorf("the log has %d events, want 6", n)
	}
	wantSound(t, pool)
}

// badLine loses the answer to the next append, and then breaks.
type badLine struct{ loseNext atomic.Bool }

func (l *badLine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &badConn{Conn: conn, line: l}, err
}

type badConn struct {
	net.Conn
	line *badLine
	sent atomic.Int64
}

// largeEnough tells an append from what else is sent.
const largeEnough = 1000

func (c *badConn) Write(b []byte) (int, error) {
	c.sent.Store(int64(len(b)))
	return c.Conn.Write(b)
}

func (c *badConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // the server answers after its commit
	if c.sent.Load() > largeEnough && c.line.loseNext.CompareAndSwap(true, false) {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}

func TestAServerThatLetsNobodyInIsUnavailable(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.User = "somebody_unknown"
	_, err = pgx.ConnectConfig(t.Context(), config)
	if err == nil || !errors.Is(pgstore.Unavailable(err), eventstore.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
