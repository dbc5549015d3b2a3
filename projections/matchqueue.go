package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/jobs"
	"kindred/projections/readmodel"
)

// MatchQueue holds the users whose matches are to be computed automatically: those who were
// there when their client turned this on, and those who were created or changed since. A
// user stands in it once, however often it has changed. Clients take turns.
type MatchQueue struct {
	readmodel.Reader
	// SilentThrough is a position of the log: events up to there queue nobody. Another
	// kindred, from which the log was copied, has matched for them.
	SilentThrough eventstore.Position
	EndAfter      time.Duration // after which a batch ends with the user that it is at; 0: 1 s
}

const (
	// batchLimit bounds the users of a batch, batchTime how long one of them may take, and
	// batchEnd ends it: other clients wait for it, and a match rule may take seconds for a user.
	batchLimit = 50
	batchTime  = 10 * time.Second
	batchEnd   = time.Second
	// finishTime is how long it may take to write down what became of a batch.
	finishTime = 5 * time.Second
	// batchLease is when a batch that was never finished is over.
	batchLease = 30 * time.Second
	// batchMatches ends a batch once so many matches were recorded.
	batchMatches = 100
	// MatchesPerSecond is how many matches are recorded automatically for one
	// client, at most, averaged over its batches.
	// limit: webhooks | automatic matches that are sent | {MatchesPerSecond} a second, on average
	MatchesPerSecond = 200
	// restAfterError is how long a client rests whose batch failed.
	restAfterError = 5 * time.Second
	// restUntilKnown is how long it waits for the users model to know those who were there.
	restUntilKnown = 250 * time.Millisecond
	matchJobs      = "matches"
)

// Name of the projection.
func (MatchQueue) Name() string { return "match_queue" }

// Wants says which events the queue follows.
func (MatchQueue) Wants(t string) bool {
	return t == "client.settings_changed" || t == "client.deleted" || strings.HasPrefix(t, "end_user.")
}

// Version means nothing: the queue is no read model.
func (MatchQueue) Version() int { return 1 }

const (
	// A client's row is locked before those of its queue, as finish does.
	enabledSweeps = `SELECT client FROM match_sweeps WHERE enabled AND client = ANY($1) ORDER BY client FOR NO KEY UPDATE`
	setSweep      = `
INSERT INTO match_sweeps (client, enabled, k, min_score) VALUES ($1, $2, $3, $4)
ON CONFLICT (client) DO UPDATE SET enabled = excluded.enabled, k = excluded.k, min_score = excluded.min_score`
	dropSweep     = `DELETE FROM match_sweeps WHERE client = $1`
	endSweep      = `UPDATE match_sweeps SET everyone_before = NULL, began_at = NULL WHERE client = $1`
	sweepEveryone = `
UPDATE match_sweeps SET everyone_before = $2, everyone_after = '', everyone_event = $3, began_at = $4, done = 0, recorded = 0
WHERE client = $1`
	leaveQueue   = `DELETE FROM match_queue WHERE client = $1 AND user_id = $2`
	enqueueMatch = `
INSERT INTO match_queue (client, user_id, position, event) SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[])
ON CONFLICT (client, user_id) DO UPDATE SET position = excluded.position, event = excluded.event, attempts = 0`
	beginSweep = `UPDATE match_sweeps SET began_at = $2, done = 0, recorded = 0 WHERE client = $1 AND began_at IS NULL`
)

// Apply queues who has changed, and keeps to what each client has chosen at
// that place of the log.
func (m MatchQueue) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	clients := map[string]bool{}
	for _, r := range batch {
		clients[string(r.Client)] = true
	}
	rows, _ := tx.Query(ctx, enabledSweeps, readmodel.SortedKeys(clients)) // what it fails with, its rows end with
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read who is matched automatically: %w", err)
	}
	q := queueing{silentThrough: m.SilentThrough, enabled: map[id.Client]bool{}, waiting: map[id.Client]map[id.User]eventstore.Recorded{}}
	for _, name := range names {
		q.enabled[id.Client(name)] = true
	}
	for _, r := range batch {
		q.follow(r)
	}
	for _, client := range readmodel.SortedKeys(q.waiting) {
		waiting := q.waiting[client]
		var users, positions, events []string
		first := time.Time{}
		for _, user := range readmodel.SortedKeys(waiting) {
			r := waiting[user]
			users, positions, events = append(users, string(user)), append(positions, string(r.Position)), append(events, string(r.ID))
			if first.IsZero() || r.RecordedAt.Before(first) {
				first = r.RecordedAt
			}
		}
		if len(users) > 0 {
			q.b.Queue(enqueueMatch, string(client), users, positions, events)
			q.b.Queue(beginSweep, string(client), first)
			q.b.Queue(jobs.Ask, client, matchJobs)
		}
	}
	return readmodel.Send(ctx, tx, "match_queue", &q.b)
}

