// Package commands changes things: each command loads a stream, lets its
// aggregate decide, and appends at the revision it saw. Nothing else in the
// service appends to the log.
//
// A command assumes of the store only that an append to one stream is atomic.
// One that touches two streams orders them so that a crash between leaves
// nothing wrong, only something for a policy to drive on.
package commands

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"kindred/backoff"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/semaphore"
)

// Commands is everything that can be asked for.
type Commands struct {
	Log     *eventstore.Log
	Entropy io.Reader // for identifiers

	// HashPassword hashes a password. It refuses one that is easily guessed, such as one of
	// known: what is known of the person whose password it is.
	HashPassword func(ctx context.Context, password string, known ...string) (string, error)
	NewAPIKey    func(of id.Client) (APIKeySecret, error)
	CheckURL     func(url string) error // refuses an address that deliveries may never reach
	// CountWebhooks counts a client's subscriptions. The newest may not be counted yet, and
	// where it fails with a fault of kind Unavailable none is: the bound only has to keep
	// them few, and nobody waits for it.
	CountWebhooks func(ctx context.Context, client id.Client) (int, error)
	// WebhooksBefore counts the subscriptions that were made before webhook and still
	// exist.
	WebhooksBefore func(ctx context.Context, client id.Client, webhook id.Webhook) (int, error)
	// LastDecision returns which version of a client's trait schema, the newest
	// that is known, was the last to be decided; 0 where none was. Where it fails
	// with a fault of kind Unavailable, the log is read instead.
	LastDecision func(ctx context.Context, client id.Client) (last, version int, err error)
	Matcher      Matcher
	Filter       Filter
	// Judging does what takes long of a client's rules, such as to read one of 4 KiB, in one of the
	// places that clients share; nil: at once.
	Judging   func(ctx context.Context, client id.Client, judge func() error) error
	Audiences Audiences
	Directory Directory
	// Revoked makes known, before it is acknowledged, that a key or a member
	// has lost its tokens.
	Revoked func(ctx context.Context, client id.Client, subject string, at time.Time) error
	// Slices are the places of batches of imports, and of other appends as large; MatchSlices
	// those of more matches of a request than one records that names no limit, so that no
	// import keeps them waiting.
	Slices, MatchSlices Slices
	// Writers are the places of those who change a stream, one of each; nil: any number.
	Writers *semaphore.Semaphore
	// Imported is told what came of each import, or part of one. Nil: nobody counts.
	Imported    func(ImportReport)
	Keys        Keys
	Spends      Spends
	Erasures    Erasures // nil where no request is carried out later
	Impressions Impressions
	EventIDs    EventIDs
	// Traces says that a collector gets traces. Then what follows from an event is in the
	// trace of the request that caused it.
	Traces bool
	// Server returns a number that changes when the log may have lost events that this
	// process remembers, such as in a failover; nil: that cannot happen.
	Server func() int64

	ledgers ledgers
}

// Slices bounds how many large appends are made at a time; its zero value bounds nothing.
type Slices struct {
	*semaphore.Semaphore
	// Shown waits, for a moment at most, until readers see what stands at a position of the log.
	Shown func(ctx context.Context, at eventstore.Position)
}

// Erasures remembers who was erased, as long as imports that were accepted before the
// erasure are carried out. The lookup of an erased user is destroyed, so it cannot tell.
type Erasures interface {
	// Note notes that the user with a lookup was erased. It returns before another user can
	// get that lookup.
	Note(ctx context.Context, client id.Client, lookup []byte) error
	// Since says which lookups were noted since an import was accepted.
	Since(ctx context.Context, client id.Client, of id.Import, lookups [][]byte) ([]bool, error)
}

// Call says who asks for a command, and which request it is.
type Call struct {
	Client      id.Client
	Member      id.Member // who acts, or who made the API key that acts
	Actor       string    // the member, the API key, or "policy:<name>"
	Correlation string
	Causation   id.Event
	Trace       string // of the request that it all began with, as [eventstore.TraceOf] has it
	// Seed is set for a request that may be repeated (Idempotency-Key): all
	// identifiers follow from it, so that the repetition meets its own events.
	Seed []string
	// Request is a keyed hash of the body of such a request.
	Request string
	// Accepted is set for a request that is carried out later, such as an import: the end
	// of the log when it was accepted. Users who were erased after that are not brought
	// back.
	Accepted eventstore.Position
	// Begun is set for such a request, too: the end of the log when it was first carried
	// out. What the first run did not change, a repetition leaves alone.
	Begun eventstore.Position
	// Import is the import that such a request is of, or empty.
	Import id.Import
	// unnoted says that the call is one of many, after which the caller notes the client's
	// head.
	unnoted bool
	// sliced says that the call is one of many, for which the caller holds one place of
	// Slices.
	sliced bool
	// IfMatch is the revision that the caller expects, or nil. IfMatchUser is the user
	// whose revision it is, where the caller says that.
	IfMatch     *eventstore.Revision
	IfMatchUser id.User
	// IfExists and IfNoneMatch say that the caller expects something, or nothing,
	// to be there, where the command could do both.
	IfExists, IfNoneMatch bool
}

