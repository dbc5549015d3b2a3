package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"kindred/panics"
)

// ErrUnknown is returned for a type or a version that this release does not
// know: it was written by a newer one.
var ErrUnknown = errors.New("an event of a type or version that this release does not know")

// definition is how one type of event is named, written and read.
type definition struct {
	name      string
	version   int // the version that is written
	shape     reflect.Type
	upcasters map[int]func(json.RawMessage) (json.RawMessage, error)
	decode    func(json.RawMessage) (Event, error)
}

type option func(*definition)

// upcast turns the stored JSON of version from into that of version from+1.
func upcast(from int, f func(json.RawMessage) (json.RawMessage, error)) option { //nolint:unparam // later versions need none so far
	return func(d *definition) { d.upcasters[from] = f }
}

// define registers E under its name, with the version that is written.
func define[E Event](name string, version int, options ...option) definition {
	d := definition{
		name: name, version: version, shape: reflect.TypeFor[E](),
		upcasters: map[int]func(json.RawMessage) (json.RawMessage, error){},
		decode: func(data json.RawMessage) (Event, error) {
			var e E
			if r, ok := any(&e).(interface{ readFrom(data []byte) bool }); ok && r.readFrom(data) {
				return e, nil
			}
			e = *new(E) // what was read in part
			if err := json.Unmarshal(data, &e); err != nil {
				return nil, err
			}
			return e, nil
		},
	}
	for _, o := range options {
		o(&d)
	}
	return d
}

// Registry knows a set of event types.
type Registry struct {
	byName  map[string]definition
	byShape map[reflect.Type]definition
}

func newRegistry(definitions ...[]definition) *Registry {
	r := &Registry{byName: map[string]definition{}, byShape: map[reflect.Type]definition{}}
	for _, d := range slices.Concat(definitions...) {
		if _, twice := r.byName[d.name]; twice {
			panic("event type defined twice: " + d.name)
		}
		if other, twice := r.byShape[d.shape]; twice {
			panic("one shape under two names: " + other.name + ", " + d.name)
		}
		r.byName[d.name], r.byShape[d.shape] = d, d
	}
	return r
}

// All returns the registry of every event of the service.
func All() *Registry {
	return newRegistry(clientEvents, accessEvents, claimEvents, apiKeyEvents, endUserEvents, matchEvents, webhookEvents, consentEvents,
		interactionEvents, traitSchemaEvents, campaignEvents, deliveryEvents, clusteringEvents, clusterEvents, segmentEvents, sandboxEvents)
}

// Name returns the type and the version under which e is written.
func (r *Registry) Name(e Event) (name string, version int, err error) {
	d, found := r.byShape[reflect.TypeOf(e)]
	if !found {
		return "", 0, fmt.Errorf("%T is not registered", e)
	}
	return d.name, d.version, nil
}

// Encode writes an event in its newest shape, as JSON.
func Encode(e Event) ([]byte, error) {
	if q, ok := e.(quick); ok {
		if b, ok := q.appendTo(make([]byte, 0, quickSize)); ok {
			return b, nil
		}
	}
	return json.Marshal(e)
}

const quickSize = 1 << 10 // bytes that most events fit into

// Types returns the names of all types and the version each is written in.
func (r *Registry) Types() map[string]int {
	types := make(map[string]int, len(r.byName))
	for name, d := range r.byName {
		types[name] = d.version
	}
	return types
}

// Decode reads what was stored as name and version, upcast to the newest
// shape. It fails with ErrUnknown for what a newer release wrote. A panic is an
// error, too: no caller has to end for what one client's event holds.
func (r *Registry) Decode(name string, version int, data []byte) (Event, error) {
	d, found := r.byName[name]
	if !found || version > d.version || version < 1 {
		return nil, fmt.Errorf("%w: %s version %d", ErrUnknown, name, version)
	}
	e, err := d.read(version, data)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	return e, nil
}

func (d definition) read(version int, data []byte) (e Event, err error) {
	defer panics.Catch(&err)
	for v := version; v < d.version; v++ {
		up, found := d.upcasters[v]
		if !found {
			continue // it brought fields that are left out where they are zero
		}
		if data, err = up(data); err != nil {
			return nil, fmt.Errorf("upcast from version %d: %w", v, err)
		}
	}
	return d.decode(data)
}
