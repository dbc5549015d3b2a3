package eventstoretest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/eventstore"
)

// fixture is one test on one log.
type fixture struct {
	*testing.T
	Harness
	*maker
	ctx   context.Context //nolint:containedctx // the deadline of the whole test
	open  func(testing.TB) Harness
	start eventstore.Position // the head when the test began
}

func begin(ctx context.Context, t *testing.T, open func(testing.TB) Harness) *fixture {
	t.Helper()
	x := &fixture{T: t, Harness: open(t), maker: newMaker(), ctx: ctx, open: open}
	head, err := x.Store.Head(ctx)
	if err != nil {
		t.Fatalf("head: %v", err)
	}
	x.start = head
	return x
}

// stores gives n stores on the log: of several processes, where that can be.
func (x *fixture) stores(n int) []eventstore.Store {
	x.Helper()
	stores := []eventstore.Store{x.Store}
	for len(stores) < n {
		if x.Another == nil {
			stores = append(stores, x.Store)
		} else {
			stores = append(stores, x.Another(x))
		}
	}
	return stores
}

func (x *fixture) append(stream eventstore.Stream, expected eventstore.Revision, events ...eventstore.Proposed) eventstore.Appended {
	x.Helper()
	appended, err := x.Store.Append(x.ctx, stream, expected, events)
	if err != nil {
		x.Fatalf("append to %s after %d: %v", stream, expected, err)
	}
	return appended
}

// wantConflict appends what must be refused.
func (x *fixture) wantConflict(stream eventstore.Stream, expected, actual eventstore.Revision, events ...eventstore.Proposed) {
	x.Helper()
	_, err := x.Store.Append(x.ctx, stream, expected, events)
	var conflict *eventstore.ConflictError
	if !errors.As(err, &conflict) {
		x.Fatalf("append after %d to a stream at %d: got %v, want a conflict", expected, actual, err)
	}
	if want := (eventstore.ConflictError{Stream: stream, Expected: expected, Actual: actual}); *conflict != want {
		x.Fatalf("conflict is %+v, want %+v", *conflict, want)
	}
}

func (x *fixture) readStream(stream eventstore.Stream, from eventstore.Revision, limit int) []eventstore.Record {
	x.Helper()
	records, err := x.Store.ReadStream(x.ctx, stream, from, limit)
	if err != nil {
		x.Fatalf("read %s: %v", stream, err)
	}
	return records
}

func (x *fixture) readBack(stream eventstore.Stream, from eventstore.Revision, limit int) []eventstore.Record {
	x.Helper()
	records, err := x.Store.ReadBack(x.ctx, stream, from, limit)
	if err != nil {
		x.Fatalf("read %s backwards: %v", stream, err)
	}
	return records
}

// readAll reads everything after a position, in pages.
func (x *fixture) readAll(after eventstore.Position, page int) []eventstore.Record {
	x.Helper()
	var all []eventstore.Record
	for {
		records, err := x.Store.ReadAll(x.ctx, after, page)
		if err != nil {
			x.Fatalf("read after %q: %v", after, err)
		}
		if len(records) > page {
			x.Fatalf("%d records came where %d were the limit", len(records), page)
		}
		if len(records) == 0 {
			return all
		}
		all = append(all, records...)
		after = records[len(records)-1].Position
	}
}

func (x *fixture) head() eventstore.Position {
	x.Helper()
	head, err := x.Store.Head(x.ctx)
	if err != nil {
		x.Fatalf("head: %v", err)
	}
	return head
}

func (x *fixture) subscribe(store eventstore.Store, after eventstore.Position) eventstore.Subscription {
	x.Helper()
	s, err := store.Subscribe(x.ctx, after)
	if err != nil {
		x.Fatalf("subscribe after %q: %v", after, err)
	}
	x.Cleanup(func() {
		if err := s.Close(); err != nil {
			x.Errorf("close subscription: %v", err)
		}
	})
	return s
}

