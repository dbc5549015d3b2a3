package domain

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Bounds of an end user.
const (
	// limit: client | external id | {maxExternalID} characters | 422 `invalid`
	maxExternalID = 256 // characters
	// limit: client | traits of a user | {MaxTraits B} | 413 `traits_too_large`
	MaxTraits = 256 << 10 // bytes of JSON
)

// EndUser is the fold of a user's stream.
type EndUser struct {
	ID     id.User
	Erased bool
}

// Apply folds an event.
func (u *EndUser) Apply(e event.Event) {
	switch e := e.(type) {
	case event.EndUserCreated:
		u.ID = e.User
	case event.EndUserErased:
		u.Erased = true
	}
}

// Create opens the stream of a user that is not there yet.
// Faults: invalid, traits_too_large, user_exists.
func (u *EndUser) Create(e event.EndUserCreated) ([]event.Event, error) {
	if u.ID != "" {
		return nil, fault.New(fault.Conflict, "user_exists", "There is a user with this external_id already. Change it with PATCH.")
	}
	if e.Traits == nil {
		e.Traits = event.Private([]byte("{}"))
	}
	if err := CheckTraits(e.Traits.Plain); err != nil {
		return nil, err
	}
	return []event.Event{e}, nil
}

// ChangeTraits replaces all traits; old are those it has now. Nothing is
// recorded where nothing changes.
// Faults: invalid, traits_too_large, user_unknown.
func (u *EndUser) ChangeTraits(old, traits []byte) ([]event.Event, error) {
	if err := u.exists(); err != nil {
		return nil, err
	}
	if string(old) == string(traits) {
		return nil, nil
	}
	if err := CheckTraits(traits); err != nil {
		return nil, err
	}
	return []event.Event{event.EndUserTraitsChanged{User: u.ID, Traits: event.Private(traits)}}, nil
}

// Erase forgets the user.
// Faults: user_unknown.
func (u *EndUser) Erase() ([]event.Event, error) {
	if err := u.exists(); err != nil {
		return nil, err
	}
	return []event.Event{event.EndUserErased{User: u.ID}}, nil
}

func (u *EndUser) exists() error {
	if u.ID == "" || u.Erased {
		return fault.UnknownUser()
	}
	return nil
}

// CheckExternalID refuses what cannot name a user: 1 to 256 characters, one of which is seen, and
// no control characters. A column of blanks would make one user of all its lines.
// Faults: invalid.
func CheckExternalID(external string) error {
	n := utf8.RuneCountInString(external)
	switch {
	case n == 0 || n > maxExternalID || !utf8.ValidString(external):
		return fault.NewInvalid(fault.Field{Pointer: "/external_id", Detail: "must have 1 to 256 characters"})
	case !strings.ContainsFunc(external, isSeen):
		return fault.NewInvalid(fault.Field{Pointer: "/external_id", Detail: "must not be blank"})
	case strings.ContainsFunc(external, unicode.IsControl):
		return fault.NewInvalid(fault.Field{Pointer: "/external_id", Detail: "must not hold control characters"})
	}
	return nil
}

// CheckTraits refuses traits that are no JSON object, or too large to be one
// event. That they are JSON was seen when they came in.
// Faults: invalid, traits_too_large.
func CheckTraits(traits []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(traits), []byte("{")) {
		return fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "must be an object"})
	}
	if len(traits) > MaxTraits {
		f := fault.New(fault.TooLarge, "traits_too_large", "The traits have %d bytes; %d are allowed.", len(traits), MaxTraits)
		f.Fields = []fault.Field{{Pointer: "/traits", Detail: "too large"}}
		return f
	}
	return nil
}
