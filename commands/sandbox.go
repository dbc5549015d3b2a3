package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
)

// Sandbox is a sandbox as it was made.
type Sandbox struct {
	event.SandboxStanding
	CreatedAt time.Time
	Outcome   Outcome
}

// CreateSandbox makes a sandbox beside the client, which is to live for a time; 0: until
// it is deleted. Its place is taken first; what a crash leaves unopened is opened by a
// policy.
// Faults: busy, catching_up, idempotency_key_reused, invalid, not_in_sandbox, overloaded, quarantined, stale,
// too_many_sandboxes.
func (c *Commands) CreateSandbox(ctx context.Context, call Call, name string, life time.Duration) (Sandbox, error) {
	if call.Client.Sandbox() {
		return Sandbox{}, domain.ErrNotInSandbox()
	}
	sandbox := id.NextSandbox(c.ids(call, "sandbox"), call.Client)
	outcome, err := execute(ctx, c, call, eventstore.SandboxesStream(call.Client), false, c.last(call),
		func(s *domain.Sandboxes, _ []eventstore.Recorded) ([]event.Event, error) {
			return s.Add(sandbox, name, life, c.Log.Now())
		})
	if err != nil {
		return Sandbox{}, err
	}
	recorded := outcome.Recorded[0]
	added := recorded.Event.(event.SandboxAdded)
	made := event.SandboxStanding{Sandbox: added.Sandbox, Name: added.Name, ExpiresAt: added.ExpiresAt}
	return Sandbox{made, recorded.RecordedAt, outcome}, c.OpenSandbox(ctx, call, made)
}

// OpenSandbox opens a sandbox whose place beside the client was taken. Doing it twice
// does no more.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) OpenSandbox(ctx context.Context, call Call, of event.SandboxStanding) error {
	parent, _, err := c.company(ctx, call.Client)
	if err != nil {
		return err
	}
	if parent.Deleted { // meanwhile
		_, err := c.EndSandbox(ctx, call, of.Sandbox)
		return err
	}
	call.Client, call.Causation = of.Sandbox, "" // no history names what is in another
	_, err = execute[domain.Client](ctx, c, call.unconditional(), eventstore.ClientStream(of.Sandbox), true, c.client(),
		func(client *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return client.OpenSandbox(parent, of), nil
		})
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil
	}
	return err
}

// DeleteSandbox deletes a sandbox of the client.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, sandbox_unknown, stale.
func (c *Commands) DeleteSandbox(ctx context.Context, call Call, sandbox id.Client) (Outcome, error) {
	there, err := latest[domain.Sandboxes](ctx, c, eventstore.SandboxesStream(call.Client))
	if err != nil {
		return Outcome{}, err
	}
	if _, err := there.Get(sandbox); err != nil {
		return Outcome{}, err
	}
	return c.EndSandbox(ctx, call, sandbox)
}

// EndSandbox ends a sandbox of the client: nothing is recorded of it any more, its tokens
// are void, the keys of everything in it are destroyed, and at last its place is given
// back. Doing it twice does no more; what a crash leaves is driven on by a policy.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) EndSandbox(ctx context.Context, call Call, sandbox id.Client) (Outcome, error) {
	call = call.unconditional()
	call.Causation = "" // as in OpenSandbox
	inside := call
	inside.Client = sandbox
	deletes := func() (Outcome, error) {
		return execute(ctx, c, inside, eventstore.SandboxStream(sandbox), false, c.last(inside),
			func(s *domain.Sandbox, _ []eventstore.Recorded) ([]event.Event, error) {
				return s.Delete(sandbox, call.Client), nil
			})
	}
	ended, err := deletes()
	if errors.Is(err, eventstore.ErrDeleted) { // by somebody else, since it was loaded: that is found now
		ended, err = deletes()
	}
	if err != nil {
		return Outcome{}, err
	}
	if err := c.Revoked(ctx, sandbox, id.Everyone(sandbox), ended.History[len(ended.History)-1].RecordedAt); err != nil {
		return Outcome{}, err
	}
	if err := c.Log.Vault.DestroyClient(ctx, sandbox); err != nil {
		return Outcome{}, fmt.Errorf("after %s: %w", ended.Position, err)
	}
	return execute(ctx, c, call, eventstore.SandboxesStream(call.Client), false, c.last(call),
		func(s *domain.Sandboxes, _ []eventstore.Recorded) ([]event.Event, error) {
			return s.Remove(sandbox), nil
		})
}

