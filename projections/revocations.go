package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/eventstore"
)

// Revocations is the read model of what ended before its time: API keys that
// were revoked and members who were removed. Every replica polls it.
type Revocations struct{ Reader }

// Revocation is a key or a member whose tokens are void.
type Revocation struct {
	Subject string // a key's or a member's id
	At      time.Time
}

// Name of the read model.
func (Revocations) Name() string { return "revocations" }

// Wants says which events the model is made of.
func (Revocations) Wants(t string) bool { return t == "api_key.revoked" || t == "member.removed" }

// Version of the read model's tables.
func (Revocations) Version() int { return 1 }

// Schema of the read model.
func (Revocations) Schema() string {
	return `
CREATE TABLE revocations (
	subject    text COLLATE "C" PRIMARY KEY,
	revoked_at timestamptz NOT NULL
);
CREATE INDEX revocations_recent ON revocations (revoked_at);`
}

const insertRevocation = `INSERT INTO revocations (subject, revoked_at) VALUES ($1, $2) ON CONFLICT (subject) DO NOTHING`

// Apply changes the model by a batch of events.
func (Revocations) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		var subject string
		switch e := r.Event.(type) {
		case event.APIKeyRevoked:
			subject = string(e.Key)
		case event.MemberRemoved:
			subject = string(e.Member)
		default:
			continue
		}
		b.Queue(insertRevocation, subject, r.RecordedAt)
		b.Queue(noteApplied, subject, r.RecordedAt)
	}
	return send(ctx, tx, "revocations", &b)
}

// When a revocation was noted stands beside the model, since no replay builds it
// again. What no token outlives, of at most a day, is not noted.
const (
	noteApplied = `
INSERT INTO public.revocation_notes (subject, revoked_at)
SELECT $1, $2 WHERE $2::timestamptz > now() - interval '25 hours' ON CONFLICT (subject) DO NOTHING`

	noteRevocation = `
INSERT INTO public.revocation_notes (subject, revoked_at) VALUES ($1, $2)
ON CONFLICT (subject) DO UPDATE SET noted_at = clock_timestamp()`

	// What no token outlives is forgotten, some with each revocation, which leaves
	// one note at most.
	forgetNotes = `
DELETE FROM public.revocation_notes WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM public.revocation_notes WHERE noted_at < now() - interval '25 hours' ORDER BY noted_at LIMIT 100 FOR UPDATE SKIP LOCKED))`

	// The first half is for what an older release notes.
	recentRevocations = `
SELECT subject, revoked_at FROM revocations WHERE revoked_at >= now() - $1::interval
UNION
SELECT subject, revoked_at FROM public.revocation_notes WHERE noted_at >= now() - $1::interval
LIMIT $2`
)

// Note writes down a revocation that was just recorded, before it is
// acknowledged, so that whoever reads the model from then on knows of it,
// however far the projection has come. The projection notes it too.
func (m Revocations) Note(ctx context.Context, subject string, at time.Time) error {
	var b pgx.Batch
	b.Queue(insertRevocation, subject, at)
	b.Queue(noteRevocation, subject, at)
	b.Queue(forgetNotes)
	if err := m.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("note a revocation: %w", err)
	}
	return nil
}

// Since returns what was revoked, or noted as such, within a time until now, by
// the database's clock: everything that was acknowledged in it is there. It fails
// where that is more than most.
func (m Revocations) Since(ctx context.Context, within time.Duration, most int) ([]Revocation, error) {
	rows, err := m.Pool.Query(ctx, recentRevocations, within, most+1)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Revocation])
	if err == nil && len(found) > most {
		return nil, fmt.Errorf("more than %d revocations within %s", most, within)
	}
	return found, err
}
