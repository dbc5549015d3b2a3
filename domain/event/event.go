// Package event declares every fact that the service can record.
//
// The set is sealed: only this package can add to it, so this folder is the
// whole history that an auditor can meet. Events are data. A shape that was
// once written is upcast to the newest one when it is read, never edited.
package event

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"kindred/domain/id"
)

// Event is a fact of this package.
type Event interface {
	event() // seals the set
}

// Public is an event that clients may subscribe to.
type Public interface {
	Event
	// Data is what a webhook delivery carries as "data"
	// (docs/contract.md#event-catalog).
	Data(client id.Client) any
	// Example is one that never happened, for the test deliveries of a subscription.
	Example(ids *id.Source) Public
}

// PublicTypes is the event catalog (docs/contract.md#event-catalog): the types that
// clients may subscribe to, sorted.
func PublicTypes() []string { return slices.Sorted(maps.Keys(catalog())) }

// IsPublic says whether a type is one of the catalog.
func IsPublic(eventType string) bool { return catalog()[eventType] != nil }

// Example is an event of a type of the catalog that never happened; nil: of none.
func Example(eventType string, ids *id.Source) Public {
	if shape := catalog()[eventType]; shape != nil {
		return shape.Example(ids)
	}
	return nil
}

// catalog holds an empty event of each public type.
var catalog = sync.OnceValue(func() map[string]Public {
	found := map[string]Public{}
	for name, d := range All().byName {
		if p, ok := reflect.TypeAssert[Public](reflect.Zero(d.shape)); ok {
			found[name] = p
		}
	}
	return found
})

// PersonalData is an event that carries personal fields. They are sealed with the
// key of Subject before they are stored.
type PersonalData interface {
	Event
	// Subject names whose key seals the fields: a user, a member or a webhook.
	Subject() string
	// Personal lists the personal fields, each by its JSON name. A field
	// that the event does not set is nil and is left out.
	Personal() []Field
}

// FirstOfSubject is the first event of a subject, which had no key before.
type FirstOfSubject interface {
	PersonalData
	Opens()
}

// Single is an event of which a client has one with the same key, however often
// it is asked for and under whatever event id it was recorded.
type Single interface {
	Event
	// Key is derived from what makes the event the same; ok is false where
	// another such event is another fact.
	Key() (key id.Event, ok bool)
}

// Named is the first event of a subject that is found by a personal field, which
// no two subjects of a client have in common.
type Named interface {
	FirstOfSubject
	// Name is what kind of name it is, and the name.
	Name() (kind string, name *Personal)
}

// Field is one personal field of an event.
type Field struct {
	Name  string
	Value *Personal
}

// fact marks a struct as an event of this package.
type fact struct{}

func (fact) event() {}