// queueing is one batch on its way into the queue.
type queueing struct {
	silentThrough eventstore.Position
	b             pgx.Batch
	enabled       map[id.Client]bool
	waiting       map[id.Client]map[id.User]eventstore.Recorded
}

func (q *queueing) follow(r eventstore.Recorded) {
	switch e := r.Event.(type) {
	case event.ClientSettingsChanged:
		chosen := e.Settings.AutomaticMatching
		q.b.Queue(setSweep, string(r.Client), chosen.On, chosen.K, chosen.MinScore)
		was := q.enabled[r.Client]
		switch q.enabled[r.Client] = chosen.On; {
		case !chosen.On:
			q.b.Queue(endSweep, string(r.Client))
			q.b.Queue(jobs.Ask, r.Client, matchJobs) // which takes out who waits
			delete(q.waiting, r.Client)
		case !was && r.Position > q.silentThrough:
			q.b.Queue(sweepEveryone, string(r.Client), string(r.Position), string(r.ID), r.RecordedAt)
			q.b.Queue(jobs.Ask, r.Client, matchJobs)
		}
	case event.ClientDeleted:
		q.b.Queue(dropSweep, string(r.Client))
		q.b.Queue(jobs.Ask, r.Client, matchJobs)
		q.enabled[r.Client] = false
		delete(q.waiting, r.Client)
	case event.EndUserCreated:
		q.wait(e.User, r)
	case event.EndUserTraitsChanged:
		q.wait(e.User, r)
	case event.EndUserErased:
		q.b.Queue(leaveQueue, string(r.Client), string(e.User))
		delete(q.waiting[r.Client], e.User)
	}
}

func (q *queueing) wait(user id.User, r eventstore.Recorded) {
	if !q.enabled[r.Client] || r.Position <= q.silentThrough {
		return
	}
	if q.waiting[r.Client] == nil {
		q.waiting[r.Client] = map[id.User]eventstore.Recorded{}
	}
	q.waiting[r.Client][user] = r
}

// everyoneAtOnce is how many users who were there before are queued at once,
// whenever fewer than so many wait.
// limit: models | users that were there before, queued to be matched at a time | {everyoneAtOnce}
const everyoneAtOnce = 500

const (
	// A client's part of the users that is paused, or has stopped, may lack some. Who waits
	// already has a newer reason.
	queueNextOfEveryone = `
WITH next AS (
	SELECT s.client, s.everyone_before, s.everyone_after, s.everyone_event FROM match_sweeps s
	WHERE s.client = $3 AND s.everyone_before <= (SELECT position FROM checkpoints WHERE name = $1)
		AND NOT EXISTS (SELECT FROM quarantine h WHERE h.projection = $1 AND h.client = s.client)
		AND (SELECT count(*) FROM (SELECT FROM match_queue q WHERE q.client = s.client LIMIT $2) waiting) < $2
	FOR UPDATE
), page AS (
	SELECT u.id FROM next n JOIN users u ON u.client = n.client AND NOT u.erased AND u.created_position < n.everyone_before AND u.id > n.everyone_after
	ORDER BY u.id LIMIT $2
), queued AS (
	INSERT INTO match_queue (client, user_id, position, event)
	SELECT n.client, p.id, n.everyone_before, n.everyone_event FROM next n CROSS JOIN page p ON CONFLICT DO NOTHING
)
UPDATE match_sweeps s SET everyone_after = coalesce((SELECT max(id) FROM page), s.everyone_after),
	everyone_before = CASE WHEN (SELECT count(*) FROM page) = $2 THEN s.everyone_before END,
	began_at = CASE WHEN EXISTS (SELECT FROM page) OR EXISTS (SELECT FROM match_queue q WHERE q.client = s.client) THEN s.began_at END
FROM next WHERE s.client = next.client`
	selectSweep = `SELECT enabled, k, min_score, everyone_before IS NOT NULL FROM match_sweeps WHERE client = $1`
	nextQueued  = `SELECT user_id, position, event FROM match_queue WHERE client = $1 ORDER BY attempts, position LIMIT $2`
)

