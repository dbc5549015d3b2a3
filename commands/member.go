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
	"kindred/eventstore/seal"
)

// AddMember is what is said to let somebody log in.
type AddMember struct {
	Email    string
	Role     string
	Password string
}

// AddMember lets somebody log in for the client. The address is reserved first.
// Faults: add_again, already_claimed, busy, catching_up, client_unknown, email_exists,
// idempotency_key_reused, invalid, not_in_sandbox, overloaded, owner_only, quarantined, stale,
// too_many_members.
func (c *Commands) AddMember(ctx context.Context, call Call, in AddMember) (Account, error) {
	email, err := domain.CheckEmail(in.Email)
	if err != nil {
		return Account{}, err
	}
	claim, err := c.claim(ctx, eventstore.EmailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	client, before, err := c.company(ctx, call.Client)
	if err != nil {
		return Account{}, err
	}
	if outcome, repeated, err := c.repetition(ctx, call, before, c.client()); repeated || err != nil {
		return accountAfter(call, email, outcome), err
	}
	added := event.MemberAdded{Member: c.newMember(call, client, claim), Role: in.Role, Email: event.Private([]byte(email))}
	if _, err := client.AddMember(call.Member, added); err != nil {
		return Account{}, err // before anything was reserved
	}
	hash, err := c.HashPassword(ctx, in.Password, email, client.Name)
	if err != nil {
		return Account{}, err
	}
	added.PasswordHash = event.Private([]byte(hash))
	holder := domain.Holder{Client: call.Client, Member: added.Member}
	if err := c.reserveEmail(ctx, call, claim, holder); err != nil {
		return Account{}, err
	}
	outcome, err := execute(ctx, c, call, eventstore.ClientStream(call.Client), false, c.client(),
		func(client *domain.Client, history []eventstore.Recorded) ([]event.Event, error) {
			if len(history) > 0 && history[0].Revision > before.version.Revision+1 {
				return nil, domain.ErrAddAgain() // it may have been barred before the snapshot
			}
			return client.AddMember(call.Member, added)
		})
	c.resolveAfter(ctx, call, err, reservation{claim, holder})
	return accountAfter(call, email, outcome), err
}

// newMember names somebody who can still be added. A repeated request gets the
// same name for the same address, until that was barred.
func (c *Commands) newMember(call Call, client *domain.Client, claim eventstore.Stream) id.Member {
	ids := c.ids(call, "member of "+string(claim))
	for {
		if member := id.Next[id.Member](ids); !client.Barred(member) {
			return member
		}
	}
}

func accountAfter(call Call, email string, outcome Outcome) Account {
	if len(outcome.Recorded) == 0 {
		return Account{}
	}
	first := outcome.Recorded[0]
	added := first.Event.(event.MemberAdded)
	return Account{
		Client: call.Client, Home: call.Client, Member: added.Member, Email: email, Role: added.Role,
		CreatedAt: first.RecordedAt, Outcome: outcome,
	}
}

// RemoveMember ends a membership, revokes the API keys that the member made but
// for those kept, frees the address and destroys the key that sealed it.
// Faults: account_unknown, api_key_unknown, building, busy, catching_up, idempotency_key_reused, last_owner,
// member_unknown, overloaded, owner_only, quarantined, stale.
func (c *Commands) RemoveMember(ctx context.Context, call Call, member id.Member, kept ...id.Key) (Outcome, error) {
	if err := c.checkKept(ctx, call.Client, member, kept); err != nil {
		return Outcome{}, err
	}
	outcome, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(call.Client), false, c.client(),
		func(company *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return company.RemoveMember(call.Member, member, kept...)
		})
	if err != nil {
		return Outcome{}, err
	}
	if err := c.Revoked(ctx, call.Client, string(member), outcome.Recorded[0].RecordedAt); err != nil {
		return Outcome{}, err
	}
	return outcome, c.ForgetMember(ctx, call, outcome.Recorded[0].Event.(event.MemberRemoved))
}

// ForgetMember revokes the API keys of a member who was removed, frees the address
// and destroys the key that sealed it. Doing it twice does no more.
// Faults: account_unknown, api_key_unknown, building, busy, catching_up, idempotency_key_reused, overloaded,
// quarantined, stale.
func (c *Commands) ForgetMember(ctx context.Context, call Call, removed event.MemberRemoved) error {
	if err := c.revokeKeysOf(ctx, call, removed); err != nil {
		return err
	}
	member := removed.Member
	added, err := c.memberAdded(ctx, call.Client, member, removed.Added)
	if err != nil {
		return err
	}
	return c.releaseEmail(ctx, call, member, added)
}

// releaseEmail frees the address of a member who is gone, as it was sealed when the member was
// added, and destroys the key that sealed it. Doing it twice does no more.
func (c *Commands) releaseEmail(ctx context.Context, call Call, member id.Member, added eventstore.Recorded) error {
	email, err := c.open(ctx, added, "email")
	switch {
	case errors.Is(err, seal.ErrErased):
		return nil
	case err != nil:
		return err
	}
	claim, err := c.claim(ctx, eventstore.EmailClaim, domain.EmailKey(string(email)))
	if err != nil {
		return err
	}
	if err := c.release(ctx, call, claim, domain.Holder{Client: call.Client, Member: member}); err != nil {
		return err
	}
	return c.DestroyKey(ctx, call.Client, string(member))
}

