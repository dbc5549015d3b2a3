package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	lockLog       = `SELECT pg_advisory_xact_lock(hashtextextended('kindred log', 0))`
	sameStream    = `hashtextextended(e.stream, 0) = hashtextextended(r.stream, 0) AND e.stream = r.stream` // as inStream
	selectCurrent = `
SELECT r.stream, (
	SELECT e.revision FROM public.events e WHERE ` + sameStream + ` ORDER BY e.revision DESC LIMIT 1
) AS revision
FROM (SELECT DISTINCT unnest($1::text[]) AS stream) r`
	countStanding = `
SELECT count(*) FROM unnest($1::text[], $2::bigint[], $3::uuid[]) AS r (stream, revision, event_id)
JOIN public.events e ON ` + sameStream + ` AND e.revision = r.revision AND e.event_id = r.event_id`
	upsertHeads = `
INSERT INTO public.heads (client, position) SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (client) DO UPDATE SET position = excluded.position`
	tellFollowers = `SELECT pg_notify('kindred_log', '')`
)

// Load appends events of another log as they are, in their order, all or none;
// only their positions are new. Those that stand here already are passed over.
// It fails with a *ConflictError where a stream is elsewhere, but for shared ones, of which
// an export has one client's events alone.
func (s *Store) Load(ctx context.Context, records []eventstore.Record) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockLog); err != nil {
			return err
		}
		var base int64
		if err := tx.QueryRow(ctx, selectHead).Scan(&base); err != nil {
			return err
		}
		l := loading{at: base, streams: map[eventstore.Stream]eventstore.Revision{}}
		if err := l.lookUp(ctx, tx, records); err != nil {
			return err
		}
		fresh, err := l.fresh(ctx, tx, records)
		if err != nil || len(fresh) == 0 {
			return err
		}
		return l.write(ctx, tx, fresh)
	})
	if err != nil {
		return fmt.Errorf("load %d events: %w", len(records), unavailable(err))
	}
	s.tail.Signal()
	return nil
}

// loading is a batch on its way in.
type loading struct {
	at      int64 // the last position that is taken
	streams map[eventstore.Stream]eventstore.Revision
}

func (l *loading) lookUp(ctx context.Context, tx pgx.Tx, records []eventstore.Record) error {
	names := make([]string, len(records))
	for i, r := range records {
		names[i], l.streams[r.Stream] = string(r.Stream), eventstore.NoStream
	}
	rows, _ := tx.Query(ctx, selectCurrent, names) // what it fails with, its rows end with
	var (
		stream   eventstore.Stream
		revision *eventstore.Revision // nil: it is not there
	)
	_, err := pgx.ForEachRow(rows, []any{&stream, &revision}, func() error {
		if revision != nil {
			l.streams[stream] = *revision
		}
		return nil
	})
	return err
}

// fresh leaves out what stands here already, which must be the same.
func (l *loading) fresh(ctx context.Context, tx pgx.Tx, records []eventstore.Record) ([]eventstore.Record, error) {
	var fresh []eventstore.Record
	var streams []string
	var revisions []int64
	var ids [][16]byte
	for _, r := range records {
		raw, err := id.Bytes(r.ID)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
		switch at := l.streams[r.Stream]; {
		case r.Revision == at+1, r.Revision > at && r.Stream.Shared(): // an export lacks what is others'
			l.streams[r.Stream] = r.Revision
			fresh = append(fresh, r)
		case r.Revision <= at:
			streams, revisions, ids = append(streams, string(r.Stream)), append(revisions, int64(r.Revision)), append(ids, raw)
		default:
			return nil, fmt.Errorf("%w: %w", errRefused, &eventstore.ConflictError{Stream: r.Stream, Expected: r.Revision - 1, Actual: at})
		}
	}
	if len(streams) == 0 {
		return fresh, nil
	}
	var same int
	if err := tx.QueryRow(ctx, countStanding, streams, revisions, ids).Scan(&same); err != nil {
		return nil, err
	}
	if same != len(streams) {
		return nil, fmt.Errorf("%w: %d other events stand where these belong", errRefused, len(streams)-same)
	}
	return fresh, nil
}

func (l *loading) write(ctx context.Context, tx pgx.Tx, fresh []eventstore.Record) error {
	heads := map[id.Client]int64{}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"public", "events"},
		[]string{"position", "client", "stream", "revision", "event_id", "type", "version", "data", "meta", "recorded_at"},
		pgx.CopyFromSlice(len(fresh), func(i int) ([]any, error) {
			r := fresh[i]
			raw, err := id.Bytes(r.ID)
			l.at++
			if r.Client != "" {
				heads[r.Client] = l.at
			}
			return []any{
				l.at, string(r.Client), string(r.Stream), int64(r.Revision), raw, r.Type, int32(r.Version), //nolint:gosec // versions are small
				notNil(r.Data), notNil(r.Meta), r.RecordedAt,
			}, err
		}))
	if err != nil {
		return err
	}
	var clients, positions []string
	for client, at := range heads {
		clients, positions = append(clients, string(client)), append(positions, string(positionOf(at)))
	}
	if _, err := tx.Exec(ctx, upsertHeads, clients, positions); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, tellFollowers)
	return err
}

// notNil keeps an empty value from being stored as NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
