package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Revocations is the read model of what ended before its time: API keys that were
// revoked, members who were removed, sessions that were ended, and the tokens from before
// a member's password was changed. Every replica polls it.
type Revocations struct{ readmodel.Reader }

// Name of the read model.
func (Revocations) Name() string { return "revocations" }

// Wants says which events the model is made of.
func (Revocations) Wants(t string) bool {
	switch t {
	case "api_key.revoked", "member.removed", "member.password_set", "session.opened", "session.ended", "client.deleted":
		return true
	}
	return false
}

// Version of the read model's tables.
func (Revocations) Version() int { return 2 }

// Options of the read model. The tokens of a client that was deleted stay void.
func (Revocations) Options() projector.Options { return projector.Options{KeepsDeleted: true} }

// Schema of the read model.
func (Revocations) Schema() string {
	return `
CREATE TABLE revocations (
	client     text COLLATE "C" NOT NULL,
	subject    text COLLATE "C" NOT NULL,
	revoked_at timestamptz NOT NULL,
	PRIMARY KEY (client, subject)
);
CREATE INDEX revocations_recent ON revocations (revoked_at);`
}

const insertRevocation = `
INSERT INTO revocations (client, subject, revoked_at) VALUES ($1, $2, $3) ON CONFLICT (client, subject) DO NOTHING`

// Apply changes the model by a batch of events. It notes nothing before all rows are
// written: Note has written its row when it waits for a note.
func (Revocations) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var revoked, noted pgx.Batch
	for _, r := range batch {
		for _, subject := range revokedBy(r.Event) {
			revoked.Queue(insertRevocation, string(r.Client), subject, r.RecordedAt)
			noted.Queue(noteApplied, string(r.Client), subject, r.RecordedAt, maxNotes)
		}
	}
	if err := readmodel.Send(ctx, tx, "revocations", &revoked); err != nil {
		return err
	}
	return readmodel.Send(ctx, tx, "the notes of revocations", &noted)
}

// revokedBy names whose tokens an event makes void.
func revokedBy(e event.Event) (subjects []string) {
	switch e := e.(type) {
	case event.APIKeyRevoked:
		return []string{string(e.Key)}
	case event.MemberRemoved:
		return []string{string(e.Member)}
	case event.MemberPasswordSet:
		return []string{id.Logins(e.Member, e.Standing.Changes-1)}
	case event.ClientDeleted:
		return []string{id.Everyone(e.Client)}
	case event.SessionEnded:
		return []string{string(e.Session)}
	case event.SessionOpened:
		for _, ended := range e.Ended {
			subjects = append(subjects, string(ended))
		}
	}
	return subjects
}

// When a revocation was noted stands beside the model, since no replay builds it
// again. What no token outlives, of at most a day, is not noted. Beyond maxNotes,
// one note stands for all that a client revokes, so that its haste is its own.
const (
	// limit: edge | revocations of a client that are noted one by one | {maxNotes}
	maxNotes = 256 // of a client

	noteRevocation = `SELECT public.note_revocation($1, $2, $3, $4)`
	noteApplied    = noteRevocation + ` WHERE $3::timestamptz > now() - interval '25 hours'`

	// What no token outlives is forgotten, some with each revocation, which leaves
	// one note at most.
	forgetNotes = `
DELETE FROM public.revocation_notes WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM public.revocation_notes WHERE noted_at < now() - interval '25 hours' ORDER BY noted_at LIMIT 100 FOR UPDATE SKIP LOCKED))`

	recentRevocations = `
SELECT subject FROM public.revocation_notes WHERE noted_at >= now() - $1::interval LIMIT $2`

	isRevoked = `SELECT EXISTS (SELECT FROM revocations r WHERE r.client = $1 AND r.subject = ANY ($2))`
)

// Note writes down a revocation that was just recorded, before it is
// acknowledged, so that whoever reads the model from then on knows of it,
// however far the projection has come. The projection notes it too.
func (m Revocations) Note(ctx context.Context, client id.Client, subject string, at time.Time) error {
	var b pgx.Batch
	b.Queue(insertRevocation, string(client), subject, at)
	b.Queue(noteRevocation, string(client), subject, at, maxNotes)
	b.Queue(forgetNotes)
	if err := m.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("note a revocation: %w", err)
	}
	return nil
}

// Since returns the subjects that were noted as revoked within a time until now, by the
// database's clock: the id of a key, a member or a session, [id.Logins] or [id.Everyone].
// The id of a client says that it has revoked more than is noted one by one. Everything
// that was acknowledged in that time is there, unless there are most.
func (m Revocations) Since(ctx context.Context, within time.Duration, most int) ([]string, error) {
	rows, _ := m.Pool.Query(ctx, recentRevocations, within, most) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Revoked says whether any of a client's subjects has lost its tokens, as of all that
// the client was told. It fails with a fault of kind Unavailable where
// the model has not come as far.
// Faults: building, overloaded, quarantined, stale.
func (m Revocations) Revoked(ctx context.Context, client id.Client, subjects ...string) (bool, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, false, isRevoked, []any{subjects}, func(is *bool) []any { return []any{is} })
	return err == nil && found[0], err
}
