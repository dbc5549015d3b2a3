package e2e

import (
	"net/http"
	"strings"
	"testing"

	"kindred/httpapi"
)

func TestASubscriptionIsToldOfWhatItsFilterNames(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	p := newPairs(s)
	r := receive(t, 200)
	for _, wrong := range []string{`"data.score >"`, `"traits.plan == \"pro\""`, `""`, `"1 + 1"`, `7`} {
		got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", p.sendTo("POST", "/webhooks", `{"url":"`+r.URL+`","event_types":["match.computed"],"filter":`+wrong+`}`))
		if len(got.Errors) != 1 || got.Errors[0].Pointer != "/filter" {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
	hook := want[httpapi.Webhook](t, http.StatusCreated, p.sendTo("POST", "/webhooks", `{"url":"`+r.URL+`","event_types":["match.computed"],"filter":"data.score > 2"}`))
	if hook.Filter == nil || *hook.Filter != "data.score > 2" {
		t.Errorf("made %+v", hook)
	}
	path := "/webhooks/" + string(hook.ID)
	p.match("ann", "bob")
	seen := want[httpapi.Webhook](t, http.StatusOK, p.get(p.under(path)))
	if *seen.Deliveries.Filtered != 1 || seen.Deliveries.Pending != 0 || *seen.Filter != "data.score > 2" {
		t.Errorf("of what its filter leaves out: %+v", seen.Deliveries)
	}
	changed := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"filter":"data.score > 0 && data.user_id.startsWith(\"usr_\")"}`))
	if changed.Filter == nil || !strings.HasPrefix(*changed.Filter, "data.score > 0") {
		t.Errorf("changed %+v", changed)
	}
	p.match("ann", "bob")
	r.next(t)
	none := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"filter":null}`))
	if none.Filter != nil {
		t.Errorf("without it: %+v", none)
	}
	p.match("ann", "bob")
	r.next(t)
	if seen := want[httpapi.Webhook](t, http.StatusOK, p.get(p.under(path))); *seen.Deliveries.Filtered != 1 {
		t.Errorf("%+v", seen.Deliveries)
	}
}
