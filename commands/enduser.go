package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// User is an end user as it is after a command.
type User struct {
	ID         id.User
	ExternalID string
	Traits     json.RawMessage
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Outcome    Outcome
}

// UserRef names a user: its id, or "ext:" and the caller's own.
type UserRef string

// externalRef is the prefix of a reference by external id.
const externalRef = "ext:"

// maxGenerations bounds how often one external id can be created anew.
const maxGenerations = 1_000

// eachGeneration tries an external id's generations in order until try says
// that it is done; a generation that was erased is over.
func (c *Commands) eachGeneration(ctx context.Context, client id.Client, external string,
	try func(user id.User, generation int) error,
) error {
	for generation := range maxGenerations {
		user, err := c.Log.Vault.UserID(ctx, client, external, generation)
		if err != nil {
			return err
		}
		if err := try(user, generation); !errors.Is(err, errErased) {
			return err
		}
	}
	return fault.New(fault.Conflict, "erased_too_often", "This external_id was erased %d times and cannot be used again.", maxGenerations)
}

// errErased: this generation of the user was erased.
var errErased = errors.New("the user was erased")

// executeUser is execute for the stream of a user, which may be long. Its last
// event says how the user is, as each carries all traits and none follows the
// erasure; its first is what it was created with, and the only one whose
// request can be repeated by a key.
func (c *Commands) executeUser(ctx context.Context, call Call, user id.User, assumeNew bool, decide decide[domain.EndUser]) (Outcome, error) {
	return execute(ctx, c, call, eventstore.UserStream(call.Client, user), assumeNew, c.ends, decide)
}

// CreateUser makes an end user, or fails with the fault user_exists.
func (c *Commands) CreateUser(ctx context.Context, call Call, external string, traits json.RawMessage) (User, error) {
	if err := domain.CheckExternalID(external); err != nil {
		return User{}, err
	}
	var created User
	err := c.eachGeneration(ctx, call.Client, external, func(user id.User, generation int) error {
		outcome, err := c.executeUser(ctx, call, user, call.Seed == nil,
			func(u *domain.EndUser, _ []eventstore.Recorded) ([]event.Event, error) {
				if u.Erased {
					return nil, errErased
				}
				return u.Create(creation(user, generation, external, traits))
			})
		switch {
		case errors.Is(err, seal.ErrErased):
			return errErased
		case err != nil:
			return err
		}
		created, err = c.userAfter(ctx, outcome)
		if errors.Is(err, seal.ErrErased) {
			return fault.New(fault.Gone, "user_erased", "The user that this request created has been erased since.")
		}
		return err
	})
	return created, err
}

// ChangeTraits merges a patch (RFC 7396) into the traits of a user.
func (c *Commands) ChangeTraits(ctx context.Context, call Call, ref UserRef, patch json.RawMessage) (User, error) {
	var changed User
	err := c.withUser(ctx, call.Client, ref, func(user id.User) error {
		outcome, err := c.executeUser(ctx, call, user, false,
			func(u *domain.EndUser, history []eventstore.Recorded) ([]event.Event, error) {
				return c.mergeTraits(ctx, u, history, patch)
			})
		if err != nil {
			return err
		}
		changed, err = c.userAfter(ctx, outcome)
		return err
	})
	return changed, err
}

func (c *Commands) mergeTraits(ctx context.Context, u *domain.EndUser, history []eventstore.Recorded, patch json.RawMessage) ([]event.Event, error) {
	switch {
	case u.Erased:
		return nil, errErased
	case u.ID == "":
		return nil, domain.ErrUserUnknown()
	}
	old, err := c.traits(ctx, history)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(old, patch)
	if err != nil {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "cannot be merged into the user's traits"})
	}
	if jsonpatch.Equal(old, merged) {
		return nil, nil
	}
	return u.ChangeTraits(old, merged)
}

