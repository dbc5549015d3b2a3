package projector

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
)

const noteHead = `
INSERT INTO heads (client, position) VALUES ($1, $2)
ON CONFLICT (client) DO UPDATE SET position = excluded.position WHERE heads.position < excluded.position`

// NoteHead returns what tells the readers of every replica what was just
// acknowledged, for a store that does not do so itself.
func NoteHead(pool *pgxpool.Pool) func(context.Context, id.Client, eventstore.Position) error {
	return func(ctx context.Context, client id.Client, at eventstore.Position) error {
		_, err := pool.Exec(ctx, noteHead, client, at)
		return err
	}
}
