package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/tail"
	"kindred/postgres/pgtest"
)

func waits(t testing.TB, q *queue, client, stream string, events, size int) *request {
	t.Helper()
	r, err := made(client, stream, events, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.put(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func made(client, stream string, events, size int) (*request, error) {
	e := eventstore.Proposed{ID: id.From[id.Event]([16]byte{1}), Client: id.Client(client), Data: make([]byte, size)}
	all := make([]eventstore.Proposed, events)
	for i := range all {
		all[i] = e
	}
	by := &caller{answered: make(chan struct{})}
	by.left.Store(1)
	return newRequest(eventstore.Request{Stream: eventstore.Stream(stream), Events: all}, by)
}

func TestEveryRequestLeavesOnceInTheOrderOfItsStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		order := map[eventstore.Stream][]*request{} // what each stream still waits for
		waiting := 0
		put := func() {
			client := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "client")
			stream := fmt.Sprint(client, rapid.IntRange(0, 3).Draw(t, "stream"))
			r, err := made(client, stream, rapid.SampledFrom([]int{1, 2, 200, 500}).Draw(t, "events"), 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.put(r); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 9).Draw(t, "gives up") == 0 {
				r.abandoned.Store(true)
				return
			}
			order[r.stream] = append(order[r.stream], r)
			waiting++
		}
		take := func() {
			events, streams := 0, map[eventstore.Stream]bool{}
			batch := q.fill()
			for _, r := range batch {
				if order[r.stream][0] != r {
					t.Fatalf("a request of %s overtook another", r.stream)
				}
				if streams[r.stream] {
					t.Fatalf("two requests of %s are in one batch", r.stream)
				}
				streams[r.stream] = true
				order[r.stream] = order[r.stream][1:]
				events += len(r.events)
			}
			if waiting > 0 && len(batch) == 0 {
				t.Fatalf("nothing was taken of %d requests", waiting)
			}
			if len(batch) > maxBatchRequests || events > maxBatchEvents && len(batch) > 1 {
				t.Fatalf("a batch has %d requests and %d events", len(batch), events)
			}
			waiting -= len(batch)
			if q.waiting != waiting {
				t.Fatalf("the queue counts %d that wait, there are %d", q.waiting, waiting)
			}
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "put") {
				put()
			} else {
				take()
			}
		}
		for waiting > 0 {
			take()
		}
		if q.fill(); q.size != 0 || len(q.rotation) != 0 || len(q.byOwner) != 0 {
			t.Fatalf("an empty queue holds %d bytes, %d in rotation, %d queues", q.size, len(q.rotation), len(q.byOwner))
		}
	})
}

func TestAClientThatImportsHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range maxWaitingClient {
		waits(t, q, "importer", fmt.Sprint("user-", i), 1, 10)
	}
	if r, err := made("importer", "one too many", 1, 10); err != nil || !errors.Is(q.put(r), eventstore.ErrUnavailable) {
		t.Errorf("one client may fill the queue (%v)", err)
	}
	var others []*request
	for _, client := range []string{"a", "b", "c"} {
		others = append(others, waits(t, q, client, client, 1, 10))
	}
	batch := q.fill()
	if len(batch) != len(others) {
		t.Errorf("the batch has %d requests, want those of the others alone", len(batch))
	}
	for _, r := range others {
		if !slices.Contains(batch, r) {
			t.Errorf("client %s got no place in a batch", r.owner())
		}
	}
	later := waits(t, q, "a", "a", 1, 10)
	batch = q.fill()
	if want := maxShare + 1; len(batch) != want || !slices.Contains(batch, later) {
		t.Errorf("the next batch has %d requests, want %d with what came meanwhile", len(batch), want)
	}
}

func TestAClientThatIsAloneFillsBatches(t *testing.T) {
	t.Parallel()
	q := newQueue()
	take := func(want int) {
		t.Helper()
		for i := range maxBatchRequests {
			waits(t, q, "importer", fmt.Sprint("user-", i), 1, 10)
		}
		if n := len(q.fill()); n != want {
			t.Fatalf("the batch has %d requests, want %d", n, want)
		}
		q.drain()
	}
	take(maxBatchRequests)
	waits(t, q, "other", "other", 1, 10)
	take(1)
	for range aloneAfter - 1 {
		take(maxShare)
	}
	take(maxBatchRequests)
}