// QueuedUser is a user that waits in the queue, and the event that calls for it.
type QueuedUser struct {
	User     id.User
	Position eventstore.Position
	Event    id.Event
}

// Take has match called for those users of one client who have waited longest. Any number
// of processes may call it at once; a client has one batch at a time. After a batch the
// client rests for as long as the matches that were recorded are worth. A batch that a
// crash cut short is taken again. Take is false where nobody waits.
func (m MatchQueue) Take(ctx context.Context, match MatchUser) (bool, error) {
	return jobs.Queue{Pool: m.Pool, Kind: matchJobs, Lease: batchLease}.Turn(ctx,
		func(ctx context.Context, job jobs.Job) (jobs.Outcome, error) { return m.batch(ctx, job.Client, match) })
}

// MatchUser has the best k matches of a user recorded, from a score on, and returns how many
// there were.
type MatchUser = func(ctx context.Context, client id.Client, k int, minScore float64, user QueuedUser) (int, error)

// batch matches the next users of a client.
func (m MatchQueue) batch(ctx context.Context, client id.Client, match MatchUser) (jobs.Outcome, error) {
	var enabled, everyone bool
	var k int
	var minScore float64
	err := m.Pool.QueryRow(ctx, selectSweep, client).Scan(&enabled, &k, &minScore, &everyone)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && !enabled:
		return m.empty(ctx, client)
	case err == nil && everyone:
		_, err = m.Pool.Exec(ctx, queueNextOfEveryone, projector.ID(Users{}), everyoneAtOnce, client)
	}
	var waiting []QueuedUser
	if err == nil {
		waiting, err = m.queued(ctx, client)
	}
	if err != nil {
		return jobs.Outcome{Rest: restAfterError}, fmt.Errorf("read the queue of %s: %w", client, err)
	}
	working, cancel := context.WithTimeout(readmodel.InNoPlace(ctx), batchTime)
	defer cancel()
	over, end := context.WithTimeout(ctx, cmp.Or(m.EndAfter, batchEnd))
	defer end()
	done, recorded := 0, 0
	for _, q := range waiting {
		n, failed := match(working, client, k, minScore, q)
		if errors.Is(failed, context.DeadlineExceeded) && done > 0 {
			break // the time of the batch is over: the next one begins with this user
		}
		if failed != nil {
			err = fmt.Errorf("match %s automatically: %w", q.User, failed)
			break
		}
		done, recorded = done+1, recorded+n
		if recorded >= batchMatches || over.Err() != nil {
			break
		}
	}
	outcome := jobs.Outcome{Rest: time.Duration(recorded) * time.Second / MatchesPerSecond}
	switch {
	case err != nil:
		outcome.Rest = max(outcome.Rest, restAfterError)
	case len(waiting) == 0 && everyone:
		outcome.Rest = restUntilKnown
	default:
		outcome.Done = !everyone && done == len(waiting) && done < batchLimit
	}
	return outcome, errors.Join(err, m.finish(ctx, client, waiting, done, recorded, err != nil))
}

// emptiedAtOnce is how many of the queue of a client that wants no matches any more are taken
// out at once: everybody's events are in the transaction of Apply, where all would go in one.
// limit: models | users of a client that wants no automatic matches any more, taken out of the queue at a time | {emptiedAtOnce}
const emptiedAtOnce = 5_000

const emptySome = `
DELETE FROM match_queue WHERE ctid = ANY (ARRAY (SELECT ctid FROM match_queue WHERE client = $1 LIMIT $2))
	AND NOT EXISTS (SELECT FROM match_sweeps WHERE client = $1 AND enabled)`

// empty takes out some of those who wait for a client that wants no matches.
func (m MatchQueue) empty(ctx context.Context, client id.Client) (jobs.Outcome, error) {
	var b pgx.Batch
	b.Queue(lockSweep, client)
	var gone int64
	b.Queue(emptySome, client, emptiedAtOnce).Exec(func(tag pgconn.CommandTag) error {
		gone = tag.RowsAffected()
		return nil
	})
	if err := m.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return jobs.Outcome{Rest: restAfterError}, fmt.Errorf("empty the queue of %s: %w", client, err)
	}
	return jobs.Outcome{Done: gone < emptiedAtOnce}, nil
}

