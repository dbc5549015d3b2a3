// Package imports takes files of users in and applies them behind the request:
// what was accepted is applied to its end, in the order of a client's imports,
// however often processes crash meanwhile.
package imports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/jobs"
)

// Bounds of what waits.
const (
	// limit: imports | imports of a client that wait to be applied | {maxOpen}, and {maxBytes B} as sealed | 429 `too_many_imports`, `too_much_waiting`
	maxOpen     = 10          // imports of one client
	chunkSize   = 1 << 20     // bytes, unless one line is longer
	chunkWithin = time.Minute // what has come by then is a chunk
	maxBytes    = 1 << 30     // bytes of one client, as sealed
	// limit: imports | an import that never fits | | 413 `too_large`
	// limit: imports | imports that wait, all clients | {allBytes B}; one takes no more than what is left to the others | 429 `too_much_waiting`
	allBytes = 8 << 30 // bytes of all clients
)

// restWhenFull is how long a client should let what waits be applied.
const restWhenFull = 10 * time.Second

// dropWithin is how long it may take to drop what was not received to its end. Later the worker
// drops it.
const dropWithin = 5 * time.Second

// Completed is the status of an import that was applied to its end.
const Completed = "completed"

// Import is how far an import has come.
type Import struct {
	ID        id.Import
	Status    string // pending, running, completed or failed
	Mode      string
	Lines     int64 // in all, blank ones too
	LinesDone int64
	Created   int64
	Updated   int64 // were there already
	Failed    int64
	Errors    []commands.LineError // the first commands.MaxLineErrors
	CreatedAt time.Time
	EndedAt   *time.Time
}

// Secrets seals what waits to be applied, each import with a key of its own.
type Secrets interface {
	Prepare(ctx context.Context, client id.Client, subjects ...string) error
	SealFor(ctx context.Context, client id.Client, subject, name string, plain []byte) ([]byte, error)
	OpenFor(ctx context.Context, client id.Client, subject, name string, sealed []byte) ([]byte, error)
	Destroy(ctx context.Context, client id.Client, subject string) error
}

// Spool keeps imports in Postgres until they are applied. It may be used by
// many goroutines.
type Spool struct {
	Pool    *pgxpool.Pool
	Secrets Secrets
	Entropy io.Reader
	Now     func() time.Time
	// LogEnd is the position of the last event of the log.
	LogEnd func(context.Context) (eventstore.Position, error)

	// What waits to be applied, in bytes as sealed. A client may have as much as is
	// left to the others.
	MaxBytes int64 // of a client; 0: 1 GiB
	AllBytes int64 // of all; 0: 8 GiB
}

// What waits of a client and its sandboxes is counted and added to by one at a time; those of
// other clients may together be beyond AllBytes by a chunk each.
const lockWaiting = `SELECT pg_advisory_xact_lock(hashtextextended('kindred imports ' || $1, 0))`

// room does what counts what waits, and says whether there was room.
func (s *Spool) room(ctx context.Context, client id.Client, sql string, args ...any) (found bool, err error) {
	var b pgx.Batch // one transaction
	b.Queue(lockWaiting, client.Owner())
	b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		found = tag.RowsAffected() > 0
		return nil
	})
	err = s.Pool.SendBatch(ctx, &b).Close()
	return found, err
}

const open = `
WITH waiting AS (SELECT count(*) AS n FROM imports WHERE client = $2 AND status IN ('receiving', 'pending', 'running'))
INSERT INTO imports (id, client, status, mode, actor, member, correlation, log_end, trace, keyed)
SELECT $1, $2, 'receiving', $3, $4, $5, $6, $7, $8, true FROM waiting WHERE n < $9`

// Receive keeps the lines of body, at most maxLine bytes of each, and returns
// once they are durable. What is not received to its end is dropped. It fails
// with the faults too_many_imports, too_much_waiting and too_large.
// Faults: import_unknown, too_large, too_many_imports, too_much_waiting.
func (s *Spool) Receive(ctx context.Context, call commands.Call, mode string, body io.Reader, maxLine int) (Import, error) {
	named := id.Next[id.Import](id.Random(s.Entropy))
	end, err := s.LogEnd(ctx)
	if err != nil {
		return Import{}, fmt.Errorf("find the end of the log: %w", err)
	}
	found, err := s.room(ctx, call.Client, open, named, call.Client, mode, call.Actor, call.Member, call.Correlation, string(end), call.Trace, maxOpen)
	if err != nil {
		return Import{}, fmt.Errorf("open an import: %w", err)
	}
	if !found {
		return Import{}, fault.New(fault.Limited, "too_many_imports", "%d imports of this client are under way. Wait for one to end.", maxOpen).After(time.Second)
	}
	err = s.Secrets.Prepare(ctx, call.Client, string(named))
	if err == nil {
		err = s.receive(ctx, call.Client, named, body, maxLine)
	}
	if err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWithin)
		received, dropping := s.drop(ending, call.Client, named)
		if cancel(); !received {
			return Import{}, errors.Join(err, dropping)
		}
	}
	return s.Get(ctx, call.Client, named)
}

func (s *Spool) receive(ctx context.Context, client id.Client, named id.Import, body io.Reader, maxLine int) error {
	cut := newChunker(body, maxLine, s.Now)
	most := cmp.Or(s.MaxBytes, maxBytes)
	for n, size := 0, int64(0); ; n++ { // size is as sealed: the same is compared with what may wait
		chunk, lines, err := cut.next()
		if err != nil {
			return err
		}
		if lines == 0 {
			var b pgx.Batch // one transaction
			b.Queue(`UPDATE imports SET status = 'pending', accepted = DEFAULT WHERE client = $1 AND id = $2 AND status = 'receiving'`, client, named)
			b.Queue(jobs.Ask, client, kind)
			return s.Pool.SendBatch(ctx, &b).Close()
		}
		sealed, err := s.Secrets.SealFor(ctx, client, string(named), chunkName(n), chunk)
		if err != nil {
			return err
		}
		if size += int64(len(sealed)); size > most {
			return fault.New(fault.TooLarge, "too_large", "An import has at most %d bytes once it is sealed.", most)
		}
		if err := s.keep(ctx, client, named, n, sealed, lines); err != nil {
			return err
		}
	}
}

