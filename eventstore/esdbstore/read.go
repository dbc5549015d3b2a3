package esdbstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kindred/eventstore"
	"kindred/eventstore/tail"
)

// headPage is how many events Head reads at once.
const headPage = 8

type recorded = api.ReadResp_ReadEvent_RecordedEvent

// ReadStream implements [eventstore.Store].
func (s *Store) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) (records []eventstore.Record, err error) {
	err = s.call(ctx, func(ctx context.Context, streams api.StreamsClient) error {
		found, err := readStream(ctx, streams, stream, max(from, 0), limit)
		records = bare(found)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	return records, nil
}

// ReadBack implements [eventstore.Store].
func (s *Store) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) (records []eventstore.Record, err error) {
	err = s.call(ctx, func(ctx context.Context, streams api.StreamsClient) error {
		found, err := readBack(ctx, streams, stream, from, limit)
		if err == nil && len(found) == 0 && from != eventstore.End { // it may lie beyond the end
			var last eventstore.Revision
			if last, err = lastRevision(ctx, streams, stream); err == nil && last < from {
				found, err = readBack(ctx, streams, stream, last, limit)
			}
		}
		records = bare(found)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s backwards: %w", stream, err)
	}
	return records, nil
}

// ReadAll implements [eventstore.Store].
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Record, error) {
	from, err := parsePosition(after)
	if err != nil {
		return nil, err
	}
	page, _, err := s.readAll(ctx, from, limit)
	return page.Records, err
}

// readAll reads at most limit events after a position, and says whether an event
// stands at the position itself. The system's own events are read and passed over:
// to have the server leave them out costs it more than to send them.
func (s *Store) readAll(ctx context.Context, after position, limit int) (result tail.Page, stands bool, err error) {
	result.To, stands = textOf(after), after == position{}
	start := after
	for len(result.Records) < limit && !result.Last {
		// The event at the position itself comes again.
		count := limit - len(result.Records) + 1
		var page []*recorded
		whole := true
		err := s.call(ctx, func(ctx context.Context, streams api.StreamsClient) (err error) {
			page, err = read(ctx, streams, all(after, api.ReadReq_Options_Forwards, count))
			if len(page) > 1 && err != nil && passing(err) { // what came is a step on, over a slow line above all
				whole, err = false, nil
			}
			return err
		})
		if err != nil {
			return tail.Page{}, false, fmt.Errorf("read after %s: %w", after.text(), err)
		}
		for _, e := range page {
			at := positionOf(e)
			if at.compare(start) < 0 || at != start && at.compare(after) <= 0 || len(result.Records) == limit {
				continue
			}
			r, ours, err := s.own(ctx, e)
			switch {
			case err != nil:
				return tail.Page{}, false, err
			case at == start:
				result.At, stands = r.ID, true
				continue
			case ours:
				result.Records = append(result.Records, r)
			}
			after, result.To = at, at.text()
		}
		result.Last = whole && len(page) < count
	}
	return result, stands, nil
}

// textOf writes where a read began.
func textOf(after position) eventstore.Position {
	if (after == position{}) {
		return eventstore.Start
	}
	return after.text()
}

// own decodes an event of this log, and passes over the others.
func (s *Store) own(ctx context.Context, e *recorded) (eventstore.Record, bool, error) {
	name := string(e.GetStreamIdentifier().GetStreamName())
	if name == epochStream || strings.HasPrefix(name, "$") || strings.HasPrefix(e.GetMetadata()[typeKey], "$") {
		return eventstore.Record{}, false, nil
	}
	r, err := decode(e)
	if errors.Is(err, errForeign) {
		s.logger.WarnContext(ctx, "passed over an event of others in the event store",
			"stream", name, "revision", e.GetStreamRevision(), "position", string(positionOf(e).text()))
		return eventstore.Record{}, false, nil
	}
	return r.Record, err == nil, err
}

// At implements [eventstore.Store].
func (s *Store) At(ctx context.Context, at eventstore.Position) (eventstore.Record, error) {
	missing := fmt.Errorf("position %q: %w", at, eventstore.ErrNotFound)
	if at == eventstore.Start {
		return eventstore.Record{}, missing
	}
	place, err := parsePosition(at)
	if err != nil {
		return eventstore.Record{}, err
	}
	var page []*recorded
	err = s.call(ctx, func(ctx context.Context, streams api.StreamsClient) (err error) {
		page, err = read(ctx, streams, all(place, api.ReadReq_Options_Forwards, 1))
		return err
	})
	if errors.Is(err, eventstore.ErrNotFound) {
		return eventstore.Record{}, missing
	}
	if err != nil {
		return eventstore.Record{}, fmt.Errorf("read at %s: %w", at, err)
	}
	if len(page) == 0 || positionOf(page[0]) != place {
		return eventstore.Record{}, missing
	}
	r, ours, err := s.own(ctx, page[0])
	if err == nil && !ours {
		err = missing
	}
	return r, err
}

// Head implements [eventstore.Store].
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	before := nowhere
	for {
		var page []*recorded
		whole := true
		err := s.call(ctx, func(ctx context.Context, streams api.StreamsClient) (err error) {
			page, err = read(ctx, streams, all(before, api.ReadReq_Options_Backwards, headPage))
			if len(page) > 0 && err != nil && passing(err) { // as above
				whole, err = false, nil
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read the end of the log: %w", err)
		}
		for _, e := range page {
			before = positionOf(e)
			if r, ours, err := s.own(ctx, e); err != nil || ours {
				return r.Position, err
			}
		}
		if whole && len(page) < headPage {
			return eventstore.Start, nil
		}
	}
}

func bare(found []stored) []eventstore.Record {
	records := make([]eventstore.Record, len(found))
	for i, f := range found {
		records[i] = f.Record
	}
	return records
}

func readStream(ctx context.Context, streams api.StreamsClient, stream eventstore.Stream, from eventstore.Revision, limit int) ([]stored, error) {
	if limit <= 0 {
		return nil, nil
	}
	return readDecoded(ctx, streams, one(stream, from, api.ReadReq_Options_Forwards, limit))
}

func readBack(ctx context.Context, streams api.StreamsClient, stream eventstore.Stream, from eventstore.Revision, limit int) ([]stored, error) {
	if limit <= 0 || from < 0 {
		return nil, nil
	}
	return readDecoded(ctx, streams, one(stream, from, api.ReadReq_Options_Backwards, limit))
}

// lastRevision is where a stream is.
func lastRevision(ctx context.Context, streams api.StreamsClient, stream eventstore.Stream) (eventstore.Revision, error) {
	page, err := read(ctx, streams, one(stream, eventstore.End, api.ReadReq_Options_Backwards, 1))
	if err != nil || len(page) == 0 {
		return eventstore.NoStream, err
	}
	return eventstore.Revision(page[0].GetStreamRevision()), nil //nolint:gosec // the server counts in int64
}

func readDecoded(ctx context.Context, streams api.StreamsClient, request *api.ReadReq) ([]stored, error) {
	page, err := read(ctx, streams, request)
	if err != nil {
		return nil, err
	}
	found := make([]stored, len(page))
	for i, e := range page {
		if found[i], err = decode(e); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// read reads the events that a request asks for, and returns what came also
// with an error. A stream that does not exist has none.
func read(ctx context.Context, streams api.StreamsClient, request *api.ReadReq) ([]*recorded, error) {
	call, err := streams.Read(ctx, request)
	if err != nil {
		return nil, err
	}
	var page []*recorded
	for {
		reply, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return page, nil
		}
		if err != nil {
			return page, unbegun(told(err, call.Trailer()))
		}
		if e := reply.GetEvent().GetEvent(); e != nil {
			page = append(page, e)
		}
	}
}

// unbegun makes ErrNotFound of what a server says of a position where no event
// begins, as in a log that was restored to an earlier state and has grown since:
// version 24 calls it an unexpected result.
func unbegun(err error) error {
	s := status.Convert(err)
	if s.Code() == codes.InvalidArgument && strings.Contains(s.Message(), "invalid position") ||
		s.Code() == codes.Unknown && strings.Contains(s.Message(), "InvalidPosition") {
		return fmt.Errorf("%w: %s", eventstore.ErrNotFound, s.Message())
	}
	return err
}

// one reads one stream from a revision on.
func one(stream eventstore.Stream, from eventstore.Revision, direction api.ReadReq_Options_ReadDirection, count int) *api.ReadReq {
	o := &api.ReadReq_Options_StreamOptions{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
		RevisionOption:   &api.ReadReq_Options_StreamOptions_End{End: &shared.Empty{}},
	}
	if from != eventstore.End {
		o.RevisionOption = &api.ReadReq_Options_StreamOptions_Revision{Revision: uint64(from)} //nolint:gosec // never below 0
	}
	return request(&api.ReadReq_Options{
		StreamOption: &api.ReadReq_Options_Stream{Stream: o}, ReadDirection: direction, CountOption: counted(count),
	})
}

// all reads the whole log: forwards from a position on, that included, or
// backwards from before it.
func all(from position, direction api.ReadReq_Options_ReadDirection, count int) *api.ReadReq {
	return request(&api.ReadReq_Options{
		StreamOption: &api.ReadReq_Options_All{All: place(from)}, ReadDirection: direction, CountOption: counted(count),
	})
}

func place(p position) *api.ReadReq_Options_AllOptions {
	switch p {
	case position{}:
		return &api.ReadReq_Options_AllOptions{AllOption: &api.ReadReq_Options_AllOptions_Start{Start: &shared.Empty{}}}
	case nowhere:
		return &api.ReadReq_Options_AllOptions{AllOption: &api.ReadReq_Options_AllOptions_End{End: &shared.Empty{}}}
	default:
		return &api.ReadReq_Options_AllOptions{AllOption: &api.ReadReq_Options_AllOptions_Position{
			Position: &api.ReadReq_Options_Position{CommitPosition: p.commit, PreparePosition: p.prepare},
		}}
	}
}

func counted(n int) *api.ReadReq_Options_Count { return &api.ReadReq_Options_Count{Count: uint64(n)} } //nolint:gosec // above 0

func request(o *api.ReadReq_Options) *api.ReadReq {
	o.UuidOption = &api.ReadReq_Options_UUIDOption{
		Content: &api.ReadReq_Options_UUIDOption_Structured{Structured: &shared.Empty{}},
	}
	o.FilterOption = &api.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}}
	return &api.ReadReq{Options: o}
}