func (m MatchQueue) queued(ctx context.Context, client id.Client) ([]QueuedUser, error) {
	rows, _ := m.Pool.Query(ctx, nextQueued, client, batchLimit) // what it fails with, its rows end with
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q QueuedUser, err error) {
		return q, row.Scan(&q.User, &q.Position, &q.Event)
	})
}

const (
	lockSweep = `SELECT FROM match_sweeps WHERE client = $1 FOR NO KEY UPDATE`
	// A batch that was overtaken finds nobody any more, and counts nothing. Rows are
	// locked in the order in which enqueueMatch does.
	doneQueued = `
WITH held AS (
	SELECT q.user_id FROM match_queue q JOIN unnest($2::text[], $3::text[]) AS d (user_id, position) ON q.user_id = d.user_id AND q.position = d.position
	WHERE q.client = $1 ORDER BY q.user_id FOR UPDATE OF q
), gone AS (
	DELETE FROM match_queue q USING held WHERE q.client = $1 AND q.user_id = held.user_id RETURNING q.user_id
)
UPDATE match_sweeps SET done = done + n, recorded = recorded + $4 FROM (SELECT count(*) AS n FROM gone) counted WHERE client = $1 AND n > 0`
	failedQueued = `UPDATE match_queue SET attempts = attempts + 1 WHERE client = $1 AND user_id = $2 AND position = $3`
	finishBatch  = `
UPDATE match_sweeps SET began_at = CASE WHEN everyone_before IS NOT NULL OR EXISTS (SELECT FROM match_queue q WHERE q.client = $1) THEN began_at END
WHERE client = $1`
)

// finish takes those who are done out of the queue, and has the one that failed wait behind
// the others, unless they have changed meanwhile.
func (m MatchQueue) finish(ctx context.Context, client id.Client, waiting []QueuedUser, done, recorded int, failed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	var b pgx.Batch
	b.Queue(lockSweep, client)
	if done > 0 {
		b.Queue(doneQueued, client,
			readmodel.Column(waiting[:done], func(q QueuedUser) string { return string(q.User) }),
			readmodel.Column(waiting[:done], func(q QueuedUser) string { return string(q.Position) }), recorded)
	}
	if failed {
		b.Queue(failedQueued, client, waiting[done].User, waiting[done].Position)
	}
	b.Queue(finishBatch, client)
	if err := m.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("finish a batch of %s: %w", client, err)
	}
	return nil
}

// Sweep is how far the automatic matches of a client have come.
type Sweep struct {
	Pending  int64 // users
	Done     int64 // users, since it began
	Recorded int64 // matches, since it began
	BeganAt  *time.Time
	Left     time.Duration // as the past suggests; 0 where that is not known
}

const getSweep = `
SELECT CASE WHEN s.enabled THEN (SELECT count(*) FROM match_queue q WHERE q.client = $1) ELSE 0 END + (
		SELECT count(*) FROM users u JOIN match_sweeps e ON e.client = $1 AND e.everyone_before IS NOT NULL
		WHERE u.client = $1 AND NOT u.erased AND u.created_position < e.everyone_before AND u.id > e.everyone_after) AS pending, coalesce(s.done, 0) AS done,
	coalesce(s.recorded, 0) AS recorded, s.began_at, coalesce(extract(epoch FROM $2::timestamptz - s.began_at), 0)::float8 AS seconds
FROM (SELECT) one LEFT JOIN match_sweeps s ON s.client = $1`

// Sweep returns how far a client's sweep has come by now, as the client's clock says.
// Faults: building, overloaded, quarantined, stale.
func (m MatchQueue) Sweep(ctx context.Context, client id.Client, eventual bool, now time.Time) (Sweep, error) {
	type row struct {
		Sweep
		seconds float64
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getSweep, []any{now}, func(r *row) []any {
		return []any{&r.Pending, &r.Done, &r.Recorded, &r.BeganAt, &r.seconds}
	})
	if err != nil || len(rows) == 0 {
		return Sweep{}, err
	}
	s := rows[0].Sweep
	if s.Pending > 0 && s.Done > 0 {
		s.Left = time.Duration(rows[0].seconds * float64(s.Pending) / float64(s.Done) * float64(time.Second))
	}
	return s, nil
}
