package kindred

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Why a delivery is refused. errors.Is finds them.
var (
	ErrSignatureMissing = errors.New("kindred: the delivery is not signed by a scheme that is verified")
	ErrSignatureWrong   = errors.New("kindred: no signature is right")
	ErrTimestamp        = errors.New("kindred: the delivery's time is too far from now")
	ErrEvent            = errors.New("kindred: the delivery is signed, and no event")
	ErrOtherClient      = errors.New("kindred: the event is of another client")
)

// Verifier verifies deliveries. It accepts what any of its secrets or keys has
// signed, so a receiver that holds the old and the new ones goes on through a
// rotation, whichever side changes first.
type Verifier struct {
	Secrets    []string // of the subscription, `whsec_…` or any text
	PublicKeys []string // of the client, `whpk_…`, for v1a
	ClientID   string   // `cli_…`; where it is set, events of others are refused. Set it with PublicKeys.

	Tolerance time.Duration    // between the signature's time and now; 5 minutes where it is 0
	Now       func() time.Time // time.Now where it is nil
}

// Event is what a delivery tells, or what was pulled or followed.
type Event struct {
	ID        string // `evt_…`, the same at every attempt and redelivery; empty in the contract's scheme
	Type      EventType
	Timestamp time.Time // when it was recorded
	Test      bool
	Erased    bool            // a user that was to be named by your own id is erased; never of a delivery
	Data      any             // such as *MatchComputedData; json.RawMessage of a type that this SDK does not know
	Raw       json.RawMessage // Data as it came
	Body      []byte          // all of it as it came: of a delivery, or of what was followed, the bytes that are signed
}

// Verify checks a delivery's Standard Webhooks signatures, `v1` with the secrets
// and `v1a` with the keys, and its time, and returns the event. The body must be
// the bytes that came.
func (v Verifier) Verify(h http.Header, body []byte) (*Event, error) {
	id, at := h.Get("webhook-id"), h.Get("webhook-timestamp")
	signatures := strings.Fields(h.Get("webhook-signature"))
	if id == "" || at == "" || len(signatures) == 0 || len(v.Secrets)+len(v.PublicKeys) == 0 {
		return nil, ErrSignatureMissing
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != at || !v.timely(seconds) {
		return nil, ErrTimestamp
	}
	message := []byte(id + "." + at + "." + string(body))
	if !v.signed(signatures, message) {
		return nil, ErrSignatureWrong
	}
	event, err := v.open(body)
	if err != nil {
		return nil, err
	}
	event.ID = id
	return event, nil
}

// VerifyContract checks the signature of `X-Service-Signature`, which covers the
// body alone: whoever has seen a delivery can send it again. Prefer Verify.
func (v Verifier) VerifyContract(h http.Header, body []byte) (*Event, error) {
	given, err := hex.DecodeString(h.Get("X-Service-Signature"))
	if err != nil || len(given) == 0 || hex.EncodeToString(given) != h.Get("X-Service-Signature") || len(v.Secrets) == 0 {
		return nil, ErrSignatureMissing
	}
	right := false
	for _, secret := range v.Secrets {
		right = signs([]byte(secret), body, given) || right
	}
	if !right {
		return nil, ErrSignatureWrong
	}
	return v.open(body)
}

func (v Verifier) timely(seconds int64) bool {
	now, tolerance := time.Now, v.Tolerance
	if v.Now != nil {
		now = v.Now
	}
	if tolerance == 0 {
		tolerance = 5 * time.Minute
	}
	return math.Abs(float64(now().Unix())-float64(seconds)) < tolerance.Seconds()
}

func (v Verifier) signed(signatures []string, message []byte) bool {
	right := false
	for _, one := range signatures {
		scheme, text, _ := strings.Cut(one, ",")
		given, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			continue
		}
		switch scheme {
		case "v1":
			for _, secret := range v.Secrets {
				right = signs(secretKey(secret), message, given) || right
			}
		case "v1a":
			for _, text := range v.PublicKeys {
				key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(strings.TrimSpace(text), "whpk_"))
				right = err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, given) || right
			}
		}
	}
	return right
}

// open reads an event whose signature is right.
func (v Verifier) open(body []byte) (*Event, error) {
	event, client, err := eventOf(body)
	switch {
	case err != nil:
		return nil, err
	case v.ClientID != "" && client != v.ClientID:
		return nil, ErrOtherClient
	}
	event.ID = "" // it is not of what was signed
	return event, nil
}

// eventOf reads an event and tells whose it is.
func eventOf(body []byte) (event *Event, client string, err error) {
	var out struct {
		ID        string          `json:"id"`
		Type      EventType       `json:"event_type"`
		Data      json.RawMessage `json:"data"`
		Timestamp time.Time       `json:"timestamp"`
		Test      bool            `json:"test"`
		Erased    bool            `json:"erased"`
	}
	if err := json.Unmarshal(body, &out); err != nil || out.Type == "" || !utf8.Valid(body) {
		return nil, "", ErrEvent
	}
	var of struct {
		Client string `json:"client_id"`
	}
	if json.Unmarshal(out.Data, &of) != nil || out.Data[0] != '{' { // null leaves it as it is
		return nil, "", ErrEvent
	}
	event = &Event{ID: out.ID, Type: out.Type, Timestamp: out.Timestamp, Test: out.Test, Erased: out.Erased, Raw: out.Data, Body: body}
	if event.Data = dataOf(out.Type); event.Data == nil {
		event.Data = out.Data
		return event, of.Client, nil
	}
	if json.Unmarshal(out.Data, event.Data) != nil {
		return nil, "", ErrEvent
	}
	return event, of.Client, nil
}

// Sign makes the headers with which kindred would deliver a body, for tests of
// receivers.
func Sign(secret, id string, at time.Time, eventType EventType, body []byte) (http.Header, error) {
	key := secretKey(secret)
	if len(key) == 0 {
		return nil, errors.New("kindred: the secret is empty")
	}
	seconds := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("X-Service-Event", string(eventType))
	h.Set("X-Service-Signature", hex.EncodeToString(sum([]byte(secret), body)))
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", seconds)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(sum(key, []byte(id+"."+seconds+"."+string(body)))))
	return h, nil
}

// Signed makes a delivery of an event, for tests of receivers: its headers and its
// body. Of the event it takes Type and Data; an ID is made up and the time is now
// where they are left out.
func Signed(secret string, event Event) (http.Header, []byte, error) {
	id, at := event.ID, event.Timestamp
	if id == "" {
		id = "evt_" + strings.ToLower(rand.Text())
	}
	if at.IsZero() {
		at = time.Now()
	}
	body, err := json.Marshal(struct {
		Type      EventType `json:"event_type"`
		Data      any       `json:"data"`
		Timestamp string    `json:"timestamp"`
	}{event.Type, event.Data, at.UTC().Format("2006-01-02T15:04:05.000000Z")})
	if err != nil {
		return nil, nil, fmt.Errorf("kindred: the event: %w", err)
	}
	h, err := Sign(secret, id, at, event.Type, body)
	return h, body, err
}

// secretKey is what kindred signs with: the bytes that stand in base64 behind
// `whsec_`, or the text of any other secret.
func secretKey(secret string) []byte {
	if text, found := strings.CutPrefix(secret, "whsec_"); found {
		if key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "=\r\n")); err == nil {
			return key
		}
	}
	return []byte(secret)
}

// signs says whether a key has signed; an empty one, which anybody has, never has.
func signs(key, message, given []byte) bool {
	return len(key) > 0 && hmac.Equal(given, sum(key, message))
}

func sum(key, message []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(message)
	return mac.Sum(nil)
}
