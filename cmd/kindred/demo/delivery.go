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

// catalog names the event types and the fields of their data
// (docs/contract.md#event-catalog).
var catalog = map[string][]string{
	"match.computed":            {"client_id", "user_id", "matched_user_id", "score"},
	"clustering.completed":      {"client_id", "consent_layer_id", "clustering_run_id", "clusters"},
	"clustering.failed":         {"client_id", "consent_layer_id", "error_details"},
	"campaign.budget_exhausted": {"client_id", "campaign_id"},
	"cluster.drift_detected":    {"client_id", "cluster_id"},
}

// subject is what an event is about: the user that was asked about and the one
// that was found, a run, a layer, a cluster or a campaign.
type subject struct{ kind, id, matched string }

func (s subject) String() string {
	if s.kind == "match.computed" {
		return "the match of " + s.id + " with " + s.matched
	}
	return s.kind + " of " + s.id
}

// delivery is an event that arrived, and was found to be as the contract
// says (docs/contract.md#delivery).
type delivery struct {
	subject
	event    string // its id, at every attempt
	client   string
	score    float64   // of a match
	layer    string    // that a run was of
	clusters []summary // that a run has found
	details  string    // why a run failed
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
// to a subscription with a secret.
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
	var (
		d  = delivery{event: h.Get("Webhook-Id"), body: body}
		at string
	)
	if err := fill(envelope, map[string]any{"event_type": &d.kind, "timestamp": &at}); err != nil {
		return delivery{}, err
	}
	fields, known := catalog[d.kind]
	if !known || h.Get("X-Service-Event") != d.kind {
		return delivery{}, fmt.Errorf("the event is %q, its header says %q", d.kind, h.Get("X-Service-Event"))
	}
	if err := exactly(envelope["data"], &data, fields...); err != nil {
		return delivery{}, fmt.Errorf("the data %w", err)
	}
	places := map[string]any{
		"client_id": &d.client, "user_id": &d.id, "matched_user_id": &d.matched, "score": &d.score,
		"clustering_run_id": &d.id, "consent_layer_id": &d.layer, "clusters": &d.clusters, "error_details": &d.details,
		"campaign_id": &d.id, "cluster_id": &d.id,
	}
	if err := fill(data, places); err != nil {
		return delivery{}, err
	}
	if d.kind == "clustering.failed" {
		d.id = d.layer
	}
	var err error
	d.occurred, err = time.Parse(time.RFC3339Nano, at)
	switch {
	case err != nil || !strings.HasSuffix(at, "Z"):
		return delivery{}, fmt.Errorf("the timestamp %q is not ISO 8601 in UTC", at)
	case d.score < 0 || d.score > 1:
		return delivery{}, fmt.Errorf("the score %v is not between 0 and 1", d.score)
	}
	return d, nil
}

// fill decodes each field of an object into its place.
func fill(object map[string]json.RawMessage, places map[string]any) error {
	for name, raw := range object {
		if place, ok := places[name]; ok && (string(raw) == "null" || json.Unmarshal(raw, place) != nil) {
			return fmt.Errorf("%s is of the wrong type", name)
		}
	}
	return nil
}

// exactly decodes an object that must have the named fields and no other.
func exactly(raw []byte, into *map[string]json.RawMessage, fields ...string) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return errors.New("is not a JSON object")
	}
	fields = slices.Sorted(slices.Values(fields))
	if got := slices.Sorted(maps.Keys(*into)); !slices.Equal(got, fields) {
		return fmt.Errorf("has the fields %s, not exactly %s", strings.Join(got, ", "), strings.Join(fields, ", "))
	}
	return nil
}
