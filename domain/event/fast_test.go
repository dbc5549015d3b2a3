package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func boxed(n int) *Personal {
	return &Personal{Box: &Box{Key: "0123456789abcdef", Commitment: []byte(strings.Repeat("c", 32)), Cipher: []byte(strings.Repeat("\xff\x00x", n))}}
}

// TestQuickEventsAreWhatJSONIs: bytes are hashed and kept for ever.
func TestQuickEventsAreWhatJSONIs(t *testing.T) {
	for name, e := range map[string]Event{
		"created":             EndUserCreated{User: "usr_1", Generation: 12, ExternalID: boxed(7), Traits: boxed(500)},
		"created, odd id":     EndUserCreated{User: "usr_<\u00e9\"\n>", ExternalID: boxed(1), Traits: boxed(2)},
		"created, no traits":  EndUserCreated{User: "usr_1", ExternalID: boxed(1)},
		"created, empty box":  EndUserCreated{User: "usr_1", ExternalID: &Personal{Box: &Box{}}, Traits: &Personal{Box: &Box{Cipher: []byte{}}}},
		"created, negative":   EndUserCreated{User: "usr_1", Generation: -1, ExternalID: boxed(1), Traits: boxed(1)},
		"traits changed":      EndUserTraitsChanged{User: "usr_1", Traits: boxed(300)},
		"traits changed, nil": EndUserTraitsChanged{User: "usr_1"},
		"erased":              EndUserErased{User: "usr_1"},
	} {
		got, err := Encode(e)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := json.Marshal(plainJSON(e))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-json +quick):\n%s", name, diff)
		}
		typ, version, err := All().Name(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := All().Decode(typ, version, got)
		if diff := cmp.Diff(e, back, cmpopts.IgnoreUnexported(Personal{}, EndUserCreated{}, EndUserTraitsChanged{}, EndUserErased{})); err != nil || diff != "" {
			t.Errorf("%s comes back as (-want +got), %v:\n%s", name, err, diff)
		}
	}
}

// plainJSON is an event of the same fields that encoding/json alone writes.
func plainJSON(e Event) any {
	box := func(p *Personal) *Box {
		if p == nil {
			return nil
		}
		return p.Box
	}
	switch e := e.(type) {
	case EndUserCreated:
		return struct {
			User       any  `json:"user_id"`
			Generation int  `json:"generation"`
			ExternalID *Box `json:"external_id"`
			Traits     *Box `json:"traits"`
		}{e.User, e.Generation, box(e.ExternalID), box(e.Traits)}
	case EndUserTraitsChanged:
		return struct {
			User   any  `json:"user_id"`
			Traits *Box `json:"traits"`
		}{e.User, box(e.Traits)}
	}
	return e
}

// FuzzQuickReading: what is read quickly is read as encoding/json would.
func FuzzQuickReading(f *testing.F) {
	for _, e := range []Event{
		EndUserCreated{User: "usr_1", Generation: 12, ExternalID: boxed(3), Traits: boxed(5)},
		EndUserTraitsChanged{User: "usr_1", Traits: boxed(4)},
	} {
		data, err := Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add([]byte(strings.Replace(string(data), ":", ": ", 1)))
		f.Add([]byte(strings.Replace(string(data), `"}`, `="}`, 1)))
	}
	type slow struct {
		User       string `json:"user_id"`
		Generation int    `json:"generation"`
		ExternalID *Box   `json:"external_id"`
		Traits     *Box   `json:"traits"`
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var created EndUserCreated
		var changed EndUserTraitsChanged
		var want slow
		switch {
		case created.readFrom(data):
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			got := slow{string(created.User), created.Generation, created.ExternalID.Box, created.Traits.Box}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		case changed.readFrom(data):
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, slow{User: string(changed.User), Traits: changed.Traits.Box}); diff != "" {
				t.Error(diff)
			}
		}
	})
}