// catchUp takes what a subscription tells until it says that it has caught up.
func (x *fixture) catchUp(s eventstore.Subscription, limit int) []eventstore.Record {
	x.Helper()
	var all []eventstore.Record
	for {
		batch, err := s.Next(x.ctx, limit)
		if err != nil {
			x.Fatalf("next: %v", err)
		}
		if len(batch.Records) > limit {
			x.Fatalf("%d records came where %d were the limit", len(batch.Records), limit)
		}
		all = append(all, batch.Records...)
		if batch.CaughtUp {
			return all
		}
	}
}

// await takes what a subscription tells until it has told want records.
func (x *fixture) await(s eventstore.Subscription, want int) []eventstore.Record {
	x.Helper()
	var all []eventstore.Record
	for len(all) < want {
		all = append(all, x.catchUp(s, 100)...)
	}
	return all
}

// wantEvents compares records with what was appended to a stream from a
// revision on.
func (x *fixture) wantEvents(got []eventstore.Record, stream eventstore.Stream, from eventstore.Revision, events ...eventstore.Proposed) {
	x.Helper()
	want := make([]eventstore.Record, len(events))
	for i, e := range events {
		want[i] = eventstore.Record{Stream: stream, Revision: from + eventstore.Revision(i), Proposed: e}
		if i < len(got) {
			want[i].Position = got[i].Position
		}
	}
	x.sameRecords("the events of "+string(stream), want, got)
}

// sameRecords compares records together with their positions.
func (x *fixture) sameRecords(what string, want, got []eventstore.Record) {
	x.Helper()
	if len(got) != len(want) {
		x.Fatalf("%s: got %d records, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !same(want[i], got[i]) {
			x.Fatalf("%s: record %d differs (-want +got):\n%s", what, i, clip(cmp.Diff(want[i], got[i])))
		}
	}
}

// same is what cmp.Equal says, at the speed that large events need.
func same(a, b eventstore.Record) bool {
	return a.Position == b.Position && a.Stream == b.Stream && a.Revision == b.Revision &&
		a.ID == b.ID && a.Type == b.Type && a.Version == b.Version && a.Client == b.Client &&
		a.RecordedAt.Equal(b.RecordedAt) && bytes.Equal(a.Data, b.Data) && bytes.Equal(a.Meta, b.Meta)
}

// clip keeps the difference of two large events readable.
func clip(diff string) string {
	if len(diff) > 4000 {
		return diff[:4000] + "…"
	}
	return diff
}

// maker makes streams and events of one client. It serves one goroutine.
type maker struct {
	client id.Client
	ids    *id.Source
	made   int
}

func newMaker() *maker {
	ids := id.Random(rand.Reader)
	return &maker{client: id.Next[id.Client](ids), ids: ids}
}

func (m *maker) stream() eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("user-%s-%s", m.client, id.Next[id.User](m.ids)))
}

// event makes an event whose metadata agrees with its fields.
func (m *maker) event() eventstore.Proposed {
	m.made++
	e := eventstore.Proposed{
		ID:         id.Next[id.Event](m.ids),
		Type:       "user.created",
		Version:    1 + m.made%3,
		Client:     m.client,
		RecordedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(m.made) * time.Microsecond),
		Data:       fmt.Appendf(nil, `{"n":%d}`, m.made),
	}
	meta, err := json.Marshal(eventstore.Meta{Client: e.Client, Version: e.Version, RecordedAt: e.RecordedAt, Actor: "policy:test"})
	if err != nil {
		panic(err) // a struct of strings, a number and a time
	}
	e.Meta = meta
	return e
}

func (m *maker) events(n int) []eventstore.Proposed {
	events := make([]eventstore.Proposed, n)
	for i := range events {
		events[i] = m.event()
	}
	return events
}

// sized makes an event whose data and metadata have exactly size bytes.
func (m *maker) sized(size int) eventstore.Proposed {
	e := m.event()
	e.Data = bytes.Join([][]byte{{'"'}, []byte(strings.Repeat("x", size-len(e.Meta)-2)), {'"'}}, nil)
	return e
}
