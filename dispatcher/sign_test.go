package dispatcher

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

// The example of the Standard Webhooks libraries.
func TestSignatureAgreesWithStandardWebhooks(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`),
		[][]byte{[]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}, nil)
	want := http.Header{
		"Webhook-Id":          {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp":   {"1614265330"},
		"Webhook-Signature":   {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"X-Service-Signature": {plainSignature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`)},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
}

// plainSignature is the contract's rule, written down a second time.
func plainSignature(secret, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(body))
	return hex.EncodeToString(h.Sum(nil))
}

func TestSecretsOfAnyFormGiveAKey(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{
		"plain":           "plain",
		"whsec_c2VjcmV0":  "secret",
		"whsec_c2VjcmU=":  "secre",
		"whsec_c2VjcmU":   "secre",
		"whsec_not base!": "whsec_not base!",
		"whsec_":          "whsec_",
		"geheim ü":        "geheim ü",
	} {
		if got := string(standardKey([]byte(secret))); got != want {
			t.Errorf("the key of %q is %q, not %q", secret, got, want)
		}
	}
}

func TestADeliveryIsSignedWithTheNewestSecretAndForADayWithTheOldOneToo(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.at = time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond)
	rx := newReceiver(t, nil)
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "first")
	rotated := r.recorded(client, event.WebhookSecretRotated{Webhook: webhook, Secret: event.Private([]byte("second"))})
	r.apply(subscribed, rotated, r.match(client))
	stop := r.start(r.Dispatcher)

	got := rx.next(t)
	if want := plainSignature("second", got.body); got.header.Get("X-Service-Signature") != want {
		t.Error("not signed with the newest secret")
	}
	if n := len(strings.Fields(got.header.Get("Webhook-Signature"))); n != 2 {
		t.Errorf("%d signatures after a rotation, not 2", n)
	}

	stop()
	r.apply(r.match(client))
	claims := r.claim(1)
	secrets := newOpenedSecrets(r.vault)
	at := rotated.RecordedAt.Add(rotation)
	for _, tt := range []struct {
		at   time.Time
		want int
	}{
		{at.Add(-time.Microsecond), 2},
		{at, 1},
		{rotated.RecordedAt.Add(-365 * 24 * time.Hour), 1}, // the clock was a year ahead at the rotation
	} {
		open, err := secrets.signing(t.Context(), claims[0], tt.at)
		if err != nil || len(open) != tt.want || string(open[0]) != "second" {
			t.Errorf("at %s: %d secrets (%v), want %d", tt.at, len(open), err, tt.want)
		}
	}
	if _, err := secrets.signing(t.Context(), claims[0], at.Add(secretTTL)); err != nil || len(secrets.kept) != 1 {
		t.Errorf("%d secrets stay open where 1 serves (%v)", len(secrets.kept), err)
	}
}

func TestAnAddressIsKeptSealedAndAnOldOneStillReached(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	sealed, clear := newReceiver(t, nil), newReceiver(t, nil)
	client, old := r.client(), id.Next[id.Webhook](r.ids)
	_, first := r.subscribe(client, sealed.URL+"/hunter2", "")
	second := r.recorded(client, event.WebhookSubscribed{
		Webhook: old, WebhookAddress: event.WebhookAddress{ClearURL: clear.URL + "/old"}, EventTypes: []string{matchType},
	})
	r.apply(first, second, r.match(client))
	r.start(r.Dispatcher)
	sealed.next(t)
	clear.next(t)
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints e WHERE e::text LIKE '%hunter2%' OR e.url = '' AND e.sealed_url IS NULL`); n != 0 {
		t.Error("the table shows an address")
	}
	moved := r.recorded(client, event.WebhookChanged{Webhook: old, WebhookAddress: event.At(sealed.URL + "/moved"), EventTypes: []string{matchType}})
	r.apply(moved, r.match(client))
	sealed.next(t)
	sealed.next(t)
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints e WHERE e.url <> ''`); n != 0 {
		t.Error("the address in the clear is kept")
	}
}

func TestWithoutASecretNothingIsSigned(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	match := r.match(client)
	r.apply(subscribed, match)
	r.start(r.Dispatcher)
	got := rx.next(t)
	for _, name := range []string{"X-Service-Signature", "Webhook-Signature"} {
		if values, found := got.header[name]; found {
			t.Errorf("%s is %q without a secret", name, values)
		}
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Service-Event": matchType, "Accept-Encoding": "", "X-Kindred-Test": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, not %q", name, got.header.Get(name), want)
		}
	}
}

