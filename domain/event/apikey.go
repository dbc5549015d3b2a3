package event

import (
	"encoding/json"
	"slices"
	"time"

	"kindred/domain/id"
)

type (
	// APIKeyIssued: a long-lived credential exists. The raw key is known to
	// its holder alone.
	APIKeyIssued struct {
		fact
		Key         id.Key   `json:"key_id"`
		Name        string   `json:"name"`
		Hash        []byte   `json:"hash"`        // SHA-256 of the raw key
		Fingerprint string   `json:"fingerprint"` // what a person can compare
		Scopes      []string `json:"scopes"`
		// Implied are scopes that the key's tokens have beyond those.
		Implied   []string   `json:"implied,omitempty"`
		IssuedBy  id.Member  `json:"issued_by"`
		ExpiresAt *time.Time `json:"expires_at,omitempty"` // nil: never
	}
	// APIKeyRevoked ends the key and every token that was exchanged for it.
	APIKeyRevoked struct {
		fact
		Key id.Key `json:"key_id"`
	}
)

// upcastIssued1: in version 1, a key with the scope write managed webhooks, too.
func upcastIssued1(data json.RawMessage) (json.RawMessage, error) {
	var old map[string]any
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	if scopes, ok := old["scopes"].([]any); ok && slices.Contains(scopes, any("write")) {
		old["implied"] = []string{"webhooks"}
	}
	return json.Marshal(old)
}

var apiKeyEvents = []definition{
	define[APIKeyIssued]("api_key.issued", 2, upcast(1, upcastIssued1)),
	define[APIKeyRevoked]("api_key.revoked", 1),
}
