// Package eventstore is the log of everything that happened: streams of
// events, each appended at an expected revision, in one total order.
//
// A follower that has seen position p never later finds an event below p.
package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

// Stream names a stream: "<kind>-<client>-<id>", or "<kind>-<id>" where it
// belongs to no client.
type Stream string

// Revision counts the events of a stream from 0.
type Revision int64

const (
	// NoStream is the revision of a stream that has no event.
	NoStream Revision = -1
	// End is the last revision of a stream, where ReadBack may start.
	End Revision = 1<<63 - 1
)

// Position is a place in the total order. It is opaque; positions of one log
// compare as strings do, byte by byte. Start comes before every event.
type Position string

// Start is the position before the first event.
const Start Position = ""

// Proposed is an event that is to be appended.
type Proposed struct {
	ID         id.Event
	Type       string
	Version    int
	Client     id.Client // empty where the event belongs to no client
	RecordedAt time.Time // microseconds, UTC
	Data       []byte    // JSON; stored and returned byte by byte
	Meta       []byte    // JSON of Meta; stored and returned byte by byte
}

// Record is an event as it was stored.
type Record struct {
	Position Position
	Stream   Stream
	Revision Revision
	Proposed
}

// Fitting is how many records like these have a number of bytes of data and
// metadata together: at least 1, and any number where there are none.
func Fitting(records []Record, bytes int) int {
	size := 0
	for _, r := range records {
		size += len(r.Data) + len(r.Meta)
	}
	if size == 0 {
		return math.MaxInt
	}
	return max(1, len(records)*bytes/size)
}

// Appended says where an append ended.
type Appended struct {
	Position Position // of the last event
	Revision Revision // of the last event
	Already  bool     // the same events stood there before: a repeated append
}

// ConflictError: the stream is not at the expected revision.
type ConflictError struct {
	Stream   Stream
	Expected Revision
	Actual   Revision
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("stream %s is at revision %d, not %d", e.Stream, e.Actual, e.Expected)
}

// Errors of a Store, for errors.Is.
var (
	// ErrUnavailable: the store cannot be reached, or did not answer in time.
	// Whether an append took place is not known; repeating it with the same
	// event ids is safe.
	ErrUnavailable = errors.New("the event store cannot be reached")
	// ErrTooLarge: an event is over MaxEventSize.
	ErrTooLarge = errors.New("an event is too large")
	// ErrKeyed: a subject has a key already, or it was destroyed, or another
	// subject is found by the same lookup.
	ErrKeyed = errors.New("the subject of a new key had one before, or another has its lookup")
	// ErrNotFound: there is no event at this position.
	ErrNotFound = errors.New("there is no event at this position")
)

const (
	// MaxEventSize bounds the data and metadata of one event, in bytes.
	// limit: log | data and metadata of one event | {MaxEventSize B}
	MaxEventSize = 512 << 10
	// MaxAppend bounds the events of one append.
	// limit: log | events of one append | {MaxAppend}
	MaxAppend = 500
	// MaxAppendSize bounds the data and metadata of all events of one append,
	// in bytes; KurrentDB takes 1 MiB.
	// limit: log | data and metadata of one append | {MaxAppendSize B}
	MaxAppendSize = 900 << 10
)

// Store is the port that every event store fulfils; package eventstoretest is
// its conformance suite. All methods may be called by many goroutines.
type Store interface {
	// Append adds events to a stream that is at the revision expected, all or
	// none. It fails with a *ConflictError where the stream is elsewhere,
	// unless the same event ids stand right after expected: then it is a
	// repetition, and succeeds.
	Append(ctx context.Context, stream Stream, expected Revision, events []Proposed) (Appended, error)
	// ReadStream reads at most limit events from revision from on. A stream
	// that does not exist has none.
	ReadStream(ctx context.Context, stream Stream, from Revision, limit int) ([]Record, error)
	// ReadBack reads at most limit events from revision from downwards, the
	// newest first.
	ReadBack(ctx context.Context, stream Stream, from Revision, limit int) ([]Record, error)
	// ReadAll reads at most limit events after a position, in total order: fewer
	// where they are large, none where there are no more.
	ReadAll(ctx context.Context, after Position, limit int) ([]Record, error)
	// At reads the event at exactly this position, or fails with ErrNotFound.
	At(ctx context.Context, at Position) (Record, error)
	// Head is the position of the last event of the log.
	Head(ctx context.Context) (Position, error)
	// Subscribe follows the log after a position.
	Subscribe(ctx context.Context, after Position) (Subscription, error)
	// Epoch names this very log; another one, or the same begun anew, has
	// another epoch.
	Epoch(ctx context.Context) (string, error)
}

