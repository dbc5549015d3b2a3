package commands_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
)

// shown is a user, and another one who stands in the feed.
func (w *fixture) shown(t *testing.T) (call commands.Call, in commands.Interact) {
	t.Helper()
	_, call = w.client(t, "a@example.com")
	for _, external := range []string{"ada", "bob"} {
		if _, err := w.CreateUser(t.Context(), call, external, json.RawMessage(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	return call, commands.Interact{User: "ext:ada", Item: "ext:bob", Kind: "click", Impression: "f.3", Position: 3}
}

func TestAnInteractionIsRecordedOnce(t *testing.T) {
	w := newFixture(t)
	call, in := w.shown(t)
	first, err := w.Interact(t.Context(), call, in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Interact(t.Context(), call, in)
	if err != nil || again.RecordedAt != first.RecordedAt || again.Position != "" {
		t.Errorf("again: %+v, %v", again, err)
	}
	campaign, err := w.DraftCampaign(t.Context(), call, event.CampaignTerms{Name: "a", BudgetMinor: 1, Currency: "EUR", Audience: "all"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		change func(*commands.Interact)
		added  int
	}{
		{"another answer to the same impression", func(i *commands.Interact) { i.Kind = "conversion" }, 1},
		{"the same answer to another impression", func(i *commands.Interact) { i.Impression = "f.4" }, 1},
		{"the same answer to no impression", func(i *commands.Interact) { i.Impression = "" }, 1},
		{"a dismissal", func(i *commands.Interact) { i.Kind = "dismiss" }, 1},
		{"a dismissal of what was dismissed", func(i *commands.Interact) { i.Kind, i.Impression = "dismiss", "" }, 0},
		{"a campaign", func(i *commands.Interact) { i.Item, i.Kind = string(campaign.ID), "dismiss" }, 1},
	} {
		before, changed := w.count(t, "feed.interaction_recorded"), in
		c.change(&changed)
		if _, err := w.Interact(t.Context(), call, changed); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if added := w.count(t, "feed.interaction_recorded") - before; added != c.added {
			t.Errorf("%s adds %d", c.what, added)
		}
	}
}

func TestAnInteractionIsRefused(t *testing.T) {
	w := newFixture(t)
	call, in := w.shown(t)
	refused := func(change func(*commands.Interact), code string) {
		t.Helper()
		changed := in
		change(&changed)
		_, err := w.Interact(t.Context(), call, changed)
		wantFault(t, err, code)
	}
	refused(func(i *commands.Interact) { i.User = "ext:eve" }, "user_unknown")
	refused(func(i *commands.Interact) { i.Item = "ext:eve" }, "item_unknown")
	refused(func(i *commands.Interact) { i.Item, i.Kind = "ext:eve", "dismiss" }, "item_unknown")
	refused(func(i *commands.Interact) { i.Item, i.Kind = string(id.From[id.Campaign]([16]byte{1})), "dismiss" }, "item_unknown")
	refused(func(i *commands.Interact) { i.Item = "ext:ada" }, "invalid")
	if _, err := w.EraseUser(t.Context(), call, "ext:bob"); err != nil {
		t.Fatal(err)
	}
	refused(func(*commands.Interact) {}, "item_unknown")
}

func TestARepeatedInteractionMeetsItsOwn(t *testing.T) {
	w := newFixture(t)
	call, in := w.shown(t)
	in.Impression = "" // nothing but the key tells the two apart
	first, err := w.Interact(t.Context(), seeded(call, "k1", "body"), in)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := w.Interact(t.Context(), call, in); err != nil {
			t.Fatal(err)
		}
	}
	again, err := w.Interact(t.Context(), seeded(call, "k1", "body"), in)
	if err != nil || again.Position != first.Position || first.Position == "" || again.RecordedAt != first.RecordedAt {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	_, err = w.Interact(t.Context(), seeded(call, "k1", "another"), in)
	wantFault(t, err, "idempotency_key_reused")
	if n := w.count(t, "feed.interaction_recorded"); n != 51 {
		t.Errorf("%d were recorded, not 51", n)
	}
}

func TestInteractionsAtOnceAreAllRecorded(t *testing.T) {
	w := newFixture(t)
	call, in := w.shown(t)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			each := in
			each.Impression = fmt.Sprintf("f.%d", i/2) // each twice
			if _, err := w.Interact(t.Context(), call, each); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := w.count(t, "feed.interaction_recorded"); n != 16 {
		t.Errorf("%d were recorded, not 16", n)
	}
}
