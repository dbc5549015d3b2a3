package dispatcher

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kindred/domain/id"
)

// sign puts the signature headers for a body on a request. Secrets are in the
// order of their age, the newest first, as keys are; without any, nothing is signed.
//
// Webhook-Id is the event's: the same at every attempt, redelivery and
// subscription, so that a receiver knows what it has had.
//
// X-Service-Signature is that of docs/contract.md#signature: lowercase hex
// HMAC-SHA256 of the body, keyed with the UTF-8 bytes of the newest secret.
// The others are Standard Webhooks 1.0: over "<id>.<unix seconds>.<body>" one "v1,"
// signature per secret, and one "v1a," (Ed25519) per key.
func sign(h http.Header, of id.Event, at time.Time, body []byte, secrets [][]byte, keys []ed25519.PrivateKey) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	h.Set("Webhook-Id", string(of))
	h.Set("Webhook-Timestamp", seconds)
	if len(secrets) > 0 {
		h.Set("X-Service-Signature", hex.EncodeToString(mac(secrets[0], body)))
	}
	if len(secrets)+len(keys) == 0 {
		return
	}
	signed := standardMessage(string(of), seconds, body)
	signatures := make([]string, 0, len(secrets)+len(keys))
	for _, secret := range secrets {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac(standardKey(secret), signed)))
	}
	for _, key := range keys {
		signatures = append(signatures, "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, signed)))
	}
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
}

// standardMessage is what Standard Webhooks signs.
func standardMessage(of, seconds string, body []byte) []byte {
	signed := make([]byte, 0, len(of)+len(seconds)+len(body)+2)
	signed = append(signed, of...)
	signed = append(append(append(signed, '.'), seconds...), '.')
	return append(signed, body...)
}

// standardKey is the base64 after "whsec_" where a secret has that form, else
// its UTF-8 bytes.
func standardKey(secret []byte) []byte {
	text, found := strings.CutPrefix(string(secret), "whsec_")
	if !found {
		return secret
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(key) == 0 {
		return secret
	}
	return key
}

func mac(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}
