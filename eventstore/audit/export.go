package audit

import (
	"encoding/json"
	"io"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Event is an event as a line of an export says it. Data and Meta are the
// stored bytes, as text: they are what is hashed.
type Event struct {
	Ordinal     *int64                     `json:"ordinal"` // nil: the history does not know the event
	Position    eventstore.Position        `json:"position"`
	ID          id.Event                   `json:"id,omitempty"`
	Type        string                     `json:"type,omitempty"`
	Version     int                        `json:"version,omitempty"`
	Stream      eventstore.Stream          `json:"stream,omitempty"`
	Revision    eventstore.Revision        `json:"revision"`
	RecordedAt  time.Time                  `json:"recorded_at,omitzero"`
	Actor       string                     `json:"actor,omitempty"`
	Causation   id.Event                   `json:"causation_id,omitempty"`
	Correlation string                     `json:"correlation_id,omitempty"`
	Data        string                     `json:"data"`
	Meta        string                     `json:"meta"`
	Hash        Hash                       `json:"hash"` // as it was entered in the history
	Personal    map[string]json.RawMessage `json:"personal,omitempty"`
	Erased      []string                   `json:"erased,omitempty"`
	Missing     bool                       `json:"missing,omitempty"` // the log has lost it
}

// Size is how many bytes of what was recorded it shows.
func (e *Event) Size() int {
	size := len(e.Data) + len(e.Meta)
	for _, field := range e.Personal {
		size += len(field)
	}
	return size
}

// line is a line of an export: an event, or a signed head of those before it.
type line struct {
	Event
	Head string `json:"head"`
}

// NewEvent writes down a record that stands in the history.
func NewEvent(r eventstore.Record, ordinal *int64, hash Hash) Event {
	e := Event{
		Ordinal: ordinal, Position: r.Position, ID: r.ID, Type: r.Type, Version: r.Version, Stream: r.Stream, Revision: r.Revision,
		RecordedAt: r.RecordedAt, Data: string(r.Data), Meta: string(r.Meta), Hash: hash,
	}
	e.Actor, e.Correlation, e.Causation = Shown(r.Meta)
	return e
}

// Recompute is the hash of what the event is now.
func (e *Event) Recompute() (Hash, error) {
	if _, err := id.Parse[id.Event](string(e.ID)); err != nil {
		return Hash{}, err // other texts stand for the same 16 bytes
	}
	return eventstore.Hash(eventstore.Record{
		Stream: e.Stream, Revision: e.Revision,
		Proposed: eventstore.Proposed{ID: e.ID, Type: e.Type, Data: []byte(e.Data), Meta: []byte(e.Meta)},
	})
}

// Writer writes an export: NDJSON.
type Writer struct {
	to    io.Writer
	lines *json.Encoder
	line  []byte // to be used again
}

// NewWriter writes to w.
func NewWriter(w io.Writer) Writer {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return Writer{to: w, lines: lines}
}

// Event writes the line of an event.
func (w *Writer) Event(e Event) error {
	line, ok := appendEvent(w.line[:0], &e)
	w.line = line
	if !ok {
		return w.lines.Encode(e)
	}
	_, err := w.to.Write(line)
	return err
}

// Head writes the line of a signed head.
func (w *Writer) Head(jws string) error {
	return w.lines.Encode(struct {
		Head string `json:"head"`
	}{jws})
}
