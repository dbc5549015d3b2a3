package demo

import "net/http"

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
