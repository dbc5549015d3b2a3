package domain

import (
	"fmt"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// The scopes of a token. The contract (httpapi/openapi.yaml) says which operation needs
// which.
const (
	ScopeAdmin    = "admin"
	ScopeRead     = "read"
	ScopeWrite    = "write"
	ScopeReadUser = "read:user"
	ScopeErase    = "erase"
	ScopeAudit    = "audit" // of members alone
	ScopeWebhooks = "webhooks"
)

// maxAPIKeys bounds the keys of a client that are neither revoked nor expired.
// limit: client | API keys in force | {maxAPIKeys} | 409 `too_many_api_keys`
const maxAPIKeys = 2_000

// CheckAPIKeys refuses one more key beside those that a client has.
// Faults: too_many_api_keys.
func CheckAPIKeys(there int) error {
	if there < maxAPIKeys {
		return nil
	}
	return fault.New(fault.Conflict, "too_many_api_keys", "A client has at most %d API keys that are in force. Revoke one first.", maxAPIKeys)
}

// APIKey is the fold of a key's stream.
type APIKey struct {
	ID      id.Key
	Revoked bool
}

// Apply folds an event.
func (k *APIKey) Apply(e event.Event) {
	switch e := e.(type) {
	case event.APIKeyIssued:
		k.ID = e.Key
	case event.APIKeyRevoked:
		k.Revoked = true
	}
}

// Issue records a new key. Without scopes it reads, writes and manages webhooks.
// Faults: invalid.
func (k *APIKey) Issue(e event.APIKeyIssued, now time.Time) ([]event.Event, error) {
	if err := CheckName("/name", e.Name); err != nil {
		return nil, err
	}
	if len(e.Scopes) == 0 {
		e.Scopes, e.Implied = []string{ScopeRead, ScopeWrite}, []string{ScopeWebhooks}
	}
	if e.ExpiresAt != nil && !e.ExpiresAt.After(now) {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/expires_at", Detail: "must be in the future"})
	}
	for i, s := range e.Scopes {
		if !slices.Contains([]string{ScopeAdmin, ScopeRead, ScopeWrite, ScopeReadUser, ScopeErase, ScopeWebhooks}, s) {
			return nil, fault.NewInvalid(fault.Field{
				Pointer: fmt.Sprintf("/scopes/%d", i),
				Detail:  "must be one of read, write, read:user, webhooks, erase, admin",
			})
		}
	}
	return []event.Event{e}, nil
}

// Revoke ends the key. Revoking twice adds nothing.
// Faults: api_key_unknown.
func (k *APIKey) Revoke() ([]event.Event, error) {
	switch {
	case k.ID == "":
		return nil, fault.UnknownAPIKey()
	case k.Revoked:
		return nil, nil
	}
	return []event.Event{event.APIKeyRevoked{Key: k.ID}}, nil
}
