package conformance

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

const (
	oldSecret = "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ=="
	newSecret = "whsec_bWFwLWFuZC1jb21wYXNzLWZvci1ldmVyeW9uZQ=="
	plainText = "not of Standard Webhooks"
	moment    = 1_790_000_000
	eventBody = `{"event_type":"match.computed","data":{"client_id":"cli_1","user_id":"usr_1","matched_user_id":"usr_2","score":0.5},"timestamp":"2026-01-31T12:00:00.123456Z"}`
)

func standardSignature(secret, message string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")) // the constants above
	if !strings.HasPrefix(secret, "whsec_") {
		key = []byte(secret)
	}
	return signatureBy(key, message)
}

func signatureBy(key []byte, message string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(message))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// delivery is one, signed in all ways.
type delivery struct {
	Headers map[string]string
	Body    string
}

func signed(key ed25519.PrivateKey, secrets ...string) delivery {
	message := fmt.Sprintf("evt_1.%d.%s", moment, eventBody)
	d := delivery{map[string]string{"webhook-id": "evt_1", "webhook-timestamp": fmt.Sprint(moment)}, eventBody}
	signatures := ""
	for _, secret := range secrets {
		signatures += standardSignature(secret, message) + " "
	}
	if key != nil {
		signatures += "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(message)))
	}
	d.Headers["webhook-signature"] = signatures
	if len(secrets) > 0 {
		mac := hmac.New(sha256.New, []byte(secrets[0]))
		mac.Write([]byte(eventBody))
		d.Headers["X-Service-Signature"] = hex.EncodeToString(mac.Sum(nil))
	}
	return d
}

// texts are keys as kindred shows them.
func texts(keys ...ed25519.PublicKey) (list []string) {
	for _, key := range keys {
		list = append(list, "whpk_"+base64.StdEncoding.EncodeToString(key))
	}
	return list
}

func (d delivery) with(header, value string) delivery {
	d.Headers = maps.Clone(d.Headers)
	d.Headers[header] = value
	return d
}

func (d *driver) verify(of delivery, more command) (json.RawMessage, string) {
	d.Helper()
	c := command{"do": "verify", "headers": of.Headers, "delivered": []byte(of.Body), "now": moment}
	maps.Copy(c, more)
	ok, failed := d.try(c)
	switch {
	case failed == nil:
		return ok, ""
	case failed.Kind != "webhook":
		d.Errorf("%s: %v", d.name, failed)
	}
	return nil, failed.Reason
}

func TestDeliveriesAreVerifiedThroughARotation(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	otherPublic, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := func(list ...ed25519.PublicKey) command { return command{"public_keys": texts(list...)} }
	secrets := func(list ...string) command { return command{"secrets": list} }
	contract := func(list ...string) command { return command{"secrets": list, "scheme": "contract"} }
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, tt := range []struct {
			what   string
			of     delivery
			by     command
			reason string
		}{
			{"one secret", signed(nil, oldSecret), secrets(oldSecret), ""},
			{"a secret of another form", signed(nil, plainText), secrets(plainText), ""},
			{"the sender has rotated, the receiver not", signed(nil, newSecret, oldSecret), secrets(oldSecret), ""},
			{"both have rotated", signed(nil, newSecret, oldSecret), secrets(newSecret), ""},
			{"the receiver knows both, the sender has not rotated", signed(nil, oldSecret), secrets(newSecret, oldSecret), ""},
			{"the rotation is over", signed(nil, newSecret), secrets(oldSecret), "signature_wrong"},
			{"v1a", signed(private), keys(public), ""},
			{"v1a beside v1", signed(private, oldSecret), keys(public), ""},
			{"v1 beside v1a", signed(private, oldSecret), secrets(oldSecret), ""},
			{"v1a, the receiver knows both keys", signed(private), keys(otherPublic, public), ""},
			{"a key as it stands in a file", signed(private), command{"public_keys": []string{" " + texts(public)[0] + "\r\n"}}, ""},
			{"v1a of another key", signed(private), keys(otherPublic), "signature_wrong"},
			{"v1a alone, and a secret", signed(private), secrets(oldSecret), "signature_wrong"},
			{"a key that is none", signed(private), keys(public[:31]), "signature_wrong"},
			{"the contract's scheme", signed(nil, oldSecret), contract(oldSecret), ""},
			{"the contract's scheme, the receiver knows both", signed(nil, newSecret), contract(oldSecret, newSecret), ""},
			{"the contract's scheme, another secret", signed(nil, oldSecret), contract(newSecret), "signature_wrong"},
			{"no secret", signed(nil, oldSecret), command{}, "signature_missing"},
			{"no signature", delivery{map[string]string{}, eventBody}, secrets(oldSecret), "signature_missing"},
			{"no signature of the contract", delivery{map[string]string{}, eventBody}, contract(oldSecret), "signature_missing"},
			{"another client's", signed(private), command{"public_keys": texts(public), "client_id": "cli_2"}, "other_client"},
			{"the client's own", signed(private), command{"public_keys": texts(public), "client_id": "cli_1"}, ""},
		} {
			if got, reason := d.verify(tt.of, tt.by); reason != tt.reason {
				t.Errorf("%s: %s, refused as %q, want %q", tt.what, got, reason, tt.reason)
			}
		}
		for offset, reason := range map[int]string{299: "", -299: "", 300: "timestamp", -300: "timestamp", 86400: "timestamp"} {
			if _, got := d.verify(signed(nil, oldSecret), command{"secrets": []string{oldSecret}, "now": moment + offset}); got != reason {
				t.Errorf("after %d s it is refused as %q, want %q", offset, got, reason)
			}
		}
	})
}

