package pgstore

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"kindred/testkit"

	"github.com/jackc/pgx/v5/pgtype"
)

// The driver's own encoder is the reference.
func TestArraysAreWrittenAsTheDriverWritesThem(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	types := pgtype.NewMap()
	same := func(name string, oid uint32, written []byte, value any) {
		t.Helper()
		want := testkit.Must(types.Encode(oid, pgtype.BinaryFormatCode, value, nil))(t)
		if !bytes.Equal(written, want) {
			t.Errorf("%s %v:\n got %x\nwant %x", name, value, written, want)
		}
	}
	for n := range 20 {
		var (
			texts []string
			bytea [][]byte
			int4s []int32
			times []time.Time
			uuids []pgtype.UUID
		)
		for range n + 1 {
			texts = append(texts, strings.Repeat("ä", random.IntN(40)))
			bytea = append(bytea, bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(2000)))
			int4s = append(int4s, int32(random.Uint32()))
			times = append(times, time.UnixMicro(random.Int64N(4e15)-1e15)) // from 1938 to 2065
			var id [16]byte
			id[random.IntN(16)] = byte(random.Uint32())
			uuids = append(uuids, pgtype.UUID{Bytes: id, Valid: true})
		}
		same("texts", pgtype.TextArrayOID, array(pgtype.TextOID, texts, func(b []byte, s string) []byte { return append(b, s...) }), texts)
		same("bytes", pgtype.ByteaArrayOID, array(pgtype.ByteaOID, bytea, func(b, s []byte) []byte { return append(b, s...) }), bytea)
		same("numbers", pgtype.Int4ArrayOID, array(pgtype.Int4OID, int4s, appendInt4), int4s)
		same("times", pgtype.TimestamptzArrayOID, array(pgtype.TimestamptzOID, times, appendTime), times)
		same("ids", pgtype.UUIDArrayOID, array(pgtype.UUIDOID, uuids, func(b []byte, u pgtype.UUID) []byte { return append(b, u.Bytes[:]...) }), uuids)
		same("a number", pgtype.Int8OID, int8Of(int64(int4s[0])<<32), int64(int4s[0])<<32)
		same("yes or no", pgtype.BoolOID, boolOf(n%2 == 0), n%2 == 0)
	}
}
