package segments

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

const day = 24 * time.Hour

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(day) }

// changesKept is how long changes are told.
// limit: requests | changes of a segment's members that are told | 30 days | 410 `cursor_expired`
const changesKept = 30 * 24 * time.Hour

// Where the changes that are told begin follows from days alone, and not from the rows that
// are left: those of erased users are not there in a rebuild.
const (
	dropOldChanges = `
DELETE FROM segment_changes WHERE client = $1 AND position <= $3 AND position < coalesce(
	(SELECT c.position FROM segment_changes c WHERE c.client = $1 AND c.changed_at >= $2 ORDER BY c.position LIMIT 1), $4)`
	beginLater = `
WITH old AS (SELECT segment, max(next_position::text) AS next FROM segment_sizes WHERE client = $1 AND day < $2 GROUP BY segment)
UPDATE segments SET changes_from = greatest(changes_from, old.next) FROM old
WHERE segments.client = $1 AND segments.id = old.segment`
)

// sizesKept is how long the sizes of past days are told.
// limit: kept | the size of a segment at the end of a day | {sizesKept}
const sizesKept = 400 * 24 * time.Hour

const (
	noteSizes = unfolded + `
INSERT INTO segment_sizes (client, segment, day, members, next_position)
SELECT $1, v.segment, $2, ` + membersOf + `, $3 FROM segment_versions v WHERE v.client = $1 AND v.serves`
	dropOldSizes = `DELETE FROM segment_sizes WHERE client = $1 AND day < $2`
)

// advance moves the client's time on to that of an event. At midnight it notes the sizes of
// the last day on which something happened, from the tables, so every judgement of before
// must be written; and it drops what is too old to be told.
func (c *segmented) advance(ctx context.Context, r eventstore.Recorded) error {
	to := r.RecordedAt
	if passed, ok := r.Event.(event.SegmentsTimePassed); ok && passed.AsOf.After(to) {
		to = passed.AsOf
	}
	if !to.After(c.now) {
		return nil
	}
	last, today := dayOf(c.now), dayOf(to)
	c.now = to
	if !today.After(last) {
		return nil
	}
	// The clock of a sandbox passes many midnights in a second.
	if err := c.spend(len(c.versions) * readmodel.StepsToWrite); err != nil {
		return err
	}
	var b pgx.Batch
	c.foldIn = 1 // what is old by the next midnight goes then
	b.Queue(dropOldActs, string(c.client), today.Add(-rule.ActsKept))
	b.Queue(dropOldChanges, string(c.client), today.Add(-changesKept), string(c.folded), string(r.Position))
	if len(c.versions) > 0 {
		b.Queue(noteSizes, string(c.client), last, string(r.Position))
		b.Queue(dropOldSizes, string(c.client), today.Add(-sizesKept))
		b.Queue(beginLater, string(c.client), today.Add(-changesKept))
	}
	return readmodel.Send(ctx, c.tx, "segments at midnight", &b)
}

// An event that says that time has passed has some users judged whom time alone may have
// moved; the next one, a second later, goes on. When a version gets ready, all who are due
// are judged.
const (
	// limit: models | users whom time moves between segments in one event | {maxDue}
	maxDue = 10_000
	// limit: models | steps to open and judge the users whom time moves in one event, about | {maxDueSteps}
	maxDueSteps = 20_000_000

	// dueUpTo finds the last of those who are due first: maxDue at most, and so many that to open and
	// judge them takes no more than maxDueSteps, or one.
	dueUpTo = `
SELECT due, number FROM (
	SELECT due, number, sum(steps) OVER (ORDER BY due, number) - steps AS before FROM (
		SELECT u.due, u.number, 2 * octet_length(u.traits) + (SELECT $5 + $6 * count(*) FROM segment_versions v WHERE v.client = $1) AS steps
		FROM segment_users u WHERE u.client = $1 AND u.due <= $2 ORDER BY u.due, u.number LIMIT $3) first) each
WHERE before < $4 ORDER BY due DESC, number DESC LIMIT 1`
)

// WaitingOf says up to which user those of a client are to be judged anew whom time alone may have moved; some
// is false where there are none.
// Faults: building, overloaded, quarantined, stale.
func (m Model) WaitingOf(ctx context.Context, client id.Client, now time.Time) (due time.Time, number int64, some bool, err error) {
	type row struct {
		due    time.Time
		number int64
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, true, dueUpTo, []any{now, maxDue, maxDueSteps, openSteps, judgeSteps},
		func(r *row) []any { return []any{&r.due, &r.number} })
	if err != nil || len(found) == 0 {
		return due, 0, false, err
	}
	return found[0].due, found[0].number, true, nil
}

// judgeDue judges the users anew whom time alone may have moved, and who are due up to a place.
func (c *segmented) judgeDue(ctx context.Context, r eventstore.Recorded, due time.Time, number int64) error {
	after, last := time.Time{}, int64(0)
	for {
		users, err := c.readToJudge(ctx, openableUsersDue, after, last, due, number, usersRead)
		if err != nil || len(users) == 0 {
			return err
		}
		after, last = *users[len(users)-1].due, users[len(users)-1].number
		if err := c.rejudgeRead(ctx, users, c.ordered, r.Position); err != nil {
			return err
		}
	}
}

const (
	// limit: models | users whom time may have moved, of all clients, that a look reads before it asks for each client | {dueRead}
	dueRead = 10_000
	// A look goes by those who are due first; where these may be of few clients, by client: to
	// read all of 500,000 who are due took 600 ms, each second until they are judged.
	dueSegments = `
WITH RECURSIVE first AS MATERIALIZED (SELECT client FROM segment_users WHERE due <= $1 ORDER BY due LIMIT $2),
each AS (
	(SELECT client FROM segment_users WHERE due IS NOT NULL AND (SELECT count(*) FROM first) = $2 ORDER BY client LIMIT 1)
	UNION ALL
	SELECT (SELECT u.client FROM segment_users u WHERE u.due IS NOT NULL AND u.client > e.client ORDER BY u.client LIMIT 1)
	FROM each e WHERE e.client IS NOT NULL
)
SELECT client FROM first
UNION
SELECT e.client FROM each e WHERE EXISTS (SELECT FROM segment_users u WHERE u.client = e.client AND u.due <= $1)
UNION
SELECT k.client FROM segment_clocks k WHERE EXISTS (SELECT FROM segment_users u WHERE u.client = k.client AND u.due <= $1 + k.ahead OFFSET 0)`
)

// Waiting returns clients of which time alone may have moved users by a moment.
func (m Model) Waiting(ctx context.Context, now time.Time) ([]id.Client, error) {
	return m.clients(ctx, dueSegments, now, dueRead)
}