// TestASecretIsReadAsKindredReadsIt has secrets whose base64 is not what an encoder
// writes, or is none.
func TestASecretIsReadAsKindredReadsIt(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for secret, key := range map[string]string{
			"whsec_Zmlyc3Q=": "first", "whsec_Zmlyc3R=": "first", "whsec_Zmlyc3Q": "first", "whsec_Zmly\r\nc3Q=\n": "first",
			"whsec_Zmlyc3Q= ": "", "whsec_Zml\tyc3Q=": "", "whsec_Zmlyc": "", "whsec_Zm=lyc3Q": "", "whsec_Zm-_": "",
			"whsec_none of base64 ü": "", "WHSEC_Zmlyc3Q=": "",
		} {
			if key == "" {
				key = secret
			}
			of := signed(nil, plainText).with("webhook-signature", signatureBy([]byte(key), fmt.Sprintf("evt_1.%d.%s", moment, eventBody)))
			for _, secrets := range [][]string{{secret}, {oldSecret, secret}, {secret, oldSecret}} {
				if _, reason := d.verify(of, command{"secrets": secrets}); reason != "" {
					t.Errorf("%q: refused as %q", secrets, reason)
				}
			}
			for _, scheme := range []string{"", "contract"} {
				if _, reason := d.verify(signed(nil, oldSecret), command{"secrets": []string{secret, oldSecret}, "scheme": scheme}); reason != "" {
					t.Errorf("beside %q a good secret is refused as %q", secret, reason)
				}
			}
		}
	})
}

// What reads another coding than UTF-8, or puts something in the place of what is none, has read what nobody said.
func TestASignedBodyMayBeNoEvent(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, body := range []string{
			strings.Replace(eventBody, `"data":{`, `"data":null,"x":{`, 1), strings.Replace(eventBody, `"data":{`, `"data":[],"x":{`, 1),
			"\ufeff" + eventBody, utf16Of(eventBody), strings.Replace(eventBody, "usr_1", "caf\xe9", 1),
		} {
			of := signed(nil, oldSecret).with("webhook-signature", standardSignature(oldSecret, fmt.Sprintf("evt_1.%d.%s", moment, body)))
			of.Body = body
			if event, reason := d.verify(of, command{"secrets": []string{oldSecret}}); reason != "event" {
				t.Errorf("%q is taken as %s, refused as %q", body, event, reason)
			}
		}
	})
}

// TestAnEmptySecretVerifiesNothing has what anybody can sign with, such as a
// variable that is not set.
func TestAnEmptySecretVerifiesNothing(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, secret := range []string{"", "whsec_", "whsec_=="} {
			of := signed(nil, "")
			if _, reason := d.verify(of, command{"secrets": []string{secret}}); reason != "signature_wrong" {
				t.Errorf("with %q: %q", secret, reason)
			}
			if _, failed := d.try(command{"do": "sign", "client": "evt_1", "secrets": []string{secret}, "now": moment}); failed == nil || failed.Kind != "usage" {
				t.Errorf("%q has signed (%v)", secret, failed)
			}
		}
		if _, reason := d.verify(signed(nil, ""), command{"secrets": []string{""}, "scheme": "contract"}); reason != "signature_wrong" {
			t.Errorf("by the contract: %q", reason)
		}
	})
}

