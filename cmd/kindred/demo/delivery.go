package demo

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// pair is the user that was asked about and the one that was found.
type pair struct{ user, matched string }

// delivery is a match.computed that arrived, and was found to be as the
// interface specification says (section 6).
type delivery struct {
	pair
	client   string
	score    float64
	occurred time.Time
	received time.Time
	body     []byte
	repeated bool // it had arrived before: deliveries are at least once
}

// signature is the one of a body: lower-case hex of its HMAC-SHA256.
func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// signed says whether a body was signed so. Nothing is learned from how long
// the comparison takes.
func signed(secret string, body []byte, with string) bool {
	return hmac.Equal([]byte(signature(secret, body)), []byte(with))
}

// readDelivery checks everything that the specification says about a delivery
// of match.computed to a subscription with a secret.
func readDelivery(secret string, h http.Header, body []byte) (delivery, error) {
	if !signed(secret, body, h.Get("X-Service-Signature")) {
		return delivery{}, errors.New("the signature is not that of the body")
	}
	if got := h.Get("Content-Type"); got != "application/json" {
		return delivery{}, fmt.Errorf("the Content-Type is %q, not application/json", got)
	}
	var envelope, data map[string]json.RawMessage
	if err := exactly(body, &envelope, "event_type", "data", "timestamp"); err != nil {
		return delivery{}, fmt.Errorf("the body %w", err)
	}
	if err := exactly(envelope["data"], &data, "client_id", "user_id", "matched_user_id", "score"); err != nil {
		return delivery{}, fmt.Errorf("the data %w", err)
	}
	var (
		d        = delivery{body: body}
		kind, at string
	)
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{
		{"event_type", envelope["event_type"], &kind},
		{"timestamp", envelope["timestamp"], &at},
		{"client_id", data["client_id"], &d.client},
		{"user_id", data["user_id"], &d.user},
		{"matched_user_id", data["matched_user_id"], &d.matched},
		{"score", data["score"], &d.score},
	} {
		if string(f.raw) == "null" || json.Unmarshal(f.raw, f.into) != nil {
			return delivery{}, fmt.Errorf("%s is of the wrong type", f.name)
		}
	}
	var err error
	d.occurred, err = time.Parse(time.RFC3339Nano, at)
	switch {
	case kind != "match.computed" || h.Get("X-Service-Event") != kind:
		return delivery{}, fmt.Errorf("the event is %q, its header says %q", kind, h.Get("X-Service-Event"))
	case err != nil || !strings.HasSuffix(at, "Z"):
		return delivery{}, fmt.Errorf("the timestamp %q is not ISO 8601 in UTC", at)
	case d.score < 0 || d.score > 1:
		return delivery{}, fmt.Errorf("the score %v is not between 0 and 1", d.score)
	}
	return d, nil
}

// exactly decodes an object that must have the named fields and no other.
func exactly(raw []byte, into *map[string]json.RawMessage, fields ...string) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.New("is not a JSON object")
	}
	slices.Sort(fields)
	if got := slices.Sorted(maps.Keys(*into)); !slices.Equal(got, fields) {
		return fmt.Errorf("has the fields %s, not exactly %s", strings.Join(got, ", "), strings.Join(fields, ", "))
	}
	return nil
}
