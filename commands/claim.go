package commands

import (
	"context"
	"fmt"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/eventstore"
)

// claim is the stream of a claim, named by a hash that is keyed by the service's own pepper.
func (c *Commands) claim(ctx context.Context, kind, value string) (eventstore.Stream, error) {
	keyed, err := c.Log.Vault.Index(ctx, "", kind, value)
	if err != nil {
		return "", fmt.Errorf("index a claim: %w", err)
	}
	return eventstore.ClaimStream(kind, keyed), nil
}

// reserve takes a claim for a holder, and fails with the fault already_claimed
// where another has it.
func (c *Commands) reserve(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	try := func() error {
		return c.decideClaim(ctx, call, stream, true, func(claim *domain.Claim) ([]event.Event, error) { return claim.Reserve(h) })
	}
	taken := try()
	if !isClaimed(taken) {
		return taken
	}
	switch free, err := c.isFree(ctx, stream); {
	case err != nil:
		return err
	case free:
		return try()
	}
	return taken
}

// confirm makes a reservation final.
func (c *Commands) confirm(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	return c.decideClaim(ctx, call, stream, false, func(claim *domain.Claim) ([]event.Event, error) { return claim.Confirm(h), nil })
}

// release gives a claim back.
func (c *Commands) release(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	return c.decideClaim(ctx, call, stream, false, func(claim *domain.Claim) ([]event.Event, error) { return claim.Release(h), nil })
}

// decideClaim decides about a claim, which is beside the call's own stream.
func (c *Commands) decideClaim(ctx context.Context, call Call, stream eventstore.Stream, assumeNew bool,
	decide func(*domain.Claim) ([]event.Event, error),
) error {
	call = call.unconditional()
	_, err := execute(ctx, c, call, stream, assumeNew, c.last(call),
		func(claim *domain.Claim, _ []eventstore.Recorded) ([]event.Event, error) { return decide(claim) })
	return err
}

// ResolveClaim drives on a reservation that a crash left open. Resolving twice
// adds nothing.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) ResolveClaim(ctx context.Context, call Call, stream eventstore.Stream) error {
	claim, err := latest[domain.Claim](ctx, c, stream)
	if err != nil || !claim.Held || claim.Confirmed {
		return err
	}
	return c.resolveClaim(ctx, call, stream, claim.Holder)
}

// ClaimsActor is who resolves what a command has left reserved.
const ClaimsActor = "policy:claims"

// reservedFor is how long a command has to record what it reserved a claim for. After that,
// another command that wants the same resolves the reservation. The policy waits longer.
const reservedFor = 2 * time.Second

// isFree says whether nobody holds a claim. It resolves a reservation that is older than
// reservedFor, so that somebody who repeats a command whose end was not known need not wait
// for the policy.
func (c *Commands) isFree(ctx context.Context, stream eventstore.Stream) (bool, error) {
	last, err := c.Log.ReadBack(ctx, stream, eventstore.End, 1)
	if err != nil {
		return false, err
	}
	claim := fold[domain.Claim](last)
	if claim.Held && !claim.Confirmed && c.Log.Now().Sub(last[0].RecordedAt) > reservedFor {
		if err := c.resolveClaim(ctx, Call{Actor: ClaimsActor}, stream, claim.Holder); err != nil {
			return false, err
		}
		if claim, err = latest[domain.Claim](ctx, c, stream); err != nil {
			return false, err
		}
	}
	return !claim.Held, nil
}

// reservation is a claim that a command made for a holder.
type reservation struct {
	stream eventstore.Stream
	holder domain.Holder
}

// resolveAfter confirms or releases what a command reserved, by how the command ended: with
// a success or a refusal. Where the end is not known, or this fails, the claims policy does
// it later.
func (c *Commands) resolveAfter(ctx context.Context, call Call, err error, made ...reservation) {
	if err != nil && fault.As(err) == nil {
		return
	}
	for _, r := range made {
		_ = c.resolveClaim(ctx, call, r.stream, r.holder)
	}
}

// resolveClaim ends a reservation of h. It confirms the reservation where what it was made
// for was recorded. Where that was not, it first makes sure that it never can be, and then
// releases. A holder reserves one address and one slug, so a holder that is there has both.
func (c *Commands) resolveClaim(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	call.Client = h.Client
	client, err := c.bar(ctx, call, h)
	if err != nil {
		return err
	}
	if client.ID != "" && (h.Member == "" || client.Member(h.Member) != nil) {
		return c.confirm(ctx, call, stream, h)
	}
	return c.release(ctx, call, stream, h)
}

// bar makes sure that the client, or the member, that a claim was made for is
// either there or can never be, and returns the client.
func (c *Commands) bar(ctx context.Context, call Call, h domain.Holder) (domain.Client, error) {
	var after domain.Client
	_, err := execute[domain.Client](ctx, c, call.unconditional(), eventstore.ClientStream(h.Client), false, c.client(),
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
