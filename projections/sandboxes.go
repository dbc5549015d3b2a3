package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Sandboxes is the read model of the sandboxes beside each client.
type Sandboxes struct{ readmodel.Reader }

// Sandbox is a sandbox that was not deleted.
type Sandbox struct {
	ID              id.Client
	Name            string
	CreatedAt       time.Time
	ExpiresAt       *time.Time // nil: it does not delete itself
	CreatedPosition eventstore.Position
}

// Name of the read model.
func (Sandboxes) Name() string { return "sandboxes" }

// Wants says which events the model is made of.
func (Sandboxes) Wants(t string) bool {
	return t == "sandbox.added" || t == "sandbox.removed"
}

// Version of the read model's tables.
func (Sandboxes) Version() int { return 2 }

// Options of the read model. With a sandbox goes what is kept of it beside the log and the
// read models.
func (Sandboxes) Options() projector.Options {
	return projector.Options{AlsoForgets: []string{"public.idempotency", "public.feed_snapshots", "public.request_log", "public.request_omissions"}}
}

// Schema of the read model.
func (Sandboxes) Schema() string {
	return `
CREATE TABLE sandboxes (
	client           text COLLATE "C" NOT NULL, -- beside which it stands
	id               text COLLATE "C" NOT NULL,
	created_position log_position NOT NULL,
	name             text NOT NULL,
	created_at       timestamptz NOT NULL,
	expires_at       timestamptz,
	PRIMARY KEY (client, id)
);
CREATE INDEX sandboxes_listed ON sandboxes (client, created_position);
CREATE INDEX sandboxes_due ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;`
}

const (
	insertSandbox = `
INSERT INTO sandboxes (client, id, created_position, name, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (client, id) DO NOTHING`
	deleteSandbox = `DELETE FROM sandboxes WHERE client = $1 AND id = $2`
)

// Apply changes the model by a batch of events.
func (Sandboxes) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.SandboxAdded:
			b.Queue(insertSandbox, string(r.Client), string(e.Sandbox), string(r.Position), e.Name, r.RecordedAt, e.ExpiresAt)
		case event.SandboxRemoved:
			b.Queue(deleteSandbox, string(r.Client), string(e.Sandbox))
		}
	}
	return readmodel.Send(ctx, tx, "sandboxes", &b)
}

const selectSandboxes = `
SELECT s.id, s.created_position, s.name, s.created_at, s.expires_at FROM sandboxes s WHERE s.client = $1 AND `

func scanSandbox(s *Sandbox) []any {
	return []any{readmodel.Text(&s.ID), readmodel.Text(&s.CreatedPosition), &s.Name, &s.CreatedAt, &s.ExpiresAt}
}

// List returns the sandboxes of a client in order of creation.
// Faults: building, overloaded, quarantined, stale.
func (m Sandboxes) List(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Sandbox, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, selectSandboxes+`s.created_position > $2 ORDER BY s.created_position LIMIT $3`,
		[]any{string(page.After), page.Limit}, scanSandbox)
}

// Get returns a sandbox of a client, or fails with a fault of kind Missing.
// Faults: building, overloaded, quarantined, sandbox_unknown, stale.
func (m Sandboxes) Get(ctx context.Context, client id.Client, eventual bool, sandbox id.Client) (Sandbox, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, selectSandboxes+`s.id = $2`, []any{string(sandbox)}, scanSandbox)
	return readmodel.Only(found, err, fault.UnknownSandbox())
}

// Clients take turns, and theirs come in no order, so that those which cannot be deleted
// keep back no other for long.
const dueSandboxes = `
SELECT client, id FROM sandboxes WHERE expires_at <= now()
ORDER BY row_number() OVER (PARTITION BY client ORDER BY random()), random() LIMIT $1`

// Due returns sandboxes whose time is over, at most limit, each with the client beside
// which it stands. The clock is the database's: a process whose own is fast would delete
// sandboxes for good.
func (m Sandboxes) Due(ctx context.Context, limit int) (map[id.Client]id.Client, error) {
	due := map[id.Client]id.Client{}
	rows, err := m.Pool.Query(ctx, dueSandboxes, limit)
	if err == nil {
		var parent, sandbox id.Client
		_, err = pgx.ForEachRow(rows, []any{&parent, &sandbox}, func() error {
			due[sandbox] = parent
			return nil
		})
	}
	if err != nil && !projector.TablesMissing(err) { // it is yet to be made
		return nil, fmt.Errorf("list sandboxes that are over: %w", err)
	}
	return due, nil
}
