package segments

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/panics"
	"kindred/projections/readmodel"
)

// userChange is what an event changed of a user in the versions that serve: those that the
// user entered, and those that it left, by their numbers in order.
type userChange struct {
	position      eventstore.Position
	user          id.User
	number        int64
	at            time.Time
	entered, went []int32
	erased        bool
}

// flips are the versions that it changes, and whether the user is in them.
func (u userChange) flips() iter.Seq2[int, bool] {
	return func(yield func(version int, in bool) bool) {
		for i, number := range slices.Concat(u.entered, u.went) {
			if !yield(int(number), i < len(u.entered)) {
				return
			}
		}
	}
}

const (
	segmentUserColumns = `u.id, u.number, u.external, u.external_event, u.traits, u.traits_event, u.created_at, u.updated_at, u.versions, u.due`
	segmentUsersOf     = `SELECT ` + segmentUserColumns + ` FROM segment_users u WHERE u.client = $1`
	segmentUsersByID   = segmentUsersOf + ` AND u.id = ANY($2)`
	segmentUsersDue    = segmentUsersOf + ` AND u.due <= $2 ORDER BY u.due, u.number LIMIT $3`
	segmentUsersFrom   = segmentUsersOf + ` AND u.number >= $2 AND u.number < $3 ORDER BY u.number`
)

// read reads users of the client.
func (c *segmented) read(ctx context.Context, sql string, args ...any) ([]*segmentUser, error) {
	rows, err := c.tx.Query(ctx, sql, append([]any{string(c.client)}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read users of segments: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*segmentUser, error) {
		u := &segmentUser{}
		return u, row.Scan(u.columns()...)
	})
	if err != nil {
		return nil, fmt.Errorf("read users of segments: %w", err)
	}
	return found, nil
}

const (
	judgeSteps      = 10 // to begin a judgement
	excludedInAStep = 3  // versions, of which it is seen that there is no need to
)

// openSteps is what it takes to open a user.
func (u *segmentUser) openSteps() int { return 2_000 + 2*len(u.traits.Box) }

// took counts steps; it fails where they are too many for one batch.
func (c *segmented) took(steps int) error {
	c.steps += steps
	return c.spend(steps)
}

