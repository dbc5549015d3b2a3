package readmodel

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
)

// An event that is of many users writes or deletes as many rows. Where the rows are of one
// client, the others are not to wait for them: the model is a [projector.PerClient].

const (
	// StepsToWrite and StepsToDelete are what a row and its index entries take, as
	// [projector.Spend] counts: 16 µs, and 2.5.
	StepsToWrite  = 1_600
	StepsToDelete = 250
)

// Apart divides a batch for ApplyTogether: the rest are the events of those clients that have
// one which may be of many rows.
func Apart(batch []eventstore.Recorded, many func(event.Event) bool) (together, rest []eventstore.Recorded) {
	apart := map[id.Client]bool{}
	for _, r := range batch {
		if many(r.Event) {
			apart[r.Client] = true
		}
	}
	if len(apart) == 0 {
		return batch, nil
	}
	for _, r := range batch {
		if apart[r.Client] {
			rest = append(rest, r)
		} else {
			together = append(together, r)
		}
	}
	return together, rest
}

// SpendOnRows spends so many steps for each row that a query finds. It counts no more rows than
// make a client slow.
func SpendOnRows(ctx context.Context, tx pgx.Tx, spend projector.Spend, steps int, query string, args ...any) error {
	var rows int
	err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (%s LIMIT %d) few`, query, projector.BatchSteps/steps+1), args...).Scan(&rows)
	if err != nil {
		return fmt.Errorf("count what an event is of: %w", err)
	}
	return spend(rows * steps)
}
