package event

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

func TestABoxIsReadAsJSONWouldReadIt(t *testing.T) {
	t.Parallel()
	type plain Box // has no reader of its own
	for name, text := range map[string]string{
		"as it is written":     `{"key":"k1","commitment":"AQI=","cipher":"AwQF"}`,
		"empty":                `{"key":"","commitment":"","cipher":""}`,
		"in another order":     `{"cipher":"AwQF","key":"k1","commitment":"AQI="}`,
		"with space":           `{ "key":"k1", "commitment":"AQI=", "cipher":"AwQF" }`,
		"with more":            `{"key":"k1","commitment":"AQI=","cipher":"AwQF","more":"x"}`,
		"with a name twice":    `{"key":"k1","commitment":"AQI=","cipher":"AwQF","cipher":"AA=="}`,
		"with less":            `{"key":"k1","commitment":"AQI="}`,
		"with escapes":         `{"key":"k\u0031\"","commitment":"AQI=","cipher":"AwQF"}`,
		"beyond ASCII":         `{"key":"schlüssel","commitment":"AQI=","cipher":"AwQF"}`,
		"no text in it":        `{"key":"k1","commitment":null,"cipher":"AwQF"}`,
		"null":                 `null`,
		"not base64":           `{"key":"k1","commitment":"AQI=","cipher":"?"}`,
		"another alphabet":     `{"key":"k1","commitment":"AQI=","cipher":"_-8="}`,
		"without its end":      `{"key":"k1","commitment":"AQI=","cipher":"AwQF"`,
		"with a raw character": "{\"key\":\"k\n\",\"commitment\":\"AQI=\",\"cipher\":\"AwQF\"}",
	} {
		var want plain
		wantErr := json.Unmarshal([]byte(text), &want)
		var got Box
		err := got.UnmarshalJSON([]byte(text))
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, not %v", name, err, wantErr)
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(Box(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func BenchmarkReadBox(b *testing.B) {
	text := testkit.Must(json.Marshal(Box{"0123456789abcdef", make([]byte, 32), make([]byte, 200)}))(b)
	b.ReportAllocs()
	for b.Loop() {
		var box Box
		if err := box.UnmarshalJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzBoxInBinary(f *testing.F) {
	whole, err := (&Box{Key: "k1", Commitment: []byte{1, 2, 3}, Cipher: []byte{4, 5}}).MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:4])
	f.Add([]byte{255, 255})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var box Box
		if err := box.UnmarshalBinary(data); err != nil {
			return
		}
		again, err := box.MarshalBinary()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%x became %x, %v", data, again, err)
		}
	})
}

func TestABoxThatBinaryCannotHoldIsRefused(t *testing.T) {
	for _, box := range []Box{{Key: strings.Repeat("k", 256)}, {Commitment: make([]byte, 256)}} {
		if out, err := box.MarshalBinary(); err == nil {
			t.Errorf("made %d bytes", len(out))
		}
	}
}
