package projections

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Claims is the read model of reservations that are neither confirmed nor
// released: what a crash may have left open.
type Claims struct{ readmodel.Reader }

// Name of the read model.
func (Claims) Name() string { return "claims" }

// Wants says which events the model is made of.
func (Claims) Wants(t string) bool { return strings.HasPrefix(t, "claim.") }

// Version of the read model's tables.
func (Claims) Version() int { return 1 }

// Schema of the read model.
func (Claims) Schema() string {
	return `
CREATE TABLE open_claims (
	stream      text COLLATE "C" PRIMARY KEY,
	reserved_at timestamptz NOT NULL
);
CREATE INDEX open_claims_oldest ON open_claims (reserved_at);`
}

const (
	insertClaim = `INSERT INTO open_claims (stream, reserved_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	deleteClaim = `DELETE FROM open_claims WHERE stream = $1`
)

// Apply changes the model by a batch of events.
func (Claims) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		switch r.Event.(type) {
		case event.Reserved:
			b.Queue(insertClaim, string(r.Stream), r.RecordedAt)
		case event.Confirmed, event.Released:
			b.Queue(deleteClaim, string(r.Stream))
		}
	}
	return readmodel.Send(ctx, tx, "claims", &b)
}

// In no order, so that those which cannot be resolved keep back no other for long.
const openClaims = `SELECT stream FROM open_claims WHERE reserved_at < $1 ORDER BY random() LIMIT $2`

// OpenSince returns at most limit claims that were reserved before a moment
// and are still open; none while the read model is yet to be made.
func (m Claims) OpenSince(ctx context.Context, before time.Time, limit int) ([]eventstore.Stream, error) {
	return readmodel.OfAll(ctx, m.Reader, pgx.RowTo[eventstore.Stream], openClaims, before, limit)
}
