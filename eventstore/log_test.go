package eventstore_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/testkit"
)

const (
	acme   id.Client         = "cli_00000000000000000000000001"
	user   id.User           = "usr_00000000000000000000000001"
	stream eventstore.Stream = "user-1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("CET", 3600))

// fixture is a log whose clock the test sets.
type fixture struct {
	*eventstore.Log
	store *memstore.Store
	now   time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	master := keystest.NewMaster(t)
	d := &fixture{store: memstore.New("test"), now: noon}
	d.Log = &eventstore.Log{
		Store: d.store, Vault: seal.New(keystest.NewMemory(), master, rand.Reader), Registry: event.All(),
		Now: func() time.Time { return d.now },
	}
	return d
}

var origin = eventstore.Origin{Client: acme, Actor: "mem_1", Correlation: "req_1", Causation: "evt_1", Request: "mac"}

// mustAppend appends at the end of the stream.
func (d *fixture) mustAppend(t *testing.T, events ...event.Event) []eventstore.Recorded {
	t.Helper()
	end := testkit.Must(d.Version(t.Context(), stream))(t)
	return testkit.Must(d.Append(t.Context(), end, origin, id.Random(rand.Reader), events...))(t)
}

func created(traits string) event.Event {
	return event.EndUserCreated{User: user, ExternalID: event.Private([]byte("u1")), Traits: event.Private([]byte(traits))}
}

func changed(traits string) event.Event {
	return event.EndUserTraitsChanged{User: user, Traits: event.Private([]byte(traits))}
}

func TestPersonalFieldsAreSealedAndOpened(t *testing.T) {
	d := newFixture(t)
	d.mustAppend(t, created(`{"city":"Bern"}`), changed(`{"city":"Chur"}`))
	history, end, err := d.Load(t.Context(), stream)
	if err != nil || len(history) != 2 || end.Revision != 1 {
		t.Fatalf("loaded %d events up to %d, %v", len(history), end.Revision, err)
	}
	for i, want := range []string{`{"city":"Bern"}`, `{"city":"Chur"}`} {
		if bytes.Contains(history[i].Data, []byte("city")) || bytes.Contains(history[i].Meta, []byte("city")) {
			t.Errorf("the log shows %s", history[i].Data)
		}
		if got, err := d.Open(t.Context(), history[i], "traits"); err != nil || string(got) != want {
			t.Errorf("opened %q, %v; want %q", got, err, want)
		}
	}
	if got, err := d.Open(t.Context(), history[1], "external_id"); got != nil || err != nil {
		t.Errorf("a field that the event does not carry is %q, %v", got, err)
	}
	moved := history[0]
	moved.Stream = "user-2"
	if got, err := d.Open(t.Context(), moved, "traits"); !errors.Is(err, seal.ErrRefused) {
		t.Errorf("in another stream it opens to %q, %v", got, err)
	}
	moved = history[0]
	moved.ID = history[1].ID
	if got, err := d.Open(t.Context(), moved, "traits"); !errors.Is(err, seal.ErrRefused) {
		t.Errorf("as another event it opens to %q, %v", got, err)
	}
}

func TestErasedSubjectsAreNeitherReadNorWritten(t *testing.T) {
	d := newFixture(t)
	recorded := d.mustAppend(t, created(`{}`))
	if err := d.Vault.Destroy(t.Context(), acme, string(user)); err != nil {
		t.Fatal(err)
	}
	history, end, err := d.Load(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(t.Context(), history[0], "traits"); !errors.Is(err, seal.ErrErased) {
		t.Errorf("opening says %v", err)
	}
	if _, err := d.Append(t.Context(), end, origin, id.Random(rand.Reader), changed(`{"a":1}`)); !errors.Is(err, seal.ErrErased) {
		t.Errorf("appending says %v", err)
	}
	if _, err := d.Append(t.Context(), end, origin, id.Random(rand.Reader), event.EndUserErased{User: user}); err != nil {
		t.Errorf("what is not personal can be recorded all the same: %v", err)
	}
	if history[0].ID != recorded[0].ID {
		t.Error("the event is not there any more")
	}
}

// The hash is recomputed here from its description, over the stored bytes.
func TestEachStreamIsAChain(t *testing.T) {
	d := newFixture(t)
	d.mustAppend(t, created(`{}`), changed(`{"a":1}`))
	d.mustAppend(t, changed(`{"a":2}`), event.EndUserErased{User: user})
	records, err := d.store.ReadStream(t.Context(), stream, 0, 10)
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	previous := ""
	for i, r := range records {
		var meta struct{ Previous *string }
		if err := json.Unmarshal(r.Meta, &meta); err != nil {
			t.Fatal(err)
		}
		if i == 0 && meta.Previous != nil || i > 0 && (meta.Previous == nil || *meta.Previous != previous) {
			t.Errorf("event %d follows %v, want %s", i, meta.Previous, previous)
		}
		previous = hashAsDescribed(t, r)
		got, err := eventstore.Hash(r)
		if err != nil || hex.EncodeToString(got[:]) != previous {
			t.Errorf("event %d has the hash %x, %v; want %s", i, got, err, previous)
		}
	}
	_, loaded, err := d.Load(t.Context(), stream)
	end, tipErr := d.Version(t.Context(), stream)
	if err := errors.Join(err, tipErr); err != nil || loaded != end || hex.EncodeToString(end.Hash[:]) != previous {
		t.Errorf("the stream ends with %+v or %+v, %v; want %s", loaded, end, err, previous)
	}
}

func hashAsDescribed(t *testing.T, r eventstore.Record) string {
	t.Helper()
	event := testkit.Must(id.Bytes(r.ID))(t)
	text := []byte("kindred.event.1")
	for _, part := range []string{
		string(event[:]), string(r.Stream), string(binary.BigEndian.AppendUint64(nil, uint64(r.Revision))),
		r.Type, string(r.Data), string(r.Meta),
	} {
		text = append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func TestTheHashCoversEveryPart(t *testing.T) {
	d := newFixture(t)
	r := d.mustAppend(t, created(`{}`))[0].Record
	want := testkit.Must(eventstore.Hash(r))(t)
	for part, change := range map[string]func(*eventstore.Record){
		"id":       func(r *eventstore.Record) { r.ID = "evt_00000000000000000000000000" },
		"stream":   func(r *eventstore.Record) { r.Stream += "x" },
		"revision": func(r *eventstore.Record) { r.Revision++ },
		"type":     func(r *eventstore.Record) { r.Type += "x" },
		"data":     func(r *eventstore.Record) { r.Data = append(bytes.Clone(r.Data), ' ') },
		"metadata": func(r *eventstore.Record) { r.Meta = append(bytes.Clone(r.Meta), ' ') },
		"boundary": func(r *eventstore.Record) { r.Type, r.Data = r.Type+string(r.Data[:1]), r.Data[1:] },
	} {
		other := r
		change(&other)
		if got, err := eventstore.Hash(other); err != nil || got == want {
			t.Errorf("another %s has the same hash, or %v", part, err)
		}
	}
	r.ID = "evt_x"
	if _, err := eventstore.Hash(r); err == nil {
		t.Error("what is no event has a hash")
	}
}

func TestTheEnvelopeSaysWhoAndWhy(t *testing.T) {
	d := newFixture(t)
	r := d.mustAppend(t, created(`{}`))[0]
	meta, err := eventstore.DecodeMeta(r.Meta)
	want := eventstore.Meta{
		Client: acme, Version: 1, RecordedAt: noon.UTC().Truncate(time.Microsecond),
		Actor: "mem_1", Correlation: "req_1", Causation: "evt_1", Request: "mac",
	}
	if err != nil || meta != want || r.Client != acme || !r.RecordedAt.Equal(want.RecordedAt) || r.Type != "end_user.created" {
		t.Errorf("the envelope is %+v, %v", meta, err)
	}
	if !strings.Contains(string(r.Meta), `"recorded_at":"2026-03-01T11:00:00.123456Z"`) {
		t.Errorf("the time is written as in %s", r.Meta)
	}
}

func TestTimeDoesNotGoBackInAStream(t *testing.T) {
	d := newFixture(t)
	last := d.mustAppend(t, created(`{}`))[0].RecordedAt
	for _, step := range []time.Duration{-event.MaxDrift / 2, time.Nanosecond, -time.Microsecond, time.Second, -time.Second} {
		d.now = d.now.Add(step)
		at := d.mustAppend(t, changed(`{}`))[0].RecordedAt
		if at.Before(last) {
			t.Errorf("after a step of %s, %s follows %s", step, at, last)
		}
		last = at
	}
	if want := noon.Truncate(time.Microsecond); last.Before(want) {
		t.Errorf("the last event is of %s", last)
	}
}

func TestAClockThatWasAheadIsForgottenOnceItIsRight(t *testing.T) {
	d := newFixture(t)
	d.mustAppend(t, created(`{}`))
	d.now = noon.Add(event.MaxDrift + time.Hour)
	d.mustAppend(t, changed(`{}`))
	d.now = noon.Add(time.Second)
	for range 2 {
		if at, want := d.mustAppend(t, changed(`{}`))[0].RecordedAt, d.now.UTC().Truncate(time.Microsecond); !at.Equal(want) {
			t.Errorf("recorded at %s, and it is %s", at, want)
		}
	}
}

func TestARepetitionReturnsWhatWasRecordedThen(t *testing.T) {
	d := newFixture(t)
	end := eventstore.NewStreamVersion(stream)
	request := func() ([]eventstore.Recorded, error) {
		return d.Append(t.Context(), end, origin, id.Derived("key"), created(`{"a":1}`), changed(`{"a":2}`))
	}
	first := testkit.Must(request())(t)
	d.mustAppend(t, changed(`{"a":3}`))
	d.now = d.now.Add(time.Hour)
	again, err := request()
	if err != nil || len(again) != 2 {
		t.Fatalf("the repetition gives %d events, %v", len(again), err)
	}
	for i := range again {
		if again[i].ID != first[i].ID || !again[i].RecordedAt.Equal(first[i].RecordedAt) || !bytes.Equal(again[i].Data, first[i].Data) || again[i].Revision != first[i].Revision {
			t.Errorf("event %d is %+v, was %+v", i, again[i].Record, first[i].Record)
		}
	}
	if first[1].Position == "" || again[1].Position != first[1].Position {
		t.Errorf("it is at %s, was at %s", again[1].Position, first[1].Position)
	}
	_, err = d.Append(t.Context(), end, origin, id.Derived("other"), created(`{"a":1}`))
	if conflict, ok := errors.AsType[*eventstore.ConflictError](err); !ok || conflict.Actual != 2 {
		t.Errorf("others at the same place: %v", err)
	}
}

func TestTheHeadIsNotedBeforeTheAnswer(t *testing.T) {
	d := newFixture(t)
	var noted []eventstore.Position
	failure := error(nil)
	d.Acknowledge = func(_ context.Context, client id.Client, at eventstore.Position) error {
		if client != acme {
			t.Errorf("noted for %s", client)
		}
		noted = append(noted, at)
		return failure
	}
	recorded := d.mustAppend(t, created(`{}`), changed(`{}`))
	if len(noted) != 1 || noted[0] != recorded[1].Position {
		t.Errorf("noted %v, recorded up to %s", noted, recorded[1].Position)
	}
	failure = errors.New("no database")
	end := testkit.Must(d.Version(t.Context(), stream))(t)
	if _, err := d.Append(t.Context(), end, origin, id.Random(rand.Reader), changed(`{}`)); !errors.Is(err, failure) {
		t.Errorf("a head that was not noted was acknowledged: %v", err)
	}
	nobodys := eventstore.Origin{Actor: "policy:x"}
	if _, err := d.Append(t.Context(), eventstore.NewStreamVersion("x-1"), nobodys, id.Random(rand.Reader), event.ClientRenamed{}); err != nil {
		t.Errorf("what belongs to no client: %v", err)
	}
}

func TestLongStreamsAreLoadedWhole(t *testing.T) {
	d := newFixture(t)
	const events = 1_203
	var all []event.Event
	for range events {
		all = append(all, event.ClientRenamed{Client: acme, Name: "Acme"})
	}
	for len(all) > 0 {
		n := min(len(all), eventstore.MaxAppend)
		d.mustAppend(t, all[:n]...)
		all = all[n:]
	}
	history, end, err := d.Load(t.Context(), stream)
	if err != nil || len(history) != events || end.Revision != events-1 {
		t.Fatalf("loaded %d events up to %d, %v", len(history), end.Revision, err)
	}
	for i, r := range history {
		if r.Revision != eventstore.Revision(i) {
			t.Fatalf("event %d has revision %d", i, r.Revision)
		}
	}
	back, err := d.ReadBack(t.Context(), stream, 1000, 2)
	if err != nil || len(back) != 2 || back[0].Revision != 1000 || back[1].Revision != 999 {
		t.Errorf("read backwards: %v, %v", back, err)
	}
}

func TestStreamsAreReadInPlacesOfTheirClient(t *testing.T) {
	d := newFixture(t)
	of := eventstore.ClientStream(acme)
	taken, busy := 0, errors.New("no place")
	d.InPlace = func(_ context.Context, client id.Client, read func() error) error {
		if taken++; client != acme {
			t.Errorf("%s is read in a place of %q", of, client)
		}
		return cmp.Or(read(), busy)
	}
	_, _, loaded := d.Load(t.Context(), of)
	_, back := d.ReadBack(t.Context(), of, eventstore.End, 1)
	_, version := d.Version(t.Context(), of)
	for _, err := range []error{loaded, back, version} {
		if !errors.Is(err, busy) {
			t.Error(err)
		}
	}
	if taken != 3 {
		t.Errorf("%d places for three reads", taken)
	}
}

func TestAnAppendIsAllOrNothing(t *testing.T) {
	d := newFixture(t)
	huge := event.ClientRenamed{Client: acme, Name: strings.Repeat("x", eventstore.MaxEventSize)}
	_, err := d.Append(t.Context(), eventstore.NewStreamVersion(stream), origin, id.Random(rand.Reader), created(`{}`), huge)
	if !errors.Is(err, eventstore.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if _, err := d.Append(t.Context(), eventstore.NewStreamVersion(stream), origin, id.Random(rand.Reader)); err == nil {
		t.Error("nothing was appended, and acknowledged")
	}
	if history, end, err := d.Load(t.Context(), stream); len(history) != 0 || end != eventstore.NewStreamVersion(stream) || err != nil {
		t.Errorf("the stream has %d events up to %+v, %v", len(history), end, err)
	}
}

func TestWhatANewerReleaseWroteStopsTheReader(t *testing.T) {
	d := newFixture(t)
	d.mustAppend(t, created(`{}`))
	newer := eventstore.Proposed{
		ID: id.Next[id.Event](id.Random(rand.Reader)), Type: "end_user.created", Version: 2, Client: acme,
		RecordedAt: noon, Data: []byte(`{}`), Meta: []byte(`{}`),
	}
	if _, err := d.store.Append(t.Context(), stream, 0, []eventstore.Proposed{newer}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Load(t.Context(), stream); !errors.Is(err, event.ErrUnknown) {
		t.Errorf("loading says %v", err)
	}
	if end, err := d.Version(t.Context(), stream); err != nil || end.Revision != 1 {
		t.Errorf("the stream ends with %+v, %v", end, err)
	}
}
