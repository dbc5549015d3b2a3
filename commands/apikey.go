package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
)

// APIKeySecret is a new raw key and what is kept of it.
type APIKeySecret struct {
	Raw         string
	Hash        [32]byte // SHA-256 of Raw
	Fingerprint string
}

// Keys finds API keys that are in force: neither revoked nor expired. Both methods
// answer as of all that the client was told.
type Keys interface {
	// MadeBy returns those that a member made.
	MadeBy(ctx context.Context, client id.Client, member id.Member) ([]id.Key, error)
	// Before counts those that were made before a key, or all where that is "".
	Before(ctx context.Context, client id.Client, key id.Key) (int, error)
}

// IssueAPIKey is what is said to make a key. Without scopes it reads, writes and
// manages webhooks.
type IssueAPIKey struct {
	Name      string
	Scopes    []string
	ExpiresAt *time.Time // nil: never
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
// Faults: account_unknown, api_key_unknown, building, busy, catching_up, idempotency_key_reused, invalid,
// member_removed, overloaded, quarantined, secret_already_shown, stale, too_many_api_keys.
func (c *Commands) IssueAPIKey(ctx context.Context, call Call, in IssueAPIKey) (IssuedAPIKey, error) {
	key := id.Next[id.Key](c.ids(call, "key"))
	secret, err := c.NewAPIKey(call.Client)
	if err != nil {
		return IssuedAPIKey{}, err
	}
	issuing := event.APIKeyIssued{
		Key: key, Name: in.Name, Hash: secret.Hash[:], Fingerprint: secret.Fingerprint, Scopes: in.Scopes, IssuedBy: call.Member,
	}
	if in.ExpiresAt != nil {
		issuing.ExpiresAt = new(in.ExpiresAt.UTC().Truncate(time.Microsecond))
	}
	outcome, err := execute[domain.APIKey](ctx, c, call, eventstore.APIKeyStream(call.Client, key), call.Seed == nil, c.whole,
		func(k *domain.APIKey, _ []eventstore.Recorded) ([]event.Event, error) {
			events, err := k.Issue(issuing, c.Log.Now())
			if err != nil {
				return nil, err
			}
			return events, c.checkRoom(ctx, call.Client, "") // so that nothing is recorded to be taken back
		})
	if err != nil {
		return IssuedAPIKey{}, err
	}
	issued := outcome.Recorded[0].Event.(event.APIKeyIssued)
	if [32]byte(issued.Hash) != secret.Hash {
		return IssuedAPIKey{}, fault.New(fault.Conflict, "secret_already_shown",
			"This request made the API key %s before; its raw key was shown then and cannot be shown again. Revoke it and make another one if it is lost.", key)
	}
	if err := c.checkIssued(ctx, call, key); err != nil {
		_, revoked := c.RevokeAPIKey(ctx, call.unconditional(), key)
		return IssuedAPIKey{}, errors.Join(err, revoked)
	}
	return IssuedAPIKey{APIKeyIssued: issued, Raw: secret.Raw, CreatedAt: outcome.Recorded[0].RecordedAt, Outcome: outcome}, nil
}

// checkIssued refuses a key that was recorded while others were, beyond the bound,
// or while the member who made it was removed. Where it cannot be known just now how many
// there are, the key stays: were it revoked, a repetition would be told that it was shown.
func (c *Commands) checkIssued(ctx context.Context, call Call, key id.Key) error {
	there, err := c.isMember(ctx, call.Client, call.Member)
	if err != nil {
		return err
	}
	if call.Member != "" && !there {
		return fault.New(fault.Forbidden, "member_removed", "Who made the API key was removed meanwhile.")
	}
	if err := c.checkRoom(ctx, call.Client, key); !fault.Of(err, fault.Unavailable) {
		return err
	}
	return nil
}

func (c *Commands) checkRoom(ctx context.Context, client id.Client, before id.Key) error {
	there, err := c.Keys.Before(ctx, client, before)
	if err != nil {
		return err
	}
	return domain.CheckAPIKeys(there)
}

// RevokeAPIKey ends a key and all tokens that were exchanged for it.
// Faults: api_key_unknown, busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) RevokeAPIKey(ctx context.Context, call Call, key id.Key) (Outcome, error) {
	outcome, err := execute[domain.APIKey](ctx, c, call, eventstore.APIKeyStream(call.Client, key), false, c.whole,
		func(k *domain.APIKey, _ []eventstore.Recorded) ([]event.Event, error) { return k.Revoke() })
	if err != nil {
		return Outcome{}, err
	}
	revokedAt := outcome.History[len(outcome.History)-1].RecordedAt
	return outcome, c.Revoked(ctx, call.Client, string(key), revokedAt)
}

// checkKept refuses to keep what is no key in force that the member made.
func (c *Commands) checkKept(ctx context.Context, client id.Client, member id.Member, kept []id.Key) error {
	if len(kept) == 0 {
		return nil
	}
	made, err := c.Keys.MadeBy(ctx, client, member)
	if err != nil {
		return err
	}
	for _, key := range kept {
		if !slices.Contains(made, key) {
			return fault.New(fault.Missing, "api_key_unknown", "%s is no API key in force that the member made.", key)
		}
	}
	return nil
}

// revokedAtOnce is how many keys of a member are revoked at a time.
// limit: commands | keys of a removed member that are revoked at a time | {revokedAtOnce}
const revokedAtOnce = 16

// revokeKeysOf revokes the API keys of a member who was removed.
func (c *Commands) revokeKeysOf(ctx context.Context, call Call, removed event.MemberRemoved) error {
	if !removed.RevokesKeys {
		return nil
	}
	if err := c.revokeKeysBy(ctx, call, removed.Member, removed.KeptKeys); err != nil {
		return err
	}
	return c.revokeKeysInSandboxes(ctx, call, removed.Member)
}

// revokeKeysBy revokes the API keys of a client that somebody made, but for those kept.
func (c *Commands) revokeKeysBy(ctx context.Context, call Call, member id.Member, kept []id.Key) error {
	made, err := c.Keys.MadeBy(ctx, call.Client, member)
	if err != nil {
		return err
	}
	group, ctx := panics.WithContext(ctx)
	group.SetLimit(revokedAtOnce)
	for _, key := range made {
		if !slices.Contains(kept, key) {
			group.Go(func() error {
				_, err := c.RevokeAPIKey(ctx, call.unconditional(), key)
				return err
			})
		}
	}
	return group.Wait()
}