func TestALostSecretIsAFailureAndNeverAnUnsignedDelivery(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: []time.Duration{10 * time.Millisecond}})
	rx := newReceiver(t, nil)
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "secret")
	r.apply(subscribed, r.match(client))
	if err := r.vault.Destroy(t.Context(), client, string(webhook)); err != nil {
		t.Fatal(err)
	}
	r.start(r.Dispatcher)
	r.ended("dropped", 1)
	if len(rx.got) != 0 {
		t.Error("something was sent")
	}
}

var _ Secrets = (*seal.Vault)(nil)

// TestAKeyPairSignsWhatWantsItAndForADayTheOldOneToo follows two clients with a key pair
// each, and a subscription that wants none.
func TestAKeyPairSignsWhatWantsItAndForADayTheOldOneToo(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	r.at = time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond)
	one, other := r.client(), r.client()
	keys := map[id.Client][]ed25519.PublicKey{}
	made := func(client id.Client) eventstore.Recorded {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		keys[client] = append([]ed25519.PublicKey{public}, keys[client]...)
		return r.recorded(client, event.WebhookKeyMade{Key: id.Next[id.WebhookKey](r.ids), PublicKey: public, PrivateKey: event.Private(private)})
	}
	receivers := map[string]*receiver{"signed": newReceiver(t, nil), "by the key alone": newReceiver(t, nil), "another's": newReceiver(t, nil), "without": newReceiver(t, nil)}
	subscribe := func(client id.Client, what, secret string, wants bool) {
		webhook, subscribed := r.subscribe(client, receivers[what].URL, secret)
		r.apply(subscribed, r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Ed25519: wants}}))
	}
	r.apply(made(one), made(other))
	subscribe(one, "signed", "secret", true)
	subscribe(one, "by the key alone", "", true)
	subscribe(one, "without", "secret", false)
	subscribe(other, "another's", "", true)
	r.start(r.Dispatcher)
	check := func(client id.Client, what string, v1, v1a int) {
		t.Helper()
		got := receivers[what].next(t)
		message := []byte(got.header.Get("Webhook-Id") + "." + got.header.Get("Webhook-Timestamp") + "." + got.body)
		signatures := strings.Fields(got.header.Get("Webhook-Signature"))
		if len(signatures) != v1+v1a || (got.header.Get("X-Service-Signature") != "") != (v1 > 0) {
			t.Fatalf("%s: signed as %q", what, got.header)
		}
		for i, signature := range signatures[v1:] {
			text, found := strings.CutPrefix(signature, "v1a,")
			given, err := base64.StdEncoding.DecodeString(text)
			if !found || err != nil || !ed25519.Verify(keys[client][i], message, given) {
				t.Errorf("%s: %s is not of key %d", what, signature, i)
			}
		}
	}
	r.apply(r.match(one), r.match(other))
	check(one, "signed", 1, 1)
	check(one, "by the key alone", 0, 1)
	check(one, "without", 1, 0)
	check(other, "another's", 0, 1)
	for range maxSecrets {
		r.apply(made(one))
	}
	r.apply(r.match(one), r.match(other))
	check(one, "signed", 1, maxSecrets)
	check(one, "by the key alone", 0, maxSecrets)
	check(one, "without", 1, 0)
	check(other, "another's", 0, 1)

	log := Log{Pool: r.pool, Progress: projector.NewProgress(r.pool, r.Logger)}
	for _, tt := range []struct {
		at   time.Time
		want []ed25519.PublicKey
	}{
		{r.at, keys[one][:maxSecrets]},
		{r.at.Add(rotation + time.Second), keys[one][:1]},
	} {
		found, err := log.Keys(t.Context(), one, true, tt.at)
		got := []ed25519.PublicKey{}
		for _, k := range found {
			got = append(got, k.Public)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil || found[0].Until != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
	if n := r.count(`SELECT count(*) FROM dispatch_clients c WHERE keys::text LIKE '%' || $1 || '%'`, "private"); n != 0 {
		t.Error("a private key is shown")
	}
}

func TestWithoutThePrivateKeyNothingIsSent(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := id.Next[id.WebhookKey](r.ids)
	made := r.recorded(client, event.WebhookKeyMade{Key: key, PublicKey: public, PrivateKey: event.Private(private)})
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	set := r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Ed25519: true}})
	if err := r.vault.Destroy(t.Context(), client, string(key)); err != nil {
		t.Fatal(err)
	}
	r.apply(made, subscribed, set, r.match(client))
	r.start(r.Dispatcher)
	testkit.Eventually(t, "the attempt has failed", func() bool {
		return r.count(`SELECT count(*) FROM dispatch_attempts WHERE error LIKE 'the signing secret%'`) == 1
	})
	if len(rx.got) != 0 {
		t.Error("it was sent unsigned")
	}
}