// home is whose members log in for a client: the client itself, or the one beside which
// a sandbox stands. It fails with a fault of kind Missing for a sandbox that is not
// there, and with [eventstore.ErrDeleted] for one that was deleted.
// Faults: account_unknown.
func (c *Commands) home(ctx context.Context, client id.Client) (id.Client, error) {
	if !client.Sandbox() {
		return client, nil
	}
	if _, err := c.Log.AheadOf(ctx, client); err != nil {
		return "", err
	}
	first, err := c.Log.ReadBack(ctx, eventstore.ClientStream(client), 0, 1)
	if err != nil {
		return "", err
	}
	if len(first) == 0 {
		return "", fault.UnknownAccount()
	}
	opened, ok := first[0].Event.(event.SandboxOpened)
	if !ok {
		return "", fmt.Errorf("%s does not begin as that of a sandbox", first[0].Stream)
	}
	return opened.Parent, nil
}

// isMember says whether somebody can log in for a client. It fails as home does.
func (c *Commands) isMember(ctx context.Context, client id.Client, member id.Member) (bool, error) {
	home, err := c.home(ctx, client)
	if err != nil {
		return false, err
	}
	company, _, err := c.company(ctx, home)
	return err == nil && company.Member(member) != nil, err
}

// accountIn is an account of the client beside which a sandbox stands, as it logs in to
// the sandbox.
func (c *Commands) accountIn(ctx context.Context, sandbox id.Client, member id.Member) (Account, error) {
	home, err := c.home(ctx, sandbox)
	if errors.Is(err, eventstore.ErrDeleted) {
		err = fault.UnknownAccount()
	}
	if err != nil {
		return Account{}, err
	}
	account, err := c.AccountByMember(ctx, home, member)
	if err != nil {
		return Account{}, err
	}
	company, l, err := c.company(ctx, sandbox)
	if err != nil {
		return Account{}, err
	}
	account.Client, account.ClientName, account.ClientSlug = sandbox, company.Name, company.Slug
	return account, c.Log.NoteHead(ctx, sandbox, end(l.history))
}

// revokeKeysInSandboxes revokes the API keys that a member who was removed has made in
// the sandboxes of the client.
func (c *Commands) revokeKeysInSandboxes(ctx context.Context, call Call, member id.Member) error {
	there, err := latest[domain.Sandboxes](ctx, c, eventstore.SandboxesStream(call.Client))
	if err != nil {
		return err
	}
	group, ctx := panics.WithContext(ctx)
	for _, one := range there.Standing {
		group.Go(func() error {
			inside := call
			inside.Client = one.Sandbox
			err := c.revokeKeysBy(ctx, inside, member, nil)
			if errors.Is(err, eventstore.ErrDeleted) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// MoveClock moves the clock of a sandbox forward to a time, and returns what it says
// then, and how far that is ahead of the machine's time.
// Faults: busy, catching_up, clock_backward, idempotency_key_reused, invalid, overloaded, quarantined,
// sandbox_only, stale.
func (c *Commands) MoveClock(ctx context.Context, call Call, to time.Time) (time.Time, time.Duration, Outcome, error) {
	outcome, err := execute(ctx, c, call, eventstore.SandboxStream(call.Client), false, c.last(call),
		func(s *domain.Sandbox, _ []eventstore.Recorded) ([]event.Event, error) {
			return s.Move(call.Client, to, c.Log.Now())
		})
	if err != nil {
		return time.Time{}, 0, Outcome{}, err
	}
	now, ahead, err := c.Log.ClockOf(ctx, call.Client)
	return now, ahead, outcome, err
}
