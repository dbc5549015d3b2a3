package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
	"kindred/eventstore/tail"
	"kindred/postgres"
)

// Subscribe implements [eventstore.Store].
func (s *Store) Subscribe(_ context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if _, err := numberOf(after); err != nil {
		return nil, err
	}
	return s.tail.Subscribe(after), nil
}

// source is the log as its tail reads it. Appends become visible in the order of
// their positions, so a page misses nothing.
type source struct{ *Store }

// End implements [tail.Source].
func (s source) End(ctx context.Context) (tail.Page, error) {
	page := tail.Page{Last: true}
	err := s.query(ctx, &page.Server, selectHead, nil, func(rows pgx.Rows) error {
		head, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		page.To = positionOf(head)
		return err
	})
	return page, err
}

// Read implements [tail.Source].
func (s source) Read(ctx context.Context, after eventstore.Position, limit int) (tail.Page, error) {
	n, err := numberOf(after)
	if err != nil {
		return tail.Page{}, err
	}
	from, most := n, limit // the event at the position itself comes again
	if after != eventstore.Start {
		from, most = n-1, limit+1
	}
	page, full := tail.Page{To: after}, false
	err = s.query(ctx, &page.Server, selectAfter, []any{from, most}, func(rows pgx.Rows) (err error) {
		page.Records, full, err = scanRecords(rows, maxPageBytes)
		return err
	})
	if err != nil {
		return tail.Page{}, err
	}
	page.Last = !full && len(page.Records) < most
	if after != eventstore.Start {
		if len(page.Records) == 0 || page.Records[0].Position != after {
			return tail.Page{}, fmt.Errorf("%q: %w", after, eventstore.ErrNotFound)
		}
		page.At, page.Records = page.Records[0].ID, page.Records[1:]
	}
	if n := len(page.Records); n > 0 {
		page.To = page.Records[n-1].Position
	}
	return page, nil
}

// query reads, and says from which run of the server.
func (s *Store) query(ctx context.Context, server *int64, sql string, args []any, read func(pgx.Rows) error) (err error) {
	for range readTries {
		err = s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			if *server, err = postgres.RunOf(ctx, c.Conn()); err != nil {
				return err
			}
			rows, err := c.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			return read(rows)
		})
		if err == nil || ctx.Err() != nil || !passing(err) {
			break
		}
	}
	return unavailable(err)
}
