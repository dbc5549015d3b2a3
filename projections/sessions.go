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
	"kindred/projections/readmodel"
)

// Sessions is the read model of sessions that were not ended.
type Sessions struct{ readmodel.Reader }

// Session is a session that lasts. Its secret is nowhere.
type Session struct {
	ID              id.Session
	Member          id.Member
	OpenedAt        time.Time
	SeenAt          time.Time // when it was last used, to [seenEvery]
	CreatedPosition eventstore.Position
}

// Name of the read model.
func (Sessions) Name() string { return "sessions" }

// Wants says which events the model is made of.
func (Sessions) Wants(t string) bool {
	switch t {
	case "session.opened", "session.ended", "member.password_set", "member.removed":
		return true
	}
	return false
}

// Version of the read model's tables.
func (Sessions) Version() int { return 1 }

// Schema of the read model.
func (Sessions) Schema() string {
	return `
CREATE TABLE sessions (
	client           text COLLATE "C" NOT NULL,
	id               text COLLATE "C" NOT NULL,
	created_position log_position NOT NULL,
	member           text COLLATE "C" NOT NULL,
	opened_at        timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX sessions_listed ON sessions (client, created_position);
CREATE INDEX sessions_member ON sessions (client, member, created_position);`
}

const (
	insertSession = `
INSERT INTO sessions (client, id, created_position, member, opened_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (client, id) DO NOTHING`
	// What an event says to stand are all sessions of its member.
	keepSessions = `DELETE FROM sessions WHERE client = $1 AND member = $2 AND id <> ALL ($3)`
)

// Apply changes the model by a batch of events.
func (Sessions) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	keep := func(r eventstore.Recorded, member id.Member, standing event.AccessStanding) {
		b.Queue(keepSessions, string(r.Client), string(member), readmodel.Column(standing.Sessions, func(s event.SessionStanding) string { return string(s.Session) }))
	}
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.SessionOpened:
			keep(r, e.Member, e.Standing)
			for _, s := range e.Standing.Sessions {
				if s.Session == e.Session {
					b.Queue(insertSession, string(r.Client), string(e.Session), string(r.Position), string(e.Member), s.OpenedAt)
				}
			}
		case event.SessionEnded:
			keep(r, e.Member, e.Standing)
		case event.MemberPasswordSet:
			keep(r, e.Member, e.Standing)
		case event.MemberRemoved:
			keep(r, e.Member, event.AccessStanding{})
		}
	}
	return readmodel.Send(ctx, tx, "sessions", &b)
}

const lastingSessions = `
SELECT s.id, s.member, s.opened_at, coalesce(u.seen_at, s.opened_at), s.created_position
FROM sessions s LEFT JOIN public.session_uses u ON u.client = s.client AND u.session = s.id
WHERE s.client = $1 AND s.opened_at > $2 AND coalesce(u.seen_at, s.opened_at) > $3`

func scanSession(s *Session) []any {
	return []any{readmodel.Text(&s.ID), readmodel.Text(&s.Member), &s.OpenedAt, &s.SeenAt, readmodel.Text(&s.CreatedPosition)}
}

// List returns the sessions of a client, or of one member, that last at a time, in order
// of their opening.
// Faults: building, overloaded, quarantined, stale.
func (m Sessions) List(ctx context.Context, client id.Client, eventual bool, page readmodel.Page, member id.Member, now time.Time) ([]Session, error) {
	w := readmodel.Where{Args: lastingAt(now)}
	w.AndText(` AND s.member = $%d`, string(member))
	w.And(` AND s.created_position > $%d`, string(page.After))
	w.And(` ORDER BY s.created_position LIMIT $%d`, page.Limit)
	return readmodel.Query(ctx, m.Reader, m, client, eventual, lastingSessions+w.SQL, w.Args, scanSession)
}

func lastingAt(now time.Time) []any {
	return []any{now.Add(-event.SessionLifetime), now.Add(-event.SessionIdle)}
}

const findSession = lastingSessions + ` AND s.id = $4`

// Find returns a session that lasts at a time, or fails with a fault of kind Missing.
// Faults: building, overloaded, quarantined, session_unknown, stale.
func (m Sessions) Find(ctx context.Context, client id.Client, session id.Session, now time.Time) (Session, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, false, findSession, append(lastingAt(now), string(session)), scanSession)
	return readmodel.Only(found, err, fault.UnknownSession())
}

// seenEvery is how often it is noted that a session was used.
// limit: edge | how far `last_seen_at` of a session may be behind its last use | {seenEvery}
const seenEvery = 5 * time.Minute

const (
	seenAt = `SELECT seen_at FROM session_uses WHERE client = $1 AND session = $2`

	noteSeen = `
INSERT INTO session_uses AS u (client, session, seen_at) VALUES ($1, $2, $3)
ON CONFLICT (client, session) DO UPDATE SET seen_at = excluded.seen_at WHERE u.seen_at < excluded.seen_at`

	// What no session outlives is forgotten, some with each note, which leaves one more
	// at most.
	forgetSeen = `
DELETE FROM session_uses WHERE (client, session) IN (
	SELECT client, session FROM session_uses WHERE seen_at < $1 ORDER BY seen_at LIMIT 100 FOR UPDATE SKIP LOCKED)`
)

// SeenAt returns when a session was last used, to 5 minutes; at, when that was never noted.
func (m Sessions) SeenAt(ctx context.Context, client id.Client, session id.Session, at time.Time) (time.Time, error) {
	rows, _ := m.Pool.Query(ctx, seenAt, string(client), string(session)) // what it fails with, its rows end with
	seen, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if len(seen) == 1 {
		at = seen[0]
	}
	return at, err
}

// NoteSeen notes that a session that was last seen at a time is used now.
func (m Sessions) NoteSeen(ctx context.Context, client id.Client, session id.Session, seen, now time.Time) error {
	if now.Sub(seen) < seenEvery {
		return nil
	}
	var b pgx.Batch
	b.Queue(noteSeen, string(client), string(session), now)
	b.Queue(forgetSeen, now.Add(-event.SessionLifetime))
	if err := m.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("note the use of a session: %w", err)
	}
	return nil
}
