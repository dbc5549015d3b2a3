package commands

import (
	"context"
	"fmt"
	"strings"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/eventstore"
)

// The kinds of claim. A claim's stream is named by its kind and a hash of what
// it claims, keyed by the service's own pepper.
const (
	emailClaim = "email"
	slugClaim  = "slug"
)

func (c *Commands) claim(ctx context.Context, kind, value string) (eventstore.Stream, error) {
	keyed, err := c.Log.Vault.Index(ctx, "", kind, value)
	if err != nil {
		return "", fmt.Errorf("index a claim: %w", err)
	}
	return claimStream(kind, keyed), nil
}

// reserve takes a claim for a holder, and fails with the fault already_claimed
// where another has it.
func (c *Commands) reserve(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	_, err := execute[domain.Claim](ctx, c, call, stream, true,
		func(claim *domain.Claim, _ []eventstore.Recorded) ([]event.Event, error) { return claim.Reserve(h) })
	return err
}

// confirm makes a reservation final.
func (c *Commands) confirm(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	call.Seed = nil
	_, err := execute[domain.Claim](ctx, c, call, stream, false,
		func(claim *domain.Claim, _ []eventstore.Recorded) ([]event.Event, error) {
			return claim.Confirm(h), nil
		})
	return err
}

// release gives a claim back.
func (c *Commands) release(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	call.Seed = nil
	_, err := execute[domain.Claim](ctx, c, call, stream, false,
		func(claim *domain.Claim, _ []eventstore.Recorded) ([]event.Event, error) {
			return claim.Release(h), nil
		})
	return err
}

// SettleClaim drives on a reservation that a crash left open: it is confirmed
// where what it was made for was recorded, and released where it was not and,
// from now on, cannot be. Settling twice adds nothing.
func (c *Commands) SettleClaim(ctx context.Context, call Call, stream eventstore.Stream) error {
	history, _, err := c.Log.Load(ctx, stream)
	if err != nil {
		return err
	}
	var claim domain.Claim
	for _, r := range history {
		claim.Apply(r.Event)
	}
	if !claim.Held || claim.Confirmed {
		return nil
	}
	h := claim.Holder
	call.Client = h.Client
	client, err := c.bar(ctx, call, h)
	if err != nil {
		return err
	}
	kind, _, _ := strings.Cut(string(stream), "-")
	kept := client.ID != "" && (kind != emailClaim || client.Member(h.Member) != nil)
	if kind == slugClaim && kept {
		slug, err := c.claim(ctx, slugClaim, client.Slug)
		if err != nil {
			return err
		}
		kept = slug == stream
	}
	if kept {
		return c.confirm(ctx, call, stream, h)
	}
	return c.release(ctx, call, stream, h)
}

// bar makes sure that the client, or the member, that a claim was made for is
// either there or can never be, and returns the client.
func (c *Commands) bar(ctx context.Context, call Call, h domain.Holder) (domain.Client, error) {
	call.Seed = nil
	var after domain.Client
	_, err := execute[domain.Client](ctx, c, call, clientStream(h.Client), false,
		func(client *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			events := client.Abandon(h.Client)
			if h.Member != "" {
				events = append(events, client.AbandonMember(h.Member)...)
			}
			after = *client
			return events, nil
		})
	return after, err
}

func isClaimed(err error) bool { return fault.Is(err, "already_claimed") }
