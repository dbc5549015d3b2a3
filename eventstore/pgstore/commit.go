package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/tail"
	"kindred/postgres"
)

// Bounds of a commit. A server that was killed has mostly recovered by then.
const (
	commitTimeout  = 10 * time.Second // with all its attempts
	attemptTimeout = 4 * time.Second
	firstPause     = 10 * time.Millisecond // after a failed attempt; doubled each time
	longestPause   = 500 * time.Millisecond
)

const (
	appendOne = "append_stream"
	callOne   = `SELECT base, ARRAY[actual] FROM public.append_stream($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

	appendMany = "append_streams"
	callMany   = `
SELECT base, actual
FROM public.append_streams($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`

	keyed = -2 // the revision of append_streams for what it refused because of a key
)

// committer takes what waits in the queue and commits it, batch after batch, on
// a connection of its own: a pool that is exhausted by callers that wait for
// their appends would never be freed by these.
type committer struct {
	config     *pgx.ConnConfig
	queue      *queue
	tail       *tail.Tail
	notifier   *notifier
	conn       *pgx.Conn // nil while there is none
	server     int64     // that it leads to
	conflicted bool      // the last commit met what it was to make
	guard      *guarded

	patience time.Duration // for one commit with all its attempts
}

// run works until the queue is closed and empty.
func (c *committer) run() {
	defer c.disconnect()
	defer close(c.notifier.grown)
	for {
		batch := c.queue.take()
		if len(batch) == 0 {
			return
		}
		if err := c.commitOrSplit(batch); err != nil {
			fail(c.queue.drain(), err) // instead of letting each wait as long again
		}
		c.queue.awaitCallers(len(batch))
	}
}

// commitOrSplit answers every request of a batch. A batch that the server refuses is
// repeated request by request, so that a bad one fails alone. It returns an
// error only when the server is unavailable.
func (c *committer) commitOrSplit(batch []*request) error {
	base, actual, err := c.commit(batch)
	appended := recordsOf(batch, base, actual)
	if n := len(appended); n > 0 {
		c.tail.Put(positionOf(base), tail.Page{Records: appended, To: appended[n-1].Position, Server: c.server})
	}
	switch {
	case err == nil:
		answerAll(batch, base, actual)
		if len(appended) > 0 {
			c.notifier.reach(base + int64(len(appended)))
		}
		return nil
	case errors.Is(err, eventstore.ErrUnavailable):
		fail(batch, err)
		return err
	case len(batch) == 1 && errors.Is(err, errRefused):
		fail(batch, fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err))
		return nil
	case len(batch) == 1:
		fail(batch, deleted(unavailable(err)))
		return nil
	}
	for i := range batch {
		if err := c.commitOrSplit(batch[i : i+1]); err != nil {
			fail(batch[i+1:], err)
			return err
		}
	}
	return nil
}

// commit repeats a batch while its outcome is unknown or the server cannot work,
// for as long as its patience lasts. Where an attempt took place after all, the
// requests of the next one meet their own events, which are confirmed before any
// is answered (see Store.repeated).
func (c *committer) commit(batch []*request) (base int64, actual []int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	rest := backoff.Backoff{First: 2 * firstPause, Most: longestPause}
	for {
		base, actual, err = c.attempt(ctx, batch)
		if err == nil || !passing(err) {
			return base, actual, err
		}
		c.disconnect()
		if rest.Wait(ctx) != nil {
			return 0, nil, unavailable(err)
		}
	}
}

// attempt makes one transaction of a batch, an optimistic insert: what is to be new is
// not looked for, but written. Where some of it stands there already, that fails
// as a whole, and another transaction looks first; so do those after it, until
// one has met nothing unexpected.
func (c *committer) attempt(ctx context.Context, batch []*request) (base int64, actual []int64, err error) {
	if !c.conflicted {
		base, actual, err = c.transact(ctx, batch, true)
		if c.conflicted = exists(err); !c.conflicted {
			return base, actual, err
		}
	}
	base, actual, err = c.transact(ctx, batch, false)
	c.conflicted = err != nil || !asExpected(batch, actual)
	return base, actual, err
}

// asExpected says whether every request met its stream where it expected it.
func asExpected(batch []*request, actual []int64) bool {
	for i, r := range batch {
		if actual[i] != int64(r.expected) {
			return false
		}
	}
	return true
}

// transact makes a transaction of a statement alone, so that none can be left
// open. It ends with the server's word that it has committed.
func (c *committer) transact(ctx context.Context, batch []*request, optimistic bool) (base int64, actual []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := c.connect(ctx); err != nil {
		return 0, nil, fmt.Errorf("connect: %w", err)
	}
	if err := c.guard.allow(ctx, batch); err != nil {
		return 0, nil, err
	}
	var result *pgconn.Result
	if len(batch) == 1 && len(batch[0].keys) == 0 {
		result = c.call(ctx, appendOne, oneParams(batch[0], optimistic))
	} else {
		result = c.call(ctx, appendMany, manyParams(batch, optimistic))
	}
	switch {
	case result.Err != nil:
		return 0, nil, result.Err
	case len(result.Rows) != 1:
		return 0, nil, pgx.ErrNoRows
	}
	if err := postgres.Replicated(c.conn); err != nil {
		return 0, nil, err
	}
	for i, to := range []any{&base, &actual} {
		if err := c.conn.TypeMap().Scan(result.FieldDescriptions[i].DataTypeOID, pgx.BinaryFormatCode, result.Rows[0][i], to); err != nil {
			return 0, nil, pgx.ScanArgError{ColumnIndex: i, Err: err}
		}
	}
	return base, actual, nil
}

func (c *committer) call(ctx context.Context, statement string, given params) *pgconn.Result {
	formats := []int16{pgx.BinaryFormatCode} // of all
	return c.conn.PgConn().ExecPrepared(ctx, statement, given, formats, formats).Read()
}

// connect makes the connection, unless there is one.
func (c *committer) connect(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, c.config)
	if err != nil {
		return err
	}
	for name, sql := range map[string]string{appendOne: callOne, appendMany: callMany} {
		if _, err := conn.Prepare(ctx, name, sql); err != nil {
			hangUp(ctx, conn)
			return err
		}
	}
	if c.server, err = postgres.RunOf(ctx, conn); err != nil {
		hangUp(ctx, conn)
		return err
	}
	c.guard.connected(postgres.Identity(conn))
	c.conn = conn
	c.tail.Forget() // a backup may have been put in place
	return nil
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
	postgres.Cleaned(ctx, conn)
}

// answerAll answers the requests of a batch that was committed: those that met their
// stream where they expected it stand in the log, in order, from base + 1 on.
func answerAll(batch []*request, base int64, actual []int64) {
	for i, r := range batch {
		a := answer{actual: eventstore.Revision(actual[i])}
		if a.actual == r.expected {
			base += int64(len(r.events))
			a.appended = eventstore.Appended{
				Position: positionOf(base),
				Revision: r.expected + eventstore.Revision(len(r.events)),
			}
		}
		r.resolve(a)
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
		r.resolve(answer{err: err})
	}
}
