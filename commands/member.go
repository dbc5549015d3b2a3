package commands

import (
	"context"
	"errors"

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
	email, err := domain.CheckEmail("/email", in.Email)
	if err != nil {
		return Account{}, err
	}
	hash, err := c.HashPassword(ctx, in.Password)
	if err != nil {
		return Account{}, err
	}
	member := id.Next[id.Member](c.ids(call, "member"))
	holder := domain.Holder{Client: call.Client, Member: member}
	claim, err := c.claim(ctx, emailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	if err := c.reserveEmail(ctx, call, claim, holder); err != nil {
		return Account{}, err
	}
	outcome, err := execute[domain.Client](ctx, c, call, clientStream(call.Client), false,
		func(fold *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return fold.AddMember(call.Member, event.MemberAdded{
				Member: member, Role: in.Role,
				Email: event.Private([]byte(email)), PasswordHash: event.Private([]byte(hash)),
			})
		})
	if fault.As(err) != nil { // refused: nothing was recorded, nor will be
		return Account{}, errors.Join(err, c.release(ctx, call, claim, holder))
	}
	if err != nil {
		return Account{}, err
	}
	// The member is there: a confirmation that fails is left to the policy.
	_ = c.confirm(ctx, call, claim, holder)
	return Account{
		Client: call.Client, Member: member, Email: email, Role: in.Role,
		CreatedAt: outcome.Recorded[0].RecordedAt, Outcome: outcome,
	}, nil
}

// RemoveMember ends a membership, frees the address and destroys the key that
// sealed it.
func (c *Commands) RemoveMember(ctx context.Context, call Call, member id.Member) (Outcome, error) {
	outcome, err := execute[domain.Client](ctx, c, call, clientStream(call.Client), false,
		func(fold *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return fold.RemoveMember(call.Member, member)
		})
	if err != nil {
		return Outcome{}, err
	}
	return outcome, c.ForgetMember(ctx, call, member)
}

// ForgetMember frees the address of a member who was removed and destroys the
// key that sealed it. Doing it twice does no more.
func (c *Commands) ForgetMember(ctx context.Context, call Call, member id.Member) error {
	history, _, err := c.Log.Load(ctx, clientStream(call.Client))
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
	return c.Log.Vault.Destroy(ctx, call.Client, string(member))
}

// AccountByEmail finds who logs in with an address, or fails with a fault of
// kind Missing.
func (c *Commands) AccountByEmail(ctx context.Context, email string) (Account, error) {
	stream, err := c.claim(ctx, emailClaim, domain.EmailKey(email))
	if err != nil {
		return Account{}, err
	}
	history, _, err := c.Log.Load(ctx, stream)
	if err != nil {
		return Account{}, err
	}
	var claim domain.Claim
	for _, r := range history {
		claim.Apply(r.Event)
	}
	if !claim.Held {
		return Account{}, errNoAccount()
	}
	return c.AccountByMember(ctx, claim.Holder.Client, claim.Holder.Member)
}

// AccountByMember finds a member, or fails with a fault of kind Missing.
func (c *Commands) AccountByMember(ctx context.Context, client id.Client, member id.Member) (Account, error) {
	history, _, err := c.Log.Load(ctx, clientStream(client))
	if err != nil {
		return Account{}, err
	}
	var fold domain.Client
	for _, r := range history {
		fold.Apply(r.Event)
	}
	m := fold.Member(member)
	if m == nil {
		return Account{}, errNoAccount()
	}
	email, hash, err := c.memberSecrets(ctx, history, member)
	if err != nil {
		return Account{}, err
	}
	return Account{
		Client: client, ClientName: fold.Name, ClientSlug: fold.Slug,
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
