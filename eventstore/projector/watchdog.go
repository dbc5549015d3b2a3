package projector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
)

// stalledAfter is how long a projection may stand behind the log's end, and still
// be waited for: longer than a batch may take.
const stalledAfter = 90 * time.Second

// Watchdog watches whether projections follow the log, whichever process leads
// them: by their checkpoints, so that it does not matter why one cannot.
type Watchdog struct {
	Pool        *pgxpool.Pool
	Projections []Projection
	Now         func() time.Time

	mu    sync.Mutex
	stood map[string]progressAt
}

// progressAt is where a projection was found, behind the end of the log, and when.
type progressAt struct {
	at    eventstore.Position
	since time.Time
}

const positionsOf = `SELECT name, position FROM checkpoints WHERE name = ANY($1)`

// Check fails where a projection has stood at one place for more than 90 s of
// checks, and the log ends behind it. head is the end of the log.
func (s *Watchdog) Check(ctx context.Context, head eventstore.Position) error {
	names, at := make([]string, len(s.Projections)), map[string]eventstore.Position{}
	for i, p := range s.Projections {
		names[i] = ID(p)
	}
	var name string
	var position eventstore.Position
	rows, _ := s.Pool.Query(ctx, positionsOf, names) // what it fails with, its rows end with
	_, err := pgx.ForEachRow(rows, []any{&name, &position}, func() error {
		at[name] = position
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.stood
	s.stood = make(map[string]progressAt, len(names))
	for _, name := range names {
		if at[name] >= head {
			continue
		}
		now := progressAt{at[name], s.Now()}
		if was, stood := before[name]; stood && was.at == now.at {
			now = was
		}
		s.stood[name] = now
		if age := s.Now().Sub(now.since); age > stalledAfter && err == nil {
			err = fmt.Errorf("%s does not follow the log: it has stood at %q for %s, and the log ends at %q",
				name, now.at, age.Round(time.Second), head)
		}
	}
	return err
}
