package kindred

import "encoding/json"

// Nullable is a field that may be left out, be null or have a value. Its zero
// value is left out.
type Nullable[T any] struct {
	set   bool
	value *T
}

// Null takes a field's value away.
func Null[T any]() Nullable[T] { return Nullable[T]{set: true} }

// Value sets a field.
func Value[T any](v T) Nullable[T] { return Nullable[T]{set: true, value: &v} }

// Get returns the value, and whether there is one.
func (n Nullable[T]) Get() (value T, ok bool) {
	if n.value == nil {
		return value, false
	}
	return *n.value, true
}

// IsNull says whether the field is there and null.
func (n Nullable[T]) IsNull() bool { return n.set && n.value == nil }

// IsZero says whether the field is left out.
func (n Nullable[T]) IsZero() bool { return !n.set }

// MarshalJSON writes the value or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.value) }

// UnmarshalJSON reads a value or null.
func (n *Nullable[T]) UnmarshalJSON(text []byte) error {
	n.set, n.value = true, nil
	return json.Unmarshal(text, &n.value)
}

// Ptr points to a value, for fields that may be left out.
func Ptr[T any](v T) *T { return &v }
