package audit

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"kindred/eventstore"
)

func TestLinesAreAsJSONWritesThem(t *testing.T) {
	ordinal := int64(7)
	plain := Event{
		Ordinal: &ordinal, Position: "1", ID: "evt_1", Type: "t", Version: 2, Stream: "s", Revision: 3, RecordedAt: time.Unix(1, 5000).UTC(),
		Actor: "a", Causation: "evt_0", Correlation: "req_1", Data: `{"a":"\\"}`, Meta: "{}", Hash: Hash{1, 255},
	}
	bare := plain
	bare.ID, bare.Actor, bare.Causation, bare.Correlation, bare.Stream, bare.Position = "", "", "", "", "", ""
	quick := []Event{plain, bare}
	slow := []Event{{}, {Ordinal: &ordinal, Missing: true}}
	for _, data := range []string{"é", "\u2028", "\n", "\x7f", "\xff", "<&>"} {
		e := plain
		e.Data = data
		slow = append(slow, e)
	}
	slow[len(slow)-1], quick = plain, append(quick, slow[len(slow)-1])
	slow[len(slow)-1].Erased = []string{"traits"}
	for _, change := range []func(*Event){
		func(e *Event) { e.Ordinal = nil },
		func(e *Event) { e.Version = 0 },
		func(e *Event) { e.RecordedAt = time.Time{} },
		func(e *Event) { e.Personal = map[string]json.RawMessage{"external_id": json.RawMessage(`"u1"`)} },
		func(e *Event) { e.Missing = true },
	} {
		e := plain
		change(&e)
		slow = append(slow, e)
	}
	for _, e := range append(quick, slow...) {
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(e); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		w := NewWriter(&got)
		if err := w.Event(e); err != nil || got.String() != want.String() {
			t.Errorf("%v\n%q, want\n%q", err, &got, &want)
		}
	}
	for _, e := range quick {
		if _, ok := appendEvent(nil, &e); !ok {
			t.Errorf("%+v takes the long way", e)
		}
	}
}

func FuzzShownIsWhatTheEnvelopeSays(f *testing.F) {
	f.Add([]byte(`{"client":"cli_1","version":1,"recorded_at":"2026-01-31T12:00:00.000001Z","actor":"mem_\"1","correlation":"req_1","causation":"evt_1","request":"r","previous":"p"}`))
	f.Add([]byte(`{"actor":"a","trace":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`))
	for _, meta := range []string{
		`{"actor":"a","actor":"b"}`, `["actor":"a"}`, `{"actor":"a"]`, `{"actor"="a"}`, `{"actor":"a";"version":1}`, `{"actor":"a","version":"1"}`,
		`{"actor":"a","recorded_at":"today"}`, `{"actor":"a","version":}`,
	} {
		f.Add([]byte(meta))
	}
	f.Add([]byte(`{"Actor":"a","version":"1"}`))
	f.Add([]byte(`{"actor":1,"version":1}`))
	f.Add([]byte(`{"version":1,}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, meta []byte) {
		actor, correlation, causation, ok := quickShown(meta)
		if !ok {
			return
		}
		m, err := eventstore.DecodeMeta(meta)
		if err != nil || m.Actor != actor || m.Correlation != correlation || m.Causation != causation {
			t.Errorf("%q: %q %q %q; %+v %v", meta, actor, correlation, causation, m, err)
		}
	})
}