// EraseUser forgets a user: the fact is recorded, then the key that sealed
// all that is known of the user is destroyed, then the answer is given.
func (c *Commands) EraseUser(ctx context.Context, call Call, ref UserRef) (Outcome, error) {
	var outcome Outcome
	err := c.withUser(ctx, call.Client, ref, func(user id.User) (err error) {
		outcome, err = c.executeUser(ctx, call, user, false,
			func(u *domain.EndUser, _ []eventstore.Recorded) ([]event.Event, error) {
				if u.Erased { // a crash may have left the key
					return nil, cmp.Or(c.DestroyKey(ctx, call.Client, string(user)), errErased)
				}
				return u.Erase()
			})
		if err != nil {
			return err
		}
		return c.DestroyKey(ctx, call.Client, string(user))
	})
	return outcome, err
}

// DestroyKey makes all that was sealed for a subject unreadable for good. Doing
// it twice does no more.
func (c *Commands) DestroyKey(ctx context.Context, client id.Client, subject string) error {
	if err := c.Log.Vault.Destroy(ctx, client, subject); err != nil {
		return fmt.Errorf("destroy the key of %s: %w", subject, err)
	}
	return nil
}

// withUser finds the user that a reference names and does something with it.
// A user that is not there, or was erased, is a fault of kind Missing.
func (c *Commands) withUser(ctx context.Context, client id.Client, ref UserRef, do func(id.User) error) error {
	err := c.findUser(ctx, client, ref, do)
	if errors.Is(err, errErased) || errors.Is(err, seal.ErrErased) {
		return domain.ErrUserUnknown()
	}
	return err
}

func (c *Commands) findUser(ctx context.Context, client id.Client, ref UserRef, do func(id.User) error) error {
	if external, found := strings.CutPrefix(string(ref), externalRef); found {
		if domain.CheckExternalID(external) != nil {
			return domain.ErrUserUnknown()
		}
		return c.eachGeneration(ctx, client, external, func(user id.User, _ int) error { return do(user) })
	}
	user, err := id.Parse[id.User](string(ref))
	if err != nil {
		return domain.ErrUserUnknown()
	}
	return do(user)
}

// traits are the newest ones in a user's history.
func (c *Commands) traits(ctx context.Context, history []eventstore.Recorded) ([]byte, error) {
	for _, r := range slices.Backward(history) {
		switch r.Event.(type) {
		case event.EndUserCreated, event.EndUserTraitsChanged:
			return c.open(ctx, r, "traits")
		}
	}
	return nil, domain.ErrUserUnknown()
}

// newestOfUser is the last event of a user, or none.
func (c *Commands) newestOfUser(ctx context.Context, client id.Client, user id.User) ([]eventstore.Recorded, error) {
	return c.Log.ReadBack(ctx, eventstore.UserStream(client, user), eventstore.End, 1)
}

// userAt finds the newest event of a user up to a position of the log, given the
// newest of all; its Event is nil where there is none. The positions of a stream
// rise, so it is found by halving.
func (c *Commands) userAt(ctx context.Context, newest []eventstore.Recorded, at eventstore.Position) (then eventstore.Recorded, err error) {
	if len(newest) == 0 {
		return then, nil
	}
	last := newest[0]
	if last.Position <= at {
		return last, nil
	}
	for low, high := eventstore.NoStream, last.Revision; low+1 < high; {
		middle := low + (high-low)/2
		found, err := c.Log.ReadBack(ctx, last.Stream, middle, 1)
		if err != nil {
			return then, err
		}
		if found[0].Position <= at {
			then, low = found[0], middle
		} else {
			high = middle
		}
	}
	return then, nil
}

func (c *Commands) userAfter(ctx context.Context, outcome Outcome) (User, error) {
	first, last := outcome.History[0], outcome.History[len(outcome.History)-1]
	external, err := c.open(ctx, first, "external_id")
	if err != nil {
		return User{}, err
	}
	traits, err := c.traits(ctx, outcome.History)
	if err != nil {
		return User{}, err
	}
	return User{
		ID: first.Event.(event.EndUserCreated).User, ExternalID: string(external), Traits: traits,
		CreatedAt: first.RecordedAt, UpdatedAt: last.RecordedAt, Outcome: outcome,
	}, nil
}
