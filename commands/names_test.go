package commands_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/golden"
	"kindred/testkit"
)

// sevens is entropy that is always the same.
type sevens struct{}

func (sevens) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 7
	}
	return len(p), nil
}

// A request that is repeated after an upgrade finds what it did before by the ids
// of its events, which follow from its seed, the stream and the order.
func TestIdentifiersThatFollowFromARequestStay(t *testing.T) {
	w := newFixture(t)
	master := testkit.Must(seal.ParseMasterKeys("m:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))))(t)
	w.Log.Vault = seal.New(w.keys, master, sevens{}) // claims stand in streams that its keys name
	w.Log.Vault.Now = w.clock
	w.matcher.found = []event.MatchComputed{{MatchedUser: id.From[id.User]([16]byte{7}), Score: 0.5}}
	w.Directory = directory{t, w}
	ctx := t.Context()
	account := testkit.Must(w.SignUp(ctx, commands.Call{Seed: []string{"sign up"}}, commands.SignUp{Email: "ada@example.com", Password: "x", CompanyName: "Acme"}))(t)
	call := commands.Call{Client: account.Client, Member: account.Member, Actor: string(account.Member)}
	step := func(key string) commands.Call { return seeded(call, key, "body") }

	_, err1 := w.AddMember(ctx, step("member"), commands.AddMember{Email: "bob@example.com", Role: "admin", Password: "x"})
	_, err2 := w.IssueAPIKey(ctx, step("key"), commands.IssueAPIKey{Name: "server"})
	user, err3 := w.CreateUser(ctx, step("user"), "u1", []byte(`{"a":1}`))
	_, err4 := w.ChangeTraits(ctx, step("traits"), "ext:u1", []byte(`{"a":2}`))
	_, err5 := w.ImportUsers(ctx, w.accept(step("import")), "merge", lines([]commands.Imported{{Line: 1, ExternalID: "u2", Traits: []byte(`{"a":1}`)}}, nil))
	secret := "s3cret"
	webhook, err6 := w.Subscribe(ctx, step("webhook"), commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}, Secret: &secret})
	_, err7 := w.ComputeMatches(ctx, step("matches"), commands.ComputeMatches{User: "ext:u1", Limit: 5, Record: true})
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	layer, err1 := w.DefineConsentLayer(ctx, step("layer"), "Research", []string{"a"}, "")
	_, err2 = w.ChangeConsents(ctx, step("grants"), commands.ChangeConsents{Layer: layer.ID, Grant: true, Users: []commands.UserRef{"ext:u1"}})
	_, err3 = w.ChangeConsents(ctx, step("all grants"), commands.ChangeConsents{Layer: layer.ID, Grant: true, All: true})
	_, err4 = w.RequestRun(ctx, step("run"), commands.RequestRun{RunScope: event.RunScope{Layer: layer.ID}, K: 3})
	_, err5 = w.Interact(ctx, step("interaction"), commands.Interact{User: "ext:u1", Item: "ext:u2", Kind: "click"})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	campaign, err1 := w.DraftCampaign(ctx, step("campaign"), event.CampaignTerms{Name: "Spring", BudgetMinor: 100, Currency: "EUR", Audience: "all"})
	_, err2 = w.ChangeCampaign(ctx, step("start"), campaign.ID, keeping("running"))
	_, err3 = w.RecordSpend(ctx, step("spend"), commands.Spend{Campaign: campaign.ID, ID: "invoice-1", AmountMinor: 40})
	shown, err4 := w.RecordEngagement(ctx, step("impression"), commands.Engage{Campaign: campaign.ID, Kind: "impression", User: "ext:u1"})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	impression := shown.Event.(event.CampaignEngagementRecorded).Impression
	_, err1 = w.RecordEngagement(ctx, step("click"), commands.Engage{Campaign: campaign.ID, Kind: "click", Impression: impression})
	_, err2 = w.RecordSpend(ctx, step("last spend"), commands.Spend{Campaign: campaign.ID, ID: "invoice-2", AmountMinor: 60})
	err3 = w.RecordEndings(ctx, call.Client, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), -1, event.DeliveriesEnded{
		Webhook: webhook.ID, Deliveries: []event.Ending{{Delivery: "dlv_1", Event: "evt_1", State: "dropped", Attempts: 6}},
	})
	_, err4 = w.EraseUser(ctx, step("erase"), commands.UserRef(user.ID))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, r := range w.records(t) {
		of := string(r.ID)
		if !id.IsDerived(r.ID) {
			of = "found by its stream"
		}
		got = append(got, fmt.Sprintf("%s revision %d %s is %s", r.Stream, r.Revision, r.Type, of))
	}
	golden.Check(t, "requests.txt", got)
}
