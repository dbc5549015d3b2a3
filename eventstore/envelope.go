package eventstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"kindred/domain/id"
)

// Meta is the envelope of an event, kept beside its data.
type Meta struct {
	Client      id.Client `json:"client,omitempty"`
	Version     int       `json:"version"`
	RecordedAt  time.Time `json:"recorded_at"`           // UTC, microseconds; before the stream's previous event only where that is event.Ahead
	Actor       string    `json:"actor"`                 // a member, an API key, or "policy:<name>"
	Correlation string    `json:"correlation,omitempty"` // the request that it all began with
	Causation   id.Event  `json:"causation,omitempty"`   // the event that a policy answered
	Request     string    `json:"request,omitempty"`     // keyed hash of the body that came with an Idempotency-Key
	Trace       string    `json:"trace,omitempty"`       // traceparent of the request that caused it, where a collector gets that
	Previous    string    `json:"previous,omitempty"`    // hex of the hash of the stream's previous event
}

// DecodeMeta reads an envelope.
func DecodeMeta(data []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("decode metadata: %w", err)
	}
	return m, nil
}

// Hash is the hash of an event over its stored bytes: SHA-256 over the text
// "kindred.event.1" and then, each behind its length as 8 bytes big-endian,
// the event id (16 bytes), the stream, the revision (8 bytes big-endian), the
// type, the data and the metadata. The metadata holds the hash of the stream's
// previous event, which makes each stream a chain.
func Hash(r Record) ([32]byte, error) {
	event, err := id.Bytes(r.ID)
	if err != nil {
		return [32]byte{}, fmt.Errorf("hash %s revision %d: %w", r.Stream, r.Revision, err)
	}
	h := sha256.New()
	h.Write([]byte("kindred.event.1"))
	var length [8]byte
	for _, part := range [][]byte{
		event[:], []byte(r.Stream), binary.BigEndian.AppendUint64(nil, uint64(r.Revision)),
		[]byte(r.Type), r.Data, r.Meta,
	} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return [32]byte(h.Sum(nil)), nil
}