const keep = `
WITH open AS (
	SELECT coalesce(sum(waiting), 0) AS everyones, coalesce(sum(waiting) FILTER (WHERE client = $5), 0) AS own,
		coalesce(sum(waiting) FILTER (WHERE starts_with(client, $8)), 0) AS owners -- with its sandboxes
	FROM imports WHERE status IN ('receiving', 'pending', 'running')
), room AS (
	SELECT length($4::bytea) AS size FROM open WHERE own + length($4::bytea) <= $6::bigint AND owners + length($4::bytea) <= $7::bigint - everyones
), chunk AS (
	INSERT INTO import_chunks (client, import, chunk, lines, body) SELECT $5, $1, $2, $3, $4 FROM room
)
UPDATE imports SET chunks = $2 + 1, lines = lines + $3, waiting = waiting + size, received_at = now() FROM room WHERE client = $5 AND id = $1`

func (s *Spool) keep(ctx context.Context, client id.Client, named id.Import, n int, sealed []byte, lines int64) error {
	found, err := s.room(ctx, client, keep, named, n, lines, sealed, client, cmp.Or(s.MaxBytes, maxBytes), cmp.Or(s.AllBytes, allBytes), client.Owner())
	switch {
	case err != nil:
		return fmt.Errorf("keep a chunk of %s: %w", named, err)
	case !found:
		return fault.New(fault.Limited, "too_much_waiting", "Too much of this client waits to be applied. Send it again once an import has ended.").
			After(restWhenFull)
	}
	return nil
}

func chunkName(n int) string { return "chunk " + strconv.Itoa(n) }

// open opens a chunk.
func (s *Spool) open(ctx context.Context, t task, kept []byte) ([]byte, error) {
	return s.Secrets.OpenFor(ctx, t.call.Client, string(t.ID), chunkName(t.chunk), kept)
}

const noteErased = `
INSERT INTO import_erasures (client, import, lookup)
SELECT client, id, $2 FROM imports WHERE client = $1 AND status IN ('receiving', 'pending', 'running')
ON CONFLICT DO NOTHING`

// Note implements [commands.Erasures].
func (s *Spool) Note(ctx context.Context, client id.Client, lookup []byte) error {
	if _, err := s.Pool.Exec(ctx, noteErased, client, lookup); err != nil {
		return fmt.Errorf("note an erasure for imports: %w", err)
	}
	return nil
}

const erasedSince = `
SELECT EXISTS (SELECT FROM import_erasures e WHERE e.client = $1 AND e.import = $2 AND e.lookup = w.lookup)
FROM unnest($3::bytea[]) WITH ORDINALITY AS w (lookup, n) ORDER BY w.n`

// Since implements [commands.Erasures].
func (s *Spool) Since(ctx context.Context, client id.Client, of id.Import, lookups [][]byte) ([]bool, error) {
	rows, err := s.Pool.Query(ctx, erasedSince, client, of, lookups)
	if err == nil {
		var erased []bool
		if erased, err = pgx.CollectRows(rows, pgx.RowTo[bool]); err == nil {
			return erased, nil
		}
	}
	return nil, fmt.Errorf("look for erasures since %s was accepted: %w", of, err)
}

const giveUp = `UPDATE imports SET status = 'failed', waiting = 0, ended_at = now() WHERE client = $1 AND id = $2 AND status = 'receiving'`

// drop drops what was not received to its end; what was is left, and received is true: only
// the answer was lost.
func (s *Spool) drop(ctx context.Context, client id.Client, named id.Import) (received bool, err error) {
	tag, err := s.Pool.Exec(ctx, giveUp, client, named)
	if err != nil {
		return false, fmt.Errorf("drop %s: %w", named, err) // the worker drops it later
	}
	if tag.RowsAffected() == 0 {
		return true, nil
	}
	if err := s.Secrets.Destroy(ctx, client, string(named)); err != nil {
		return false, err // the worker drops it later
	}
	if _, err := s.Pool.Exec(ctx, `DELETE FROM imports WHERE client = $1 AND id = $2`, client, named); err != nil {
		return false, fmt.Errorf("drop %s: %w", named, err)
	}
	return false, nil
}

const get = `
SELECT id, status, mode, lines, lines_done, created, updated, failed, errors, created_at, ended_at
FROM imports WHERE client = $1 AND id = $2 AND status <> 'receiving'`

// Get returns an import, or fails with a fault of kind Missing.
// Faults: import_unknown.
func (s *Spool) Get(ctx context.Context, client id.Client, named id.Import) (i Import, err error) {
	var written string
	err = s.Pool.QueryRow(ctx, get, client, named).Scan(
		&i.ID, &i.Status, &i.Mode, &i.Lines, &i.LinesDone, &i.Created, &i.Updated, &i.Failed, &written, &i.CreatedAt, &i.EndedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return i, fault.New(fault.Missing, "import_unknown", "There is no such import, or it ended more than %d days ago.", retentionDays)
	}
	if err == nil {
		err = json.Unmarshal([]byte(written), &i.Errors)
	}
	if err != nil {
		return i, fmt.Errorf("read an import: %w", err)
	}
	return i, nil
}
