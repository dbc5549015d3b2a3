package auditing_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/auditing"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// open keeps secrets as they are.
type open struct{}

func (open) SealSecret(_ context.Context, _ string, plain []byte) ([]byte, error) { return plain, nil }

func (open) OpenSecret(_ context.Context, _ string, box []byte) ([]byte, error) { return box, nil }

func TestEachClientThatChangedIsSignedInOneRound(t *testing.T) {
	w := begin(t)
	const many = 2_500 // several statements
	clients := w.rename(t, many)
	w.signAll(t)
	w.rename(t, many/2) // the first half again
	w.signAll(t)
	heads := w.heads(t)
	for n, client := range clients {
		want := []int64{1, 2}
		if n >= many/2 {
			want = []int64{1}
		}
		if diff := cmp.Diff(want, heads[client]); diff != "" {
			t.Fatalf("sizes that were signed of %s (-want +got):\n%s", client, diff)
		}
	}
}

// Operators rotate from whatever machine is at hand.
func TestTheKeyThatWasMadeLastSignsWhateverTheClockSaid(t *testing.T) {
	w := begin(t)
	client := w.rename(t, 1)[0]
	for _, ahead := range []time.Duration{time.Hour, 0, -time.Hour, -time.Hour} {
		before := testkit.Must(w.auditor.Published(t.Context()))(t)
		now := time.Now().Add(ahead)
		w.auditor.Now = func() time.Time { return now }
		if err := w.auditor.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, err := w.auditor.Published(t.Context())
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("%d keys are %d after a rotation, %v", len(before), len(after), err)
		}
		fresh := after[slices.IndexFunc(after, func(key []byte) bool {
			return !slices.ContainsFunc(before, func(old []byte) bool { return bytes.Equal(old, key) })
		})]
		keys := testkit.Must(audit.ParseKeys(fmt.Appendf(nil, `{"keys": [%s]}`, fresh)))(t)
		head := testkit.Must(w.auditor.Head(t.Context(), client, false))(t)
		if _, err := keys.Verify(head.JWS); err != nil {
			t.Errorf("a clock %v ahead: %v", ahead, err)
		}
	}
}

func TestAHistoryThatWasChangedKeepsNoOtherFromBeingSigned(t *testing.T) {
	w := begin(t)
	clients := w.rename(t, 8)
	w.signAll(t)
	exec(t, w.pool, `UPDATE audit_heads SET root = sha256('') WHERE client = ANY($1)`, clients[:4])
	w.rename(t, 8)
	w.signAll(t)
	for client, sizes := range w.heads(t) {
		want := 2
		if slices.Contains(clients[:4], client) {
			want = 1
		}
		if len(sizes) != want {
			t.Errorf("%s has heads of %v, %d are right", client, sizes, want)
		}
	}
	if _, err := w.auditor.Head(t.Context(), clients[0], false); !fault.Is(err, "history_changed") {
		t.Errorf("got %v", err)
	}
}

func TestClientsWhoseHistoryCannotBeReadKeepNoOtherFromBeingSigned(t *testing.T) {
	w := begin(t)
	clients := w.rename(t, 8)
	exec(t, w.pool, `INSERT INTO quarantine (projection, client, position, event_id, reason) SELECT $1, unnest($2::text[]), '', '', ''`,
		projector.ID(w.history), clients[:2])
	exec(t, w.pool, `UPDATE heads SET position = 'ffffffffffffffff' WHERE client = ANY($1)`, clients[2:4])
	w.signAll(t)
	signed := slices.Sorted(maps.Keys(w.heads(t)))
	if diff := cmp.Diff(clients[2:], signed); diff != "" {
		t.Errorf("signed (-want +got):\n%s", diff)
	}
}

