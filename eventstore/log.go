package eventstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
)

// Log writes and reads typed events: it seals what is personal, chains each
// stream by hashes and keeps the envelope.
type Log struct {
	Store    Store
	Vault    *seal.Vault
	Registry *event.Registry
	Now      func() time.Time
	// Bulk is the Store where it keeps keys in the same table as the Vault;
	// then the key of a new subject is made in one commit with what it seals.
	// Nil: each key is made, durably, before it seals.
	Bulk Bulk
	// Acknowledge notes the client's newest position where readers look for
	// it. It is nil for a store that does so within the append itself.
	Acknowledge func(ctx context.Context, client id.Client, at Position) error
	// Appended is told of each append that was tried: how many events it has, and
	// what it failed with. Nil: nobody counts.
	Appended func(events int, err error)
	// Confirm returns once what was read from the store is as durable as what is
	// appended to it. It is nil for a store where each event that is read is.
	Confirm func(ctx context.Context) error
	// InPlace has a read of a client's stream done in one of the places that clients share. Nil:
	// it is done at once.
	InPlace func(ctx context.Context, client id.Client, read func() error) error
}

// Recorded is an event as it was recorded, upcast to its newest shape. Its
// personal fields are still sealed.
type Recorded struct {
	Record
	Event event.Event
}

// StreamVersion is where a stream ends.
type StreamVersion struct {
	Stream     Stream
	Revision   Revision
	RecordedAt time.Time
	Hash       [32]byte // of the last event; zero where there is none
}

// NewStreamVersion is that of a stream that has no event yet.
func NewStreamVersion(s Stream) StreamVersion { return StreamVersion{Stream: s, Revision: NoStream} }

// Origin says on whose behalf events are recorded.
type Origin struct {
	Client      id.Client
	Actor       string   // a member, an API key, or "policy:<name>"
	Correlation string   // the request that it all began with
	Causation   id.Event // the event that a policy answers
	Request     string   // keyed hash of the body that came with an Idempotency-Key
	Trace       string   // traceparent of the request that caused it; empty where no collector gets that
}

// maxStream bounds how many events Load reads: streams stay short.
// limit: log | events of a stream that are read to its end | {maxStream}
const maxStream = 100_000

// readPage is how many events are read at once.
const readPage = 500

// Decode reads a record as an event. It fails with event.ErrUnknown for what
// a newer release wrote.
func (l *Log) Decode(r Record) (Recorded, error) {
	e, err := l.Registry.Decode(r.Type, r.Version, r.Data)
	if err != nil {
		return Recorded{}, fmt.Errorf("%s revision %d: %w", r.Stream, r.Revision, err)
	}
	return Recorded{Record: r, Event: e}, nil
}

// Load reads a whole stream and where it ends.
func (l *Log) Load(ctx context.Context, stream Stream) ([]Recorded, StreamVersion, error) {
	return l.LoadAfter(ctx, NewStreamVersion(stream))
}

// LoadAfter reads what a stream holds after a version, and where it ends.
func (l *Log) LoadAfter(ctx context.Context, end StreamVersion) ([]Recorded, StreamVersion, error) {
	stream := end.Stream
	var history []Recorded
	for len(history) < maxStream {
		page, err := l.read(ctx, stream, end.Revision+1, readPage)
		if err != nil {
			return nil, end, fmt.Errorf("load %s: %w", stream, err)
		}
		history = append(history, page...)
		if len(page) > 0 {
			if end, err = page[len(page)-1].StreamVersion(); err != nil {
				return nil, end, err
			}
		}
		if len(page) < readPage {
			return history, end, nil
		}
	}
	return nil, end, fmt.Errorf("load %s: more than %d events", stream, maxStream)
}

