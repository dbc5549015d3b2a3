package segments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

const (
	segmentUserColumns = `u.id, u.number, u.external, u.external_event, u.traits, u.traits_event, u.created_at, u.updated_at, u.versions, u.due`
	segmentUsersByID   = `SELECT ` + segmentUserColumns + ` FROM segment_users u WHERE u.client = $1 AND u.id = ANY($2)`
	openableColumns    = segmentUserColumns + `, k.id AS key, k.client_key, k.wrapped`
)

var (
	openableUsers     = `SELECT ` + openableColumns + ` FROM segment_users u` + readmodel.JoinKey(`$1`) + ` WHERE u.client = $1`
	openableUsersByID = openableUsers + ` AND u.id = ANY($2)`
	openableUsersDue  = openableUsers + ` AND (u.due, u.number) > ($2, $3) AND (u.due, u.number) <= ($4, $5) ORDER BY u.due, u.number LIMIT $6`
	openableUsersFrom = openableUsers + ` AND u.number >= $2 AND u.number < $3 ORDER BY u.number`
)

// read reads users of the client.
func (c *segmented) read(ctx context.Context, columns func(*segmentUser) []any, sql string, args ...any) (found []*segmentUser, err error) {
	var u segmentUser
	err = c.each(ctx, "read users of segments", columns(&u), func() {
		one := u
		found = append(found, &one)
	}, sql, args...)
	return found, err
}

const (
	openSteps       = 2_000 // to open a user, and two for each byte of its traits
	judgeSteps      = 10    // to begin a judgement
	excludedInAStep = 3     // versions, of which it is seen that there is no need to
)

// openSteps is what it takes to open a user.
func (u *segmentUser) openSteps() int { return openSteps + 2*len(u.traits.Box) }

// took counts steps; it fails where they are too many for one batch.
func (c *segmented) took(steps int) error {
	c.steps += steps
	return c.spend(steps)
}

// open makes of a user the facts that rules judge; who cannot be opened has none.
func (c *segmented) open(ctx context.Context, u *segmentUser) error {
	document, err := c.openTraits(ctx, u)
	if err != nil || u.key.Gone {
		return err
	}
	var external []byte
	if !c.unnamed {
		if external, err = u.key.Open("external_id", u.external); err != nil {
			return err
		}
	}
	u.document = document
	u.facts, err = factsOf(c.client, u, external, document, c.wanted)
	return err
}

// openTraits opens the traits of a user; nil where they cannot be opened.
func (c *segmented) openTraits(ctx context.Context, u *segmentUser) ([]byte, error) {
	if err := c.took(u.openSteps()); err != nil {
		return nil, err
	}
	if u.key == nil {
		s, err := c.Subject(ctx, u.wrapped, c.client, string(u.id), eventstore.UserStream(c.client, u.id))
		if err != nil {
			return nil, projector.Transient(err) // the keys are out of reach, not wrong
		}
		u.key = &s
	}
	return u.key.Open("traits", u.traits)
}

// close forgets what was opened of a user.
func (u *segmentUser) close() { u.key, u.document, u.facts = nil, nil, nil }

