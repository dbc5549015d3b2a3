package audit_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/golden"
	"kindred/testkit"
)

// Auditors keep exports and heads, and verify them with programs of their own.
func TestLinesOfExportsAndSignedHeadsStay(t *testing.T) {
	key := testkit.Must(audit.KeyFromSeed(bytes.Repeat([]byte{7}, 32)))(t)
	at, ordinal := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC), int64(3)
	record := eventstore.Record{
		Stream: "client-cli_1", Revision: 1, Position: "0000000000000007",
		Proposed: eventstore.Proposed{
			Client: "cli_1", Version: 2, RecordedAt: at,
			ID: id.From[id.Event]([16]byte{7}), Type: "client.renamed", Data: []byte(`{"name":"Ä & \"B\""}`),
			Meta: []byte(`{"client":"cli_1","version":2,"recorded_at":"2026-03-01T12:00:00.123456Z","actor":"mem_1","correlation":"req_1","causation":"evt_1"}`),
		},
	}
	var export bytes.Buffer
	w := audit.NewWriter(&export)
	plain := audit.NewEvent(record, &ordinal, audit.Hash{7})
	opened := plain
	opened.Personal, opened.Erased = map[string]json.RawMessage{"email": []byte(`"a@example.com"`)}, []string{"password_hash"}
	unknown := plain
	unknown.Ordinal = nil
	for _, e := range []audit.Event{plain, opened, unknown, {Ordinal: &ordinal, Position: record.Position, Hash: audit.Hash{7}, Missing: true}} {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	root := audit.Hash{7}
	signed := testkit.Must(key.Sign(audit.Head{Client: "cli_1", Size: 4, Root: root, SignedAt: at}))(t)
	if err := w.Head(signed); err != nil {
		t.Fatal(err)
	}
	public := testkit.Must(key.Public())(t)
	lines := strings.Split(strings.TrimSpace(export.String()), "\n")
	golden.Check(t, "export.txt", append(lines, "key: "+string(public)))
}
