package commands

import (
	"context"
	"fmt"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// SignUp is what a company says to become a client.
type SignUp struct {
	Email       string
	Password    string
	CompanyName string
}

// Account is a client and one of its members.
type Account struct {
	Client       id.Client
	Home         id.Client // of which it is a member: Client, or that beside which the sandbox stands
	ClientName   string
	ClientSlug   string
	Member       id.Member
	Email        string
	Role         string
	PasswordHash string
	// PasswordChanges is how often the password was changed.
	PasswordChanges int
	CreatedAt       time.Time
	Outcome         Outcome
}

// maxSlugs bounds how many slugs a sign-up tries.
// limit: commands | slugs that a sign-up tries | {maxSlugs}
const maxSlugs = 50

// SignUp makes a client and its owner. The address and the slug are reserved
// first; what a crash leaves reserved is resolved by the claims policy.
// Faults: already_claimed, busy, catching_up, email_exists, idempotency_key_reused, invalid, overloaded,
// quarantined, sign_up_again, slug_exists, stale.
func (c *Commands) SignUp(ctx context.Context, call Call, in SignUp) (Account, error) {
	email, err := domain.CheckEmail(in.Email)
	if err != nil {
		return Account{}, err
	}
	if err := domain.CheckName("/company_name", in.CompanyName); err != nil {
		return Account{}, err
	}
	emailStream, err := c.freeEmail(ctx, email)
	if err != nil {
		return Account{}, err
	}
	hash, err := c.HashPassword(ctx, in.Password, email, in.CompanyName)
	if err != nil {
		return Account{}, err
	}
	client, member := id.Next[id.Client](c.ids(call, "client")), id.Next[id.Member](c.ids(call, "member"))
	call.Client, call.Actor = client, string(member)
	owner := domain.Holder{Client: client, Member: member}
	if err := c.reserveEmail(ctx, call, emailStream, owner); err != nil {
		return Account{}, err
	}
	slug, slugStream, err := c.reserveSlug(ctx, call, domain.Slug(in.CompanyName), domain.Holder{Client: client})
	if err != nil {
		c.resolveAfter(ctx, call, err, reservation{emailStream, owner})
		return Account{}, err
	}
	added := event.MemberAdded{
		Member: member, Email: event.Private([]byte(email)), PasswordHash: event.Private([]byte(hash)),
	}
	outcome, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(client), true, c.client(),
		func(company *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return company.SignUp(client, in.CompanyName, slug, added)
		})
	c.resolveAfter(ctx, call, err, reservation{emailStream, owner}, reservation{slugStream, domain.Holder{Client: client}})
	if err != nil {
		return Account{}, err
	}
	return Account{
		Client: client, Home: client, ClientName: in.CompanyName, ClientSlug: slug, Member: member,
		Email: email, Role: domain.RoleOwner, CreatedAt: outcome.Recorded[0].RecordedAt, Outcome: outcome,
	}, nil
}

// freeEmail returns the claim's stream of an address that nobody has, before
// a password is hashed for nothing.
func (c *Commands) freeEmail(ctx context.Context, email string) (eventstore.Stream, error) {
	stream, err := c.claim(ctx, eventstore.EmailClaim, domain.EmailKey(email))
	if err != nil {
		return "", err
	}
	free, err := c.isFree(ctx, stream)
	if err == nil && !free {
		err = errEmailTaken()
	}
	return stream, err
}

func (c *Commands) reserveEmail(ctx context.Context, call Call, stream eventstore.Stream, h domain.Holder) error {
	err := c.reserve(ctx, call, stream, h)
	if isClaimed(err) {
		return errEmailTaken()
	}
	return err
}

func errEmailTaken() error {
	return fault.New(fault.Conflict, "email_exists", "There is an account with this e-mail address already. Log in, or use another address.")
}

// reserveSlug takes the first free one of slug, slug-2, slug-3, …
func (c *Commands) reserveSlug(ctx context.Context, call Call, slug string, h domain.Holder) (string, eventstore.Stream, error) {
	for n := 1; n <= maxSlugs; n++ {
		candidate := slug
		switch {
		case n == maxSlugs: // a popular name: no more counting
			candidate += "-" + string(h.Client)[len("cli_"):][:8]
		case n > 1:
			candidate = fmt.Sprintf("%s-%d", slug, n)
		}
		stream, err := c.claim(ctx, eventstore.SlugClaim, candidate)
		if err != nil {
			return "", "", err
		}
		if err := c.reserve(ctx, call, stream, h); !isClaimed(err) {
			return candidate, stream, err
		}
	}
	return "", "", fault.New(fault.Conflict, "slug_exists", "No free slug was found for this company name. Choose another name.")
}

