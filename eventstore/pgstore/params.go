package pgstore

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"kindred/eventstore"
)

// params are the parameters of an append, in PostgreSQL's binary format: they
// are most of what a commit has to be told, and an encoder that asks for the
// type of each element takes three times as long.
type params [][]byte

// placed is an event of a batch.
type placed struct {
	*eventstore.Proposed
	id      []byte
	of, nth int32 // the request, and the event in it; counted from 1
}

func placedIn(batch []*request) []placed {
	var all []placed
	for i, r := range batch {
		for j := range r.events {
			all = append(all, placed{&r.events[j], r.ids[j][:], int32(i + 1), int32(j + 1)})
		}
	}
	return all
}

// oneParams are those of append_stream.
func oneParams(r *request, optimistic bool) params {
	p := params{[]byte(r.stream), int8Of(int64(r.expected)), boolOf(optimistic)}
	return p.events(placedIn([]*request{r}))
}

// manyParams are those of append_streams.
func manyParams(batch []*request, optimistic bool) params {
	type keyOf struct {
		of int32
		eventstore.Key
	}
	var keys []keyOf
	for i, r := range batch {
		for _, k := range r.keys {
			keys = append(keys, keyOf{int32(i + 1), k})
		}
	}
	events := placedIn(batch)
	p := params{
		array(pgtype.TextOID, batch, func(b []byte, r *request) []byte { return append(b, r.stream...) }),
		array(pgtype.Int8OID, batch, func(b []byte, r *request) []byte { return append(b, int8Of(int64(r.expected))...) }),
		boolOf(optimistic),
		array(pgtype.Int4OID, events, func(b []byte, e placed) []byte { return appendInt4(b, e.of) }),
		array(pgtype.Int4OID, events, func(b []byte, e placed) []byte { return appendInt4(b, e.nth) }),
	}
	return append(p.events(events),
		array(pgtype.Int4OID, keys, func(b []byte, k keyOf) []byte { return appendInt4(b, k.of) }),
		array(pgtype.TextOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.Client...) }),
		array(pgtype.TextOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.Subject...) }),
		array(pgtype.TextOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.ID...) }),
		array(pgtype.TextOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.Under...) }),
		array(pgtype.ByteaOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.Wrapped...) }),
		array(pgtype.ByteaOID, keys, func(b []byte, k keyOf) []byte { return append(b, k.Lookup...) }))
}

// events adds what both take of each event.
func (p params) events(events []placed) params {
	return append(p,
		array(pgtype.TextOID, events, func(b []byte, e placed) []byte { return append(b, e.Client...) }),
		array(pgtype.UUIDOID, events, func(b []byte, e placed) []byte { return append(b, e.id...) }),
		array(pgtype.TextOID, events, func(b []byte, e placed) []byte { return append(b, e.Type...) }),
		array(pgtype.Int4OID, events, func(b []byte, e placed) []byte { return appendInt4(b, int32(e.Version)) }), //nolint:gosec // versions are small by declaration
		array(pgtype.ByteaOID, events, func(b []byte, e placed) []byte { return append(b, e.Data...) }),
		array(pgtype.ByteaOID, events, func(b []byte, e placed) []byte { return append(b, e.Meta...) }),
		array(pgtype.TimestamptzOID, events, func(b []byte, e placed) []byte { return appendTime(b, e.RecordedAt) }))
}

// array is an array of one dimension, none of its elements null, as array_recv
// reads it: the number of dimensions, flags, the type, the length and the first
// index; then each element after its size in bytes.
func array[T any](oid uint32, elements []T, write func([]byte, T) []byte) []byte {
	const size = 4
	usual := 48
	if oid == pgtype.ByteaOID {
		usual = 512
	}
	b := make([]byte, 0, 5*size+len(elements)*usual)
	for _, v := range []uint32{1, 0, oid, uint32(len(elements)), 1} { //nolint:gosec // a batch is small
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, e := range elements {
		at := len(b)
		b = write(append(b, 0, 0, 0, 0), e)
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-size)) //nolint:gosec // of a request, which is bounded
	}
	return b
}

func appendInt4(b []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(v)) //nolint:gosec // two's complement, as it is written
}

func int8Of(v int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(v)) //nolint:gosec // two's complement, as it is written
}

func boolOf(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

// appendTime writes microseconds since 2000.
func appendTime(b []byte, t time.Time) []byte {
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	return append(b, int8Of(t.UnixMicro()-epoch)...)
}