// log is the log that a call appends to. It notes the client's head with each append,
// unless the call is unnoted.
func (c *Commands) log(call Call) *eventstore.Log {
	if !call.unnoted {
		return c.Log
	}
	log := *c.Log
	log.Acknowledge = nil
	return &log
}

func (c Call) origin() eventstore.Origin {
	return eventstore.Origin{
		Client: c.Client, Actor: c.Actor, Correlation: c.Correlation,
		Causation: c.Causation, Request: c.Request, Trace: c.Trace,
	}
}

// TraceAt is the trace of the event at a position of the log. It is empty where there is no
// collector, or where the event cannot be read: no caller fails for want of a trace.
func (c *Commands) TraceAt(ctx context.Context, at eventstore.Position) string {
	if !c.Traces {
		return ""
	}
	r, err := c.Log.Store.At(ctx, at)
	if err != nil {
		return ""
	}
	return r.Trace()
}

func (c *Commands) server() int64 {
	if c.Server == nil {
		return 0
	}
	return c.Server()
}

// unconditional is the call for a stream beside the command's own. Revisions that the
// caller expects are of the own stream. The other stream must be changed even where a first
// run did so, since that may have been undone; so no id is derived.
func (c Call) unconditional() Call {
	c.Seed, c.Request, c.IfMatch, c.IfMatchUser = nil, "", nil, ""
	return c
}

// ids hands out the identifiers of a call for one purpose: its entity, or the
// events of one stream.
func (c *Commands) ids(call Call, purpose string) *id.Source {
	if call.Seed == nil {
		return id.Random(c.Entropy)
	}
	return id.Derived(append(slices.Clone(call.Seed), purpose)...)
}

// Outcome is how a command left a stream.
type Outcome struct {
	Position eventstore.Position // of the stream's last event
	Revision eventstore.Revision // likewise
	// History is what was loaded of the stream, and what the command recorded.
	History []eventstore.Recorded
	// Recorded is what the command recorded, now or when it first ran.
	Recorded []eventstore.Recorded
	// Repeated: the same request had been carried out before.
	Repeated bool
}

// aggregate folds the events of a stream into a T.
type aggregate[T any] interface {
	*T
	Apply(event.Event)
}

// nothing is the fold of a stream whose past does not matter.
type nothing struct{}

// Apply folds nothing.
func (*nothing) Apply(event.Event) {}

// fold is what the events of a stream add up to.
func fold[T any, A aggregate[T]](history []eventstore.Recorded) *T {
	state := new(T)
	for _, r := range history {
		A(state).Apply(r.Event)
	}
	return state
}

// decide lets an aggregate say which events follow. history is what was loaded
// of its stream.
type decide[T any] func(aggregate *T, history []eventstore.Recorded) ([]event.Event, error)

const (
	// maxConflicts bounds how often a command starts again because somebody else
	// appended first.
	// limit: commands | times that a command begins again since somebody appended first | {maxConflicts}
	maxConflicts = 100
	// longestRest bounds the pause before that.
	longestRest = 20 * time.Millisecond
)

// NewWriters makes the places of those who change a stream: one of each, in their order. Where
// many try at once, each of them loads the stream, and one of them appends: the others load it
// again, and who takes longer comes never. Whoever gets no place, or waits for long, tries all
// the same.
func NewWriters() *semaphore.Semaphore {
	return &semaphore.Semaphore{Places: writersWaiting, Each: 1, Waiting: writersWaiting, Patience: writersPatience}
}

const (
	// limit: commands | commands that wait for others of the same stream | {writersWaiting}, {writersPatience} at most; then they try beside each other
	writersWaiting  = 4_096
	writersPatience = 5 * time.Second
)

// execute loads a stream, decides and appends; on a conflict it starts again.
// With assumeNew the first try goes without loading, as for a stream that
// does not exist.
func execute[T any, A aggregate[T]](ctx context.Context, c *Commands, call Call, stream eventstore.Stream,
	assumeNew bool, load load, decide decide[T],
) (Outcome, error) {
	if writers, one := c.Writers, string(stream); writers != nil && !assumeNew && writers.Take(ctx, one) {
		defer writers.Give(one)
	}
	return retry(ctx, "changes to the same thing", func() (Outcome, error) {
		l := loaded{version: eventstore.NewStreamVersion(stream)}
		if !assumeNew {
			var err error
			if l, err = load(ctx, stream, eventstore.End); err != nil {
				return Outcome{}, err
			}
		}
		assumeNew = false
		if outcome, repeated, err := c.repetition(ctx, call, l, load); repeated || err != nil {
			return outcome, err
		}
		return attempt[T, A](ctx, c, call, l, decide)
	})
}

