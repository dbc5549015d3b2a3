package domain

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"kindred/domain/event"
	"kindred/domain/fault"
)

// Bounds of what a client decides about its traits.
const (
	// limit: client | traits that the schema is told how to read | {maxOverrides}, with paths of {maxOverriddenPath} bytes and weights up to {maxTraitWeight} | 422 `invalid`
	maxOverrides      = 256
	maxOverriddenPath = 256 // bytes
	maxTraitWeight    = 10
)

// traitTypes are the types that a client can declare.
func traitTypes() []string {
	return []string{"bool", "number", "date", "geo", "set", "category", "excluded"}
}

// TraitSchema is the fold of a client's trait schema.
type TraitSchema struct {
	Version   int // how many facts there are
	Overrides map[string]event.TraitOverride
}

// Apply folds an event.
func (s *TraitSchema) Apply(e event.Event) {
	s.Version++
	if e, ok := e.(event.TraitSchemaOverridden); ok {
		s.Overrides = e.Overrides
	}
}

// Sensitive are the paths that are decided to be sensitive, or not to be.
func (s *TraitSchema) Sensitive() map[string]bool { return event.Sensitive(s.Overrides) }

// Infer takes over a schema that was learnt under a version; where there is a
// newer one, it is out of date and adds nothing.
func (s *TraitSchema) Infer(under int, e event.TraitSchemaInferred) []event.Event {
	if under != s.Version {
		return nil
	}
	return []event.Event{e}
}

// Override replaces all that was decided. What does not change adds nothing.
// Faults: invalid.
func (s *TraitSchema) Override(overrides map[string]event.TraitOverride) ([]event.Event, error) {
	var wrong []fault.Field
	refuse := func(pointer, detail string) {
		wrong = append(wrong, fault.Field{Pointer: pointer, Detail: detail})
	}
	if len(overrides) > maxOverrides {
		refuse("/traits", "must decide about at most 256 paths")
	}
	for _, path := range slices.Sorted(maps.Keys(overrides)) {
		o, pointer := overrides[path], "/traits/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(path)
		if path == "" || len(path) > maxOverriddenPath {
			refuse(pointer, "must be a path of 1 to 256 bytes")
		}
		if o.Type != "" && !slices.Contains(traitTypes(), o.Type) {
			refuse(pointer+"/type", "must be one of "+strings.Join(traitTypes(), ", "))
		}
		if o.Weight != nil && !(*o.Weight >= 0 && *o.Weight <= maxTraitWeight) {
			refuse(pointer+"/weight", "must be 0 to 10")
		}
	}
	if len(wrong) > 0 {
		return nil, fault.NewInvalid(wrong...)
	}
	if len(overrides) == 0 && len(s.Overrides) == 0 || reflect.DeepEqual(overrides, s.Overrides) {
		return nil, nil
	}
	return []event.Event{event.TraitSchemaOverridden{Overrides: overrides}}, nil
}
