package segments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/panics"
	"kindred/projections/readmodel"
)

const (
	clientsSwept     = 1_000 // at a time
	buildingSegments = `SELECT DISTINCT client FROM segment_versions WHERE NOT serves`
	restoredClients  = `SELECT DISTINCT client FROM segment_versions v WHERE ` + isRestored
	isRestored       = `v.serves AND v.blocked = '{}'
	AND NOT EXISTS (SELECT FROM segment_versions n WHERE n.client = v.client AND n.segment = v.segment AND NOT n.serves)`
)

// Building returns clients of which a rule has not judged everyone yet.
func (m Model) Building(ctx context.Context) ([]id.Client, error) {
	return m.clients(ctx, buildingSegments)
}

var restoredSegments = segmentColumns(membersOfOne) + fromSegments + ` AND EXISTS (SELECT FROM segment_versions v
WHERE v.client = s.client AND v.segment = s.id AND ` + isRestored + `) ORDER BY s.created_position LIMIT 1`

// Restored returns clients of which a segment is not blocked any more, and is to be built
// anew.
func (m Model) Restored(ctx context.Context) ([]id.Client, error) {
	return m.clients(ctx, restoredClients)
}

// RestoredOf returns such a segment of a client, as the model stands: others' rules are not to wait for what
// this client has written since. ok is false where there is none.
// Faults: building, overloaded, quarantined, stale.
func (m Model) RestoredOf(ctx context.Context, client id.Client) (segment id.Segment, text string, changed eventstore.Revision, ok bool, err error) {
	stored, err := readmodel.Query(ctx, m.Reader, m, client, true, restoredSegments, nil, (*storedSegment).columns)
	if err != nil || len(stored) == 0 {
		return "", "", 0, false, err
	}
	found, err := m.opened(ctx, client, stored)
	if err != nil {
		return "", "", 0, false, err
	}
	return found[0].ID, found[0].Rule, found[0].Changed, found[0].Rule != "", nil
}

// clients are those that a statement finds, but for those whose part of the model stands still, or is
// being replaced: what is recorded of them changes nothing there, and would be recorded over and over.
func (m Model) clients(ctx context.Context, sql string, args ...any) ([]id.Client, error) {
	sql = fmt.Sprintf(`
SELECT c.client FROM (%s) c
WHERE NOT EXISTS (SELECT FROM quarantine q WHERE q.projection = $%d AND q.client = c.client AND NOT q.slow) LIMIT $%d`, sql, len(args)+1, len(args)+2)
	return readmodel.OfAll(ctx, m.Reader, pgx.RowTo[id.Client], sql, append(args, projector.ID(m), clientsSwept)...)
}

// A slice that is lost with its commit is judged again, so none waits for the disk.
const beginSlice = `BEGIN; SET LOCAL synchronous_commit TO off`

// Build judges a slice of a client's users by the rules that do not count yet. Once
// all have been, ready is the revision that made the newest of these rules; else it is
// below 0.
func (m Model) Build(ctx context.Context, client id.Client) (more bool, ready int64, err error) {
	ready = -1
	err = pgx.BeginTxFunc(ctx, m.Pool, pgx.TxOptions{BeginQuery: beginSlice}, func(tx pgx.Tx) error {
		c, err := m.lock(ctx, tx, client, freely, true)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		made := c.numbers(func(v *segmentVersion) bool { return !v.serves })
		if len(made) == 0 {
			return nil
		}
		if more, err = c.build(ctx, c.numbers(c.judges(made)), buildSteps); more || err != nil {
			return err
		}
		ready = slices.Max(readmodel.Column(made, func(number int) int64 { return c.versions[number].generation }))
		return nil
	})
	return more, ready, err
}

// New rules judge users slice by slice. While a slice is judged, the client's own events
// wait, and so do other clients' slices.
const (
	// limit: models | users that a new rule judges at a time | {buildSlice}
	buildSlice = 2_000
	// limit: models | steps of a new rule for one slice of users | {buildSteps}
	buildSteps = 6_000_000
	// limit: models | users that a new rule reads at a time, fewer where their traits are large | {buildRead}
	buildRead   = 500
	buildBegins = 50 // how large their traits are is not known yet
	// limit: models | new rules that are parsed for one slice of users, or one with those that it refers to | {buildParses B}
	buildParses = 32 << 10 // bytes
)

