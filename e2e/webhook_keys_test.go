package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

func (a account) webhookKeys() []httpapi.WebhookKey {
	a.Helper()
	return want[httpapi.WebhookKeyList](a, http.StatusOK, a.get(a.under("/webhook_keys"))).Data
}

// signedBy says which of the keys have signed a delivery, in order.
func (d delivery) signedBy(t *testing.T, keys []httpapi.WebhookKey) (by []string) {
	t.Helper()
	message := fmt.Appendf(nil, "%s.%s.%s", d.Header.Get("Webhook-Id"), d.Header.Get("Webhook-Timestamp"), d.Body)
	for signature := range strings.FieldsSeq(d.Header.Get("Webhook-Signature")) {
		text, asymmetric := strings.CutPrefix(signature, "v1a,")
		if !asymmetric {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		found := "nobody's"
		for _, key := range keys {
			text, _ := strings.CutPrefix(key.PublicKey, "whpk_")
			if public, err := base64.StdEncoding.DecodeString(text); err == nil && ed25519.Verify(public, message, given) {
				found = string(key.ID)
			}
		}
		by = append(by, found)
	}
	return by
}

func TestDeliveriesAreSignedWithTheKeyPairOfTheirClient(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	p, stranger := newPairs(s), s.signUp()
	r := receive(t, 200)
	if keys := p.webhookKeys(); len(keys) != 0 {
		t.Errorf("there are %v before any was wanted", keys)
	}
	plain := p.subscribe(r.URL, "secret of the plain one")
	p.match("ann", "bob")
	if d := r.next(t); len(strings.Fields(d.Header.Get("Webhook-Signature"))) != 1 || len(p.webhookKeys()) != 0 {
		t.Errorf("signed as %q", d.Header)
	}
	path := "/webhooks/" + string(plain.ID)
	if hook := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"ed25519":true}`)); !*hook.Ed25519 {
		t.Errorf("%+v", hook)
	}
	first := p.webhookKeys()
	if len(first) != 1 || first[0].SignsUntil != nil {
		t.Fatalf("the keys are %+v", first)
	}
	p.match("ann", "bob")
	d := r.next(t)
	if diff := cmp.Diff([]string{string(first[0].ID)}, d.signedBy(t, first)); diff != "" || d.Header.Get("X-Service-Signature") == "" {
		t.Error(diff)
	}

	rotated := want[httpapi.WebhookKey](t, http.StatusOK, p.sendTo("POST", "/webhook_keys/rotate", nil, idempotent("rotate")))
	again := want[httpapi.WebhookKey](t, http.StatusOK, p.sendTo("POST", "/webhook_keys/rotate", nil, idempotent("rotate")))
	both := p.webhookKeys()
	if diff := cmp.Diff(rotated, again) + cmp.Diff(rotated, both[0]); diff != "" || len(both) != 2 || both[1].ID != first[0].ID || both[1].SignsUntil == nil {
		t.Errorf("%+v %s", both, diff)
	}
	p.match("ann", "bob") // the attempt begins after the answer to the rotation
	if diff := cmp.Diff([]string{string(both[0].ID), string(both[1].ID)}, r.next(t).signedBy(t, both)); diff != "" {
		t.Error(diff)
	}
	for range 5 {
		want[httpapi.WebhookKey](t, http.StatusOK, p.sendTo("POST", "/webhook_keys/rotate", nil))
	}
	if keys := p.webhookKeys(); len(keys) != 4 {
		t.Errorf("%d keys sign", len(keys))
	}
	want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"ed25519":false}`))
	p.match("ann", "bob")
	if by := r.next(t).signedBy(t, both); by != nil {
		t.Errorf("signed by %q, which nobody wants any more", by)
	}

	stranger.subscribe(r.URL, "")
	want[httpapi.Webhook](t, http.StatusCreated, stranger.sendTo("POST", "/webhooks", `{"url":"https://example.com/a","event_types":["match.computed"],"ed25519":true}`))
	if keys := stranger.webhookKeys(); len(keys) != 1 || keys[0].ID == first[0].ID || keys[0].PublicKey == first[0].PublicKey {
		t.Errorf("another client has %+v", keys)
	}
	for _, got := range []answer{stranger.get(p.under("/webhook_keys")), stranger.send("POST", p.under("/webhook_keys/rotate"), nil)} {
		if got.Status != http.StatusNotFound && got.Status != http.StatusForbidden {
			t.Errorf("another's keys: %d %s", got.Status, got.Body)
		}
	}
	reader := p.with(s.exchange(p.createAPIKey("read").RawKey))
	if keys := reader.webhookKeys(); len(keys) != 4 {
		t.Errorf("a reader sees %+v", keys)
	}
	wantProblem(t, http.StatusForbidden, "missing_scope", reader.sendTo("POST", "/webhook_keys/rotate", nil))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", p.sendTo("PATCH", path, `{"ed25519":null}`))
	history := p.get(p.under("/history?personal=open&limit=100")).Body
	if !bytes.Contains(history, []byte("webhook_key.made")) || bytes.Contains(history, []byte(`{"private_key"`)) {
		t.Errorf("%s", history)
	}
}
