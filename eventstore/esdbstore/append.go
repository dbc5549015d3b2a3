package esdbstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kindred/backoff"
	"kindred/eventstore"
)

const (
	// silence is how long an answer is waited for until it is looked whether the
	// events stand there: a server drops a repetition of what it has taken and not
	// indexed yet, and says so after its commit time-out of 2 s. It is doubled
	// after each look.
	silence = 200 * time.Millisecond
	// unsent is how long it is looked for an append, of which no answer came,
	// before it is sent again.
	unsent = 200 * time.Millisecond
	// The stream is read again after these pauses, the first and the longest,
	// until it shows what the server spoke of.
	firstLook   = time.Millisecond
	longestLook = 50 * time.Millisecond
)

// write is an append on its way, together with all its repetitions.
type write struct {
	stream   eventstore.Stream
	expected eventstore.Revision
	events   []eventstore.Proposed
	mark     mark
	requests []*api.AppendReq
	slots    chan struct{} // of the Store
	sent     bool          // to its end: the server may have taken it
}

// answer is what the server says to an append.
type answer struct {
	sent   bool                // to its end, also where no answer came
	took   bool                // now, or earlier: the server does not tell these apart
	at     position            // of the last event; nowhere where it is not told
	actual eventstore.Revision // where it did not take
}

// Append implements [eventstore.Store]. An append whose outcome is unknown is
// repeated with the same ids; where the outcome stays unknown it fails with
// ErrUnavailable.
func (s *Store) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if err := eventstore.CheckAppend(events); err != nil {
		return eventstore.Appended{}, err
	}
	if stream == "" || stream == epochStream || stream[0] == '$' {
		return eventstore.Appended{}, fmt.Errorf("append to %q: no stream of this service can have this name", stream)
	}
	m, err := newMark(s.entropy)
	if err != nil {
		return eventstore.Appended{}, err
	}
	w := write{
		stream: stream, expected: expected, events: events, mark: m, requests: []*api.AppendReq{header(stream, expected)},
		slots: s.slots,
	}
	for _, e := range events {
		request, err := propose(e, m)
		if err != nil {
			return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, err)
		}
		w.requests = append(w.requests, request)
	}
	var appended eventstore.Appended
	err = s.call(ctx, func(ctx context.Context, streams api.StreamsClient) (err error) {
		appended, err = w.try(ctx, streams)
		return err
	})
	if err != nil {
		return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, err)
	}
	s.tail.Await(appended.Position)
	return appended, nil
}

func (w *write) try(ctx context.Context, streams api.StreamsClient) (eventstore.Appended, error) {
	if w.expected < eventstore.NoStream || w.expected > eventstore.End-eventstore.MaxAppend {
		return eventstore.Appended{}, w.conflict(ctx, streams) // no stream can be there
	}
	if w.sent {
		if appended, landed, err := w.look(ctx, streams); landed || err != nil {
			return appended, err
		}
	}
	said, standing, err := w.send(ctx, streams)
	w.sent = w.sent || said.sent
	switch {
	case err != nil:
		return eventstore.Appended{}, err
	case w.landed(standing):
		return w.found(standing), nil
	}
	upTo := w.last()
	if !said.took {
		upTo = said.actual
	} else if said.at != nowhere && len(w.events) > 1 { // the first event tells enough
		first, err := readStream(ctx, streams, w.stream, w.expected+1, 1)
		if err != nil {
			return eventstore.Appended{}, err
		}
		if len(first) == 1 && first[0].mark == w.mark {
			return eventstore.Appended{Position: said.at.text(), Revision: w.last()}, nil
		}
	}
	standing, err = w.standing(ctx, streams, upTo)
	switch {
	case err != nil:
		return eventstore.Appended{}, err
	case w.landed(standing):
		return w.found(standing), nil
	case said.took:
		return eventstore.Appended{}, w.conflict(ctx, streams) // the server went by less than all ids
	default:
		return eventstore.Appended{}, &eventstore.ConflictError{Stream: w.stream, Expected: w.expected, Actual: said.actual}
	}
}

// look looks for a while whether an append that was sent before has landed.
func (w *write) look(ctx context.Context, streams api.StreamsClient) (_ eventstore.Appended, landed bool, _ error) {
	briefly, cancel := context.WithTimeout(ctx, unsent)
	defer cancel()
	standing, err := w.standing(briefly, streams, w.expected+1)
	if err != nil && briefly.Err() != nil && ctx.Err() == nil {
		return eventstore.Appended{}, false, nil // nothing stands there
	}
	if err != nil || !w.landed(standing) {
		return eventstore.Appended{}, false, err
	}
	return w.found(standing), true, nil
}

