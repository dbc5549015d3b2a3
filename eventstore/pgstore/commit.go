package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Bounds of a commit. A server that was killed has mostly recovered by then.
const (
	commitTimeout  = 10 * time.Second // with all its attempts
	attemptTimeout = 4 * time.Second
	firstPause     = 10 * time.Millisecond // after a failed attempt; doubled each time
	longestPause   = 500 * time.Millisecond
)

const (
	callOne   = `SELECT base, actual FROM public.append_one($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	callBatch = `
SELECT base, actual
FROM public.append_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

	keyed = -2 // the revision of append_keyed for what it refused because of a key
)

// committer takes what waits in the queue and commits it, batch after batch, on
// a connection of its own: a pool that is exhausted by callers who wait for
// their appends would never be freed by these.
type committer struct {
	config *pgx.ConnConfig
	queue  *queue
	tail   *tail
	conn   *pgx.Conn // nil while there is none

	patience time.Duration // for one commit with all its attempts
}

// run works until the queue is closed and empty.
func (c *committer) run() {
	defer c.disconnect()
	for {
		batch := c.queue.take()
		if len(batch) == 0 {
			return
		}
		if err := c.settle(batch); err != nil {
			fail(c.queue.drain(), err) // instead of letting each wait as long again
		}
		c.queue.linger(len(batch))
	}
}

// settle answers every request of a batch. A batch that the server refuses is
// repeated request by request, so that a bad one fails alone. It returns an
// error only when the server is unavailable.
func (c *committer) settle(batch []*request) error {
	c.tail.begin()
	base, actual, err := c.commit(batch)
	c.tail.end(base, recordsOf(batch, base, actual))
	switch {
	case err == nil:
		tell(batch, base, actual)
		return nil
	case errors.Is(err, eventstore.ErrUnavailable):
		fail(batch, err)
		return err
	case len(batch) == 1:
		fail(batch, err)
		return nil
	}
	for i := range batch {
		if err := c.settle(batch[i : i+1]); err != nil {
			fail(batch[i+1:], err)
			return err
		}
	}
	return nil
}

// commit repeats a batch while its outcome is unknown or the server cannot work,
// for as long as its patience lasts. Where an attempt took place after all, the
// requests of the next one meet their own events.
func (c *committer) commit(batch []*request) (base int64, actual []int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		base, actual, err = c.attempt(ctx, batch)
		if err == nil || !passing(err) {
			return base, actual, err
		}
		c.disconnect()
		select {
		case <-ctx.Done():
			return 0, nil, unavailable(err)
		case <-time.After(pause):
		}
	}
}

// attempt makes one transaction of a batch: the statement alone, so that no
// transaction can be left open. Its rows come before its commit; pgx reports
// success only after that.
func (c *committer) attempt(ctx context.Context, batch []*request) (base int64, actual []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if c.conn == nil {
		if c.conn, err = pgx.ConnectConfig(ctx, c.config); err != nil {
			return 0, nil, fmt.Errorf("connect: %w", err)
		}
	}
	e := columnsOf(batch)
	if len(batch) == 1 && len(batch[0].keys) == 0 {
		actual = make([]int64, 1)
		err = c.conn.QueryRow(ctx, callOne, batch[0].stream, batch[0].expected,
			e.clients, e.ids, e.types, e.versions, e.datas, e.metas, e.times).Scan(&base, &actual[0])
		return base, actual, err
	}
	r, k := rowsOf(batch), keysOf(batch)
	err = c.conn.QueryRow(ctx, callBatch, r.streams, r.owners, r.expected, r.sizes, e.of, e.nth,
		e.clients, e.ids, e.types, e.versions, e.datas, e.metas, e.times,
		k.of, k.clients, k.subjects, k.ids, k.roots, k.wrapped).Scan(&base, &actual)
	return base, actual, err
}

// disconnect drops the connection; what ran on it may go on.
func (c *committer) disconnect() {
	if c.conn != nil {
		hangUp(context.Background(), c.conn)
		c.conn = nil
	}
}