// Ten appends of 200 kB are as much to wait for as hundreds of small ones.
func TestAClientIsHeldToItsShareOfBytes(t *testing.T) {
	t.Parallel()
	q := newQueue()
	const size = 200_000
	for i := range maxWaitingBytesClient / size {
		waits(t, q, "fat", fmt.Sprint("user-", i), 1, size)
	}
	if r, err := made("fat", "one too many", 1, size); err != nil || !errors.Is(q.put(r), eventstore.ErrUnavailable) {
		t.Errorf("one client may fill the queue (%v)", err)
	}
	for n, want := range []int{1, 2, 1, 2} { // its own, and every other time none of them
		other := waits(t, q, "other", fmt.Sprint("other", n), 1, 10)
		if batch := q.fill(); len(batch) != want || !slices.Contains(batch, other) {
			t.Errorf("batch %d has %d requests, want %d with the other's", n, len(batch), want)
		}
	}
}

func TestALargeRequestIsNotOvertakenForEver(t *testing.T) {
	t.Parallel()
	for _, of := range []struct{ events, size int }{{eventstore.MaxAppend, 10}, {1, maxShareBytes + 1}} {
		q := newQueue()
		large := waits(t, q, "large", "large", of.events, of.size)
		for batches := 0; ; batches++ {
			for i := range 40 {
				waits(t, q, fmt.Sprint("small", i), fmt.Sprint("small", batches, i), 1, 10)
			}
			if slices.Contains(q.fill(), large) {
				break
			}
			if batches == 3 {
				t.Fatalf("%d events of %d bytes still wait after 4 batches", of.events, of.size)
			}
		}
	}
}

// However many clients wait, and by whichever bound a batch ends.
func TestTheNextBatchBeginsWithThoseWhoFoundNoPlace(t *testing.T) {
	t.Parallel()
	const clients = maxBatchRequests + 40
	for _, of := range []struct{ size, most int }{{10, maxBatchRequests}, {30_000, maxBatchBytes / 30_000}} {
		q := newQueue()
		for round := range 2 {
			for i := range clients {
				waits(t, q, fmt.Sprint("client ", i), fmt.Sprint("stream ", i, " ", round), 1, of.size)
			}
		}
		served := map[string]bool{}
		for batches := 1; len(served) < clients; batches++ {
			batch := q.fill()
			if len(batch) > of.most {
				t.Fatalf("a batch has %d requests of %d bytes, and may have %d", len(batch), of.size, of.most)
			}
			for _, r := range batch {
				served[r.owner()] = true
			}
			if batches*of.most >= clients+of.most {
				t.Fatalf("it takes %d batches until %d of %d clients have had a place", batches, len(served), clients)
			}
		}
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range maxWaiting {
		waits(t, q, fmt.Sprint("client", i%4), fmt.Sprint("user-", i), 1, 10)
	}
	if r, err := made("another", "x", 1, 10); err != nil || !errors.Is(q.put(r), eventstore.ErrUnavailable) {
		t.Errorf("a full queue takes more (%v)", err)
	}
	heavy := newQueue()
	for i := range maxWaitingBytes / eventstore.MaxEventSize {
		waits(t, heavy, fmt.Sprint("client", i%2), fmt.Sprint("user-", i), 1, eventstore.MaxEventSize)
	}
	for range 2 {
		if r, err := made("another", "x", 1, 10); err != nil || !errors.Is(heavy.put(r), eventstore.ErrUnavailable) {
			t.Errorf("a heavy queue takes more (%v)", err)
		}
		n := len(heavy.fill())
		if n == 0 || n*eventstore.MaxEventSize > maxBatchBytes {
			t.Errorf("a batch has %d requests of %d bytes", n, eventstore.MaxEventSize)
		}
		for i := range n { // as many again
			waits(t, heavy, fmt.Sprint("client", i%2), fmt.Sprint("again-", i), 1, eventstore.MaxEventSize)
		}
	}
}

func TestAClosedQueueIsTakenToItsEnd(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range maxShare {
		waits(t, q, "importer", fmt.Sprint("user-", i), 1, 10)
	}
	waits(t, q, "gone", "gone", 1, 10).abandoned.Store(true)
	q.close()
	if n := len(q.take()); n != maxShare {
		t.Errorf("the batch has %d requests, want the %d that wait", n, maxShare)
	}
	if n := len(q.take()); n != 0 {
		t.Errorf("an empty queue holds %d requests", n)
	}
}

func TestAServerThatStaysAwayFailsAllThatWaitAtOnce(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("host=/nowhere/at/all dbname=none")
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, address)
	}
	c := &committer{config: config, queue: newQueue(), tail: tail.New(nil, nil, nil), notifier: newNotifier(config), guard: &guarded{guard: new(atomic.Pointer[Guard])}, patience: 50 * time.Millisecond}
	var all []*request
	for range 100 { // one stream: as many batches
		all = append(all, waits(t, c.queue, "client", "stream", 1, 10))
	}
	done := make(chan struct{})
	go func() {
		c.run()
		close(done)
	}()
	for _, r := range all {
		<-r.caller.answered
		if a := r.answer.Load(); !errors.Is(a.err, eventstore.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", a.err)
		}
	}
	c.queue.close()
	<-done
	if n := dials.Load(); n >= int64(len(all)) {
		t.Errorf("the server is tried %d times for %d that wait", n, len(all))
	}
}