// send sends the append, and looks whether its events stand there while no
// answer comes; then they are returned, and the answer is not waited for.
func (w *write) send(ctx context.Context, streams api.StreamsClient) (answer, []stored, error) {
	type outcome struct {
		answer
		err error
	}
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	answered := make(chan outcome, 1)
	go func() {
		said, err := send(ctx, streams, w.requests)
		answered <- outcome{said, err}
	}()
	for wait := silence; ; wait *= 2 {
		timer := time.NewTimer(wait)
		select {
		case o := <-answered:
			timer.Stop()
			return o.answer, nil, o.err
		case <-timer.C:
		}
		if standing := w.glance(ctx, streams); w.landed(standing) {
			return answer{sent: true}, standing, nil
		}
	}
}

// glance reads what stands in the place of the events where a call is to be had
// at once; what keeps it from that concerns the append as well, which says so.
func (w *write) glance(ctx context.Context, streams api.StreamsClient) []stored {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	default:
		return nil
	}
	briefly, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	standing, err := readStream(briefly, streams, w.stream, w.expected+1, len(w.events))
	if err != nil {
		return nil
	}
	return standing
}

// standing reads what stands in the place of the events once the stream shows a
// revision that the server spoke of: it speaks of events that cannot be read yet.
func (w *write) standing(ctx context.Context, streams api.StreamsClient, upTo eventstore.Revision) ([]stored, error) {
	rest := backoff.Backoff{First: firstLook, Most: longestLook}
	for {
		found, err := readStream(ctx, streams, w.stream, w.expected+1, len(w.events))
		shown := w.expected + eventstore.Revision(len(found))
		if err == nil && shown == w.last() && shown < upTo { // what it spoke of stands behind these
			var last []stored
			if last, err = readStream(ctx, streams, w.stream, upTo, 1); len(last) == 1 {
				shown = upTo
			}
		}
		if err != nil || shown >= upTo {
			return found, err
		}
		if err := rest.Wait(ctx); err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
}

// landed says whether the events stand in their place.
func (w *write) landed(standing []stored) bool {
	return slices.EqualFunc(standing, w.events, func(s stored, e eventstore.Proposed) bool { return s.ID == e.ID })
}

// found is the outcome of an append whose events stand in their place.
func (w *write) found(standing []stored) eventstore.Appended {
	end := standing[len(standing)-1]
	return eventstore.Appended{Position: end.Position, Revision: w.last(), Already: standing[0].mark != w.mark}
}

// last is the revision of the last event.
func (w *write) last() eventstore.Revision {
	return w.expected + eventstore.Revision(len(w.events))
}

// errCutShort: the server answered before it had heard the whole append.
var errCutShort = status.Error(codes.Unavailable, "the append was cut short")

// conflict is the refusal of an append, with where the stream is.
func (w *write) conflict(ctx context.Context, streams api.StreamsClient) error {
	actual, err := lastRevision(ctx, streams, w.stream)
	if err != nil {
		return err
	}
	return &eventstore.ConflictError{Stream: w.stream, Expected: w.expected, Actual: actual}
}

func header(stream eventstore.Stream, expected eventstore.Revision) *api.AppendReq {
	options := &api.AppendReq_Options{
		StreamIdentifier:       &shared.StreamIdentifier{StreamName: []byte(stream)},
		ExpectedStreamRevision: &api.AppendReq_Options_NoStream{NoStream: &shared.Empty{}},
	}
	if expected >= 0 {
		options.ExpectedStreamRevision = &api.AppendReq_Options_Revision{Revision: uint64(expected)}
	}
	return &api.AppendReq{Content: &api.AppendReq_Options_{Options: options}}
}

// send makes one append and reads the answer to it. An append ends where its
// call is closed for sending, so one that could not be sent to its end never is:
// the server would take the beginning for the whole.
func send(ctx context.Context, streams api.StreamsClient, requests []*api.AppendReq) (answer, error) {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	call, err := streams.Append(ctx)
	if err != nil {
		return answer{}, err
	}
	for _, r := range requests {
		if err := call.Send(r); err != nil {
			if errors.Is(err, io.EOF) { // the server has ended the call, and said why
				err = call.RecvMsg(new(api.AppendResp))
			}
			return answer{}, told(cmp.Or(err, errCutShort), call.Trailer())
		}
	}
	reply, err := call.CloseAndRecv()
	if err != nil {
		err = told(err, call.Trailer())
		_, moved := errors.AsType[*movedError](err)
		return answer{sent: !moved}, err
	}
	if wrong := reply.GetWrongExpectedVersion(); wrong != nil {
		if _, some := wrong.GetCurrentRevisionOption().(*api.AppendResp_WrongExpectedVersion_CurrentRevision); some {
			return answer{sent: true, actual: eventstore.Revision(wrong.GetCurrentRevision())}, nil //nolint:gosec // the server counts in int64
		}
		return answer{sent: true, actual: eventstore.NoStream}, nil
	}
	at := reply.GetSuccess().GetPosition()
	if at == nil {
		return answer{sent: true, took: true, at: nowhere}, nil
	}
	return answer{sent: true, took: true, at: position{at.GetCommitPosition(), at.GetPreparePosition()}}, nil
}
