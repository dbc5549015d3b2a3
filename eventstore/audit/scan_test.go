package audit

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/testkit"
)

// TestTheQuickWayReadsTheSame mutates lines: what the quick way accepts, it
// reads as the decoder does.
func TestTheQuickWayReadsTheSame(t *testing.T) {
	random := testkit.Random(t)
	ordinal := int64(12)
	var out bytes.Buffer
	w := NewWriter(&out)
	if err := w.Event(Event{
		Ordinal: &ordinal, Position: "00ff", ID: "evt_0", Type: "a.b", Version: 2, Stream: "s-1", Revision: 3,
		RecordedAt: time.Date(2026, 1, 31, 12, 0, 0, 123456000, time.UTC), Actor: "policy:x", Causation: "evt_1",
		Correlation: "req_1", Data: `{"a":"b\\c\"d"}`, Meta: `{"client":"c"}`,
	}); err != nil {
		t.Fatal(err)
	}
	text := bytes.TrimSpace(out.Bytes())
	var l line
	if !scanFlat(text, &l) {
		t.Fatalf("what is written does not take the quick way: %s", text)
	}
	alphabet := []byte(`{}[]",:\0129eE.-+truenlhda ` + "\x00\x1f\x7f\xc3\xa9")
	accepted := 0
	for range 40_000 {
		mutated := bytes.Clone(text)
		for range 1 + random.IntN(2) {
			i := random.IntN(len(mutated))
			switch random.IntN(3) {
			case 0:
				mutated[i] = alphabet[random.IntN(len(alphabet))]
			case 1:
				mutated = append(mutated[:i], mutated[i+1:]...)
			default:
				mutated = append(mutated[:i], append([]byte{alphabet[random.IntN(len(alphabet))]}, mutated[i:]...)...)
			}
		}
		var quick, slow line
		if !scanFlat(mutated, &quick) {
			continue
		}
		accepted++
		decoder := json.NewDecoder(bytes.NewReader(mutated))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&slow); err != nil {
			t.Fatalf("accepted, but %v: %s", err, mutated)
		}
		if diff := cmp.Diff(slow, quick, cmp.AllowUnexported(line{})); diff != "" {
			t.Fatalf("%s\n%s", mutated, diff)
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d were accepted", accepted)
	}
}

func TestAHeadStandsAloneInItsLine(t *testing.T) {
	t.Parallel()
	const event = `{"ordinal":12,"position":"00ff","id":"evt_0","type":"a.b","stream":"s-1","revision":3,"data":"{}","meta":"{}"`
	for _, head := range []string{`"a.b.c"`, `""`, `null`} {
		for _, text := range []string{event + `,"head":` + head + `}`, `{"head":` + head + `,` + event[1:] + `}`} {
			if l, err := scan([]byte(text)); err == nil {
				t.Errorf("%s is read as %+v", text, l)
			}
		}
	}
}
