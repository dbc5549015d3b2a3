package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain/id"
	"kindred/golden"
)

// samples are one event of each type with every field set, as it is written
// today. What was written before stays in testdata for ever.
func samples() []Event {
	const (
		client   id.Client       = "cli_04hk8ls48pkqs04hk8ls48pkqs"
		member   id.Member       = "mem_04hk8ls48pkqs04hk8ls48pkqs"
		key      id.Key          = "key_04hk8ls48pkqs04hk8ls48pkqs"
		user     id.User         = "usr_04hk8ls48pkqs04hk8ls48pkqs"
		webhook  id.Webhook      = "whk_04hk8ls48pkqs04hk8ls48pkqs"
		campaign id.Campaign     = "cam_04hk8ls48pkqs04hk8ls48pkqs"
		layer    id.ConsentLayer = "lay_04hk8ls48pkqs04hk8ls48pkqs"
		run      id.Run          = "run_04hk8ls48pkqs04hk8ls48pkqs"
		cluster  id.Cluster      = "clu_04hk8ls48pkqs04hk8ls48pkqs"
		segment  id.Segment      = "seg_04hk8ls48pkqs04hk8ls48pkqs"
		sandbox  id.Client       = "cli_04hk8ls48rsqs04hk8ls48pkqs" // it says so
	)
	box := func(n byte) *Personal {
		return &Personal{Box: &Box{Key: "k" + string('0'+n), Commitment: []byte{n, 1}, Cipher: []byte{n, 2}}}
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	terms := CampaignTerms{
		Name: "Spring", BudgetMinor: 1_000, Currency: "EUR", Audience: "clusters", Clusters: []id.Cluster{"clu_04hk8ls48pkqs04hk8ls48pkqs"},
		StartsAt: &at, EndsAt: &at, FrequencyCap: 3, FrequencyWindow: 86_400,
	}
	cause := DriftCause{Kind: "trait", Baseline: "previous", Trait: "city", Amount: 0.6, Severity: "major"}
	state := ClusterState{
		Cluster: cluster, Layer: layer, Run: run, First: RunAttempt{Run: run, Attempt: 2}, Size: 300, Label: "high age", Spread: 1.5,
		Distinctions: []Distinction{{Path: "city", Type: "category", Level: "Rome", Effect: 0.5, Here: 0.8, All: 0.3}},
		Standing:     []DriftCause{cause},
	}
	access := AccessStanding{
		Changes: 2, PasswordSet: new(int64(5)),
		Sessions: []SessionStanding{{Session: "ses_04hk8ls48pkqs04hk8ls48pkqs", Hash: []byte{1, 2, 3}, OpenedAt: at}},
	}
	types := []string{"match.computed", "cluster.drift_detected"}
	return []Event{
		ClientSignedUp{Client: client, Name: "Acme & Söhne", Slug: "acme-s-hne"},
		ClientAbandoned{Client: client},
		ClientRenamed{Client: client, Name: "Acme"},
		ClientSettingsChanged{Client: client, Settings: Settings{WebhookUserIDs: "external_id", MatchingRequiresLayer: true, AutomaticMatching: AutomaticMatching{On: true, K: 5, MinScore: 0.75}}},
		MemberAdded{Member: member, Role: "owner", Email: box(1), PasswordHash: box(2)},
		MemberRemoved{Member: member, RevokesKeys: true, KeptKeys: []id.Key{key}, Added: new(int64(7))},
		MemberLoggedIn{Member: member, Network: box(1)},
		MemberPasswordSet{Member: member, PasswordHash: box(1), Standing: access},
		SessionOpened{Member: member, Session: access.Sessions[0].Session, Ended: []id.Session{"ses_0000000000000000000000000g"}, Standing: access},
		SessionEnded{Member: member, Session: "ses_0000000000000000000000000g", Standing: access},
		MemberAbandoned{Member: member},
		ClientSnapshotTaken{
			Client: client, Revision: 120, Name: "Acme", Slug: "acme",
			Settings: Settings{WebhookUserIDs: "external_id", MatchingRequiresLayer: true, AutomaticMatching: AutomaticMatching{On: true, K: 5, MinScore: 0.75}},
			Members:  []MemberStanding{{Member: member, Role: "owner", Added: 1}},
		},
		Reserved{Client: client, Member: member},
		Confirmed{Client: client, Member: member},
		Released{Client: client, Member: member},
		APIKeyIssued{Key: key, Name: "server", Hash: []byte{1, 2, 3}, Fingerprint: "ab12", Scopes: []string{"read", "write"}, Implied: []string{"webhooks"}, IssuedBy: member, ExpiresAt: &at},
		APIKeyRevoked{Key: key},
		EndUserCreated{User: user, Generation: 1, ExternalID: box(1), Traits: box(2)},
		EndUserTraitsChanged{User: user, Traits: box(1)},
		EndUserErased{User: user},
		MatchComputed{
			User: user, MatchedUser: "usr_0000000000000000000000000g", Score: 0.87654321, Percentile: 99.5, Coverage: 0.75, Remaining: 3, Layer: layer, Schema: 7,
			Explanation: []Term{{Trait: "city", Weight: 2, Similarity: 0.5, Contribution: 0.25}, {Trait: "plan", Weight: 1, Similarity: 0.43, Contribution: 0.62654321, Missing: true}},
		},
		ConsentLayerDefined{Layer: layer, Name: "Research", TraitPaths: []string{"city", "a.b"}, MatchRule: "traits.city == viewer.traits.city"},
		ConsentLayerChanged{Layer: layer, Name: "Research", TraitPaths: []string{"city"}, MatchRule: "traits.city == viewer.traits.city"},
		ConsentLayerRetired{Layer: layer},
		SegmentDefined{Segment: segment, Name: "Pros", Rule: box(1), Refers: []id.Segment{segment}, Layer: layer},
		SegmentChanged{Segment: segment, Name: "Pros", Rule: box(1), Refers: []id.Segment{segment}},
		SegmentRetired{Segment: segment},
		SegmentReady{Revision: 7},
		SegmentsSnapshotTaken{Revision: 100, Ready: 98, Segments: []SegmentStanding{{Segment: segment, Name: "Pros", Refers: []id.Segment{segment}, Held: []id.Segment{segment}, Changed: 3, Ruled: 2, Layer: layer}}},
		SegmentsTimePassed{AsOf: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)},
		SandboxAdded{Sandbox: sandbox, Name: "ci", ExpiresAt: &at, Standing: []SandboxStanding{{Sandbox: sandbox, Name: "ci", ExpiresAt: &at}}},
		SandboxRemoved{Sandbox: sandbox, Standing: []SandboxStanding{{Sandbox: client, Name: "staging", ExpiresAt: &at}}},
		SandboxOpened{Client: sandbox, Parent: client, Name: "ci", Slug: "acme--04hk8ls48rkqs04hk8ls48pkqs"},
		ClockMoved{Client: sandbox, To: at, MovedMicros: 3_600_000_000, AheadMicros: 7_200_000_000},
		ClientDeleted{Client: sandbox, Parent: client},
		ConsentGrantedToAll{Layer: layer},
		ConsentOfAllChanged{Layer: layer, Granted: true, Changed: 120, Unchanged: 3},
		ConsentWithdrawnFromAll{Layer: layer},
		ConsentChangeRequested{Layer: layer, Granted: true},
		ConsentGranted{Layer: layer, User: user, Source: box(1)},
		ConsentWithdrawn{Layer: layer, User: user, Source: box(1)},
		ClusteringRequested{Run: run, Layer: layer, TraitPaths: []string{"city"}, K: 3, Seed: 7, MinSize: 50},
		ClusteringStarted{Run: run, Layer: layer, Attempt: 2},
		ClusteringAssigned{Run: run, Layer: layer, Attempt: 2, Cluster: cluster, Users: []id.User{user}},
		ClusteringProfiled{Run: run, Layer: layer, Attempt: 2, Cluster: cluster, Profile: box(1)},
		ClusteringCancelled{Run: run, Layer: layer},
		ClusteringCompleted{
			Run: run, Layer: layer, Attempt: 2, Users: 300, SchemaVersion: 4, Schema: "0123456789abcdef", Silhouette: 0.5,
			Clusters: []ClusterSummary{{ID: cluster, Size: 300, Label: "high age"}},
		},
		ClusteringFailed{Run: run, Layer: layer, Code: "not_enough_users", Details: "Clustering run x failed."},
		ClusteringJudging{Run: run, Layer: layer, Attempt: 1},
		ClusteringJudged{
			Run: run, Layer: layer, Verdict: "unknown", Code: "cancelled", Users: 300,
			Shuffled:  &NullComparison{P: 0.025, K: 3, Silhouette: 0.5, Expected: 0.25},
			Cloud:     &NullComparison{P: 0.5, K: 4, Silhouette: 0.375, Expected: 0.25},
			Stability: []ClusterStability{{Cluster: cluster, Jaccard: 0.875}},
		},
		ClusterFormed{ClusterState: state, Ancestors: []id.Cluster{cluster}},
		ClusterKept{ClusterState: state, Ancestors: []id.Cluster{cluster}, Comparisons: []ClusterComparison{{
			Baseline: "previous", With: run, Judged: true, Jaccard: 0.9, ShareBefore: 0.5, ShareAfter: 0.6, Shift: 1.5,
			Causes: []DriftCause{cause}, Traits: []TraitDrift{{Path: "city", PSI: 0.6, Limit: 0.2}},
		}}},
		ClusterRetired{Cluster: cluster, Layer: layer, Run: run, Descendants: []id.Cluster{cluster}},
		ClusterDriftDetected{Cluster: cluster, Layer: layer, Run: run, Severity: "major", Causes: []DriftCause{cause}},
		WebhookSubscribed{Webhook: webhook, WebhookAddress: WebhookAddress{URL: box(2), ClearURL: "https://x.example/?a=1&b=2"}, EventTypes: types, Secret: box(1)},
		WebhookChanged{Webhook: webhook, WebhookAddress: WebhookAddress{URL: box(1), ClearURL: "https://x.example"}, EventTypes: types},
		WebhookPaused{Webhook: webhook},
		WebhookResumed{Webhook: webhook},
		WebhookSecretRotated{Webhook: webhook, Secret: box(1)},
		WebhookRemoved{Webhook: webhook},
		WebhookHeadersSet{Webhook: webhook, Names: []string{"Authorization", "X-Tenant"}, Headers: box(1)},
		WebhookControlsSet{Webhook: webhook, EndpointControls: EndpointControls{RespectRetryAfter: true, DisableAfter: 86_400, MaxPerSecond: 50, Ordered: true, Ed25519: true, Filter: `data.score > 0.8`}},
		WebhookDisabled{Webhook: webhook, FailingSince: at},
		WebhookKeyMade{Key: "wky_04hk8ls48pkqs04hk8ls48pkqs", PublicKey: []byte("a public key"), PrivateKey: box(1)},
		WebhookSnapshotTaken{
			Webhook: webhook, WebhookAddress: WebhookAddress{URL: box(1), ClearURL: "https://x.example"}, EventTypes: types, Paused: true, Signed: true,
			Disabled: true, Headers: []string{"X-Tenant"}, EndpointControls: EndpointControls{RespectRetryAfter: true, DisableAfter: 86_400, MaxPerSecond: 50, Ordered: true, Ed25519: true, Filter: `data.score > 0.8`},
		},
		DeliveriesEnded{Webhook: webhook, Deliveries: []Ending{{
			Delivery: "dlv_04hk8ls48pkqs04hk8ls48pkqs", Event: "evt_04hk8ls48pkqs04hk8ls48pkqs", State: "dropped", Attempts: 6,
		}}},
		InteractionRecorded{User: user, Item: "usr_0000000000000000000000000g", Kind: "click", Impression: "0102.3", Position: 3},
		TraitSchemaInferred{Client: client, Users: 120, Schema: box(1)},
		TraitSchemaOverridden{Overrides: map[string]TraitOverride{"a.b": {Type: "category", Weight: new(2.5), Ignore: new(false), Sensitive: new(true)}}},
		CampaignDrafted{Campaign: campaign, CampaignTerms: terms},
		CampaignChanged{Campaign: campaign, CampaignTerms: terms},
		CampaignScheduled{Campaign: campaign},
		CampaignStarted{Campaign: campaign, StartedAt: at},
		CampaignPaused{Campaign: campaign},
		CampaignResumed{Campaign: campaign},
		CampaignCompleted{Campaign: campaign, Reason: "budget"},
		CampaignCancelled{Campaign: campaign},
		CampaignBudgetExhausted{Campaign: campaign, BudgetMinor: 1_000, SpentMinor: 1_050},
		CampaignSpendRecorded{Campaign: campaign, SpendID: "inv-7", AmountMinor: 150, Currency: "EUR", SpentMinor: 1_050, BudgetMinor: 1_000},
		CampaignSpendingOpened{
			Campaign: campaign, Part: 2, CampaignTerms: terms, Status: "running", SpentMinor: 900, Changes: 4,
			CreatedAt: at, UpdatedAt: at, StartedAt: at,
		},
		CampaignSpendingClosed{Campaign: campaign, Part: 1, SpentMinor: 900},
		CampaignEngagementRecorded{Campaign: campaign, Impression: "ipr_04hk8ls48pkqs04hk8ls48pkqs", User: user, Kind: "click"},
	}
}

