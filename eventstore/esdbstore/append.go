package esdbstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kindred/eventstore"
)

// write is an append on its way, together with all its repetitions.
type write struct {
	stream   eventstore.Stream
	expected eventstore.Revision
	events   []eventstore.Proposed
	mark     mark
	requests []*api.AppendReq
}

// answer is what the server says to an append.
type answer struct {
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
	w := write{stream: stream, expected: expected, events: events, mark: m, requests: []*api.AppendReq{header(stream, expected)}}
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
	said, err := send(ctx, streams, w.requests)
	if err != nil {
		return eventstore.Appended{}, err
	}
	last := w.expected + eventstore.Revision(len(w.events))
	if said.took && said.at != nowhere && len(w.events) > 1 { // the first event tells enough
		first, err := readStream(ctx, streams, w.stream, w.expected+1, 1)
		if err != nil {
			return eventstore.Appended{}, err
		}
		if len(first) == 1 && first[0].mark == w.mark {
			return eventstore.Appended{Position: said.at.text(), Revision: last}, nil
		}
	}
	standing, err := readStream(ctx, streams, w.stream, w.expected+1, len(w.events))
	if err != nil {
		return eventstore.Appended{}, err
	}
	same := func(s stored, e eventstore.Proposed) bool { return s.ID == e.ID }
	switch {
	case slices.EqualFunc(standing, w.events, same):
		end := standing[len(standing)-1]
		return eventstore.Appended{Position: end.Position, Revision: last, Already: standing[0].mark != w.mark}, nil
	case said.took && len(standing) < len(w.events):
		return eventstore.Appended{}, status.Error(codes.Unavailable, "what was appended cannot be read yet")
	case said.took:
		return eventstore.Appended{}, w.conflict(ctx, streams) // the server went by less than all ids
	default:
		return eventstore.Appended{}, &eventstore.ConflictError{Stream: w.stream, Expected: w.expected, Actual: said.actual}
	}
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
		return answer{}, told(err, call.Trailer())
	}
	if wrong := reply.GetWrongExpectedVersion(); wrong != nil {
		if _, some := wrong.GetCurrentRevisionOption().(*api.AppendResp_WrongExpectedVersion_CurrentRevision); some {
			return answer{actual: eventstore.Revision(wrong.GetCurrentRevision())}, nil //nolint:gosec // the server counts in int64
		}
		return answer{actual: eventstore.NoStream}, nil
	}
	at := reply.GetSuccess().GetPosition()
	if at == nil {
		return answer{took: true, at: nowhere}, nil
	}
	return answer{took: true, at: position{at.GetCommitPosition(), at.GetPreparePosition()}}, nil
}