// EndClient ends a client that is no sandbox: its tokens are void, its sandboxes are deleted,
// the addresses of its members and its slug are free, and at last the keys of everything in
// it are destroyed. Doing it twice does no more; what a crash leaves is driven on by a policy.
// Faults: busy, catching_up, client_unknown, idempotency_key_reused, not_in_sandbox, overloaded, quarantined,
// stale.
func (c *Commands) EndClient(ctx context.Context, call Call) (Outcome, error) {
	call = call.unconditional()
	ended, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(call.Client), false, c.client(),
		func(client *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) { return client.Delete() })
	if err != nil {
		return Outcome{}, err
	}
	last := ended.History[len(ended.History)-1]
	call.Causation = last.ID
	if err := c.Revoked(ctx, call.Client, id.Everyone(call.Client), last.RecordedAt); err != nil {
		return Outcome{}, err
	}
	there, err := latest[domain.Sandboxes](ctx, c, eventstore.SandboxesStream(call.Client))
	if err != nil {
		return Outcome{}, err
	}
	for _, one := range there.Standing {
		if _, err := c.EndSandbox(ctx, call, one.Sandbox); err != nil {
			return Outcome{}, fmt.Errorf("end %s: %w", one.Sandbox, err)
		}
	}
	if err := c.releaseAll(ctx, call, fold[domain.Client](ended.History).Slug); err != nil {
		return Outcome{}, err
	}
	if err := c.Log.Vault.DestroyClient(ctx, call.Client); err != nil {
		return Outcome{}, fmt.Errorf("after %s: %w", ended.Position, err)
	}
	return ended, nil
}

// releaseAll gives back what a client that was deleted has claimed: its slug, and the address
// of each member, of whom one may have been removed just before.
func (c *Commands) releaseAll(ctx context.Context, call Call, slug string) error {
	claim, err := c.claim(ctx, eventstore.SlugClaim, slug)
	if err != nil {
		return err
	}
	if err := c.release(ctx, call, claim, domain.Holder{Client: call.Client}); err != nil {
		return err
	}
	for r, err := range c.Log.Backward(ctx, eventstore.ClientStream(call.Client), eventstore.End, longPage) {
		if err != nil {
			return err
		}
		if added, ok := r.Event.(event.MemberAdded); ok {
			if err := c.releaseEmail(ctx, call, added.Member, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// client reads a client's stream as far back as needed.
func (c *Commands) client() load { return c.backTo(statePage, isSnapshot) }

// company is a client as it is now.
func (c *Commands) company(ctx context.Context, client id.Client) (*domain.Client, loaded, error) {
	l, err := c.client()(ctx, eventstore.ClientStream(client), eventstore.End)
	if err != nil {
		return nil, l, err
	}
	return fold[domain.Client](l.history), l, nil
}

// ClientChange is a partial update; what is nil stays.
type ClientChange struct {
	Name     *string
	Settings domain.SettingsChange
}

// Client is a client as it is after a command.
type Client struct {
	domain.Client
	Outcome Outcome
}

// ChangeClient renames a client or changes its settings.
// Faults: busy, catching_up, client_unknown, idempotency_key_reused, invalid, overloaded, quarantined, stale.
func (c *Commands) ChangeClient(ctx context.Context, call Call, change ClientChange) (Client, error) {
	if always := change.Settings.MatchRule; always != nil {
		if err := c.checkMatchRule(ctx, call.Client, "/settings/match_rule", *always, false, nil); err != nil {
			return Client{}, err
		}
	}
	outcome, err := execute[domain.Client](ctx, c, call, eventstore.ClientStream(call.Client), false, c.client(),
		func(company *domain.Client, _ []eventstore.Recorded) ([]event.Event, error) {
			return company.Change(change.Name, change.Settings)
		})
	if err != nil {
		return Client{}, err
	}
	return Client{*fold[domain.Client](outcome.History), outcome}, nil
}
