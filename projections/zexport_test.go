package projections

import (
	"context"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// DoneQueued takes users out of a queue.
const DoneQueued = doneQueued

// Changed lists users as populations read them, once their model has come as far as the client was told.
func (m Users) Changed(ctx context.Context, client id.Client, after eventstore.Position, limit int) ([]UserChange, error) {
	if _, err := readmodel.Count(ctx, m.Reader, m, client, false, `SELECT 0 AS n`); err != nil { // once the model is as fresh as it has to be
		return nil, err
	}
	return m.changed(ctx, client, after, limit)
}
