package domain

import (
	"fmt"
	"slices"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Scopes of a token, as api.md lists them. Which endpoint needs which stands
// in the contract's OpenAPI description.
const (
	ScopeAdmin    = "admin"
	ScopeRead     = "read"
	ScopeWrite    = "write"
	ScopeReadUser = "read:user"
	ScopeErase    = "erase"
)

// maxLabel bounds the name of an API key, in characters.
const maxLabel = 200

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

// Issue records a new key. Without scopes it reads and writes.
func (k *APIKey) Issue(e event.APIKeyIssued) ([]event.Event, error) {
	if n := len([]rune(e.Name)); n == 0 || n > maxLabel {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/name", Detail: "must have 1 to 200 characters"})
	}
	if len(e.Scopes) == 0 {
		e.Scopes = []string{ScopeRead, ScopeWrite}
	}
	for i, s := range e.Scopes {
		if !slices.Contains([]string{ScopeAdmin, ScopeRead, ScopeWrite, ScopeReadUser, ScopeErase}, s) {
			return nil, fault.NewInvalid(fault.Field{
				Pointer: fmt.Sprintf("/scopes/%d", i),
				Detail:  "must be one of read, write, read:user, erase, admin",
			})
		}
	}
	return []event.Event{e}, nil
}

// Revoke ends the key. Revoking twice adds nothing.
func (k *APIKey) Revoke() ([]event.Event, error) {
	switch {
	case k.ID == "":
		return nil, fault.New(fault.Missing, "api_key_unknown", "There is no such API key.")
	case k.Revoked:
		return nil, nil
	}
	return []event.Event{event.APIKeyRevoked{Key: k.ID}}, nil
}