// AccountByEmail finds who logs in with an address, or fails with a fault of
// kind Missing.
// Faults: account_unknown.
func (c *Commands) AccountByEmail(ctx context.Context, email string) (Account, error) {
	stream, err := c.claim(ctx, eventstore.EmailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	claim, err := latest[domain.Claim](ctx, c, stream)
	if err != nil {
		return Account{}, err
	}
	if !claim.Held {
		return Account{}, fault.UnknownAccount()
	}
	return c.AccountByMember(ctx, claim.Holder.Client, claim.Holder.Member)
}

// AccountByMember finds who logs in to a client, or fails with a fault of kind Missing.
// Faults: account_unknown.
func (c *Commands) AccountByMember(ctx context.Context, client id.Client, member id.Member) (Account, error) {
	if client.Sandbox() {
		return c.accountIn(ctx, client, member)
	}
	company, l, err := c.company(ctx, client)
	if err != nil {
		return Account{}, err
	}
	if err := c.Log.NoteHead(ctx, client, end(l.history)); err != nil {
		return Account{}, err
	}
	m := company.Member(member)
	if m == nil {
		return Account{}, fault.UnknownAccount()
	}
	added, err := c.memberAdded(ctx, client, member, &m.Added)
	if err != nil {
		return Account{}, err
	}
	changes := 0
	email, hash, err := c.memberSecrets(ctx, added)
	if err == nil {
		hash, changes, err = c.memberPassword(ctx, client, member, hash)
	}
	switch {
	case errors.Is(err, seal.ErrErased): // removed just now
		return Account{}, fault.UnknownAccount()
	case err != nil:
		return Account{}, err
	}
	return Account{
		Client: client, Home: client, ClientName: company.Name, ClientSlug: company.Slug,
		Member: member, Email: email, Role: m.Role, PasswordHash: hash, PasswordChanges: changes,
	}, nil
}

// memberAdded finds where a member was added: at a revision or, nil, wherever that
// was, as what was recorded first did not say it.
func (c *Commands) memberAdded(ctx context.Context, client id.Client, member id.Member, at *int64) (eventstore.Recorded, error) {
	from, page := eventstore.End, longPage
	if at != nil {
		from, page = eventstore.Revision(*at), 1
	}
	for r, err := range c.Log.Backward(ctx, eventstore.ClientStream(client), from, page) {
		if err != nil {
			return r, err
		}
		if added, ok := r.Event.(event.MemberAdded); ok && added.Member == member {
			return r, nil
		}
		if at != nil {
			break
		}
	}
	return eventstore.Recorded{}, fault.UnknownAccount()
}

// memberSecrets opens what was sealed when a member was added.
func (c *Commands) memberSecrets(ctx context.Context, added eventstore.Recorded) (email, hash string, err error) {
	address, err := c.open(ctx, added, "email")
	if err != nil {
		return "", "", err
	}
	phc, err := c.open(ctx, added, "password_hash")
	return string(address), string(phc), err
}

const (
	loginsWithin = time.Hour // a login from one network is noted once in it
	// limit: commands | logins of a member that are noted in {loginsWithin} | {loginsMost}
	loginsMost = 32 // noted in it, from whatever networks
)

// NoteLogin records that a member has logged in from a network, unless that was
// recorded within the hour. It fails with a fault of kind Missing for a member who
// was removed.
// Faults: account_unknown, busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) NoteLogin(ctx context.Context, call Call, member id.Member, network string) error {
	stream := eventstore.LoginsStream(call.Client, member)
	_, err := execute[nothing](ctx, c, call, stream, false, c.newestLogins, func(_ *nothing, last []eventstore.Recorded) ([]event.Event, error) {
		noted, err := c.notedLogin(ctx, last, network)
		if noted || err != nil {
			return nil, err
		}
		return []event.Event{event.MemberLoggedIn{Member: member, Network: event.Private([]byte(network))}}, nil
	})
	if errors.Is(err, seal.ErrErased) {
		return fault.UnknownAccount()
	}
	return err
}

// newestLogins reads the logins that count when another is noted.
func (c *Commands) newestLogins(ctx context.Context, stream eventstore.Stream, _ eventstore.Revision) (loaded, error) {
	last, err := c.Log.ReadBack(ctx, stream, eventstore.End, loginsMost)
	if err != nil {
		return loaded{}, err
	}
	end, err := versionOf(stream, last)
	slices.Reverse(last)
	return loaded{end, last, last}, err
}

// notedLogin says whether a login from a network need not be recorded, given the
// last that were, in order.
func (c *Commands) notedLogin(ctx context.Context, last []eventstore.Recorded, network string) (bool, error) {
	now, counted := c.Log.Now(), 0
	for _, r := range slices.Backward(last) {
		if !event.Recent(loginsWithin, r.RecordedAt, now) {
			continue
		}
		counted++
		before, err := c.open(ctx, r, "network")
		if err != nil || string(before) == network {
			return true, err
		}
	}
	return counted == loginsMost, nil
}