// A head that another process signs meanwhile, of another history, is found as the head is kept.
func TestNoHeadIsSignedBesideAnotherOfItsSize(t *testing.T) {
	w := begin(t)
	clients := w.rename(t, 3)
	w.auditor.Now = func() time.Time { // as heads are signed
		exec(t, w.pool, `INSERT INTO audit_heads (client, size, root, signed_at, jws) VALUES ($1, 1, sha256(''), now(), '') ON CONFLICT DO NOTHING`, clients[0])
		return time.Now()
	}
	w.signAll(t)
	if diff := cmp.Diff(map[id.Client][]int64{clients[0]: {1}, clients[1]: {1}, clients[2]: {1}}, w.heads(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	exec(t, w.pool, `DELETE FROM audit_heads`)
	if head, err := w.auditor.Head(t.Context(), clients[0], false); !fault.Is(err, "history_changed") {
		t.Errorf("%+v, %v", head, err)
	}
}

// A part of the model that does not hold what was signed yet is no history that was changed.
func TestWhatTheModelDoesNotHoldYetIsStale(t *testing.T) {
	w := begin(t)
	clients := w.rename(t, 3)
	w.signAll(t)
	w.rename(t, 2)
	exec(t, w.pool, `DELETE FROM history_events WHERE client = ANY($1)`, clients[1:])
	exec(t, w.pool, `DELETE FROM history_nodes WHERE client = ANY($1)`, clients[1:])
	if err := w.auditor.SignAll(t.Context()); !fault.Is(err, "stale") {
		t.Errorf("the round ends with %v", err)
	}
	if diff := cmp.Diff(map[id.Client][]int64{clients[0]: {1, 2}, clients[1]: {1}, clients[2]: {1}}, w.heads(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, client := range clients[1:] { // one that has grown since, and one that has not
		if _, err := w.auditor.Head(t.Context(), client, false); !fault.Is(err, "stale") {
			t.Errorf("it is signed: %v", err)
		}
	}
	exec(t, w.pool, `UPDATE audit_heads SET size = 5 WHERE client = $1 AND size = 2`, clients[0])
	if _, err := w.auditor.Head(t.Context(), clients[0], false); !fault.Is(err, "history_changed") {
		t.Errorf("a history that was longer: %v", err)
	}
}

// What a proof is asked for is in the history, up to its last event and its whole size.
func TestAProofIsOfWhatIsInTheHistory(t *testing.T) {
	w := begin(t)
	var client id.Client
	for range 3 {
		client = w.rename(t, 1)[0]
	}
	for _, c := range []struct {
		ordinal, from *int64
		wrong         int
	}{
		{nil, nil, 0},
		{new(int64(2)), new(int64(3)), 0},
		{new(int64(2)), nil, 0},
		{nil, new(int64(1)), 0},
		{new(int64(3)), nil, 1},
		{nil, new(int64(4)), 1},
		{new(int64(3)), new(int64(4)), 2},
	} {
		proof, err := w.auditor.Prove(t.Context(), client, false, c.ordinal, c.from)
		wrong := 0
		if f := fault.As(err); f != nil {
			wrong = len(f.Fields)
		}
		if wrong != c.wrong || (err == nil) != (c.wrong == 0) {
			t.Errorf("%v: %v", c, err)
		}
		if err == nil && (proof.Size != 3 || (proof.Event == audit.Hash{}) != (c.ordinal == nil) || (len(proof.Inclusion) > 0) != (c.ordinal != nil) || (len(proof.Consistency) > 0) != (c.from != nil && *c.from < 3)) {
			t.Errorf("%v: %+v", c, proof)
		}
	}
}

// However many heads were signed, each stands in an export where it belongs.
func TestAnExportHoldsEachHead(t *testing.T) {
	w := begin(t)
	const many = 205 // more than are read at once, twice
	var client id.Client
	for range many {
		client = w.rename(t, 1)[0]
		testkit.Must(w.auditor.Head(t.Context(), client, false))(t)
	}
	keys := testkit.Must(audit.ParseKeys(fmt.Appendf(nil, `{"keys": [%s]}`, bytes.Join(testkit.Must(w.auditor.Published(t.Context()))(t), []byte(",")))))(t)
	var all bytes.Buffer
	var reported []auditing.Exporting
	if err := w.auditor.Export(t.Context(), client, false, &all, func(e auditing.Exporting) { reported = append(reported, e) }); err != nil {
		t.Fatal(err)
	}
	verified, err := audit.Verify(bytes.NewReader(all.Bytes()), keys, nil, func(f audit.Finding) { t.Error(f) })
	if err != nil || verified.Events != many || verified.Head.Size != many || bytes.Count(all.Bytes(), []byte("\n")) != 2*many {
		t.Errorf("it is verified as %+v, %v", verified, err)
	}
	if diff := cmp.Diff([]auditing.Exporting{{Done: 100, Total: many}, {Done: many, Total: many}}, reported); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// Many small events, as the pages of an export become larger, come before many large ones.
func TestAnExportReadsNoMoreAtOnceThanTheLogReads(t *testing.T) {
	w := begin(t)
	const many, large = 50, 400 << 10
	client := w.rename(t, 1)[0]
	for range many - 1 {
		recorded, err := w.log.Append(t.Context(), w.ends[0], eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader),
			event.ClientRenamed{Client: client, Name: strings.Repeat("A", large)})
		if err == nil {
			w.ends[0], err = recorded[0].StreamVersion()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var all bytes.Buffer
	if err := w.auditor.Export(t.Context(), client, false, &all, nil); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(all.Bytes(), []byte("\n")); lines != many+1 {
		t.Errorf("%d lines of %d events and a head", lines, many)
	}
	for range 2 {
		events, size, err := w.auditor.FirstPage(t.Context(), client, many, 1_000)
		if err != nil || events == 0 || events == many || size > 17<<20 {
			t.Errorf("%d events of %d bytes are read at once, %v", events, size, err)
		}
		w.log.Store = struct{ eventstore.Store }{w.log.Store} // one that reads events one by one
	}
	var again bytes.Buffer
	if err := w.auditor.Export(t.Context(), client, false, &again, nil); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(again.Bytes(), []byte("\n")); lines != many+1 {
		t.Errorf("%d lines of %d events and a head, read one by one", lines, many)
	}
}

func BenchmarkRoundOf10000(b *testing.B) {
	w := begin(b)
	for b.Loop() {
		b.StopTimer()
		w.rename(b, 10_000)
		b.StartTimer()
		w.signAll(b)
	}
}

// fixture is a log, its history and who signs that.
type fixture struct {
	pool    *pgxpool.Pool
	log     *eventstore.Log
	history projections.History
	auditor *auditing.Auditor
	ends    []eventstore.StreamVersion // of the clients
}

func begin(t testing.TB) *fixture {
	t.Helper()
	pool := testkit.Must(postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{SearchPath: projector.SearchPath(projections.History{})}))(t)
	t.Cleanup(pool.Close)
	store := testkit.Must(pgstore.Open(t.Context(), pool, nil))(t)
	t.Cleanup(store.Close)
	log := &eventstore.Log{Store: store, Registry: event.All(), Now: time.Now}
	logger := slog.New(slog.DiscardHandler)
	history := projections.History{Reader: readmodel.Reader{Pool: pool, Progress: projector.NewProgress(pool, logger)}}
	follow(t, history, log)
	auditor := &auditing.Auditor{History: history, Log: log, Secrets: open{}, Now: time.Now, Entropy: rand.Reader, Logger: logger}
	if err := auditor.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &fixture{pool: pool, log: log, history: history, auditor: auditor}
}

// rename appends one event to each of the first n clients, and waits until the
// history has them.
func (f *fixture) rename(t testing.TB, n int) []id.Client {
	t.Helper()
	clients := make([]id.Client, n)
	for i := range clients {
		clients[i] = id.Client(fmt.Sprintf("cli_%05d", i))
		if i == len(f.ends) {
			f.ends = append(f.ends, eventstore.NewStreamVersion(eventstore.ClientStream(clients[i])))
		}
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(64)
	for i, client := range clients {
		group.Go(func() error {
			recorded, err := f.log.Append(ctx, f.ends[i], eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader),
				event.ClientRenamed{Client: client, Name: "A"})
			if err == nil {
				f.ends[i], err = recorded[0].StreamVersion()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, client := range clients {
		if _, err := f.history.Tree(t.Context(), client, false); err != nil {
			t.Fatal(err)
		}
	}
	return clients
}

func (f *fixture) signAll(t testing.TB) {
	t.Helper()
	if err := f.auditor.SignAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// heads are the sizes of the heads that were signed of each client.
func (f *fixture) heads(t testing.TB) map[id.Client][]int64 {
	t.Helper()
	rows := testkit.Must(f.pool.Query(t.Context(), `SELECT client, size FROM audit_heads ORDER BY client, size`))(t)
	heads := map[id.Client][]int64{}
	var (
		client id.Client
		size   int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&client, &size}, func() error {
		heads[client] = append(heads[client], size)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return heads
}

// follow keeps a model up to date until the test ends.
func follow(t testing.TB, history projections.History, log *eventstore.Log) {
	t.Helper()
	runner := &projector.Runner{
		Pool: history.Pool, Log: log, Name: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now, Progress: history.Progress,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var following sync.WaitGroup
	following.Go(func() { history.Progress.Run(ctx) })
	following.Go(func() {
		if err := runner.Run(ctx, history); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); following.Wait() })
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