// hangUp closes a connection that is given up, whether or not anybody listens.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// tell answers the requests of a batch that was committed: those that met their
// stream where they expected it stand in the log, in order, from base + 1 on.
func tell(batch []*request, base int64, actual []int64) {
	for i, r := range batch {
		a := answer{actual: eventstore.Revision(actual[i])}
		if a.actual == r.expected {
			base += int64(len(r.events))
			a.appended = eventstore.Appended{
				Position: positionOf(base),
				Revision: r.expected + eventstore.Revision(len(r.events)),
			}
		}
		r.settle(a)
	}
}

// recordsOf are the events of a batch as they stand in the log from base + 1 on.
func recordsOf(batch []*request, base int64, actual []int64) []eventstore.Record {
	var records []eventstore.Record
	for i := range actual {
		r := batch[i]
		if eventstore.Revision(actual[i]) != r.expected {
			continue
		}
		for j, e := range r.events {
			e.ID, e.RecordedAt = id.From[id.Event](r.ids[j]), e.RecordedAt.UTC()
			records = append(records, eventstore.Record{
				Position: positionOf(base + int64(len(records)) + 1), Stream: r.stream,
				Revision: r.expected + eventstore.Revision(j) + 1, Proposed: e,
			})
		}
	}
	return records
}

func fail(batch []*request, err error) {
	for _, r := range batch {
		r.settle(answer{err: err})
	}
}

// requestColumns are the arrays of append_keyed with an element for each request.
type requestColumns struct {
	streams  pgtype.FlatArray[string]
	owners   pgtype.FlatArray[string]
	expected pgtype.FlatArray[int64]
	sizes    pgtype.FlatArray[int32]
}

func rowsOf(batch []*request) requestColumns {
	var c requestColumns
	for _, r := range batch {
		c.streams = append(c.streams, string(r.stream))
		c.owners = append(c.owners, string(r.client()))
		c.expected = append(c.expected, int64(r.expected))
		c.sizes = append(c.sizes, int32(len(r.events))) //nolint:gosec // at most eventstore.MaxAppend
	}
	return c
}

// eventColumns are the arrays with an element for each event.
type eventColumns struct {
	of, nth  pgtype.FlatArray[int32]
	clients  pgtype.FlatArray[string]
	ids      pgtype.FlatArray[pgtype.UUID]
	types    pgtype.FlatArray[string]
	versions pgtype.FlatArray[int32]
	datas    pgtype.FlatArray[[]byte]
	metas    pgtype.FlatArray[[]byte]
	times    pgtype.FlatArray[time.Time]
}

func columnsOf(batch []*request) eventColumns {
	var c eventColumns
	for i, r := range batch {
		for j, e := range r.events {
			c.of = append(c.of, int32(i+1))
			c.nth = append(c.nth, int32(j+1))
			c.clients = append(c.clients, string(e.Client))
			c.ids = append(c.ids, pgtype.UUID{Bytes: r.ids[j], Valid: true})
			c.types = append(c.types, e.Type)
			c.versions = append(c.versions, int32(e.Version)) //nolint:gosec // versions are small by declaration
			c.datas = append(c.datas, notNil(e.Data))
			c.metas = append(c.metas, notNil(e.Meta))
			c.times = append(c.times, e.RecordedAt)
		}
	}
	return c
}

// keyColumns are the arrays with an element for each key.
type keyColumns struct {
	of       pgtype.FlatArray[int32]
	clients  pgtype.FlatArray[string]
	subjects pgtype.FlatArray[string]
	ids      pgtype.FlatArray[string]
	roots    pgtype.FlatArray[string]
	wrapped  pgtype.FlatArray[[]byte]
}

func keysOf(batch []*request) keyColumns {
	c := keyColumns{of: pgtype.FlatArray[int32]{}} // a batch without keys has an empty array, not NULL
	for i, r := range batch {
		for _, k := range r.keys {
			c.of = append(c.of, int32(i+1))
			c.clients = append(c.clients, string(k.Client))
			c.subjects = append(c.subjects, k.Subject)
			c.ids = append(c.ids, k.ID)
			c.roots = append(c.roots, k.Under)
			c.wrapped = append(c.wrapped, k.Wrapped)
		}
	}
	return c
}

// notNil keeps an empty value from being stored as NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
