package commands

import (
	"context"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// APIKeySecret is a new raw key and what is kept of it.
type APIKeySecret struct {
	Raw         string
	Hash        [32]byte // SHA-256 of Raw
	Fingerprint string
}

// IssueAPIKey is what is said to make a key. Without scopes it reads and writes.
type IssueAPIKey struct {
	Name   string
	Scopes []string
}

// IssuedAPIKey is a new key, with the raw key that is shown this once.
type IssuedAPIKey struct {
	event.APIKeyIssued
	Raw       string
	CreatedAt time.Time
	Outcome   Outcome
}

// IssueAPIKey makes an API key. A repeated request is told that its secret
// was shown already.
func (c *Commands) IssueAPIKey(ctx context.Context, call Call, in IssueAPIKey) (IssuedAPIKey, error) {
	key := id.Next[id.Key](c.ids(call, "key"))
	secret, err := c.NewAPIKey()
	if err != nil {
		return IssuedAPIKey{}, err
	}
	outcome, err := execute[domain.APIKey](ctx, c, call, eventstore.APIKeyStream(call.Client, key), call.Seed == nil,
		func(k *domain.APIKey, _ []eventstore.Recorded) ([]event.Event, error) {
			return k.Issue(event.APIKeyIssued{
				Key: key, Name: in.Name, Hash: secret.Hash[:], Fingerprint: secret.Fingerprint,
				Scopes: in.Scopes, IssuedBy: call.Member,
			})
		})
	if err != nil {
		return IssuedAPIKey{}, err
	}
	issued := outcome.Recorded[0].Event.(event.APIKeyIssued)
	if [32]byte(issued.Hash) != secret.Hash {
		return IssuedAPIKey{}, fault.New(fault.Conflict, "secret_already_shown",
			"This request made the API key %s before; its raw key was shown then and cannot be shown again. Revoke it and make another one if it is lost.", key)
	}
	return IssuedAPIKey{APIKeyIssued: issued, Raw: secret.Raw, CreatedAt: outcome.Recorded[0].RecordedAt, Outcome: outcome}, nil
}

// RevokeAPIKey ends a key and all tokens that were exchanged for it.
func (c *Commands) RevokeAPIKey(ctx context.Context, call Call, key id.Key) (Outcome, error) {
	outcome, err := execute[domain.APIKey](ctx, c, call, eventstore.APIKeyStream(call.Client, key), false,
		func(k *domain.APIKey, _ []eventstore.Recorded) ([]event.Event, error) { return k.Revoke() })
	if err != nil {
		return Outcome{}, err
	}
	revokedAt := outcome.History[len(outcome.History)-1].RecordedAt
	return outcome, c.Revoked(ctx, call.Client, string(key), revokedAt)
}