// Request is one append among many: see Store.Append.
type Request struct {
	Stream   Stream
	Expected Revision
	Events   []Proposed
	// Keys are of subjects that have none yet; they seal the events.
	Keys []Key
}

// Key is the wrapped key of a subject.
type Key = seal.SubjectKey

// Result is what came of a request.
type Result struct {
	Appended
	Err error
}

// MaxMany bounds what Bulk is asked for in one call.
// limit: log | appends of one call | {MaxMany}
const MaxMany = 512

// Bulk is a Store that makes many appends in one call, and keeps keys of
// subjects in the same database, so that a key is made in one commit with the
// events that it seals, or shortly before.
type Bulk interface {
	Store
	// AppendMany makes appends, each for itself as Append does; those that
	// succeed stand in the log in the order of the requests. No two may be to
	// one stream. A request fails with ErrKeyed, and appends nothing, where
	// the subject of one of its keys had a key before, or another has its lookup.
	AppendMany(ctx context.Context, requests []Request) []Result
	// MakeKeys makes the keys of subjects that had none, and whose lookup no other
	// subject has, each for itself, and
	// says which it made. They are durable when it returns. At most MaxMany are
	// allowed.
	MakeKeys(ctx context.Context, keys []Key) (made []bool, err error)
}

// ClientReader is a Store that finds the events of one client by itself.
type ClientReader interface {
	// ReadClient reads at most limit events of a client, in total order, after
	// one position and up to another: fewer where they are large, none where
	// there are no more.
	ReadClient(ctx context.Context, client id.Client, after, upTo Position, limit int) ([]Record, error)
	// CountClient counts the events of a client.
	CountClient(ctx context.Context, client id.Client) (int64, error)
}

// EndsReader is a Store that reads both ends of a stream at once.
type EndsReader interface {
	// ReadEnds reads the first event of a stream and the last, in that order; of one that
	// has a single event that one, of one that does not exist none.
	ReadEnds(ctx context.Context, stream Stream) ([]Record, error)
}

// Subscription follows the log. It serves one goroutine.
type Subscription interface {
	// Next waits until there is something to tell: at most limit records, or
	// that the follower has caught up. It outlives cut connections by itself
	// and fails only when its context ends or the log cannot be followed.
	Next(ctx context.Context, limit int) (Batch, error)
	// Close ends the subscription and releases what it holds.
	Close() error
}

// Batch is what a subscription tells.
type Batch struct {
	Records []Record
	// CaughtUp: there was nothing beyond these records when they were read.
	// A subscription says so once each time it has caught up, also with no
	// record when nothing was there to begin with.
	CaughtUp bool
	// Newest: CaughtUp, or there was room for more than this process knew of, though
	// more may stand in the log by now.
	Newest bool
	// Server numbers the run of the Postgres server that the records were read
	// from or committed on (see postgres.Run), where the log is kept in the
	// database of the read models; else it is 0. A server that was started
	// again, and one that took another's place, have other numbers.
	Server int64
}

// CheckAppend refuses what no store takes. Adapters call it first.
func CheckAppend(events []Proposed) error {
	if len(events) == 0 || len(events) > MaxAppend {
		return fmt.Errorf("append %d events: between 1 and %d are allowed", len(events), MaxAppend)
	}
	total := 0
	for _, e := range events {
		size := len(e.Data) + len(e.Meta)
		if size > MaxEventSize {
			return fmt.Errorf("%w: %s has %d bytes, %d are allowed", ErrTooLarge, e.Type, size, MaxEventSize)
		}
		total += size
	}
	if total > MaxAppendSize {
		return fmt.Errorf("%w: an append of %d bytes, %d are allowed", ErrTooLarge, total, MaxAppendSize)
	}
	return nil
}