// toBuild are the versions of the next slice: of those that do not serve yet and are least far, as many as
// are quickly parsed, and what these refer to. To parse 4 KiB takes some 10 ms, and a thousand such rules are
// more than are kept ready, so they would be parsed for each slice while other clients' rules wait.
func (c *segmented) toBuild() []*segmentVersion {
	var next []*segmentVersion
	least := c.users
	for _, v := range c.ordered {
		switch {
		case v.serves || v.isBlocked() || v.built > least:
		case v.built < least:
			least, next = v.built, []*segmentVersion{v}
		case v.built < c.users:
			next = append(next, v)
		}
	}
	reached, size := make([]bool, len(c.ordered)), 0
	for _, v := range next {
		if size >= buildParses {
			break
		}
		for place, is := range c.reached([]*segmentVersion{v}, c.referredBy) {
			if of := c.ordered[place]; is && !reached[place] {
				if reached[place] = true; c.known(of.sealed.Event) == nil {
					size += len(of.sealed.Box)
				}
			}
		}
	}
	return slices.DeleteFunc(next, func(v *segmentVersion) bool { return !reached[v.place] })
}

const noteBuilt = `UPDATE segment_versions SET built = $3 WHERE client = $1 AND number = ANY($2)`

// build judges a slice of the users by those versions that do not serve yet and are least
// far, until that took so many steps. more is false once all versions have judged everyone.
func (c *segmented) build(ctx context.Context, numbers []int, steps int) (more bool, err error) {
	c.steps = 0
	from, upTo := c.users, c.users
	for _, number := range numbers {
		from = min(from, c.versions[number].built)
	}
	if from == c.users {
		return false, nil
	}
	building := map[int]bool{}
	for _, number := range numbers {
		v := c.versions[number]
		switch {
		case v.built > from:
			upTo = min(upTo, v.built)
		case !c.builds || slices.Contains(c.building, v):
			building[number] = true
		}
	}
	upTo = min(upTo, from+buildSlice)
	some := slices.DeleteFunc(slices.Clone(c.ordered), func(v *segmentVersion) bool { return !building[v.number] })
	all := c.wanted
	c.wanted = c.wants(some)
	defer func() { c.wanted = all }()
	f := flips{members: members{}}
	var judged []*segmentUser // and not written yet
	read := min(from+buildBegins, upTo)
	next, err := c.readToJudge(ctx, openableUsersFrom, from, read)
	for err == nil && from < upTo && c.steps < steps {
		users, before, end := next, judged, read
		read = min(end+buildReads(users, steps-c.steps), upTo)
		beside := panics.New()
		beside.Go(func() (err error) {
			if err = c.writeJudged(ctx, before); err == nil {
				next, err = c.readToJudge(ctx, openableUsersFrom, end, read)
			}
			return err
		})
		err = panics.Caught(func() (err error) {
			from, judged, err = c.buildSome(ctx, building, some, users, end, steps, &f)
			return err
		})
		err = cmp.Or(beside.Wait(), err)
	}
	if err == nil {
		err = c.writeJudged(ctx, judged)
	}
	if err == nil {
		err = c.writeMembers(ctx, f.members)
	}
	if err != nil {
		return false, err
	}
	advanced := slices.Sorted(maps.Keys(building))
	for _, number := range advanced {
		c.versions[number].built = from
	}
	return true, readmodel.Do(ctx, c.tx, "note how far versions are built", noteBuilt, string(c.client), advanced, from)
}

// buildReads is how many users to read next: some, of whom no more are likely to be judged by so many
// steps, once those who were read before are.
func buildReads(before []*segmentUser, steps int) int64 {
	opened := 0
	for _, u := range before {
		opened += u.openSteps()
	}
	if opened == 0 {
		return buildRead
	}
	left := min(steps-opened, buildRead*opened) // more would make no difference, and unbounded times some overflows
	return int64(max(1, min(buildRead, left*len(before)/opened)))
}

// buildSome judges users, with numbers below end, by versions that do not serve yet, and returns
// the number to go on with and those whom this changes, without their traits.
func (c *segmented) buildSome(ctx context.Context, building map[int]bool, some []*segmentVersion, users []*segmentUser, end int64, steps int,
	f *flips,
) (next int64, judged []*segmentUser, err error) {
	done, err := c.openEach(ctx, users, steps, func(u *segmentUser) error {
		in, due, err := c.judge(u, some)
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(u.versions), func(number int32) bool { return building[int(number)] || c.versions[int(number)] == nil })
		for number := range building {
			_, was := slices.BinarySearch(u.versions, int32(number))
			if _, is := slices.BinarySearch(in, int32(number)); is != was {
				f.members.set(number, u.number, is)
			}
		}
		if due != nil && (u.due == nil || due.Before(*u.due)) {
			u.due = due
		} else if len(in) == 0 && len(kept) == len(u.versions) {
			return nil // nothing of the user changes
		}
		u.versions = append(kept, in...)
		slices.Sort(u.versions)
		judged = append(judged, &segmentUser{number: u.number, versions: u.versions, due: u.due})
		return nil
	})
	if done < len(users) {
		end = users[done].number
	}
	return end, judged, err
}