// LoadEnds reads the first and the last event of a stream, and where it ends:
// at a cost that does not grow with its length.
func (l *Log) LoadEnds(ctx context.Context, stream Stream) ([]Recorded, StreamVersion, error) {
	if store, ok := l.Store.(EndsReader); ok {
		return l.endsAtOnce(ctx, store, stream)
	}
	ends, err := l.ReadBack(ctx, stream, End, 1)
	if err != nil || len(ends) == 0 {
		return nil, NewStreamVersion(stream), err
	}
	end, err := ends[0].StreamVersion()
	if err != nil || end.Revision == 0 {
		return ends, end, err
	}
	first, err := l.read(ctx, stream, 0, 1)
	if err != nil {
		return nil, end, fmt.Errorf("load the beginning of %s: %w", stream, err)
	}
	return append(first, ends...), end, nil
}

func (l *Log) endsAtOnce(ctx context.Context, store EndsReader, stream Stream) ([]Recorded, StreamVersion, error) {
	end := NewStreamVersion(stream)
	page, err := store.ReadEnds(ctx, stream)
	if err != nil {
		return nil, end, fmt.Errorf("load the ends of %s: %w", stream, err)
	}
	ends, err := l.decodeAll(page)
	if err == nil && len(ends) > 0 {
		end, err = ends[len(ends)-1].StreamVersion()
	}
	return ends, end, err
}

func (l *Log) read(ctx context.Context, stream Stream, from Revision, limit int) ([]Recorded, error) {
	page, err := l.inPlace(ctx, stream, func() ([]Record, error) { return l.Store.ReadStream(ctx, stream, from, limit) })
	if err != nil {
		return nil, err
	}
	return l.decodeAll(page)
}

func (l *Log) inPlace(ctx context.Context, stream Stream, read func() ([]Record, error)) (page []Record, err error) {
	if l.InPlace == nil {
		return read()
	}
	err = l.InPlace(ctx, stream.Client(), func() (err error) {
		page, err = read()
		return err
	})
	return page, err
}

// ReadBack reads the newest events of a stream, at most limit, the newest first.
func (l *Log) ReadBack(ctx context.Context, stream Stream, from Revision, limit int) ([]Recorded, error) {
	page, err := l.inPlace(ctx, stream, func() ([]Record, error) { return l.Store.ReadBack(ctx, stream, from, limit) })
	if err != nil {
		return nil, fmt.Errorf("read %s backwards: %w", stream, err)
	}
	return l.decodeAll(page)
}

// Backward reads a stream from a revision to its beginning, the newest event
// first, in pages of so many events. It ends with the first error.
func (l *Log) Backward(ctx context.Context, stream Stream, from Revision, page int) iter.Seq2[Recorded, error] {
	return func(yield func(Recorded, error) bool) {
		for from >= 0 {
			back, err := l.ReadBack(ctx, stream, from, page)
			if err != nil {
				yield(Recorded{}, err)
				return
			}
			for _, r := range back {
				if !yield(r, nil) {
					return
				}
			}
			if len(back) < page {
				return
			}
			from = back[len(back)-1].Revision - 1
		}
	}
}

func (l *Log) decodeAll(page []Record) ([]Recorded, error) {
	decoded := make([]Recorded, len(page))
	for i, r := range page {
		var err error
		if decoded[i], err = l.Decode(r); err != nil {
			return nil, err
		}
	}
	return decoded, nil
}

// Version reads where a stream ends, without the rest of it.
func (l *Log) Version(ctx context.Context, stream Stream) (StreamVersion, error) {
	last, err := l.inPlace(ctx, stream, func() ([]Record, error) { return l.Store.ReadBack(ctx, stream, End, 1) })
	if err != nil {
		return StreamVersion{}, fmt.Errorf("read the end of %s: %w", stream, err)
	}
	if len(last) == 0 {
		return NewStreamVersion(stream), nil
	}
	return last[0].StreamVersion()
}

// StreamVersion is the end of a stream whose last event is r.
func (r Record) StreamVersion() (StreamVersion, error) {
	hash, err := Hash(r)
	return StreamVersion{Stream: r.Stream, Revision: r.Revision, RecordedAt: r.RecordedAt, Hash: hash}, err
}