func TestEachSingleMutationIsRefused(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for scheme, one := range map[string]struct {
			of      delivery
			by      command
			headers []string
		}{
			"v1":       {signed(nil, oldSecret), command{"secrets": []string{oldSecret}}, []string{"webhook-id", "webhook-timestamp", "webhook-signature"}},
			"v1a":      {signed(private), command{"public_keys": texts(public)}, []string{"webhook-id", "webhook-timestamp", "webhook-signature"}},
			"contract": {signed(nil, oldSecret), command{"secrets": []string{oldSecret}, "scheme": "contract"}, []string{"X-Service-Signature"}},
		} {
			one.of.Headers["webhook-signature"] = trimmed(one.of.Headers["webhook-signature"])
			d.refusesMutations(scheme, one.of, one.by, one.headers)
		}
	})
}

// refusesMutations has each byte of a delivery changed by itself, and each of some
// headers changed and left out.
func (d *driver) refusesMutations(scheme string, of delivery, by command, headers []string) {
	d.Helper()
	var mutations []delivery
	for i := range of.Body {
		mutated := []byte(of.Body)
		mutated[i] ^= 1
		mutations = append(mutations, delivery{of.Headers, string(mutated)})
	}
	mutations = append(mutations, delivery{of.Headers, of.Body + " "}, delivery{of.Headers, of.Body[1:]}, delivery{of.Headers, ""})
	for _, name := range headers {
		value := of.Headers[name]
		if value == "" {
			d.Errorf("%s: the delivery has no %s", scheme, name)
		}
		for i := range value {
			mutated := []byte(value)
			mutated[i] ^= 1
			mutations = append(mutations, of.with(name, string(mutated)))
			mutations = append(mutations, of.with(name, value[:i]+value[i+1:]))
		}
		mutations = append(mutations, of.with(name, ""))
	}
	if _, reason := d.verify(of, by); reason != "" {
		d.Fatalf("%s: what was not changed is refused as %s", scheme, reason)
	}
	var replies []<-chan reply
	for _, m := range mutations {
		c := command{"do": "verify", "headers": m.Headers, "delivered": []byte(m.Body), "now": moment}
		maps.Copy(c, by)
		_, answer := d.begin(c)
		replies = append(replies, answer)
	}
	for i, answer := range replies {
		if ok, failed := d.wait(answer); failed == nil || failed.Kind != "webhook" {
			d.Errorf("%s: %+v is taken as %s (%v)", scheme, mutations[i], ok, failed)
		}
	}
}

func trimmed(s string) string {
	for len(s) > 0 && s[len(s)-1] == ' ' {
		s = s[:len(s)-1]
	}
	return s
}

func TestWhatAnSDKSignsEveryOneVerifies(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		ok, failed := d.try(command{"do": "sign", "client": "evt_1", "secrets": []string{newSecret}, "now": moment, "delivered": []byte(eventBody)})
		if failed != nil {
			t.Fatal(failed)
		}
		var headers map[string]string
		if err := json.Unmarshal(ok, &headers); err != nil {
			t.Fatal(err)
		}
		want := signed(nil, newSecret)
		if headers["webhook-signature"] != trimmed(want.Headers["webhook-signature"]) || headers["x-service-signature"] != want.Headers["X-Service-Signature"] {
			t.Errorf("signed %v, want %v", headers, want.Headers)
		}
	})
}

func TestADeliveryThatATestMakesIsVerified(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		data := command{"client_id": "cli_1", "user_id": "usr_ü", "matched_user_id": "usr_2", "score": 0.5}
		ok, failed := d.try(command{"do": "signed", "secrets": []string{newSecret}, "now": moment, "body": data})
		if failed != nil {
			t.Fatal(failed)
		}
		made := delivery{field[map[string]string](t, ok, "headers"), field[string](t, ok, "body")}
		for _, scheme := range []string{"", "contract"} {
			event, reason := d.verify(made, command{"secrets": []string{newSecret}, "client_id": "cli_1", "scheme": scheme})
			if reason != "" || field[string](t, event, "event_type") != "match.computed" {
				t.Errorf("%+v is refused as %q: %s", made, reason, event)
			}
		}
		if _, reason := d.verify(made, command{"secrets": []string{oldSecret}}); reason != "signature_wrong" {
			t.Errorf("by another secret it is refused as %q", reason)
		}
		if at := field[string](t, json.RawMessage(made.Body), "timestamp"); !strings.HasPrefix(at, "2026-09-21T14:13:20.000") {
			t.Errorf("its time is %s", at)
		}
	})
}