// choosy is a guard that refuses one client; of the one behind it, nothing can be found out.
type choosy struct {
	*committer

	refused int
}

func (*choosy) Invalidate() {}

func (g *choosy) Verify(_ context.Context, client id.Client) error {
	switch client {
	case "lost":
		if g.refused++; g.refused == 2 { // alone
			g.patience = 0
		}
		return seal.ErrLost
	case "away":
		return errors.New("nobody answers")
	}
	return nil
}

func TestABatchThatIsTakenApartIsAnsweredToItsEnd(t *testing.T) {
	t.Parallel()
	config := pgtest.New(t).Config().ConnConfig
	guard := new(atomic.Pointer[Guard])
	c := &committer{
		config: config, queue: newQueue(), tail: tail.New(nil, nil, nil), notifier: newNotifier(config), guard: &guarded{guard: guard, replaced: true}, patience: time.Minute,
	}
	var choosy Guard = &choosy{committer: c}
	guard.Store(&choosy)
	var all []*request
	for _, client := range []string{"good", "lost", "away", "behind"} {
		all = append(all, waits(t, c.queue, client, client, 1, 10))
	}
	all[0].expected = eventstore.NoStream
	c.queue.close()
	c.run()
	for i, want := range []error{nil, seal.ErrLost, eventstore.ErrUnavailable, eventstore.ErrUnavailable} {
		a := all[i].answer.Load()
		if a == nil {
			t.Errorf("%s waits for ever", all[i].stream)
			continue
		}
		if !errors.Is(a.err, want) || want != nil && !errors.Is(a.err, eventstore.ErrUnavailable) || errors.Is(a.err, seal.ErrLost) != (i == 1) {
			t.Errorf("%s ends with %v, want %v", all[i].stream, a.err, want)
		}
	}
	if a := all[0].answer.Load(); a == nil || a.appended.Position == "" {
		t.Errorf("what was good is answered %+v", a)
	}
}

// A client's sandboxes append in its share: others wait no longer for eleven than for one.
func TestAClientAndItsSandboxesHaveOneShare(t *testing.T) {
	t.Parallel()
	source, q := id.Random(rand.Reader), newQueue()
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	for i := range 300 {
		sandbox := id.NextSandbox(source, owner)
		waits(t, q, string(sandbox), fmt.Sprint("user-", i), 1, 10)
	}
	waits(t, q, string(other), "user-other", 1, 10)
	if batch := q.fill(); len(batch) > 1 { // for those who append little
		t.Errorf("%d appends of many", len(batch))
	}
	if batch := q.fill(); len(batch) > maxShare {
		t.Errorf("%d appends in a batch", len(batch))
	}
}
