// Package fault holds refusals that a caller may read. Whatever is not a
// fault is the service's own trouble and is never shown.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says which sort of refusal a fault is. One table in httpapi maps kinds
// to HTTP statuses.
type Kind int

const (
	Unreadable      Kind = iota + 1 // the request cannot be read: 400
	Unauthenticated                 // credentials are missing or wrong: 401
	Forbidden                       // the caller may not: 403
	Missing                         // there is no such thing: 404
	Conflict                        // the state does not allow it: 409
	Gone                            // it was there, and is not any more: 410
	Stale                           // the precondition failed: 412
	TooLarge                        // the input is over a limit: 413
	WrongType                       // the media type is not understood: 415
	Invalid                         // readable, but not valid: 422
	Limited                         // too many requests: 429
	Unavailable                     // cannot be answered just now: 503
)

// Field is one thing wrong with the input.
type Field struct {
	Pointer string // JSON Pointer (RFC 6901) into the body, or the parameter's name
	Detail  string
}

// Fault is a refusal.
type Fault struct {
	Kind       Kind
	Code       string // a stable machine word, such as "user_exists"
	Detail     string // a sentence that says what is wrong and what to do
	Fields     []Field
	RetryAfter time.Duration // for Limited, Unavailable and work in flight

	// Soon is set where the same question is answered in a moment: it waits for
	// that, for a bounded time, and returns the context to ask again with, or why
	// there will be no answer. The fault says what a caller hears that does not wait.
	Soon func(context.Context) (context.Context, error) `json:"-"`
}

// New makes a fault; detail is a format.
func New(kind Kind, code, detail string, args ...any) *Fault {
	return &Fault{Kind: kind, Code: code, Detail: fmt.Sprintf(detail, args...)}
}

// NewInvalid makes a fault of kind Invalid that names what is wrong where.
func NewInvalid(fields ...Field) *Fault {
	return &Fault{Kind: Invalid, Code: "invalid", Detail: "The request is not valid.", Fields: fields}
}

func (f *Fault) Error() string {
	if len(f.Fields) > 0 {
		return fmt.Sprintf("%s: %s (%s: %s)", f.Code, f.Detail, f.Fields[0].Pointer, f.Fields[0].Detail)
	}
	return f.Code + ": " + f.Detail
}

// After says when trying again makes sense.
func (f *Fault) After(d time.Duration) *Fault {
	f.RetryAfter = d
	return f
}

// Await asks until there is an answer that is not to be waited for. It is for callers
// that keep nobody out by waiting.
func Await(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		f := As(err)
		if f == nil || f.Soon == nil {
			return err
		}
		if ctx, err = f.Soon(ctx); err != nil {
			return err
		}
	}
}

// As returns the fault in err's chain, or nil.
func As(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return nil
}

// Of says whether err is a fault of this kind.
func Of(err error, kind Kind) bool {
	f := As(err)
	return f != nil && f.Kind == kind
}

// Is says whether err is a fault with this code.
func Is(err error, code string) bool {
	f := As(err)
	return f != nil && f.Code == code
}