func sampleFile(name string, version int) string {
	return filepath.Join("testdata", fmt.Sprintf("%s.v%d.json", name, version))
}

func TestSamplesSetEveryField(t *testing.T) {
	for _, e := range samples() {
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name != "fact" && v.Field(i).IsZero() {
				t.Errorf("%T leaves %s empty", e, f.Name)
			}
		}
	}
}

// What is written today is what the newest sample shows: a shape that has
// changed needs a new version, not a new sample.
func TestEveryTypeIsWrittenAsItsNewestSample(t *testing.T) {
	r, seen := All(), map[string]bool{}
	for _, e := range samples() {
		name, version, err := r.Name(e)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = true
		got, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(sampleFile(name, version))
		if errors.Is(err, os.ErrNotExist) && *golden.Update {
			if err := os.WriteFile(sampleFile(name, version), append(got, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v; make golden writes a sample that is new", err)
			continue
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s version %d is not written as its sample any more: %s", name, version, diff)
		}
		decoded, err := r.Decode(name, version, want)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(e, decoded, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("%s does not survive being stored: %s", name, diff)
		}
	}
	for name := range r.Types() {
		if !seen[name] {
			t.Errorf("there is no sample of %s", name)
		}
	}
}

func TestEveryVersionEverWrittenIsRead(t *testing.T) {
	r := All()
	for name, newest := range r.Types() {
		for version := 1; version <= newest; version++ {
			data, err := os.ReadFile(sampleFile(name, version))
			if err != nil {
				t.Errorf("%v; make golden writes a sample that is new", err)
				continue
			}
			if _, err := r.Decode(name, version, data); err != nil {
				t.Errorf("%s version %d: %v", name, version, err)
			}
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, v, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), ".v")
		if version, err := strconv.Atoi(v); err != nil || version > r.Types()[name] {
			t.Errorf("%s is a sample of what is not known", file)
		}
	}
}

// The types are read off the source: whatever embeds fact is an event.
func TestEveryEventIsRegisteredOnce(t *testing.T) {
	declared := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			shape, ok := spec.Type.(*ast.StructType)
			if ok && slices.ContainsFunc(shape.Fields.List, func(f *ast.Field) bool {
				ident, ok := f.Type.(*ast.Ident)
				return ok && ident.Name == "fact" && len(f.Names) == 0
			}) {
				declared[spec.Name.Name] = true
			}
			return true
		})
	}
	registered := map[string]bool{}
	for shape := range All().byShape {
		registered[shape.Name()] = true
	}
	if diff := cmp.Diff(declared, registered); diff != "" || len(All().byName) != len(registered) {
		t.Errorf("declared and registered differ: %s", diff)
	}
}

func TestPersonalFieldsAreListedUnderTheirJSONNames(t *testing.T) {
	for _, e := range samples() {
		want := map[string]*Personal{}
		v := reflect.ValueOf(e)
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Type == reflect.TypeFor[*Personal]() {
				want[name] = v.FieldByIndex(f.Index).Interface().(*Personal)
			}
		}
		got := map[string]*Personal{}
		if b, ok := e.(PersonalData); ok {
			if b.Subject() == "" {
				t.Errorf("%T has no subject", e)
			}
			for _, f := range b.Personal() {
				got[f.Name] = f.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%T lists %v, has %v", e, got, want)
		}
	}
}
