// Package readmodel is what read models are made with: the reader of their queries, which are
// as fresh as what the client was told, pages, sealed fields, and statements of an Apply.
package readmodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/semaphore"
)

// Reader is what every query needs. All queries begin with the client; they
// see every write of the client that was acknowledged before, or fail with a
// fault of kind Unavailable.
type Reader struct {
	Pool     *pgxpool.Pool
	Progress *projector.Progress
	Vault    *seal.Vault
	// AtOnce fails at once where a model is behind, with a fault that says how to
	// wait (fault.Fault.Soon): it is for requests that the edge repeats. Else queries
	// wait themselves.
	AtOnce bool
	// Within bounds each query: its connection may have fallen silent, as when the server's
	// machine vanishes, and the caller's context may last. 0: it does not.
	Within time.Duration
	// Judging are the places of the process in which users are judged.
	Judging Judging
	// Places are those of queries over Pool, which clients share fairly; nil: all wait in the
	// queue of the pool, which serves those most who ask for most.
	Places *semaphore.Semaphore
}

// Bounded is ctx for one query.
func (r Reader) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Within == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.Within)
}

// InPlace has a query of a client done in one of the places, where there are any.
// Faults: overloaded.
func (r Reader) InPlace(ctx context.Context, client id.Client, query func() error) error {
	switch {
	case r.Places == nil:
		return query()
	case r.Places.Take(ctx, client.Owner()):
		defer r.Places.Give(client.Owner())
		return query()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fault.New(fault.Unavailable, "overloaded", "Too many queries wait for the database. Try again.").After(time.Second)
}

// Page asks for a part of a list, in order of creation.
type Page struct {
	After eventstore.Position // of the last item of the page before
	Limit int
}

// MaxPage is how many bytes a page of large items holds, about: the item that
// reaches it is the last, however many were asked for.
// limit: requests | page of a list | `limit` 1 to 200, and about {MaxPage B} | a `next_cursor`
const MaxPage = 8 << 20

// Fitting is how many of items fit on a page, one at least; nil is the size of
// items that are small.
func Fitting[T any](items []T, size func(*T) int) int {
	if size == nil {
		return len(items)
	}
	for i, taken := 0, 0; i < len(items); i++ {
		if taken >= MaxPage {
			return i
		}
		taken += size(&items[i])
	}
	return len(items)
}

// Filled reads a list on until a page is full, so that one that is not full is
// the last: what is read up to last, which may not be all there is, may hold users
// and members who were erased just then, and who are not among the kept.
func Filled[T any](page Page, size func(*T) int, read func(Page) (kept []T, more bool, last eventstore.Position, err error)) ([]T, error) {
	var found []T
	for want := page.Limit; ; {
		kept, more, last, err := read(page)
		if err != nil {
			return nil, err
		}
		if found == nil {
			found = kept
		} else {
			found = append(found, kept...)
		}
		if !more || len(found) >= want || Fitting(found, size) < len(found) {
			return found, nil
		}
		page = Page{After: last, Limit: want - len(found)}
	}
}

// Sealed is a personal field as a read model keeps it.
type Sealed struct {
	Box   []byte   // an event.Box in binary; nil where there is none
	Event id.Event // the event that carried it
}

func SealedOf(r eventstore.Recorded, p *event.Personal) (Sealed, error) {
	return Carried{p, r.ID}.Sealed()
}

// Carried is a personal field, or none, and the event that carried it.
type Carried struct {
	Field *event.Personal
	By    id.Event
}

func (c Carried) Sealed() (Sealed, error) {
	switch {
	case c.Field == nil:
		return Sealed{}, nil
	case c.Field.Box == nil:
		return Sealed{}, errors.New("a personal field is not sealed")
	}
	box, err := c.Field.Box.MarshalBinary()
	return Sealed{box, c.By}, err
}

// Subject is whose fields a stream holds.
type Subject struct {
	client id.Client
	stream eventstore.Stream
	key    seal.SubjectCipher
	Gone   bool
}

// Subject takes the key that the same statement read.
func (r Reader) Subject(ctx context.Context, key seal.WrappedKey, client id.Client, of string, stream eventstore.Stream) (Subject, error) {
	s := Subject{client: client, stream: stream, Gone: key.Wrapped == nil}
	if s.Gone {
		return s, nil
	}
	var err error
	s.key, err = r.Vault.With(ctx, key, client, of)
	if errors.Is(err, seal.ErrErased) {
		s.Gone, err = true, nil
	}
	return s, err
}

// Open opens a field. One that was erased, or was never set, is nil.
func (s Subject) Open(field string, f Sealed) ([]byte, error) {
	if f.Box == nil || s.Gone {
		return nil, nil
	}
	var box event.Box
	if err := box.UnmarshalBinary(f.Box); err != nil {
		return nil, fmt.Errorf("decode sealed %s: %w", field, err)
	}
	return s.key.Open(seal.Place{Client: s.client, Stream: string(s.stream), Event: f.Event, Field: field}, &box)
}

// Open opens one field with the subject's key, which the same statement read.
func (r Reader) Open(ctx context.Context, key seal.WrappedKey, of string, f Sealed, client id.Client, stream eventstore.Stream, field string) ([]byte, error) {
	s, err := r.Subject(ctx, key, client, of, stream)
	if err != nil {
		return nil, err
	}
	return s.Open(field, f)
}

// SortedValues returns the values of a map in the order of its keys, so that
// batches take row locks in one order.
func SortedValues[K cmp.Ordered, V any](m map[K]V) []V {
	values := make([]V, 0, len(m))
	for _, k := range SortedKeys(m) {
		values = append(values, m[k])
	}
	return values
}

func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Column gathers one field of many rows, for unnest.
func Column[R, T any](rows []R, field func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = field(r)
	}
	return values
}

// Texts are ids as a text array, which is never NULL.
func Texts[T ~string](ids []T) []string {
	return Column(ids, func(v T) string { return string(v) })
}

// Do runs a statement of an Apply.
func Do(ctx context.Context, tx pgx.Tx, what, sql string, args ...any) error {
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
