package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	selectEvents = `
SELECT position, stream, revision, event_id, type, version, client, recorded_at, data, meta FROM public.events `
	inStream     = `hashtextextended(stream, 0) = hashtextextended($1, 0) AND stream = $1` // as its index has it
	selectStream = selectEvents + `WHERE ` + inStream + ` AND revision >= $2 ORDER BY revision LIMIT $3`
	selectBack   = selectEvents + `WHERE ` + inStream + ` AND revision <= $2 ORDER BY revision DESC LIMIT $3`
	// The sub-select hides how many are wanted from the planner, which would plan anew for fewer than ten.
	selectEnds = `
SELECT e.* FROM (SELECT DISTINCT unnest((SELECT $1::text[]))) AS w (of) CROSS JOIN LATERAL (
	(` + selectEvents + `WHERE ` + inWanted + ` ORDER BY revision LIMIT 1) UNION ALL
	(` + selectEvents + `WHERE ` + inWanted + ` AND revision > 0 ORDER BY revision DESC LIMIT 1)) e ORDER BY e.revision`
	inWanted     = `hashtextextended(stream, 0) = hashtextextended(w.of, 0) AND stream = w.of`
	selectAfter  = selectEvents + `WHERE position > $1 ORDER BY position LIMIT $2`
	selectClient = selectEvents + `WHERE client = $1 AND position > $2 AND position <= $3 ORDER BY position LIMIT $4`
	selectAt     = selectEvents + `WHERE position = $1`
	countClient  = `SELECT count(*) FROM public.events WHERE client = $1`
	selectHead   = `SELECT coalesce(max(position), 0) FROM public.events`
)

// ReadStream implements [eventstore.Store].
func (s *Store) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	records, err := s.read(ctx, selectStream, stream, from, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	return records, nil
}

// ReadBack implements [eventstore.Store].
func (s *Store) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	records, err := s.read(ctx, selectBack, stream, from, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read stream %s backwards: %w", stream, err)
	}
	return records, nil
}

const (
	// limit: log | streams whose ends are read in one statement | {endsMost}, and {endsWaiting} that wait
	endsMost    = 16 // of whose events each may have 256 KiB of traits
	endsWaiting = 4096
	endsTimeout = 10 * time.Second
)

// ReadEnds implements [eventstore.EndsReader]: of streams that are asked for at the same time in
// one statement.
func (s *Store) ReadEnds(ctx context.Context, stream eventstore.Stream) ([]eventstore.Record, error) {
	records, err := s.ends.Ask(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("read the ends of stream %s: %w", stream, err)
	}
	return records, nil
}

func (s *Store) readEnds(ctx context.Context, streams []eventstore.Stream) ([][]eventstore.Record, error) {
	records, err := s.read(ctx, selectEnds, streams)
	if err != nil {
		return nil, err
	}
	ends := make(map[eventstore.Stream][]eventstore.Record, len(streams))
	for _, r := range records {
		ends[r.Stream] = append(ends[r.Stream], r)
	}
	each := make([][]eventstore.Record, len(streams))
	for i, stream := range streams {
		each[i] = slices.Clone(ends[stream])
	}
	return each, nil
}

// ReadAll implements [eventstore.Store].
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Record, error) {
	n, err := numberOf(after)
	if err != nil {
		return nil, err
	}
	records, err := s.readPage(ctx, selectAfter, n, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read the log after %q: %w", after, err)
	}
	return records, nil
}

// ReadClient implements [eventstore.ClientReader]. From Start it finds also what
// the log never had, below its first position.
func (s *Store) ReadClient(ctx context.Context, client id.Client, after, upTo eventstore.Position, limit int) ([]eventstore.Record, error) {
	first, err := numberOf(after)
	if err != nil {
		return nil, err
	}
	if after == eventstore.Start {
		first = math.MinInt64
	}
	last, err := numberOf(upTo)
	if err != nil {
		return nil, err
	}
	records, err := s.readPage(ctx, selectClient, string(client), first, last, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read the events of %s after %q: %w", client, after, err)
	}
	return records, nil
}