// retry does work again as long as somebody else has appended first. It rests before each
// repetition but the first. of says what there are too many of, for the fault where that
// does not end.
func retry[R any](ctx context.Context, of string, work func() (R, error)) (done R, err error) {
	rest := backoff.Backoff{First: time.Millisecond, Most: longestRest}
	for tries := range maxConflicts {
		if done, err = work(); !moved(err) {
			return done, err
		}
		if tries == 0 {
			continue
		}
		if err := rest.Wait(ctx); err != nil {
			return done, err
		}
	}
	return done, errBusy(of)
}

// moved says whether an append failed because somebody else was first.
func moved(err error) bool {
	_, moved := errors.AsType[*eventstore.ConflictError](err)
	return moved
}

func errBusy(of string) error {
	return fault.New(fault.Unavailable, "busy", "Too many %s at once. Please try again.", of)
}

func attempt[T any, A aggregate[T]](ctx context.Context, c *Commands, call Call, l loaded, decide decide[T]) (Outcome, error) {
	state, log := fold[T, A](l.history), c.log(call)
	snapshot := snapshotOf(l, state)
	events, err := decide(state, l.history)
	// What is not there is told as that, with a condition as without (RFC 9110, section 13.2.1).
	if call.IfMatch != nil && l.version.Revision != *call.IfMatch && !isGone(err) {
		return Outcome{}, errStale()
	}
	if err != nil { // what stands there is the answer
		return Outcome{}, cmp.Or(log.NoteHead(ctx, call.Client, end(l.history)), err)
	}
	outcome := Outcome{Revision: l.version.Revision, History: l.history}
	if len(events) > 0 {
		ids := c.ids(call, string(l.version.Stream))
		entries := snapshot.entries(call)
		for _, e := range events {
			entries = append(entries, eventstore.Entry{ID: id.Next[id.Event](ids), Origin: call.origin(), Event: e})
		}
		var recorded []eventstore.Recorded
		appends := func() (_ eventstore.Position, err error) {
			recorded, err = log.AppendEntries(ctx, l.version, entries)
			return end(recorded), err
		}
		if call.sliced || personal(events) < largeAppend {
			_, err = appends()
		} else {
			err = c.slice(ctx, c.Slices, call.Client, appends)
		}
		if err != nil {
			return Outcome{}, err
		}
		outcome.History = append(l.history, recorded...)
		outcome.Recorded = recorded[len(recorded)-len(events):]
		// With assumeNew nothing was loaded, so a repetition gets here: was it the same
		// request?
		if err := sameRequest(call, outcome.Recorded[0]); err != nil {
			return Outcome{}, err
		}
	}
	if n := len(outcome.History); n > 0 {
		outcome.Position, outcome.Revision = outcome.History[n-1].Position, outcome.History[n-1].Revision
	}
	if len(events) > 0 {
		return outcome, nil
	}
	return outcome, log.NoteHead(ctx, call.Client, outcome.Position)
}

// isGone says whether a change failed because what it is about is not there.
func isGone(err error) bool {
	return fault.Of(err, fault.Missing) || errors.Is(err, errErased) || errors.Is(err, seal.ErrErased)
}

// largeAppend is the size in bytes from which a change takes a place of Slices, as a batch
// of an import does.
const largeAppend = 32 << 10

// personal is how many bytes of events are yet to be sealed. Nothing else in an event is
// large.
func personal(events []event.Event) (size int) {
	for _, e := range events {
		if bearer, ok := e.(event.PersonalData); ok {
			for _, f := range bearer.Personal() {
				if f.Value != nil {
					size += len(f.Value.Plain)
				}
			}
		}
	}
	return size
}

// end is where a stretch of a stream ends.
func end(stretch []eventstore.Recorded) eventstore.Position {
	if len(stretch) == 0 {
		return eventstore.Start
	}
	return stretch[len(stretch)-1].Position
}

// versionOf is the end of a stream whose newest events are given, the last first.
func versionOf(stream eventstore.Stream, newest []eventstore.Recorded) (eventstore.StreamVersion, error) {
	if len(newest) == 0 {
		return eventstore.NewStreamVersion(stream), nil
	}
	return newest[0].StreamVersion()
}

// open returns a personal field of an event that this command recorded or
// loaded.
func (c *Commands) open(ctx context.Context, r eventstore.Recorded, field string) ([]byte, error) {
	if bearer, ok := r.Event.(event.PersonalData); ok {
		for _, f := range bearer.Personal() {
			if f.Name == field && f.Value != nil && f.Value.Plain != nil {
				return f.Value.Plain, nil
			}
		}
	}
	return c.Log.Open(ctx, r, field)
}
