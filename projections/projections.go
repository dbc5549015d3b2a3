// Package projections builds the read models: what has happened, as tables
// that can be listed. Each file holds one model, its table, how events change
// it and how it is read. A model holds nothing that a replay of the log would
// not build again; personal fields stand in it as sealed as in the log.
package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
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
	// Judging are the places of the process in which users are judged.
	Judging Judging
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

// filled reads a list on until a page is full, so that one that is not full is
// the last: what is read up to last, which may not be all there is, may hold users
// and members who were erased just then, and who are not among the kept.
func filled[T any](page Page, size func(*T) int, read func(Page) (kept []T, more bool, last eventstore.Position, err error)) ([]T, error) {
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

// sealed is a personal field as a read model keeps it.
type sealed struct {
	Box   []byte   // an event.Box in binary; nil where there is none
	Event id.Event // the event that carried it
}

func sealedOf(r eventstore.Recorded, p *event.Personal) (sealed, error) {
	return carried{p, r.ID}.sealed()
}

// carried is a personal field, or none, and the event that carried it.
type carried struct {
	field *event.Personal
	by    id.Event
}

func (c carried) sealed() (sealed, error) {
	switch {
	case c.field == nil:
		return sealed{}, nil
	case c.field.Box == nil:
		return sealed{}, errors.New("a personal field is not sealed")
	}
	box, err := c.field.Box.MarshalBinary()
	return sealed{box, c.by}, err
}

// subject is whose fields a stream holds.
type subject struct {
	client id.Client
	stream eventstore.Stream
	key    seal.SubjectCipher
	gone   bool
}

// subject takes the key that the same statement read.
func (r Reader) subject(ctx context.Context, key seal.WrappedKey, client id.Client, of string, stream eventstore.Stream) (subject, error) {
	s := subject{client: client, stream: stream, gone: key.Wrapped == nil}
	if s.gone {
		return s, nil
	}
	var err error
	s.key, err = r.Vault.With(ctx, key, client, of)
	if errors.Is(err, seal.ErrErased) {
		s.gone, err = true, nil
	}
	return s, err
}

// open opens a field. One that was erased, or was never set, is nil.
func (s subject) open(field string, f sealed) ([]byte, error) {
	if f.Box == nil || s.gone {
		return nil, nil
	}
	var box event.Box
	if err := box.UnmarshalBinary(f.Box); err != nil {
		return nil, fmt.Errorf("decode sealed %s: %w", field, err)
	}
	return s.key.Open(seal.Place{Client: s.client, Stream: string(s.stream), Event: f.Event, Field: field}, &box)
}

// open opens one field with the subject's key, which the same statement read.
func (r Reader) open(ctx context.Context, key seal.WrappedKey, of string, f sealed, client id.Client, stream eventstore.Stream, field string) ([]byte, error) {
	s, err := r.subject(ctx, key, client, of, stream)
	if err != nil {
		return nil, err
	}
	return s.open(field, f)
}

// sortedValues returns the values of a map in the order of its keys, so that
// batches take row locks in one order.
func sortedValues[K cmp.Ordered, V any](m map[K]V) []V {
	values := make([]V, 0, len(m))
	for _, k := range sortedKeys(m) {
		values = append(values, m[k])
	}
	return values
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// column gathers one field of many rows, for unnest.
func column[R, T any](rows []R, field func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = field(r)
	}
	return values
}

// texts are ids as a text array, which is never NULL.
func texts[T ~string](ids []T) []string {
	return column(ids, func(v T) string { return string(v) })
}

// do runs a statement of an Apply.
func do(ctx context.Context, tx pgx.Tx, what, sql string, args ...any) error {
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