// open makes of a user the facts that rules judge; who cannot be opened has none.
func (c *segmented) open(ctx context.Context, u *segmentUser, key seal.WrappedKey) error {
	document, err := c.openTraits(ctx, u, key)
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
func (c *segmented) openTraits(ctx context.Context, u *segmentUser, key seal.WrappedKey) ([]byte, error) {
	if err := c.took(u.openSteps()); err != nil {
		return nil, err
	}
	if u.key == nil {
		s, err := c.Subject(ctx, key, c.client, string(u.id), eventstore.UserStream(c.client, u.id))
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

// flips is what judgements of a transaction change.
type flips struct {
	members members
	changes []userChange
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

// writtenTogether is how many events of users are judged while the database writes what those before
// them changed.
// limit: models | events of users whose changes of segments are written together | {writtenTogether}
const writtenTogether = 250

// applyUsers changes the segments by events of users. Once the users are read, judging asks the
// database nothing.
func (c *segmented) applyUsers(ctx context.Context, events []eventstore.Recorded) error {
	g, err := c.batchOf(ctx, events)
	if err != nil {
		return err
	}
	writing := panics.New()
	for some := range slices.Chunk(events, cmp.Or(c.chunk, writtenTogether)) {
		judged := panics.Caught(func() error { return g.applyAll(ctx, some) })
		if err := cmp.Or(writing.Wait(), judged); err != nil {
			return err
		}
		if err := g.noted.write(ctx, c); err != nil {
			return err
		}
		touched, f := g.take()
		writing = panics.New()
		writing.Go(func() error { return c.write(ctx, touched, f) })
	}
	return writing.Wait()
}

// judgedBatch applies several events of users together.
type judgedBatch struct {
	*segmented
	there   map[id.User]bool         // whether it is, or was erased
	users   map[id.User]*segmentUser // of those to be judged
	keys    map[string]seal.WrappedKey
	opened  *segmentUser // the last: no more than one is in memory
	touched map[id.User]*segmentUser
	flips
	noted
}

func newBatch(c *segmented) *judgedBatch {
	return &judgedBatch{
		segmented: c, there: map[id.User]bool{}, users: map[id.User]*segmentUser{}, touched: map[id.User]*segmentUser{},
		flips: flips{members: members{}}, noted: newNoted(),
	}
}

// batchOf reads the users that events are about. Of users whom no version is to judge it
// reads only whether they are there.
func (c *segmented) batchOf(ctx context.Context, events []eventstore.Recorded) (*judgedBatch, error) {
	g := newBatch(c)
	judged, about := map[string]bool{}, map[string]bool{}
	for _, r := range events {
		user := string(userOf(r.Event))
		about[user] = true
		if strings.HasPrefix(r.Type, "end_user.") || c.readsAny(touched(r.Event)) {
			judged[user] = true
		}
	}
	ids := readmodel.SortedKeys(judged)
	users, err := c.read(ctx, segmentUsersByID, ids)
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		g.users[u.id], g.there[u.id] = u, true
	}
	if len(c.versions) > 0 {
		if g.keys, err = c.keys(ctx, ids); err != nil {
			return nil, err
		}
	}
	if err := c.know(ctx, users); err != nil {
		return nil, err
	}
	maps.DeleteFunc(about, func(user string, _ bool) bool { return judged[user] })
	if err := g.find(ctx, readmodel.SortedKeys(about)); err != nil {
		return nil, err
	}
	return g, g.readActs(ctx, c, events)
}

const segmentUsersThere = `SELECT id FROM segment_users WHERE client = $1 AND id = ANY($2)`

// applyAll applies events.
func (g *judgedBatch) applyAll(ctx context.Context, events []eventstore.Recorded) error {
	for _, r := range events {
		if err := g.advance(ctx, r); err != nil {
			return err
		}
		if err := g.apply(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// take takes the users that were touched, as they are now, and what was changed.
func (g *judgedBatch) take() (touched map[id.User]*segmentUser, f flips) {
	touched, f = g.touched, g.flips
	for user, u := range touched {
		now := *u
		touched[user] = &now
	}
	g.touched, g.flips = map[id.User]*segmentUser{}, flips{members: members{}}
	return touched, f
}

// find says which of some users are there.
func (g *judgedBatch) find(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	rows, _ := g.tx.Query(ctx, segmentUsersThere, string(g.client), ids) // what it fails with, its rows end with
	var user id.User
	_, err := pgx.ForEachRow(rows, []any{readmodel.Text(&user)}, func() error {
		g.there[user] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("find users of segments: %w", err)
	}
	return nil
}

// apply notes what an event says of a user, and judges it by the versions that read that.
func (g *judgedBatch) apply(ctx context.Context, r eventstore.Recorded) (err error) {
	user := userOf(r.Event)
	u := g.users[user]
	var before []byte // its traits; nil: they are not known, or nobody reads them
	switch e := r.Event.(type) {
	case event.EndUserCreated:
		if g.there[user] || u != nil {
			return nil // it stands in the log twice
		}
		u = &segmentUser{id: user, number: g.segmented.users, createdAt: r.RecordedAt, known: newKnown()}
		g.segmented.users++
		g.users[user], g.there[user] = u, true
		if u.external, err = readmodel.SealedOf(r, e.ExternalID); err == nil {
			u.traits, err = readmodel.SealedOf(r, e.Traits)
		}
	case event.EndUserTraitsChanged:
		if !g.there[user] {
			return nil
		}
		if before, err = g.traitsOf(ctx, u); err == nil {
			u.traits, err = readmodel.SealedOf(r, e.Traits)
		}
	case event.EndUserErased:
		if !g.there[user] {
			return nil
		}
		g.there[user], u.erased = false, true
	default:
		if !g.there[user] || !g.noted.note(g.segmented, r, u) || u == nil {
			return nil
		}
		return g.rejudge(ctx, u, r, g.reading(touched(r.Event)))
	}
	if err != nil {
		return err
	}
	u.updatedAt, u.changed, g.touched[user], u.facts = r.RecordedAt, true, u, nil
	if len(g.versions) == 0 {
		return nil
	}
	some := g.ordered
	if before != nil {
		if err := g.openAlone(ctx, u); err != nil {
			return err
		}
		if what, ok := touchedTraits(before, u.document); ok && u.facts != nil {
			some = g.reading(what)
		}
	}
	if err := g.rejudge(ctx, u, r, some); err != nil || !u.erased {
		return err
	}
	g.changes = slices.DeleteFunc(g.changes, func(change userChange) bool {
		if change.user == user {
			g.unsay(g.members, change)
		}
		return change.user == user
	})
	g.changes = append(g.changes, userChange{position: r.Position, user: user, at: g.now, entered: []int32{}, went: []int32{}, erased: true})
	return nil
}

// closeOther forgets the opened traits of the user before, unless it is this one.
func (g *judgedBatch) closeOther(u *segmentUser) {
	if g.opened != nil && g.opened != u {
		g.opened.close()
	}
	g.opened = u
}

// traitsOf are a user's traits before they change.
func (g *judgedBatch) traitsOf(ctx context.Context, u *segmentUser) ([]byte, error) {
	if len(g.versions) == 0 {
		return nil, nil
	}
	if g.closeOther(u); u.facts != nil {
		return u.document, nil
	}
	return g.openTraits(ctx, u, g.keys[string(u.id)])
}

// openAlone opens a user, unless it is open.
func (g *judgedBatch) openAlone(ctx context.Context, u *segmentUser) error {
	if g.closeOther(u); u.facts != nil || u.erased {
		return nil
	}
	return g.open(ctx, u, g.keys[string(u.id)])
}

// rejudge opens a user and judges it by some versions.
func (g *judgedBatch) rejudge(ctx context.Context, u *segmentUser, r eventstore.Recorded, some []*segmentVersion) error {
	if err := g.openAlone(ctx, u); err != nil {
		return err
	}
	g.touched[u.id] = u
	return g.segmented.rejudge(u, some, r.Position, &g.flips)
}

// judgeDue judges the users anew whom time alone may have moved: maxDue at most, and
// until that took so many steps.
func (c *segmented) judgeDue(ctx context.Context, r eventstore.Recorded, steps int) (more bool, err error) {
	c.steps = 0
	for judged := 0; judged < maxDue && c.steps < steps; judged += usersRead {
		due, err := c.read(ctx, segmentUsersDue, c.now, min(usersRead, maxDue-judged))
		if err != nil || len(due) == 0 {
			return false, err
		}
		f := flips{members: members{}}
		touched := map[id.User]*segmentUser{}
		done, err := c.openEach(ctx, due, steps, func(u *segmentUser) error {
			touched[u.id] = u
			return c.rejudge(u, c.ordered, r.Position, &f)
		})
		if err != nil {
			return false, err
		}
		if err := c.write(ctx, touched, f); err != nil || done == len(due) && len(due) < usersRead {
			return false, err
		}
	}
	return true, nil
}

// usersRead is how many users are read at a time to be judged. Their traits, of 256 KiB
// each at most, are opened one by one.
// limit: models | users that are read at a time to be judged by rules | {usersRead}
const usersRead = 100

// openEach opens users, one after the other: no more than one is in memory as it is
// judged. It ends early, after at least one, once so many steps were taken.
func (c *segmented) openEach(ctx context.Context, users []*segmentUser, steps int, judge func(*segmentUser) error) (done int, err error) {
	keys, err := c.keys(ctx, readmodel.Column(users, func(u *segmentUser) string { return string(u.id) }))
	if err != nil {
		return 0, err
	}
	if err := c.know(ctx, users); err != nil {
		return 0, err
	}
	for _, u := range users {
		if err := c.open(ctx, u, keys[string(u.id)]); err != nil {
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

// New rules judge users slice by slice. While a slice is judged, the client's own events
// wait, and so do other clients' slices.
const (
	// limit: models | users that a new rule judges at a time | {buildSlice}
	buildSlice = 500
	// limit: models | steps of a new rule for one slice of users | {buildSteps}
	buildSteps = 2_000_000
)

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
		if built := c.versions[number].built; built == from {
			building[number] = true
		} else {
			upTo = min(upTo, built)
		}
	}
	upTo = min(upTo, from+buildSlice)
	some := slices.DeleteFunc(slices.Clone(c.ordered), func(v *segmentVersion) bool { return !building[v.number] })
	all := c.wanted
	c.wanted = c.wants(some)
	defer func() { c.wanted = all }()
	f, touched := flips{members: members{}}, map[id.User]*segmentUser{}
	for from < upTo && c.steps < steps {
		if from, err = c.buildSome(ctx, building, some, from, min(from+usersRead, upTo), steps, touched, &f); err != nil {
			return false, err
		}
	}
	if err := c.write(ctx, touched, f); err != nil {
		return false, err
	}
	advanced := slices.Sorted(maps.Keys(building))
	for _, number := range advanced {
		c.versions[number].built = from
	}
	return true, readmodel.Do(ctx, c.tx, "note how far versions are built", noteBuilt, string(c.client), advanced, from)
}

// buildSome judges the users with numbers from one to another by versions that do not serve
// yet, and returns the number to go on with. It notes the users that this touches, without
// their traits.
func (c *segmented) buildSome(ctx context.Context, building map[int]bool, some []*segmentVersion, from, upTo int64, steps int,
	touched map[id.User]*segmentUser, f *flips,
) (next int64, err error) {
	users, err := c.read(ctx, segmentUsersFrom, from, upTo)
	if err != nil {
		return from, err
	}
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
		touched[u.id] = &segmentUser{id: u.id, versions: u.versions, due: u.due}
		return nil
	})
	if err != nil {
		return from, err
	}
	if done < len(users) {
		upTo = users[done].number
	}
	return upTo, nil
}

const (
	noteBuilt         = `UPDATE segment_versions SET built = $3 WHERE client = $1 AND number = ANY($2)`
	eraseSegmentUsers = `DELETE FROM segment_users WHERE client = $1 AND id = ANY($2)`
	eraseChangesOf    = `DELETE FROM segment_changes WHERE client = $1 AND user_id = ANY($2) RETURNING position, coalesce(number, 0), entered, went`
	insertSegmentUser = `
INSERT INTO segment_users (client, id, number, external, external_event, traits, traits_event, created_at, updated_at, versions, due)
SELECT n.client, n.id, n.number, n.external, n.external_event, n.traits, n.traits_event, n.created_at, n.updated_at, n.versions::int[], n.due
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::timestamptz[], $9::timestamptz[], $10::text[], $11::timestamptz[])
	AS n (client, id, number, external, external_event, traits, traits_event, created_at, updated_at, versions, due)
ON CONFLICT (client, id) DO UPDATE SET traits = excluded.traits, traits_event = excluded.traits_event,
	updated_at = excluded.updated_at, versions = excluded.versions, due = excluded.due`
	updateJudged = `
UPDATE segment_users u SET versions = n.versions::int[], due = n.due
FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS n (id, versions, due) WHERE u.client = $1 AND u.id = n.id`
)

var changeColumns = []string{"client", "position", "user_id", "number", "changed_at", "entered", "went", "erased"}

// write writes users as they were judged, and what that changed.
func (c *segmented) write(ctx context.Context, touched map[id.User]*segmentUser, f flips) error {
	var kept, judged []*segmentUser
	var gone []string
	var numbers []int64 // of these
	for _, user := range readmodel.SortedKeys(touched) {
		switch u := touched[user]; {
		case u.erased:
			gone, numbers = append(gone, string(user)), append(numbers, u.number)
		case u.changed:
			kept = append(kept, u)
		default:
			judged = append(judged, u)
		}
	}
	client := string(c.client)
	if len(gone) > 0 {
		if err := readmodel.Do(ctx, c.tx, "erase users of segments", eraseSegmentUsers, client, gone); err != nil {
			return err
		}
		if err := c.eraseChanges(ctx, gone, f.members); err != nil {
			return err
		}
		if err := c.eraseDeltas(ctx, numbers, f.members); err != nil {
			return err
		}
		for _, sql := range eraseKnown {
			if err := readmodel.Do(ctx, c.tx, "erase what is known of users", sql, client, gone); err != nil {
				return err
			}
		}
	}
	of := slices.Repeat([]string{client}, len(kept))
	if err := writeUsers(ctx, c.tx, of, kept); err != nil {
		return err
	}
	if len(judged) > 0 {
		if err := readmodel.Do(ctx, c.tx, "write judgements of users", updateJudged, client,
			readmodel.Column(judged, func(u *segmentUser) string { return string(u.id) }),
			readmodel.Column(judged, func(u *segmentUser) string { return intArray(u.versions) }),
			readmodel.Column(judged, func(u *segmentUser) *time.Time { return u.due }),
		); err != nil {
			return err
		}
	}
	if len(f.changes) > 0 {
		if _, err := c.tx.CopyFrom(ctx, pgx.Identifier{"segment_changes"}, changeColumns, pgx.CopyFromSlice(len(f.changes), func(i int) ([]any, error) {
			u := f.changes[i]
			var number *int64
			if !u.erased {
				number = &u.number
			}
			return []any{client, string(u.position), string(u.user), number, u.at, u.entered, u.went, u.erased}, nil
		})); err != nil {
			return fmt.Errorf("write changes of segments: %w", err)
		}
	}
	return c.writeMembers(ctx, f.members)
}

// writeUsers writes users, of a client each.
func writeUsers(ctx context.Context, tx pgx.Tx, of []string, users []*segmentUser) error {
	if len(users) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "write users of segments", insertSegmentUser, of,
		readmodel.Column(users, func(u *segmentUser) string { return string(u.id) }),
		readmodel.Column(users, func(u *segmentUser) int64 { return u.number }),
		readmodel.Column(users, func(u *segmentUser) []byte { return u.external.Box }),
		readmodel.Column(users, func(u *segmentUser) string { return string(u.external.Event) }),
		readmodel.Column(users, func(u *segmentUser) []byte { return u.traits.Box }),
		readmodel.Column(users, func(u *segmentUser) string { return string(u.traits.Event) }),
		readmodel.Column(users, func(u *segmentUser) time.Time { return u.createdAt }),
		readmodel.Column(users, func(u *segmentUser) time.Time { return u.updatedAt }),
		readmodel.Column(users, func(u *segmentUser) string { return intArray(u.versions) }),
		readmodel.Column(users, func(u *segmentUser) *time.Time { return u.due }),
	)
}

// eraseChanges takes out what changed of users, and out of the blocks what they said before it.
func (c *segmented) eraseChanges(ctx context.Context, users []string, of members) error {
	rows, _ := c.tx.Query(ctx, eraseChangesOf, string(c.client), users) // what it fails with, its rows end with
	var u userChange
	_, err := pgx.ForEachRow(rows, []any{readmodel.Text(&u.position), &u.number, &u.entered, &u.went}, func() error {
		if u.position > c.folded {
			c.unsay(of, u)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("erase changes of segments: %w", err)
	}
	return nil
}

// intArray writes an array as Postgres reads it: arrays of arrays have no unnest.
func intArray(numbers []int32) string {
	b := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}

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
