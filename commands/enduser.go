package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
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

// errErased: the user was erased.
var errErased = errors.New("the user was erased")

// named is a user as an external id finds it.
type named struct {
	id    id.User
	found bool // it has the external id; else it may get it
}

// withExternal calls do with the user that has an external id, or else with the id that the
// call gives to the user it creates. It calls do again where somebody else got the external
// id first, and where the user that had it was erased. at is the user that the caller knows
// the external id to find; its zero value: the caller does not know.
func (c *Commands) withExternal(ctx context.Context, call Call, external string, at named, do func(named) error) error {
	for range maxConflicts {
		if at.id == "" {
			found, err := c.Log.LookUp(ctx, call.Client, event.ExternalName, external)
			if err != nil {
				return err
			}
			if at = (named{id.User(found[0]), true}); at.id == "" {
				at = c.newUser(call)
			}
		}
		err := do(at)
		switch {
		case at.found && (errors.Is(err, errErased) || errors.Is(err, seal.ErrErased)):
			if err := c.ForgetUser(ctx, call.Client, at.id); err != nil { // a crash may have left the key
				return err
			}
		case !errors.Is(err, seal.ErrTaken):
			return err
		}
		at = named{}
	}
	return errBusy("changes to the same user")
}

// newUser is the user that a call may create.
func (c *Commands) newUser(call Call) named {
	return named{id.Next[id.User](c.ids(call, "user")), false}
}

// executeUser is execute for the stream of a user, which may be long, so only its ends are
// read. The last event says how the user is, since each event carries all traits and none
// follows the erasure. The first event made the user, and is the only one that a request
// with an Idempotency-Key may have recorded.
func (c *Commands) executeUser(ctx context.Context, call Call, user id.User, assumeNew bool, decide decide[domain.EndUser]) (Outcome, error) {
	if call.IfMatchUser != "" && call.IfMatchUser != user { // that one was erased, and this one has its external id
		call.IfMatch = new(eventstore.Revision(math.MinInt64))
	}
	return execute(ctx, c, call, eventstore.UserStream(call.Client, user), assumeNew, c.ends, decide)
}

// executeNamed is executeUser for a user who may have to be created first.
func (c *Commands) executeNamed(ctx context.Context, call Call, user named, decide decide[domain.EndUser]) (Outcome, error) {
	outcome, err := c.executeUser(ctx, call, user.id, !user.found, decide)
	if !user.found && call.Seed != nil && (errors.Is(err, seal.ErrErased) || errors.Is(err, seal.ErrTaken)) {
		return c.executeUser(ctx, call, user.id, false, decide) // an earlier run may have created it
	}
	return outcome, err
}