// CountClient implements [eventstore.ClientReader].
func (s *Store) CountClient(ctx context.Context, client id.Client) (n int64, err error) {
	if err := s.pool.QueryRow(ctx, countClient, string(client)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the events of %s: %w", client, unavailable(err))
	}
	return n, nil
}

// At implements [eventstore.Store].
func (s *Store) At(ctx context.Context, at eventstore.Position) (eventstore.Record, error) {
	n, err := numberOf(at)
	if err != nil {
		return eventstore.Record{}, err
	}
	records, err := s.read(ctx, selectAt, n)
	switch {
	case err != nil:
		return eventstore.Record{}, fmt.Errorf("read the event at %q: %w", at, err)
	case len(records) == 0:
		return eventstore.Record{}, fmt.Errorf("%q: %w", at, eventstore.ErrNotFound)
	}
	return records[0], nil
}

// Head implements [eventstore.Store].
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	var n int64
	if err := s.pool.QueryRow(ctx, selectHead).Scan(&n); err != nil {
		return "", fmt.Errorf("read the log's head: %w", unavailable(err))
	}
	return positionOf(n), nil
}

// readTries bounds how often a read meets connections of the pool that were cut
// while nobody used them.
const readTries = 3

func (s *Store) read(ctx context.Context, query string, args ...any) ([]eventstore.Record, error) {
	return s.collect(ctx, math.MaxInt, query, args...)
}

// readPage is read for what may be any number of large events: it ends with the
// one that reaches maxPageBytes.
func (s *Store) readPage(ctx context.Context, query string, args ...any) ([]eventstore.Record, error) {
	return s.collect(ctx, maxPageBytes, query, args...)
}

func (s *Store) collect(ctx context.Context, most int, query string, args ...any) (records []eventstore.Record, err error) {
	for range readTries {
		var rows pgx.Rows
		if rows, err = s.pool.Query(ctx, query, args...); err == nil {
			records, _, err = scanRecords(rows, most)
		}
		if err == nil || ctx.Err() != nil || !passing(err) {
			break
		}
	}
	return records, unavailable(err)
}

// maxPageBytes bounds the data and metadata that are read at once, but for the
// last event of them.
// limit: log | data and metadata that are read at once | {maxPageBytes B}, or one event
const maxPageBytes = 16 << 20

// scanRecords reads records until they have so many bytes of data and metadata;
// full says that they do.
func scanRecords(rows pgx.Rows, most int) (records []eventstore.Record, full bool, err error) {
	defer rows.Close()
	for size := 0; !full && rows.Next(); full = size >= most {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, false, err
		}
		records = append(records, r)
		size += len(r.Data) + len(r.Meta)
	}
	rows.Close()
	return records, full, rows.Err()
}

func scanRecord(row pgx.CollectableRow) (eventstore.Record, error) {
	var (
		r        eventstore.Record
		position int64
		event    [16]byte
		at       time.Time
	)
	err := row.Scan(&position, &r.Stream, &r.Revision, &event, &r.Type, &r.Version, &r.Client, &at, &r.Data, &r.Meta)
	r.Position, r.ID, r.RecordedAt = positionOf(position), id.From[id.Event](event), at.UTC()
	return r, err
}

// positionOf writes the number of an event in the log, counted from 1, as 16
// hexadecimal digits. position_text in the database writes the same.
func positionOf(n int64) eventstore.Position {
	if n == 0 {
		return eventstore.Start
	}
	return eventstore.Position(fmt.Sprintf("%016x", n))
}

// numberOf is the inverse of positionOf.
func numberOf(p eventstore.Position) (int64, error) {
	if p == eventstore.Start {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p), 16, 64)
	if err != nil || n < 1 || positionOf(n) != p {
		return 0, errors.New("this is not a position of the log: " + strconv.Quote(string(p)))
	}
	return n, nil
}
