package audit_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
)

// BenchmarkVerify checks an export of users who were created and changed once.
func BenchmarkVerify(b *testing.B) {
	key, err := audit.NewKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	public, err := key.Public()
	if err != nil {
		b.Fatal(err)
	}
	keys, err := audit.ParseKeys(fmt.Appendf(nil, `{"keys":[%s]}`, public))
	if err != nil {
		b.Fatal(err)
	}
	const events = 20_000
	export := written(b, key, events)
	b.SetBytes(int64(len(export)))
	for b.Loop() {
		verified, err := audit.Verify(bytes.NewReader(export), keys, nil, func(f audit.Finding) { b.Fatal(f) })
		if err != nil || verified.Events != events {
			b.Fatal(verified, err)
		}
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}

func written(t testing.TB, key audit.Key, events int) []byte {
	t.Helper()
	ids := id.Random(rand.Reader)
	client := id.Next[id.Client](ids)
	var (
		out      bytes.Buffer
		tree     audit.Tree
		stream   eventstore.Stream
		previous [32]byte
	)
	writer := audit.NewWriter(&out)
	box := fmt.Sprintf(`{"key":"k","commitment":"%064d","cipher":"%0300d"}`, 1, 2)
	now := time.Now().UTC().Truncate(time.Microsecond)
	for n := range int64(events) {
		revision := eventstore.Revision(n % 2)
		meta := eventstore.Meta{Client: client, Version: 1, RecordedAt: now, Actor: string(id.Next[id.Key](ids)), Correlation: string(id.Next[id.Request](ids))}
		user := id.Next[id.User](ids)
		if revision == 0 {
			stream = eventstore.Stream("end_user-" + string(client) + "-" + string(user))
		} else {
			meta.Previous = hex.EncodeToString(previous[:])
		}
		envelope, err := json.Marshal(meta)
		if err != nil {
			t.Fatal(err)
		}
		r := eventstore.Record{Position: eventstore.Position(fmt.Sprintf("%016x", n+1)), Stream: stream, Revision: revision, Proposed: eventstore.Proposed{
			ID: id.Next[id.Event](ids), Type: "end_user.traits_changed", Version: 1, Client: client, RecordedAt: now,
			Data: fmt.Appendf(nil, `{"user_id":%q,"traits":%s}`, user, box), Meta: envelope,
		}}
		if previous, err = eventstore.Hash(r); err != nil {
			t.Fatal(err)
		}
		tree.Append(previous, nil)
		if err := writer.Event(audit.NewEvent(r, &n, previous)); err != nil {
			t.Fatal(err)
		}
	}
	jws, err := key.Sign(audit.Head{Client: client, Size: tree.Size, Root: tree.Root(), SignedAt: now})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Head(jws); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