// Append records events after a version, all or none, and returns them as they
// stand in the stream; the last one carries its position. The ids of the
// events are drawn from ids in order; where these ids stand there already, a
// repetition, it returns what was recorded then. It fails with a
// *ConflictError where the stream has moved on, with seal.ErrErased where the key
// of a subject was destroyed, with ErrDeleted where the client was deleted, and with
// seal.ErrTaken where another subject has the name that one is to have (event.Named).
func (l *Log) Append(ctx context.Context, end StreamVersion, origin Origin, ids *id.Source, events ...event.Event) ([]Recorded, error) {
	entries := make([]Entry, len(events))
	for i, e := range events {
		entries[i] = Entry{ID: id.Next[id.Event](ids), Origin: origin, Event: e}
	}
	return l.AppendEntries(ctx, end, entries)
}

// Entry is an event that is to be appended: its id, on whose behalf, and what.
type Entry struct {
	ID     id.Event
	Origin Origin
	Event  event.Event
}

// AppendEntries is Append for events of one client that have several origins.
func (l *Log) AppendEntries(ctx context.Context, end StreamVersion, entries []Entry) ([]Recorded, error) {
	recorded, err := l.append(ctx, end, entries)
	if errors.Is(err, seal.ErrErased) { // as all keys are of a client that was deleted meanwhile
		if deleted, failed := l.IsDeleted(ctx, entries[0].Origin.Client); deleted || failed != nil {
			err = cmp.Or(failed, ErrDeleted)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", end.Stream, err)
	}
	return recorded, nil
}

func (l *Log) append(ctx context.Context, end StreamVersion, entries []Entry) ([]Recorded, error) {
	if len(entries) == 0 {
		return nil, errors.New("nothing to append")
	}
	client := entries[0].Origin.Client
	if err := l.verifyKeys(ctx, client); err != nil {
		return nil, err
	}
	now, err := l.TimeOf(ctx, client)
	if err != nil {
		return nil, err
	}
	request, recorded, appended, err := l.try(ctx, end, now, entries, l.opens(end, entries))
	if errors.Is(err, ErrKeyed) {
		request, recorded, appended, err = l.try(ctx, end, now, entries, false)
	}
	if err != nil {
		return nil, err
	}
	if err := l.noteHead(ctx, client, appended.Position); err != nil {
		return nil, err
	}
	if appended.Already {
		return l.read(ctx, end.Stream, end.Revision+1, len(request.Events))
	}
	recorded[len(recorded)-1].Position = appended.Position
	return recorded, nil
}

// verifyKeys makes sure that the keys are those of the key table, for a store that is no
// guard of that itself.
func (l *Log) verifyKeys(ctx context.Context, client id.Client) error {
	if l.Bulk != nil || l.Vault == nil {
		return nil
	}
	return l.Vault.Verify(ctx, client)
}

// try appends with keys that are made before, or drawn for this append.
func (l *Log) try(ctx context.Context, end StreamVersion, now time.Time, entries []Entry, draw bool) (Request, []Recorded, Appended, error) {
	if !draw {
		if err := l.prepareKeys(ctx, entries[0].Origin.Client, entries); err != nil {
			return Request{}, nil, Appended{}, err
		}
	}
	request, recorded, err := l.draft(ctx, end, now, entries, draw)
	if err != nil {
		return Request{}, nil, Appended{}, err
	}
	if draw {
		result := l.appendAll(ctx, []Request{request})[0]
		return request, recorded, result.Appended, result.Err
	}
	appended, err := l.Store.Append(ctx, end.Stream, end.Revision, request.Events)
	l.count(len(request.Events), err)
	return request, recorded, appended, err
}

func (l *Log) count(events int, err error) {
	if l.Appended != nil {
		l.Appended(events, err)
	}
}

// draft seals and chains entries of a time, with keys that it draws or that are there.
func (l *Log) draft(ctx context.Context, end StreamVersion, now time.Time, entries []Entry, draw bool) (Request, []Recorded, error) {
	client := entries[0].Origin.Client
	request := Request{Stream: end.Stream, Expected: end.Revision, Events: make([]Proposed, len(entries))}
	if now.Before(end.RecordedAt) && !event.Ahead(end.RecordedAt, now) {
		now = end.RecordedAt
	}
	recorded := make([]Recorded, len(entries))
	revision, previous := end.Revision, end.Hash
	for i, e := range entries {
		if e.Origin.Client != client {
			return request, nil, fmt.Errorf("events of %s and %s in one append", client, e.Origin.Client)
		}
		keys, err := l.seal(ctx, end.Stream, e, draw)
		if err != nil {
			return request, nil, err
		}
		request.Keys = append(request.Keys, keys...)
		p, err := l.propose(revision, previous, now, e)
		if err != nil {
			return request, nil, err
		}
		revision++
		request.Events[i] = p
		recorded[i] = Recorded{Record{Stream: end.Stream, Revision: revision, Proposed: p}, e.Event}
		if i == len(entries)-1 {
			break // the next reader reads what stands before
		}
		if previous, err = Hash(recorded[i].Record); err != nil {
			return request, nil, err
		}
	}
	return request, recorded, nil
}

// NoteHead makes sure that readers of the client will see everything up to a position, and
// that it is durable. Append does so itself. A caller that answers from events of an
// earlier append calls NoteHead first: the process that appended them may have died before
// it did so.
func (l *Log) NoteHead(ctx context.Context, client id.Client, at Position) error {
	if l.Confirm != nil && at != Start {
		if err := l.Confirm(ctx); err != nil {
			return fmt.Errorf("confirm what was recorded before: %w", err)
		}
	}
	return l.noteHead(ctx, client, at)
}

func (l *Log) noteHead(ctx context.Context, client id.Client, at Position) error {
	if l.Acknowledge == nil || client == "" || at == Start {
		return nil
	}
	if err := l.Acknowledge(ctx, client, at); err != nil {
		return fmt.Errorf("note the head of %s: %w", client, err)
	}
	return nil
}

// prepareKeys makes sure that every key that will seal is durable before the
// event that it seals.
func (l *Log) prepareKeys(ctx context.Context, client id.Client, entries []Entry) error {
	var wanted []seal.Wanted
	for _, e := range entries {
		w, err := l.wanted(ctx, client, e.Event)
		if err != nil {
			return err
		}
		if w.Subject != "" && !slices.ContainsFunc(wanted, func(other seal.Wanted) bool { return other.Subject == w.Subject }) {
			wanted = append(wanted, w)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	refused, err := l.Vault.PrepareEach(ctx, client, wanted)
	return cmp.Or(err, errors.Join(refused...))
}

// wanted is the subject whose key seals an event, with the lookup that is to find the
// subject. It is empty where nothing in the event is personal.
func (l *Log) wanted(ctx context.Context, client id.Client, e event.Event) (w seal.Wanted, err error) {
	bearer, ok := e.(event.PersonalData)
	if !ok || !slices.ContainsFunc(bearer.Personal(), func(f event.Field) bool { return f.Value != nil }) {
		return w, nil
	}
	w.Subject = bearer.Subject()
	if named, ok := e.(event.Named); ok {
		w.Lookup, err = l.lookup(ctx, client, named)
	}
	return w, err
}

// lookup is what finds the subject that an event names.
func (l *Log) lookup(ctx context.Context, client id.Client, e event.Named) ([]byte, error) {
	kind, name := e.Name()
	return l.Vault.Lookup(ctx, client, kind, string(name.Plain))
}

// LookUp returns the subjects of a client that names of a kind find, "" where one
// finds none.
func (l *Log) LookUp(ctx context.Context, client id.Client, kind string, names ...string) ([]string, error) {
	lookups := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if lookups[i], err = l.Vault.Lookup(ctx, client, kind, name); err != nil {
			return nil, err
		}
	}
	return l.Vault.Find(ctx, client, lookups...)
}

// seal seals what is personal in an event, and returns the key that it drew.
func (l *Log) seal(ctx context.Context, stream Stream, entry Entry, draw bool) ([]seal.SubjectKey, error) {
	bearer, ok := entry.Event.(event.PersonalData)
	if !ok {
		return nil, nil
	}
	var (
		keys  []seal.SubjectKey
		drawn seal.Drawn
		err   error
	)
	if draw {
		if drawn, err = l.Vault.Draw(ctx, entry.Origin.Client, bearer.Subject()); err != nil {
			return nil, err
		}
		if named, ok := entry.Event.(event.Named); ok {
			if drawn.Lookup, err = l.lookup(ctx, entry.Origin.Client, named); err != nil {
				return nil, err
			}
		}
		keys = []seal.SubjectKey{drawn.SubjectKey}
	}
	for _, f := range bearer.Personal() {
		if f.Value == nil {
			continue
		}
		place := seal.Place{Client: entry.Origin.Client, Stream: string(stream), Event: entry.ID, Field: f.Name}
		if draw {
			f.Value.Box, err = l.Vault.SealWith(drawn, place, f.Value.Plain)
		} else {
			f.Value.Box, err = l.Vault.Seal(ctx, bearer.Subject(), place, f.Value.Plain)
		}
		if err != nil {
			return nil, fmt.Errorf("seal %s: %w", f.Name, err)
		}
	}
	return keys, nil
}

func (l *Log) propose(after Revision, previous [32]byte, now time.Time, entry Entry) (Proposed, error) {
	origin, e := entry.Origin, entry.Event
	name, version, err := l.Registry.Name(e)
	if err != nil {
		return Proposed{}, err
	}
	data, err := event.Encode(e)
	if err != nil {
		return Proposed{}, fmt.Errorf("encode %s: %w", name, err)
	}
	meta := Meta{
		Client: origin.Client, Version: version, RecordedAt: now, Actor: origin.Actor,
		Correlation: origin.Correlation, Causation: origin.Causation, Request: origin.Request, Trace: origin.Trace,
	}
	if after != NoStream {
		meta.Previous = hex.EncodeToString(previous[:])
	}
	envelope, err := json.Marshal(meta)
	if err != nil {
		return Proposed{}, fmt.Errorf("encode the envelope of %s: %w", name, err)
	}
	return Proposed{
		ID: entry.ID, Type: name, Version: version, Client: origin.Client,
		RecordedAt: now, Data: data, Meta: envelope,
	}, nil
}

// Open opens a personal field of a recorded event. It fails with seal.ErrErased once
// the subject's key is destroyed. A field that the event does not carry is nil.
func (l *Log) Open(ctx context.Context, r Recorded, field string) ([]byte, error) {
	return l.OpenAsOf(ctx, time.Time{}, r, field)
}

// OpenAsOf is Open with a key that was still there at a moment, as seal.Vault.OpenAsOf is.
func (l *Log) OpenAsOf(ctx context.Context, moment time.Time, r Recorded, field string) ([]byte, error) {
	bearer, ok := r.Event.(event.PersonalData)
	if !ok {
		return nil, nil
	}
	for _, f := range bearer.Personal() {
		if f.Name != field || f.Value == nil {
			continue
		}
		place := seal.Place{Client: r.Client, Stream: string(r.Stream), Event: r.ID, Field: field}
		plain, err := l.Vault.OpenAsOf(ctx, moment, bearer.Subject(), place, f.Value.Box)
		if err != nil {
			return nil, fmt.Errorf("open %s of %s: %w", field, r.ID, err)
		}
		return plain, nil
	}
	return nil, nil
}
