package httpapi

import "encoding/json"

// Nullable is a field of a partial update, which may be left out, null or a
// value.
type Nullable[T any] struct {
	Given bool
	Value *T // nil: null
}

// UnmarshalJSON notes that the field was given.
func (n *Nullable[T]) UnmarshalJSON(data []byte) error {
	n.Given = true
	return json.Unmarshal(data, &n.Value)
}

// Or is the value that was given, or what was there before.
func (n Nullable[T]) Or(before *T) *T {
	if !n.Given {
		return before
	}
	return n.Value
}

// Or is what was given, or what counts where nothing was.
func Or[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// OrNull is a value, or null where it is the zero value.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
