package commands

import (
	"context"
	"errors"
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
func (c *Commands) AddMember(ctx context.Context, call Call, in AddMember) (Account, error) {
	email, err := domain.CheckEmail(in.Email)
	if err != nil {
		return Account{}, err
	}
	claim, err := c.claim(ctx, emailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	history, _, err := c.Log.Load(ctx, eventstore.ClientStream(call.Client))
	if err != nil {
		return Account{}, err
	}
	if outcome, repeated, err := c.repetition(ctx, call, history); repeated || err != nil {
		return accountAfter(call, email, outcome), err
	}
	client := fold[domain.Client](history)
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
	outcome, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(call.Client), false,
		func(client *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return client.AddMember(call.Member, added)
		})
	c.settleAfter(ctx, call, err, reservation{claim, holder})
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
		Client: call.Client, Member: added.Member, Email: email, Role: added.Role,
		CreatedAt: first.RecordedAt, Outcome: outcome,
	}
}

// RemoveMember ends a membership, revokes the API keys that the member made but
// for those kept, frees the address and destroys the key that sealed it.
func (c *Commands) RemoveMember(ctx context.Context, call Call, member id.Member, kept ...id.Key) (Outcome, error) {
	if err := c.checkKept(ctx, call.Client, member, kept); err != nil {
		return Outcome{}, err
	}
	outcome, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(call.Client), false,
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
func (c *Commands) ForgetMember(ctx context.Context, call Call, removed event.MemberRemoved) error {
	if err := c.revokeKeysOf(ctx, call, removed); err != nil {
		return err
	}
	member := removed.Member
	history, _, err := c.Log.Load(ctx, eventstore.ClientStream(call.Client))
	if err != nil {
		return err
	}
	email, _, err := c.memberSecrets(ctx, history, member)
	switch {
	case errors.Is(err, seal.ErrErased):
		return nil
	case err != nil:
		return err
	}
	claim, err := c.claim(ctx, emailClaim, domain.EmailKey(email))
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
func (c *Commands) AccountByEmail(ctx context.Context, email string) (Account, error) {
	stream, err := c.claim(ctx, emailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	claim, err := c.loadClaim(ctx, stream)
	if err != nil {
		return Account{}, err
	}
	if !claim.Held {
		return Account{}, errNoAccount()
	}
	return c.AccountByMember(ctx, claim.Holder.Client, claim.Holder.Member)
}

// AccountByMember finds a member, or fails with a fault of kind Missing.
func (c *Commands) AccountByMember(ctx context.Context, client id.Client, member id.Member) (Account, error) {
	history, _, err := c.Log.Load(ctx, eventstore.ClientStream(client))
	if err != nil {
		return Account{}, err
	}
	if err := c.Log.NoteHead(ctx, client, end(history)); err != nil {
		return Account{}, err
	}
	company := fold[domain.Client](history)
	m := company.Member(member)
	if m == nil {
		return Account{}, errNoAccount()
	}
	email, hash, err := c.memberSecrets(ctx, history, member)
	switch {
	case errors.Is(err, seal.ErrErased): // removed just now
		return Account{}, errNoAccount()
	case err != nil:
		return Account{}, err
	}
	return Account{
		Client: client, ClientName: company.Name, ClientSlug: company.Slug,
		Member: member, Email: email, Role: m.Role, PasswordHash: hash,
	}, nil
}

func errNoAccount() error {
	return fault.New(fault.Missing, "account_unknown", "There is no such account.")
}

func (c *Commands) memberSecrets(ctx context.Context, history []eventstore.Recorded, member id.Member) (email, hash string, err error) {
	for _, r := range history {
		added, ok := r.Event.(event.MemberAdded)
		if !ok || added.Member != member {
			continue
		}
		address, err := c.open(ctx, r, "email")
		if err != nil {
			return "", "", err
		}
		phc, err := c.open(ctx, r, "password_hash")
		return string(address), string(phc), err
	}
	return "", "", errNoAccount()
}

const (
	loginsWithin = time.Hour // a login from one network is noted once in it
	loginsMost   = 32        // noted in it, from whatever networks
)

// NoteLogin records that a member has logged in from a network, unless that was
// recorded within the hour. It fails with a fault of kind Missing for a member who
// was removed.
func (c *Commands) NoteLogin(ctx context.Context, call Call, member id.Member, network string) error {
	stream := eventstore.LoginsStream(call.Client, member)
	_, err := executeAfter[nothing](ctx, c, call, stream, false, func(ctx context.Context, stream eventstore.Stream) ([]eventstore.Recorded, eventstore.Tip, error) {
		newest, err := c.Log.ReadBack(ctx, stream, eventstore.End, loginsMost)
		if err != nil {
			return nil, eventstore.Tip{}, err
		}
		tip, err := tipOf(stream, newest)
		return newest, tip, err
	}, func(_ *nothing, newest []eventstore.Recorded) ([]event.Event, error) {
		noted, err := c.notedLogin(ctx, newest, network)
		if noted || err != nil {
			return nil, err
		}
		return []event.Event{event.MemberLoggedIn{Member: member, Network: event.Private([]byte(network))}}, nil
	})
	if errors.Is(err, seal.ErrErased) {
		return errNoAccount()
	}
	return err
}

// notedLogin says whether a login from a network need not be recorded, given the
// newest that were, the last first.
func (c *Commands) notedLogin(ctx context.Context, newest []eventstore.Recorded, network string) (bool, error) {
	since := c.Log.Now().Add(-loginsWithin)
	for _, r := range newest {
		if r.RecordedAt.Before(since) {
			return false, nil
		}
		before, err := c.open(ctx, r, "network")
		if err != nil || string(before) == network {
			return true, err
		}
	}
	return len(newest) == loginsMost, nil
}
