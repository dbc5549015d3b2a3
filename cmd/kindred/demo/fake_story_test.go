package demo

import (
	"encoding/json"
	"fmt"
	"net/http"

	"kindred/domain/rule"
)

func (f *fake) listEvents(w http.ResponseWriter, q *http.Request) {
	from, all := 0, f.events
	_, _ = fmt.Sscanf(q.URL.Query().Get("after"), "evt_%d", &from)
	if f.fault == "hides what a pause hid" {
		all = all[:10]
	}
	events := all[from:]
	if f.fault == "pulls what was told twice" && from > 0 {
		events = all[from-1:]
	}
	data := []json.RawMessage{}
	for _, e := range events[:min(5, len(events))] {
		data = append(data, e)
	}
	f.answer(w, 200, map[string]any{"data": data, "has_more": len(events) > 5, "last_id": fmt.Sprintf("evt_%d", from+len(data))})
}

func (f *fake) defineSegment(w http.ResponseWriter, q *http.Request) {
	var body struct{ Rule string }
	f.decode(q, &body)
	var err error
	if f.segment, err = rule.Parse(body.Rule, rule.Users); err != nil {
		f.t.Error(err)
	}
	f.answer(w, 201, map[string]any{"id": "seg_1", "state": "building"})
}

func (f *fake) members() (in map[string]bool) {
	in = map[string]bool{}
	for _, u := range f.users {
		if f.segment.Judge(&rule.Facts{Traits: u.Traits}) == rule.True {
			in[u.ID] = true
		}
	}
	return in
}

func (f *fake) getSegment(w http.ResponseWriter, _ *http.Request) {
	n := len(f.members())
	if f.fault == "miscounts a segment" {
		n++
	}
	f.answer(w, 200, map[string]any{"id": "seg_1", "state": "ready", "members": n})
}

func (f *fake) listMembers(w http.ResponseWriter, _ *http.Request) {
	f.inside = f.members()
	f.answer(w, 200, map[string]any{"data": []any{}, "next_cursor": nil, "changes_cursor": "here"})
}

func (f *fake) listChanges(w http.ResponseWriter, _ *http.Request) {
	changes, now := []any{}, f.members()
	for u := range f.inside {
		if !now[u] && f.fault != "keeps who has left" {
			changes = append(changes, map[string]any{"user_id": u, "change": "left"})
		}
	}
	f.answer(w, 200, map[string]any{"changes": changes, "cursor": "there", "has_more": false})
}

func (f *fake) listSegmentsOf(w http.ResponseWriter, q *http.Request) {
	segments := []any{}
	if f.members()[q.PathValue("id")] {
		segments = append(segments, map[string]any{"segment_id": "seg_1", "why": []any{map[string]any{"comparison": "its rule", "truth": "true"}}})
	}
	f.answer(w, 200, map[string]any{"segments": segments})
}

func (f *fake) defineLayer(w http.ResponseWriter, q *http.Request) {
	var body map[string]any
	f.decode(q, &body)
	body["id"] = "lay_1"
	f.answer(w, 201, body)
}

func (f *fake) grant(w http.ResponseWriter, _ *http.Request) {
	f.answer(w, 200, map[string]any{"changed": len(f.users), "unchanged": 0})
}

// startRun knows only runs that fail.
func (f *fake) startRun(w http.ResponseWriter, _ *http.Request) {
	const why = "run_1 failed: there are 0 users."
	f.run = map[string]any{"id": "run_1", "status": "failed", "error_details": why}
	told := why
	if f.fault == "gives another reason" {
		told = "Nobody."
	}
	f.answer(w, 202, map[string]any{"id": "run_1", "status": "pending"})
	f.tell("clustering.failed", map[string]any{"client_id": fakeClient, "consent_layer_id": "lay_1", "error_details": told})
}

func (f *fake) getRun(w http.ResponseWriter, _ *http.Request) { f.answer(w, 200, f.run) }

func (f *fake) draft(w http.ResponseWriter, q *http.Request) {
	var body map[string]any
	f.decode(q, &body)
	body["id"], body["status"] = "cam_1", "draft"
	f.answer(w, 201, body)
}

func (f *fake) startCampaign(w http.ResponseWriter, _ *http.Request) {
	f.answer(w, 200, map[string]any{"id": "cam_1", "status": "running"})
}

func (f *fake) feed(w http.ResponseWriter, q *http.Request) {
	of, first := q.PathValue("id"), f.users[0]
	if first.ID == of {
		first = f.users[1]
	}
	if f.fault == "feeds people themselves" {
		first.ID = of
	}
	items := []any{
		map[string]any{"type": "match", "user_id": first.ID, "external_id": first.ExternalID, "score": 0.5, "reason": "similar"},
	}
	if f.fault != "feeds no campaign" {
		items = append(items, map[string]any{"type": "campaign", "campaign_id": "cam_1", "score": 0.1, "reason": "campaign"})
	}
	f.answer(w, 200, map[string]any{"data": items})
}

// spend counts three records, and the third twice.
func (f *fake) spend(w http.ResponseWriter, q *http.Request) {
	var in struct {
		Amount int    `json:"amount_minor"`
		ID     string `json:"spend_id"`
	}
	f.decode(q, &in)
	if in.ID == "demo-4" && f.fault != "takes spend after the end" {
		f.refuse(w, 409, "campaign_not_running")
		return
	}
	status := "running"
	if f.spent < budget {
		f.spent += in.Amount
		if f.spent >= budget {
			f.tell("campaign.budget_exhausted", map[string]any{"client_id": fakeClient, "campaign_id": "cam_1"})
			if f.fault == "exhausts a budget twice" {
				f.tell("campaign.budget_exhausted", map[string]any{"client_id": fakeClient, "campaign_id": "cam_1"})
			}
		}
	}
	if f.spent >= budget {
		status = "completed"
	}
	f.answer(w, 201, map[string]any{"status": status, "spent_minor": f.spent, "remaining_minor": max(0, budget-f.spent)})
}

func (f *fake) engage(w http.ResponseWriter, q *http.Request) {
	var in struct{ Type string }
	f.decode(q, &in)
	f.engaged[in.Type]++
	f.answer(w, 201, map[string]any{"impression_id": "imp_1"})
}

func (f *fake) analytics(w http.ResponseWriter, _ *http.Request) {
	rate := 2 / float64(f.engaged["impression"])
	if f.fault == "miscounts engagement" {
		rate = 0.9
	}
	f.answer(w, 200, map[string]any{
		"status": "completed", "impressions": f.engaged["impression"], "engaged": 2, "clicks": f.engaged["click"],
		"conversions": f.engaged["conversion"], "reach": 5, "spends": 3, "spent_minor": f.spent, "engagement_rate": rate,
	})
}