// CreateUser makes an end user, or fails with the fault user_exists.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// traits_too_large, user_erased, user_exists, user_unknown.
func (c *Commands) CreateUser(ctx context.Context, call Call, external string, traits json.RawMessage) (User, error) {
	if err := domain.CheckExternalID(external); err != nil {
		return User{}, err
	}
	at := named{}
	if call.Seed == nil { // most are new
		at = c.newUser(call)
	}
	var created User
	err := c.withExternal(ctx, call, external, at, func(user named) error {
		outcome, err := c.executeNamed(ctx, call, user,
			func(u *domain.EndUser, _ []eventstore.Recorded) ([]event.Event, error) {
				if u.Erased {
					return nil, errErased
				}
				return u.Create(creation(user.id, external, traits))
			})
		if err != nil {
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

// PutUser makes an end user, or replaces the traits of who has the external id; of
// a user that is named by its own id, it can only replace them. made says which.
// Where wanted is given, it must be the user's.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// traits_too_large, user_exists, user_unknown.
func (c *Commands) PutUser(ctx context.Context, call Call, ref UserRef, wanted *string, traits json.RawMessage) (put User, made bool, err error) {
	given, byName := strings.CutPrefix(string(ref), externalRef)
	if byName {
		if err := checkSame(wanted, given); err != nil {
			return User{}, false, err
		}
		if err := domain.CheckExternalID(given); err != nil {
			return User{}, false, err
		}
	}
	decide := func(user id.User, external string) decide[domain.EndUser] {
		return func(u *domain.EndUser, history []eventstore.Recorded) ([]event.Event, error) {
			switch {
			case u.Erased:
				return nil, errErased
			case u.ID == "" && external == "":
				return nil, fault.UnknownUser()
			case u.ID == "" && (call.IfExists || call.IfMatch != nil):
				return nil, errStale()
			case u.ID == "":
				return u.Create(creation(user, external, traits))
			case call.IfNoneMatch:
				return nil, fault.New(fault.Stale, "stale", "There is such a user already.")
			}
			if external == "" {
				has, err := c.open(ctx, history[0], "external_id")
				if err := cmp.Or(err, checkSame(wanted, string(has))); err != nil {
					return nil, err
				}
			}
			return c.replaceOrMerge(ctx, u, history, importReplaces, traits)
		}
	}
	done := func(outcome Outcome, err error) error {
		if err != nil {
			return err
		}
		put, err = c.userAfter(ctx, outcome)
		made = len(outcome.Recorded) > 0 && outcome.Recorded[0].Revision == 0
		return err
	}
	if !byName {
		err = c.withUser(ctx, call.Client, ref, func(user id.User) error {
			return done(c.executeUser(ctx, call, user, false, decide(user, "")))
		})
		return put, made, err
	}
	err = c.withExternal(ctx, call, given, named{}, func(user named) error {
		return done(c.executeNamed(ctx, call, user, decide(user.id, given)))
	})
	return put, made, err
}

// checkSame refuses an external id that is given and another than the user's.
func checkSame(given *string, external string) error {
	if given == nil || *given == external {
		return nil
	}
	return fault.NewInvalid(fault.Field{Pointer: "/external_id", Detail: "must be that of the user in the path, or be left out"})
}

// ChangeTraits merges a patch (RFC 7396) into the traits of a user.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// traits_too_large, user_unknown.
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

// patched are traits with a merge patch.
// Faults: invalid.
func patched(old, patch json.RawMessage) (json.RawMessage, error) {
	merged, err := traits.Merge(old, patch)
	if err != nil {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "cannot be merged into the user's traits"})
	}
	return merged, nil
}

func (c *Commands) mergeTraits(ctx context.Context, u *domain.EndUser, history []eventstore.Recorded, patch json.RawMessage) ([]event.Event, error) {
	switch {
	case u.Erased:
		return nil, errErased
	case u.ID == "":
		return nil, fault.UnknownUser()
	}
	old, err := c.traits(ctx, history)
	if err != nil {
		return nil, err
	}
	merged, err := patched(old, patch)
	if err != nil {
		return nil, err
	}
	if traits.Same(old, merged) {
		return nil, nil
	}
	return u.ChangeTraits(old, merged)
}

// EraseUser forgets a user: the fact is recorded, then the key that sealed
// all that is known of the user is destroyed, then the answer is given.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale, user_unknown.
func (c *Commands) EraseUser(ctx context.Context, call Call, ref UserRef) (Outcome, error) {
	var outcome Outcome
	err := c.withUser(ctx, call.Client, ref, func(user id.User) (err error) {
		outcome, err = c.executeUser(ctx, call, user, false,
			func(u *domain.EndUser, _ []eventstore.Recorded) ([]event.Event, error) {
				if u.Erased { // a crash may have left the key
					return nil, cmp.Or(c.ForgetUser(ctx, call.Client, user), errErased)
				}
				return u.Erase()
			})
		if err != nil {
			return err
		}
		return c.ForgetUser(ctx, call.Client, user)
	})
	return outcome, err
}

// ForgetUser destroys the key of a user who was erased, and what finds the user by
// its external id. Doing it twice does no more.
func (c *Commands) ForgetUser(ctx context.Context, client id.Client, user id.User) error {
	lookup, err := c.Log.Vault.LookupOf(ctx, client, string(user))
	if err != nil {
		return fmt.Errorf("forget %s: %w", user, err)
	}
	if lookup != nil && c.Erasures != nil {
		if err := c.Erasures.Note(ctx, client, lookup); err != nil {
			return fmt.Errorf("note the erasure of %s: %w", user, err)
		}
	}
	return c.DestroyKey(ctx, client, string(user))
}

// DestroyKey makes all that was sealed for a subject unreadable for good. Doing
// it twice does no more.
func (c *Commands) DestroyKey(ctx context.Context, client id.Client, subject string) error {
	if err := c.Log.Vault.Destroy(ctx, client, subject); err != nil {
		return fmt.Errorf("destroy the key of %s: %w", subject, err)
	}
	return nil
}

// FindUser returns the id of a user that is there, or fails with a fault of
// kind Missing.
// Faults: busy, invalid, user_unknown.
func (c *Commands) FindUser(ctx context.Context, client id.Client, ref UserRef) (user id.User, err error) {
	err = c.withUser(ctx, client, ref, func(found id.User) error {
		last, err := c.newestOfUser(ctx, client, found)
		switch {
		case err != nil:
			return err
		case len(last) == 0:
			return fault.UnknownUser()
		}
		if _, erased := last[0].Event.(event.EndUserErased); erased {
			return errErased
		}
		user = found
		return nil
	})
	return user, err
}

// withUser finds the user that a reference names and does something with it.
// A user that is not there, or was erased, is a fault of kind Missing.
func (c *Commands) withUser(ctx context.Context, client id.Client, ref UserRef, do func(id.User) error) error {
	err := c.findUser(ctx, client, ref, do)
	if errors.Is(err, errErased) || errors.Is(err, seal.ErrErased) {
		return fault.UnknownUser()
	}
	return err
}

func (c *Commands) findUser(ctx context.Context, client id.Client, ref UserRef, do func(id.User) error) error {
	if external, found := strings.CutPrefix(string(ref), externalRef); found {
		if domain.CheckExternalID(external) != nil {
			return fault.UnknownUser()
		}
		return c.withExternal(ctx, Call{Client: client}, external, named{}, func(user named) error {
			if !user.found {
				return fault.UnknownUser()
			}
			return do(user.id)
		})
	}
	user, err := id.Parse[id.User](string(ref))
	if err != nil {
		return fault.NoUserName()
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
	return nil, fault.UnknownUser()
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
