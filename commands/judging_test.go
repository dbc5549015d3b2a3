package commands_test

import (
	"context"
	"errors"
	"testing"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/id"
)

// TestRulesAreReadInPlaces: to read a rule of 4 KiB takes some 10 ms, and a client may send a thousand a second.
func TestRulesAreReadInPlaces(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	ofEvents, ofUsers := "data.score > 1", "traits.age > 1"
	full := errors.New("no place is free")
	var asked []id.Client
	w.Judging = func(_ context.Context, client id.Client, _ func() error) error {
		asked = append(asked, client)
		return full
	}
	for name, send := range map[string]func() error{
		"a match rule": func() error {
			_, err := w.ChangeClient(t.Context(), call, commands.ClientChange{Settings: domain.SettingsChange{MatchRule: &ofUsers}})
			return err
		},
		"a layer's match rule": func() error {
			_, err := w.DefineConsentLayer(t.Context(), call, "layer", []string{"age"}, ofUsers)
			return err
		},
		"a webhook's filter": func() error {
			_, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "http://a.example", EventTypes: []string{"match.computed"}, Controls: domain.ControlsChange{Filter: &ofEvents}})
			return err
		},
		"a segment's rule": func() error {
			_, err := w.DefineSegment(t.Context(), call, "segment", ofUsers, "")
			return err
		},
	} {
		asked = nil
		if err := send(); !errors.Is(err, full) || len(asked) != 1 || asked[0] != call.Client {
			t.Errorf("%s is read without a place: %v, asked for %v", name, err, asked)
		}
	}
}
