package esdbtest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	maxAppend = 1 << 20 // bytes of one append, where nothing else is said
	maxCalls  = 100     // over one connection
)

// Append plays the call of this name.
func (n *node) Append(call api.Streams_AppendServer) error {
	end, err := n.server.begin(call.Context())
	if err != nil {
		return err
	}
	defer end()
	if err := n.refuse(call.Context(), true, call.SetTrailer); err != nil {
		return err
	}
	first, err := call.Recv()
	if err != nil {
		return err
	}
	var events []*event
	size, most := 0, n.server.mostBytes()
	for {
		request, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		e := accepted(request.GetProposedMessage())
		if size += len(e.data) + len(e.custom); size > most {
			call.SetTrailer(metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size", strconv.Itoa(most)))
			return status.Errorf(codes.InvalidArgument, "Maximum Append Size of %d Exceeded.", most)
		}
		events = append(events, e)
	}
	if call.Context().Err() != nil {
		return call.Context().Err()
	}

	s := n.server
	s.mu.Lock()
	trouble := s.trouble()
	var (
		reply *api.AppendResp
		until uint64
	)
	late, drop := s.late, s.drop
	if trouble == Unseen || trouble == Dropped {
		late = unseenFor
	}
	if trouble != Refused && trouble != Mute && trouble != Exhausted {
		for _, e := range events {
			e.system["created"] = strconv.FormatUint(s.written, 10) // as good as a time, and rising
		}
		reply, until = s.take(first.GetOptions(), events, late)
	}
	s.mu.Unlock()

	switch trouble {
	case Refused:
		return status.Error(codes.Unavailable, "Server Is Not Ready")
	case Exhausted:
		return errExhausted
	case Lost, Dropped:
		n.cut()
		return status.Error(codes.Unavailable, "the connection was cut")
	case Mute, Deaf:
		<-call.Context().Done()
		return call.Context().Err()
	}
	if reply == nil { // also where its caller has left
		<-time.After(drop)
		return status.Error(codes.Aborted, "Operation timed out")
	}
	if err := s.await(call.Context(), until); err != nil {
		return err
	}
	return call.SendAndClose(reply)
}

// begin counts a call until what it returns is called, also where its caller has
// left, and refuses one too many over one connection.
func (s *Server) begin(ctx context.Context) (end func(), err error) {
	caller := ""
	if p, ok := peer.FromContext(ctx); ok {
		caller = p.Addr.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[caller] == maxCalls {
		s.exhausted++
		return nil, errExhausted
	}
	s.calls[caller]++
	s.peak = max(s.peak, s.calls[caller])
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[caller]--
	}, nil
}

var errExhausted = status.Error(codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM")

// await waits until readers find the log to reach as far as this.
func (s *Server) await(ctx context.Context, end uint64) error {
	for {
		s.mu.Lock()
		shown, grown := s.shown, s.grown
		s.mu.Unlock()
		if shown >= end {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func accepted(m *api.AppendReq_ProposedMessage) *event {
	e := &event{data: m.GetData(), custom: m.GetCustomMetadata(), system: map[string]string{
		"type": m.GetMetadata()["type"], "content-type": m.GetMetadata()["content-type"],
	}}
	bits := m.GetId().GetStructured()
	binary.BigEndian.PutUint64(e.id[:8], uint64(bits.GetMostSignificantBits()))  //nolint:gosec // bits
	binary.BigEndian.PutUint64(e.id[8:], uint64(bits.GetLeastSignificantBits())) //nolint:gosec // bits
	return e
}

// Read plays the call of this name: of a stream or of the whole log, once or
// as a subscription.
func (n *node) Read(request *api.ReadReq, call api.Streams_ReadServer) error {
	end, err := n.server.begin(call.Context())
	if err != nil {
		return err
	}
	defer end()
	if err := n.refuse(call.Context(), false, call.SetTrailer); err != nil {
		return err
	}
	o := request.GetOptions()
	if o.GetSubscription() != nil {
		return n.follow(o, call)
	}
	s := n.server
	s.mu.Lock()
	s.reads++
	found, exists, err := s.find(o)
	replies := make([]*api.ReadResp, len(found))
	for i, e := range found {
		replies[i] = reply(e, s.hidden && o.GetStream() != nil)
	}
	breakAt := s.breakAt
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !exists {
		missing := &api.ReadResp_StreamNotFound{StreamIdentifier: o.GetStream().GetStreamIdentifier()}
		return call.Send(&api.ReadResp{Content: &api.ReadResp_StreamNotFound_{StreamNotFound: missing}})
	}
	for i, r := range replies {
		if breakAt > 0 && i == breakAt && o.GetAll() != nil {
			return status.Error(codes.Unavailable, "the read broke off")
		}
		if err := call.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// find returns the events that are asked for; the caller holds the lock.
func (s *Server) find(o *api.ReadReq_Options) (found []*event, exists bool, err error) {
	backwards := o.GetReadDirection() == api.ReadReq_Options_Backwards
	if s.denied && o.GetAll() != nil {
		return nil, false, status.Error(codes.PermissionDenied, "Access Denied")
	}
	events, from := s.readable(s.log), 0
	if stream := o.GetStream(); stream != nil {
		if events = s.readable(s.streams[string(stream.GetStreamIdentifier().GetStreamName())]); len(events) == 0 {
			return nil, false, nil
		}
		from = int(min(stream.GetRevision(), math.MaxInt32))
		if backwards {
			from = min(from+1, len(events)) // this one, too
		}
	} else if at := o.GetAll().GetPosition(); at != nil {
		var exact bool
		from, exact = slices.BinarySearchFunc(events, at.GetCommitPosition(), func(e *event, p uint64) int {
			return cmp.Compare(e.position, p)
		})
		if !exact && from < len(events) {
			result := "ReadAllResult"
			if o.GetFilter() != nil {
				result = "FilteredReadAllResult"
			}
			return nil, false, status.Errorf(codes.Unknown, "Unexpected %s: InvalidPosition", result)
		}
	}
	if o.GetStream().GetEnd() != nil || o.GetAll().GetEnd() != nil {
		from = len(events)
	}
	if backwards {
		events = slices.Clone(events[:from])
		slices.Reverse(events)
	} else {
		events = events[min(from, len(events)):]
	}
	wanted := filter(o)
	for _, e := range events {
		if uint64(len(found)) == o.GetCount() {
			break
		}
		if wanted(e) {
			found = append(found, e)
		}
	}
	return found, true, nil
}

// filter is what a request lets through.
func filter(o *api.ReadReq_Options) func(*event) bool {
	text, by := (*event).kind, o.GetFilter().GetEventType()
	if by == nil {
		text, by = func(e *event) string { return e.stream }, o.GetFilter().GetStreamIdentifier()
	}
	if by == nil {
		return func(*event) bool { return true }
	}
	if by.GetRegex() != "" {
		pattern := regexp.MustCompile(by.GetRegex())
		return func(e *event) bool { return pattern.MatchString(text(e)) }
	}
	return func(e *event) bool {
		return slices.ContainsFunc(by.GetPrefix(), func(p string) bool { return strings.HasPrefix(text(e), p) })
	}
}

// reply writes an event as a reader gets it, with its position or without.
func reply(e *event, hidden bool) *api.ReadResp {
	position := e.position
	if hidden {
		position = math.MaxUint64
	}
	return &api.ReadResp{Content: &api.ReadResp_Event{Event: &api.ReadResp_ReadEvent{
		Event: &api.ReadResp_ReadEvent_RecordedEvent{
			Id: &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
				MostSignificantBits:  int64(binary.BigEndian.Uint64(e.id[:8])), //nolint:gosec // bits
				LeastSignificantBits: int64(binary.BigEndian.Uint64(e.id[8:])), //nolint:gosec // bits
			}}},
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(e.stream)},
			StreamRevision:   e.revision,
			CommitPosition:   position,
			PreparePosition:  position,
			Metadata:         e.system,
			CustomMetadata:   e.custom,
			Data:             e.data,
		},
		Position: &api.ReadResp_ReadEvent_CommitPosition{CommitPosition: position},
	}}}
}

// checkpointEvery is how many events that the filter holds back make a checkpoint.
const checkpointEvery = 32

// follow serves a subscription to the whole log: what there is, that it has
// caught up, and then what is added.
func (n *node) follow(o *api.ReadReq_Options, call api.Streams_ReadServer) error {
	if o.GetAll() == nil {
		return status.Error(codes.Unimplemented, "subscriptions to one stream are not played")
	}
	s := n.server
	s.mu.Lock()
	s.followers++
	dropped, next := s.dropped, len(s.readable(s.log))
	if o.GetAll().GetStart() != nil {
		next = 0
	} else if at := o.GetAll().GetPosition(); at != nil { // after it; a read begins with it
		next = slices.IndexFunc(s.readable(s.log), func(e *event) bool { return e.position > at.GetCommitPosition() })
		if next < 0 {
			next = len(s.readable(s.log))
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.followers--
	}()

	confirmation := &api.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()}
	if err := call.Send(&api.ReadResp{Content: &api.ReadResp_Confirmation{Confirmation: confirmation}}); err != nil {
		return err
	}
	wanted, held, caughtUp := filter(o), 0, false
	for {
		s.mu.Lock()
		more, grown := s.readable(s.log)[next:], s.grown
		s.mu.Unlock()
		next += len(more)
		for _, e := range more {
			var answer *api.ReadResp
			if wanted(e) {
				answer = reply(e, false)
			} else if held++; held%checkpointEvery == 0 {
				answer = checkpoint(e)
			}
			if answer != nil {
				if err := call.Send(answer); err != nil {
					return err
				}
			}
		}
		if len(more) > 0 {
			continue
		}
		if !caughtUp {
			caughtUp = true
			if err := call.Send(&api.ReadResp{Content: &api.ReadResp_CaughtUp_{CaughtUp: &api.ReadResp_CaughtUp{}}}); err != nil {
				return err
			}
		}
		select {
		case <-grown:
		case <-dropped:
			return status.Error(codes.Aborted, "the subscription was dropped")
		case <-call.Context().Done():
			return call.Context().Err()
		}
	}
}

func checkpoint(e *event) *api.ReadResp {
	return &api.ReadResp{Content: &api.ReadResp_Checkpoint_{Checkpoint: &api.ReadResp_Checkpoint{
		CommitPosition: e.position, PreparePosition: e.position,
	}}}
}
