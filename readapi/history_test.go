package readapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/eventstore/audit"
	"kindred/testkit"
)

func TestEverySealedFieldIsShownOpened(t *testing.T) {
	registry := event.All()
	for name, version := range registry.Types() {
		e := testkit.Must(registry.Decode(name, version, []byte(`{}`)))(t)
		bearer, ok := e.(event.PersonalData)
		if !ok {
			continue
		}
		for _, field := range bearer.Personal() {
			if field.Name == "secret" || field.Name == "headers" || field.Name == "private_key" || field.Name == "password_hash" {
				continue // nobody is shown these
			}
			opened := map[string]json.RawMessage{field.Name: json.RawMessage(`"what was sealed"`)}
			body := testkit.Must(historyEvent(audit.Event{Ordinal: new(int64), Personal: opened}))(t)
			encoded := testkit.Must(json.Marshal(body.Personal))(t)
			var shown map[string]json.RawMessage
			if err := json.Unmarshal(encoded, &shown); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(opened, shown); diff != "" {
				t.Errorf("%s (-opened +shown):\n%s", name, diff)
			}
		}
	}
}
