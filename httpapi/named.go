package httpapi

import (
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Named reads the id by which a request names something. A text that is no id of that kind
// names nothing that is there.
func Named[T id.Typed](text string, unknown func() *fault.Fault) (T, error) {
	named, err := id.Parse[T](text)
	if err != nil {
		return "", unknown()
	}
	return named, nil
}

// NamedIfAny is Named of what may be left out, which names nothing.
func NamedIfAny[T id.Typed](text *string, unknown func() *fault.Fault) (T, error) {
	if text == nil {
		return "", nil
	}
	return Named[T](*text, unknown)
}
