package segments

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Change is a user that entered or left a segment, or was erased.
type Change struct {
	User       id.User
	ExternalID string // empty where the user was erased since
	Change     string // entered, left or erased
	At         time.Time
	Place      eventstore.Position // in the list of changes
}

// changesRead is how many changes of all segments are looked through for a page of one's.
// limit: requests | changes of all segments that are looked through for a page of one's | {changesRead} | it ends, with `has_more`
const changesRead = 20_000

// What happens to a user in a segment.
const (
	entered = "entered"
	left    = "left"
	erased  = "erased"
)

// told is SQL that is true of a change c that a version v tells.
const told = `(c.erased OR v.number = ANY(c.entered) OR v.number = ANY(c.went))`

// segmentChanges reads the changes of a segment and, where there may be more, the last
// change that was looked through.
func segmentChanges(beyond, order string) string {
	return `
SELECT c.user_id, CASE WHEN NOT ` + told + ` THEN '' WHEN c.erased THEN '` + erased + `' WHEN v.number = ANY(c.entered) THEN '` + entered + `' ELSE '` + left + `' END,
	c.changed_at, c.position || '/' || c.user_id, c.nth = $6, s.changes_from
FROM segment_versions v JOIN segments s ON s.client = v.client AND s.id = v.segment CROSS JOIN (
	SELECT *, row_number() OVER (ORDER BY position ` + order + `, user_id ` + order + `) AS nth FROM segment_changes
	WHERE client = $1 AND ` + beyond + ` ORDER BY position ` + order + `, user_id ` + order + ` LIMIT $6) c
WHERE v.client = $1 AND v.segment = $2 AND v.serves AND c.position >= s.changes_from AND (` + told + ` OR c.nth = $6)
ORDER BY c.position ` + order + `, c.user_id ` + order + ` LIMIT $5`
}

var (
	segmentChangesAfter  = segmentChanges(`(position, user_id) > ($3, $4)`, "")
	segmentChangesBefore = segmentChanges(`($3 = '' OR (position, user_id) < ($3, $4))`, "DESC")
)

// Changes returns what changed in a segment after a place, in order or the newest first. It
// also returns whether there may be more, and the place to go on from. A place comes from
// Members or from Changes; without one it begins with the oldest change that is kept. It
// fails with a fault of kind Gone where changes after the place are not told any more: it
// is too long ago, or another rule has replaced the one of then.
// Faults: building, cursor_expired, overloaded, quarantined, segment_building, segment_unknown, stale.
func (m Model) Changes(ctx context.Context, client id.Client, eventual bool, segment id.Segment, newest bool, page readmodel.Page) (
	found []Change, more bool, next eventstore.Position, err error,
) {
	s, err := m.progress(ctx, client, eventual, segment)
	if err != nil {
		return nil, false, "", err
	}
	if next = page.After; next == eventstore.Start {
		next = s.from + "/"
	}
	position, user, _ := strings.Cut(string(next), "/")
	sql := segmentChangesAfter
	if newest {
		if sql = segmentChangesBefore; page.After == eventstore.Start {
			position = ""
		}
	}
	expired := func(from eventstore.Position) bool { return page.After != eventstore.Start && position < string(from) }
	if expired(s.from) {
		return nil, false, "", errCursorExpired()
	}
	type row struct {
		told Change
		end  bool                // of what is looked through
		from eventstore.Position // since when changes are told: another rule may count since s was read
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, sql, []any{string(segment), position, user, page.Limit + 1, changesRead},
		func(r *row) []any {
			return []any{readmodel.Text(&r.told.User), &r.told.Change, &r.told.At, readmodel.Text(&r.told.Place), &r.end, readmodel.Text(&r.from)}
		})
	if err == nil && len(rows) > 0 && expired(rows[0].from) {
		err = errCursorExpired()
	}
	if err != nil {
		return nil, false, "", err
	}
	if len(rows) == 0 && !newest {
		next = max(next, s.reached+afterAll)
	}
	for _, r := range rows {
		if more = len(found) == page.Limit; more {
			break
		}
		if next, more = r.told.Place, r.end; r.told.Change != "" {
			found = append(found, r.told)
		}
	}
	users, err := m.named(ctx, client, usersNamed, readmodel.Column(found, func(c Change) string { return string(c.User) }))
	names := make(map[id.User]string, len(users))
	for _, u := range users {
		names[u.User] = u.ExternalID
	}
	for i := range found {
		found[i].ExternalID = names[found[i].User]
	}
	return found, more, next, err
}

func errCursorExpired() error {
	return fault.New(fault.Gone, "cursor_expired",
		"Changes from there on are not told any more: they are 30 days old, or another rule counts since. Read the members again.")
}

// ChangesAfter asks whether there are changes of a segment behind a place.
type ChangesAfter struct {
	Client  id.Client
	Segment id.Segment
	After   eventstore.Position
}

// segmentsChanged also says yes of a segment that is not there, or whose changes begin
// anew.
const segmentsChanged = `
SELECT v.number IS NULL OR s.changes_from > w.position
	OR EXISTS (SELECT FROM segment_changes c WHERE c.client = w.client AND (c.position, c.user_id) > (w.position, w.after) AND ` + told + `),
	(SELECT c.position || '/' || c.user_id FROM segment_changes c WHERE c.client = w.client ORDER BY c.position DESC, c.user_id DESC LIMIT 1)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS w (client, segment, position, after, i)
LEFT JOIN segments s ON s.client = w.client AND s.id = w.segment
LEFT JOIN segment_versions v ON v.client = w.client AND v.segment = w.segment AND v.serves
ORDER BY w.i`

// Looked says whether there are changes of a segment to be read; if not, up to which place
// there are none.
type Looked struct {
	Changed bool
	UpTo    eventstore.Position
}

// Changed says of each of some segments whether reading its changes would tell something.
func (m Model) Changed(ctx context.Context, asked []ChangesAfter) ([]Looked, error) {
	positions, users := make([]string, len(asked)), make([]string, len(asked))
	for i, a := range asked {
		positions[i], users[i], _ = strings.Cut(string(a.After), "/")
	}
	rows, _ := m.Pool.Query(ctx, segmentsChanged, readmodel.Column(asked, func(a ChangesAfter) string { return string(a.Client) }), // what it fails with, its rows end with
		readmodel.Column(asked, func(a ChangesAfter) string { return string(a.Segment) }), positions, users)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Looked, err error) {
		return l, row.Scan(&l.Changed, readmodel.Text(&l.UpTo))
	})
}
