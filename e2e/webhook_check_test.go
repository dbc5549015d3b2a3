package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"kindred/httpapi"
)

// What a receiver got is verified as it should be; of everything that can go wrong on
// the way, each is named.
func TestADeliveryThatCannotBeVerifiedIsExplained(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	p, r := newPairs(s), receive(t, 200)
	hook := p.subscribe(r.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==")
	p.match("ann", "bob")
	var got delivery
	headers := map[string]string{}
	take := func(d delivery) {
		got = d
		clear(headers)
		for name, values := range got.Header {
			headers[strings.ToLower(name)] = values[0]
		}
	}
	take(r.next(t))
	check := func(by account, change func(h map[string]string, body *string)) (found httpapi.DeliveryCheck, steps map[string]string) {
		t.Helper()
		h, body := maps.Clone(headers), string(got.Body)
		if change != nil {
			change(h, &body)
		}
		found = want[httpapi.DeliveryCheck](t, http.StatusOK, by.send("POST", "/api/v1/webhooks/check", map[string]any{"headers": h, "body": body}))
		steps = map[string]string{}
		for _, step := range found.Steps {
			steps[string(step.Name)] = string(step.Status) + ": " + step.Detail
		}
		return found, steps
	}

	found, steps := check(p.account, nil)
	if !found.Verified || found.WebhookID == nil || *found.WebhookID != string(hook.ID) || len(steps) != 6 {
		t.Fatalf("as it came: %+v", found)
	}
	again := func(body string) string { // as a parser writes it
		var parsed any
		if err := json.Unmarshal([]byte(body), &parsed); err != nil {
			t.Fatal(err)
		}
		written, err := json.MarshalIndent(parsed, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(written)
	}
	shift := func(by time.Duration) func(map[string]string, *string) {
		return func(h map[string]string, _ *string) {
			seconds, err := strconv.ParseInt(h["webhook-timestamp"], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			h["webhook-timestamp"] = strconv.FormatInt(seconds+int64(by.Seconds()), 10)
		}
	}
	drop := func(names ...string) func(map[string]string, *string) {
		return func(h map[string]string, _ *string) {
			for _, name := range names {
				delete(h, name)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(h map[string]string, body *string)
		step   string
		says   string
	}{
		"written anew":        {func(_ map[string]string, body *string) { *body = again(*body) }, "webhook_signature", "over the body as it was sent"},
		"written anew, old":   {func(_ map[string]string, body *string) { *body = again(*body) }, "service_signature", "over the body as it was sent"},
		"a byte of the body":  {func(_ map[string]string, body *string) { *body = (*body)[:20] + "X" + (*body)[21:] }, "body", "from byte 21 on"},
		"a shorter body":      {func(_ map[string]string, body *string) { *body = (*body)[:len(*body)-1] }, "body", "differ from byte"},
		"no body":             {func(_ map[string]string, body *string) { *body = "" }, "body", "these are 0"},
		"an old one":          {shift(-time.Hour), "timestamp", "signed 1h0m"},
		"one of the future":   {shift(time.Hour), "timestamp", "in the future"},
		"another second":      {shift(time.Second), "webhook_signature", "Nothing that signs now fits"},
		"another event":       {func(h map[string]string, _ *string) { h["webhook-id"] = "evt_0123456789abcdefghijklmnop" }, "webhook_signature", "Nothing that signs now fits"},
		"no time in numbers":  {func(h map[string]string, _ *string) { h["webhook-timestamp"] = "now" }, "timestamp", "no number of seconds"},
		"milliseconds":        {func(h map[string]string, _ *string) { h["webhook-timestamp"] += "000" }, "timestamp", "no number of seconds"},
		"no signatures":       {drop("webhook-signature", "x-service-signature"), "headers", "There is no signature"},
		"no id":               {drop("webhook-id"), "headers", "webhook-id missing"},
		"another signature":   {func(h map[string]string, _ *string) { h["webhook-signature"] = "v1," + strings.Repeat("A", 43) + "=" }, "webhook_signature", "Nothing that signs now fits"},
		"a cut signature":     {func(h map[string]string, _ *string) { h["webhook-signature"] = h["webhook-signature"][:20] }, "webhook_signature", "not base64 of 32 bytes"},
		"a foreign signature": {func(h map[string]string, _ *string) { h["webhook-signature"] = "v2,abc" }, "webhook_signature", "begins with v1"},
		"upper case": {func(h map[string]string, _ *string) {
			h["x-service-signature"] = strings.ToUpper(h["x-service-signature"])
		}, "service_signature", "in lower case"},
		"hex that is none": {func(h map[string]string, _ *string) { h["x-service-signature"] = "sha256=" + h["x-service-signature"] }, "service_signature", "not 64 hexadecimal digits"},
	} {
		found, steps := check(p.account, c.change)
		if found.Verified || !strings.HasPrefix(steps[c.step], "failed: ") || !strings.Contains(steps[c.step], c.says) {
			t.Errorf("%s: verified %t, %s: %s", name, found.Verified, c.step, steps[c.step])
		}
	}

	for _, name := range []string{"webhook-id", "webhook-timestamp"} {
		if _, steps := check(p.account, drop(name)); !strings.HasPrefix(steps["headers"], "failed") || !strings.HasPrefix(steps["webhook_signature"], "skipped") || !strings.HasPrefix(steps["service_signature"], "ok") {
			t.Errorf("without %s: %v", name, steps)
		}
	}
	if found, _ := check(p.account, drop("webhook-id", "webhook-timestamp", "webhook-signature")); !found.Verified {
		t.Errorf("by X-Service-Signature alone: %+v", found)
	}
	s.Logs.keepOut("second-steps-with-kindred")
	want[httpapi.Webhook](t, http.StatusOK, p.sendTo("POST", "/webhooks/"+string(hook.ID)+"/rotate_secret", `{"secret":"second-steps-with-kindred"}`))
	if found, steps := check(p.account, nil); !found.Verified || !strings.Contains(steps["webhook_signature"], "former") {
		t.Errorf("after a rotation: %+v", found)
	}
	if found, steps := check(s.signUp(), nil); found.Verified || found.WebhookID != nil || !strings.HasPrefix(steps["body"], "skipped") {
		t.Errorf("to another client: %+v", found)
	}
	test := want[httpapi.Delivery](t, http.StatusAccepted, p.sendTo("POST", "/webhooks/"+string(hook.ID)+"/test", `{"event_type":"match.computed"}`))
	made := r.next(t)
	if found, steps := check(p.account, func(h map[string]string, body *string) {
		for name := range h {
			h[name] = made.Header.Get(name)
		}
		*body = string(made.Body)
	}); !found.Verified || !strings.HasPrefix(steps["body"], "skipped") {
		t.Errorf("of a test, %s: %+v", test.ID, found)
	}
	signed := receive(t, 200)
	want[httpapi.Webhook](t, http.StatusCreated, p.sendTo("POST", "/webhooks", map[string]any{"url": signed.URL, "event_types": []string{"match.computed"}, "ed25519": true}))
	p.match("cat", "dan")
	take(signed.next(t))
	if found, steps := check(p.account, nil); !found.Verified || !strings.Contains(steps["ed25519_signature"], "newest key") || !strings.HasPrefix(steps["webhook_signature"], "skipped") {
		t.Errorf("by a key pair: %+v", found)
	}
	for name, change := range map[string]func(h map[string]string, body *string){
		"written anew": func(_ map[string]string, body *string) { *body = again(*body) },
		"another time": shift(time.Second),
		"cut":          func(h map[string]string, _ *string) { h["webhook-signature"] = h["webhook-signature"][:40] },
	} {
		if found, steps := check(p.account, change); found.Verified || !strings.HasPrefix(steps["ed25519_signature"], "failed") {
			t.Errorf("by a key pair, %s: %+v", name, found)
		}
	}

	want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"external_id"}}`))
	p.match("ann", "cat")
	take(signed.next(t))
	if found, steps := check(p.account, nil); !found.Verified || !strings.HasPrefix(steps["body"], "ok") {
		t.Errorf("with users named as the client does: %+v", found)
	}
	wantDone(t, p.send("DELETE", "/api/v1/users/ext:cat", nil))
	if found, steps := check(p.account, nil); !found.Verified || !strings.HasPrefix(steps["body"], "skipped") {
		t.Errorf("once one of them is erased: %+v", found)
	}
	before := p.get("/api/v1/events").Body
	check(p.account, nil)
	if after := p.get("/api/v1/events").Body; string(before) != string(after) {
		t.Error("a check records something")
	}
}
