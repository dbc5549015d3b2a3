package projections

import (
	"context"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Changed lists users as populations read them, once their model has come as far as the client was told.
func (m Users) Changed(ctx context.Context, client id.Client, after eventstore.Position, limit int) ([]UserChange, error) {
	return m.changed(ctx, client, false, after, limit)
}
