package eventstore_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/golden"
	"kindred/testkit"
)

// What stands in a log is found by the names of its streams, bound to them, and
// hashed over its bytes.
func TestStreamsAndEnvelopesStay(t *testing.T) {
	const (
		client   id.Client       = "cli_1"
		user     id.User         = "usr_1"
		webhook  id.Webhook      = "whk_1"
		campaign id.Campaign     = "cam_1"
		layer    id.ConsentLayer = "lay_1"
	)
	attempt := event.RunAttempt{Run: "run_1", Attempt: 2}
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	streams := []eventstore.Stream{
		eventstore.ClientStream(client), eventstore.LoginsStream(client, "mem_1"), eventstore.AccessStream(client, "mem_1"), eventstore.APIKeyStream(client, "key_1"),
		eventstore.UserStream(client, user), eventstore.MatchStream(client, user), eventstore.InteractionStream(client, user, "usr_2"),
		eventstore.TraitSchemaStream(client), eventstore.WebhookStream(client, webhook), eventstore.WebhookKeysStream(client), eventstore.EndingsStream(client, webhook, day),
		eventstore.CampaignStream(client, campaign, 0), eventstore.ImpressionsStream(client, campaign, user),
		eventstore.EngagementStream(client, "ipr_1"), eventstore.LayerStream(client, layer), eventstore.ConsentStream(client, layer, user),
		eventstore.AllConsentsStream(client, layer), eventstore.ConsentRequestStream(client, layer, "req_1"), eventstore.RunsStream(client, event.RunScope{Layer: layer}),
		eventstore.AssignedStream(client, attempt), eventstore.ProfileStream(client, attempt, "clu_1"), eventstore.ClaimStream("email", [32]byte{7}),
		eventstore.SegmentsStream(client), eventstore.SegmentTimeStream(client), eventstore.SandboxesStream(client), eventstore.SandboxStream(client),
	}
	if n := returningStreams(t); n != len(streams) {
		t.Errorf("%d functions name streams, %d are listed here", n, len(streams))
	}
	streams = append(streams, eventstore.CampaignStream(client, campaign, 2), eventstore.ProfileStream(client, attempt, ""), eventstore.RunsStream(client, event.RunScope{Layer: layer, Segment: "seg_1"}))
	var lines []string
	for _, s := range streams {
		lines = append(lines, "stream "+string(s))
		if s.Client() != client && (!s.Shared() || s.Client() != "") {
			t.Errorf("%s is a stream of %q", s, s.Client())
		}
	}

	meta := eventstore.Meta{
		Client: client, Version: 2, RecordedAt: noon.UTC(), Actor: "mem_1", Correlation: "req_1", Causation: "evt_1", Request: "mac", Previous: "00",
	}
	traced := meta
	traced.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for i := range reflect.TypeFor[eventstore.Meta]().NumField() {
		if reflect.ValueOf(traced).Field(i).IsZero() {
			t.Error("the envelope leaves a field empty")
		}
	}
	for of, meta := range map[string]eventstore.Meta{"that": meta, "that in a trace": traced} {
		written := testkit.Must(json.Marshal(meta))(t)
		hash, err := eventstore.Hash(eventstore.Record{
			Stream: "user-1", Revision: 3,
			Proposed: eventstore.Proposed{ID: id.From[id.Event]([16]byte{7}), Type: "end_user.erased", Data: []byte(`{"user_id":"usr_1"}`), Meta: written},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "meta "+string(written), fmt.Sprintf("hash of %s at user-1 revision 3 %x", of, hash))
	}
	golden.Check(t, "log.txt", lines)
}

// returningStreams counts the exported functions that return a stream.
func returningStreams(t *testing.T) (n int) {
	t.Helper()
	file := testkit.Must(parser.ParseFile(token.NewFileSet(), "streams.go", nil, 0))(t)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && fmt.Sprint(f.Type.Results.List[0].Type) == "Stream" {
			n++
		}
	}
	return n
}
