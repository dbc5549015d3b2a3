package esdbstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"kindred/domain/id"
	"kindred/eventstore"
)

// The system's own names for what stands beside an event.
const (
	typeKey        = "type"
	contentTypeKey = "content-type"
	contentType    = "application/json"
)

var (
	errForeign    = errors.New("an event that this service did not write")
	errNoPosition = errors.New("the server tells no positions when it reads a stream: KurrentDB, or EventStoreDB from 22.10 on, is needed")
)

// position is a place in the server's log.
type position struct{ commit, prepare uint64 }

// nowhere is what the server tells where it does not know a position.
var nowhere = position{math.MaxUint64, math.MaxUint64}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.commit, q.commit), cmp.Compare(p.prepare, q.prepare))
}

// text writes a position as 32 hex digits, commit before prepare, so that
// text order is log order.
func (p position) text() eventstore.Position {
	return eventstore.Position(fmt.Sprintf("%016x%016x", p.commit, p.prepare))
}

func parsePosition(text eventstore.Position) (position, error) {
	if text == eventstore.Start {
		return position{}, nil
	}
	if len(text) == 32 {
		commit, err1 := strconv.ParseUint(string(text[:16]), 16, 64)
		prepare, err2 := strconv.ParseUint(string(text[16:]), 16, 64)
		p := position{commit, prepare}
		if err1 == nil && err2 == nil && p.text() == text {
			return p, nil
		}
	}
	return position{}, fmt.Errorf("%q is not a position of this log", text)
}

// A mark tells an append from its repetition, which the server answers alike:
// blanks behind the metadata of an append's events, at random, which JSON
// allows. They are taken off again when an event is read.
type mark string

const (
	markSize = 32
	blanks   = " \t\n\r"
)

func newMark(entropy io.Reader) (mark, error) {
	var random [markSize / 4]byte
	if _, err := io.ReadFull(entropy, random[:]); err != nil {
		return "", fmt.Errorf("read entropy: %w", err)
	}
	text := make([]byte, 0, markSize)
	for _, b := range random {
		text = append(text, blanks[b>>6], blanks[b>>4&3], blanks[b>>2&3], blanks[b&3])
	}
	return mark(text), nil
}

// stored is a record together with the mark of its append.
type stored struct {
	eventstore.Record
	mark mark
}

// propose writes an event as the server takes it. What the server would not
// give back must stand in the metadata.
func propose(e eventstore.Proposed, m mark) (*api.AppendReq, error) {
	raw, err := id.Bytes(e.ID)
	if err != nil {
		return nil, err
	}
	meta, err := eventstore.DecodeMeta(e.Meta)
	if err != nil {
		return nil, err
	}
	if e.Type == "" || e.Type[0] == '$' {
		return nil, fmt.Errorf("%q is not a type of this service", e.Type)
	}
	if meta.Version != e.Version || meta.Client != e.Client || !meta.RecordedAt.Equal(e.RecordedAt) || e.Version < 1 {
		return nil, fmt.Errorf("the metadata of %s %s differs from its version, client or time", e.Type, e.ID)
	}
	return message(raw, e.Type, e.Data, append(slices.Clip(e.Meta), m...)), nil
}

func message(raw [16]byte, kind string, data, meta []byte) *api.AppendReq {
	return &api.AppendReq{Content: &api.AppendReq_ProposedMessage_{ProposedMessage: &api.AppendReq_ProposedMessage{
		Id: &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
			MostSignificantBits:  int64(binary.BigEndian.Uint64(raw[:8])), //nolint:gosec // bits
			LeastSignificantBits: int64(binary.BigEndian.Uint64(raw[8:])), //nolint:gosec // bits
		}}},
		Metadata:       map[string]string{typeKey: kind, contentTypeKey: contentType},
		Data:           data,
		CustomMetadata: meta,
	}}}
}

func positionOf(e *api.ReadResp_ReadEvent_RecordedEvent) position {
	return position{e.GetCommitPosition(), e.GetPreparePosition()}
}

// decode reads an event. It fails with errForeign for what others wrote.
func decode(e *api.ReadResp_ReadEvent_RecordedEvent) (stored, error) {
	at, bits := positionOf(e), e.GetId().GetStructured()
	if at == nowhere {
		return stored{}, errNoPosition
	}
	foreign := func(err error) (stored, error) {
		return stored{}, fmt.Errorf("%w: revision %d of %s: %w", errForeign, e.GetStreamRevision(), e.GetStreamIdentifier().GetStreamName(), err)
	}
	cut := len(e.GetCustomMetadata()) - markSize
	if bits == nil || cut < 0 || e.GetStreamRevision() > math.MaxInt64 {
		return foreign(errors.New("it has no id or no metadata"))
	}
	text, m := e.GetCustomMetadata()[:cut:cut], mark(e.GetCustomMetadata()[cut:])
	meta, err := eventstore.DecodeMeta(text)
	if err != nil {
		return foreign(err)
	}
	if meta.Version < 1 {
		return foreign(errors.New("its metadata says no version"))
	}
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(bits.GetMostSignificantBits()))  //nolint:gosec // bits
	binary.BigEndian.PutUint64(raw[8:], uint64(bits.GetLeastSignificantBits())) //nolint:gosec // bits
	return stored{mark: m, Record: eventstore.Record{
		Position: at.text(),
		Stream:   eventstore.Stream(e.GetStreamIdentifier().GetStreamName()),
		Revision: eventstore.Revision(e.GetStreamRevision()), //nolint:gosec // bounded above
		Proposed: eventstore.Proposed{
			ID: id.From[id.Event](raw), Type: e.GetMetadata()[typeKey], Version: meta.Version, Client: meta.Client,
			RecordedAt: meta.RecordedAt.UTC(), Data: e.GetData(), Meta: text,
		},
	}}, nil
}
