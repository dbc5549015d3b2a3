package rule

import (
	"errors"

	"kindred/domain/fault"
)

// ParseAt is Parse of a rule that stands at a place of a request.
// Faults: invalid.
func ParseAt(pointer, text string, scope Scope) (*Rule, error) {
	parsed, err := Parse(text, scope)
	if wrong, ok := errors.AsType[*Error](err); ok {
		return nil, fault.NewInvalid(fault.Field{Pointer: pointer, Detail: wrong.Error()})
	}
	return parsed, err
}

// CheckAt refuses a rule, at a place of a request, that reads beyond some bounds.
// Faults: invalid.
func (r *Rule) CheckAt(pointer string, bounds Bounds) error {
	if err := r.Check(bounds); err != nil {
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: err.Error()})
	}
	return nil
}

// CheckLayers refuses a rule, at a place of a request, that asks whether a consent layer is
// granted which is not there: exists fails with a fault of kind Missing then.
// Faults: invalid.
func (r *Rule) CheckLayers(pointer string, exists func(layer string) error) error {
	for _, layer := range r.layers {
		err := exists(layer)
		if fault.Of(err, fault.Missing) {
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "granted names " + layer + ", and there is no such consent layer"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Permitted refuses a rule at a place of a request that reads of users what a consent
// layer, of some paths, does not permit.
// Faults: invalid.
func (r *Rule) Permitted(pointer string, paths []string) error {
	if beyond := r.Beyond(paths); beyond != "" {
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "reads " + beyond + ", which the consent layer does not permit"})
	}
	return nil
}
