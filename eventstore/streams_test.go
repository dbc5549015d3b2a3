package eventstore_test

import (
	"strings"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/eventstore"
)

// What is on record was sealed under these names.
func TestStreamsKeepTheirNames(t *testing.T) {
	attempt := event.RunAttempt{Run: "run_1", Attempt: 2}
	for want, got := range map[string]eventstore.Stream{
		"client-cli_1":                      eventstore.ClientStream("cli_1"),
		"sandboxes-cli_1":                   eventstore.SandboxesStream("cli_1"),
		"sandbox-cli_1":                     eventstore.SandboxStream("cli_1"),
		"apikey-cli_1-key_1":                eventstore.APIKeyStream("cli_1", "key_1"),
		"user-cli_1-usr_1":                  eventstore.UserStream("cli_1", "usr_1"),
		"matches-cli_1-usr_1":               eventstore.MatchStream("cli_1", "usr_1"),
		"interactions-cli_1-usr_1-cam_1":    eventstore.InteractionStream("cli_1", "usr_1", "cam_1"),
		"traitschema-cli_1":                 eventstore.TraitSchemaStream("cli_1"),
		"webhook-cli_1-whk_1":               eventstore.WebhookStream("cli_1", "whk_1"),
		"deliveries-cli_1-whk_1-20260131":   eventstore.EndingsStream("cli_1", "whk_1", time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)),
		"campaign-cli_1-cam_1":              eventstore.CampaignStream("cli_1", "cam_1", 0),
		"spending-cli_1-cam_1-3":            eventstore.CampaignStream("cli_1", "cam_1", 3),
		"impressions-cli_1-cam_1-usr_1":     eventstore.ImpressionsStream("cli_1", "cam_1", "usr_1"),
		"engagement-cli_1-ipr_1":            eventstore.EngagementStream("cli_1", "ipr_1"),
		"layer-cli_1-lay_1":                 eventstore.LayerStream("cli_1", "lay_1"),
		"consent-cli_1-lay_1-usr_1":         eventstore.ConsentStream("cli_1", "lay_1", "usr_1"),
		"consents-cli_1-lay_1":              eventstore.AllConsentsStream("cli_1", "lay_1"),
		"consents-cli_1-lay_1-req_1":        eventstore.ConsentRequestStream("cli_1", "lay_1", "req_1"),
		"runs-cli_1-lay_1":                  eventstore.RunsStream("cli_1", event.RunScope{Layer: "lay_1"}),
		"runs-cli_1-lay_1-seg_1":            eventstore.RunsStream("cli_1", event.RunScope{Layer: "lay_1", Segment: "seg_1"}),
		"run-cli_1-run_1-2":                 eventstore.AssignedStream("cli_1", attempt),
		"profile-cli_1-run_1-2-clu_1":       eventstore.ProfileStream("cli_1", attempt, "clu_1"),
		"profile-cli_1-run_1-2":             eventstore.ProfileStream("cli_1", attempt, ""),
		"slug-01" + strings.Repeat("0", 62): eventstore.ClaimStream("slug", [32]byte{1}),
	} {
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