// factsOf are what rules judge a user by. Of its traits those members are decoded that are
// wanted; nil: all.
func factsOf(client id.Client, u *segmentUser, external, document []byte, wanted func(member string) bool) (*rule.Facts, error) {
	facts := &rule.Facts{
		ExternalID: string(external), CreatedAt: u.createdAt, UpdatedAt: u.updatedAt, Client: string(client), ID: string(u.id),
	}
	var err error
	switch {
	case document == nil:
	case wanted == nil:
		facts.Traits, err = traits.All(document)
	default:
		facts.Traits, err = traits.Members(document, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("read the traits of a user: %w", err)
	}
	return facts, nil
}

// judge returns which of some versions name a user, and until when time alone changes
// nothing of that; nil: for ever.
func (c *segmented) judge(u *segmentUser, some []*segmentVersion) (in []int32, due *time.Time, err error) {
	if u.facts == nil || u.erased {
		return nil, nil, nil
	}
	facts := u.known.facts(*u.facts)
	facts.Now = c.now
	if err := c.took(c.set.Next(&facts) + len(some)/excludedInAStep); err != nil {
		return nil, nil, err
	}
	referred := map[int]bool{} // versions that others refer to, once they are judged
	var names func(v *segmentVersion) bool
	names = func(v *segmentVersion) bool {
		if v.rule == nil || v.inSet.Excluded() || v.isBlocked() || v.layer != "" && !u.known.granted[v.layer] {
			return false
		}
		of := &facts
		if len(v.refers) > 0 || v.layer != "" {
			its := facts
			its.InCluster = u.known.inCluster(v.layer)
			its.InSegment = func(segment string) bool {
				to := c.referred(v, id.Segment(segment))
				if to == nil {
					return false
				}
				if _, done := referred[to.number]; !done {
					referred[to.number] = names(to)
				}
				return referred[to.number]
			}
			of = &its
		}
		truth, until, steps := v.inSet.JudgeUntil(of)
		err = cmp.Or(err, c.took(judgeSteps+steps))
		if !until.IsZero() && (due == nil || until.Before(*due)) {
			at := until.Add(time.Microsecond - 1).Truncate(time.Microsecond) // the table has no finer ones, and who is due too early stays due
			due = &at
		}
		return truth == rule.True
	}
	for _, v := range some {
		if names(v) {
			in = append(in, int32(v.number))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return in, due, nil
}

// rejudge judges a user by some of the versions, and notes what that changes, at a
// position. What the other versions found before still holds, and so does the time at which
// they are due.
func (c *segmented) rejudge(u *segmentUser, some []*segmentVersion, at eventstore.Position, f *flips) error {
	before, stands := u.versions, u.due
	in, due, err := c.judge(u, some)
	if err != nil {
		return err
	}
	for _, number := range before {
		_, judged := slices.BinarySearchFunc(some, int(number), func(v *segmentVersion, number int) int { return cmp.Compare(v.number, number) })
		if !judged && c.versions[int(number)] != nil {
			in = append(in, number)
		}
	}
	slices.Sort(in)
	u.versions, u.due = in, due
	if len(some) < len(c.ordered) && stands != nil && (due == nil || stands.Before(*due)) {
		u.due = stands
	}
	change := userChange{position: at, user: u.id, number: u.number, at: c.now, entered: []int32{}, went: []int32{}}
	note := func(number int32, in bool, told *[]int32) {
		switch v := c.versions[int(number)]; {
		case v == nil:
		case v.serves && !u.erased:
			*told = append(*told, number)
		default:
			f.members.set(v.number, u.number, in)
		}
	}
	for _, number := range before {
		if _, still := slices.BinarySearch(u.versions, number); !still {
			note(number, false, &change.went)
		}
	}
	for _, number := range u.versions {
		if _, was := slices.BinarySearch(before, number); !was {
			note(number, true, &change.entered)
		}
	}
	if len(change.entered)+len(change.went) > 0 {
		f.changes = append(f.changes, change)
	}
	return nil
}

// usersRead is how many users are read at a time to be judged. Their traits, of 256 KiB
// each at most, are opened one by one.
// limit: models | users that are read at a time to be judged by rules | {usersRead}
const usersRead = 100

// readToJudge reads users with all that judging them takes, and asks the database for nothing more.
func (c *segmented) readToJudge(ctx context.Context, sql string, args ...any) ([]*segmentUser, error) {
	users, err := c.read(ctx, (*segmentUser).openable, sql, args...)
	if err != nil {
		return nil, err
	}
	return users, c.know(ctx, users)
}

// rejudgeRead judges users that were read by some of the versions, and writes what that changes.
func (c *segmented) rejudgeRead(ctx context.Context, users []*segmentUser, some []*segmentVersion, at eventstore.Position) error {
	f := flips{members: members{}}
	judged := map[id.User]*segmentUser{}
	if _, err := c.openEach(ctx, users, unbounded, func(u *segmentUser) error {
		judged[u.id] = u
		return c.rejudge(u, some, at, &f)
	}); err != nil {
		return err
	}
	return c.write(ctx, judged, f)
}

// openEach opens users, one after the other: no more than one is in memory as it is
// judged. It ends early, after at least one, once so many steps were taken.
func (c *segmented) openEach(ctx context.Context, users []*segmentUser, steps int, judge func(*segmentUser) error) (done int, err error) {
	for _, u := range users {
		if err := c.open(ctx, u); err != nil {
			return done, err
		}
		if err := judge(u); err != nil {
			return done, err
		}
		u.close()
		if done++; c.steps >= steps {
			break
		}
	}
	return done, nil
}
