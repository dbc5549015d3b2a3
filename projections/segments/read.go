package segments

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/splitmix"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Segment is a group of users by rule.
type Segment struct {
	ID              id.Segment
	Name            string
	Rule            string // the newest
	Ready           bool   // there are members: those by Rule, unless it is Building
	Building        bool   // users are being judged by Rule
	Layer           id.ConsentLayer
	Blocked         bool // Rule names nobody, since it reads what it may not
	BlockedBy       []BlockedBy
	Members         int
	Changed         eventstore.Revision // of the event that changed it last
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
}

// BlockedBy is why a segment names nobody.
type BlockedBy struct{ Cause, Name string }

const (
	servesSegment  = `EXISTS (SELECT FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND v.serves) AS ready`
	definedColumns = `s.id, s.name, s.rule, s.rule_event, k.id AS key, k.client_key, k.wrapped`
)

// segmentColumns selects the columns of segments; counted is SQL for how many members a
// version has.
func segmentColumns(counted string) string {
	return `
SELECT ` + definedColumns + `, s.changed, s.created_at, s.updated_at, s.created_position,
	coalesce((SELECT ` + counted + ` FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND v.serves), 0) AS members,
	` + servesSegment + `,
	EXISTS (SELECT FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND NOT v.serves) AS building,
	s.layer, (SELECT v.blocked FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id ORDER BY v.serves LIMIT 1) AS blocked`
}

// Each statement also reads the keys of the segments that it finds.
var (
	fromSegments   = ` FROM segments s` + readmodel.JoinKeyOf(`$1`, `s.id`) + ` WHERE s.client = $1`
	listSegments   = unfolded + segmentColumns(membersOf) + fromSegments + ` AND s.created_position > $2 ORDER BY s.created_position LIMIT $3`
	getSegment     = segmentColumns(membersOfOne) + fromSegments + ` AND s.id = $2`
	segmentsOfUser = `SELECT s.id, s.name, v.rule, v.rule_event, k.id AS key, k.client_key, k.wrapped, v.layer
FROM segments s JOIN segment_versions v ON v.client = s.client AND v.segment = s.id AND v.serves` + readmodel.JoinKeyOf(`$1`, `s.id`) + `
WHERE s.client = $1 AND v.number = ANY($2) ORDER BY s.created_position`
)

type storedSegment struct {
	Segment
	rule    readmodel.Sealed
	key     seal.WrappedKey
	blocked []string
}

// basics are what a segment is called and whom it names.
func (s *storedSegment) basics() []any {
	return []any{readmodel.Text(&s.ID), &s.Name, &s.rule.Box, readmodel.Text(&s.rule.Event), readmodel.Text(&s.key.ID), readmodel.Text(&s.key.Under), &s.key.Wrapped}
}

func (s *storedSegment) columns() []any {
	return append(s.basics(), &s.Changed, &s.CreatedAt, &s.UpdatedAt, readmodel.Text(&s.CreatedPosition), &s.Members, &s.Ready, &s.Building, readmodel.Text(&s.Layer), &s.blocked)
}

// opened opens the rules of segments.
func (m Model) opened(ctx context.Context, client id.Client, stored []storedSegment) ([]Segment, error) {
	segments := make([]Segment, len(stored))
	for i, s := range stored {
		text, err := m.Open(ctx, s.key, string(s.ID), s.rule, client, eventstore.SegmentsStream(client), "rule")
		if err != nil {
			return nil, err
		}
		segments[i] = s.Segment
		segments[i].Rule = string(text)
		segments[i].Blocked = len(s.blocked) > 0
		segments[i].Building = s.Building || s.blocked != nil && !segments[i].Blocked // it is about to be
		for _, why := range s.blocked {
			cause, name, _ := strings.Cut(why, " ")
			segments[i].BlockedBy = append(segments[i].BlockedBy, BlockedBy{cause, name})
		}
	}
	return segments, nil
}

// List returns a page of segments.
// Faults: building, quarantined, stale.
func (m Model) List(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Segment, error) {
	stored, err := readmodel.Query(ctx, m.Reader, m, client, eventual, listSegments, []any{string(page.After), page.Limit}, (*storedSegment).columns)
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, client, stored)
}

func errSegmentUnknown() *fault.Fault {
	return fault.New(fault.Missing, "segment_unknown", "There is no such segment.")
}

func errSegmentBuilding() error {
	return fault.New(fault.Unavailable, "segment_building", "The users are being judged by the segment's rule. Please try again soon.").After(time.Second)
}

// Get returns a segment, or fails with a fault of kind Missing.
// Faults: building, quarantined, segment_unknown, stale.
func (m Model) Get(ctx context.Context, client id.Client, eventual bool, segment id.Segment) (Segment, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getSegment, []any{string(segment)}, (*storedSegment).columns)
	stored, err := readmodel.Only(found, err, errSegmentUnknown())
	if err != nil {
		return Segment{}, err
	}
	opened, err := m.opened(ctx, client, []storedSegment{stored})
	if err != nil {
		return Segment{}, err
	}
	return opened[0], nil
}

// segmentProgress is how far a segment has come, for a follower of it.
type segmentProgress struct {
	ready   bool
	from    eventstore.Position // changes are told from here on
	reached eventstore.Position // how far the client's part of the model has come
}

// A client that is applied in slices, or whose part is being replaced, is behind the model.
const segmentProgressed = `SELECT ` + servesSegment + `, s.changes_from, (SELECT reached FROM fresh) AS reached
FROM segments s WHERE s.client = $1 AND s.id = $2`

// progress returns how far a segment has come that has members.
func (m Model) progress(ctx context.Context, client id.Client, eventual bool, segment id.Segment) (segmentProgress, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, segmentProgressed, []any{string(segment)}, func(s *segmentProgress) []any {
		return []any{&s.ready, readmodel.Text(&s.from), readmodel.Text(&s.reached)}
	})
	s, err := readmodel.Only(found, err, errSegmentUnknown())
	if err == nil && !s.ready {
		err = errSegmentBuilding()
	}
	return s, err
}

// Member is a user in a segment.
type Member struct {
	User       id.User
	ExternalID string
	Place      eventstore.Position // in lists of members
}

const (
	blocksRead = 64
	// memberBlocks reads some blocks, and then what has changed since, a row for each user.
	memberBlocks = `
SELECT b.*, NULL::boolean AS is_in FROM (
	SELECT b.block::bigint, b.members FROM segment_versions v JOIN segment_blocks b ON b.client = v.client AND b.version = v.number
	WHERE v.client = $1 AND v.segment = $2 AND v.serves AND b.block >= $3 ORDER BY b.block LIMIT $4) b
UNION ALL
SELECT n.number, NULL, d.is_in FROM (
	SELECT d.fold, d.numbers, d.is_in FROM segment_versions v CROSS JOIN LATERAL (
		SELECT fold, entered, true FROM segment_deltas WHERE client = v.client AND version = v.number
		UNION ALL SELECT fold, went, false FROM segment_deltas WHERE client = v.client AND version = v.number) d (fold, numbers, is_in)
	WHERE v.client = $1 AND v.segment = $2 AND v.serves ORDER BY d.fold) d
	CROSS JOIN LATERAL unnest(d.numbers) n (number)
UNION ALL
SELECT * FROM (
	SELECT c.number, NULL::bytea, v.number = ANY(c.entered)
	FROM segment_versions v JOIN segment_clients s ON s.client = v.client JOIN segment_changes c ON c.client = v.client AND c.position > s.folded
	WHERE v.client = $1 AND v.segment = $2 AND v.serves AND (v.number = ANY(c.entered) OR v.number = ANY(c.went))
	ORDER BY c.position, c.user_id) c`
	namedUsers    = `SELECT u.number::text, u.id, u.external, u.external_event, k.id AS key, k.client_key, k.wrapped FROM segment_users u`
	usersByNumber = ` WHERE u.client = $1 AND u.number = ANY($2) ORDER BY u.number`
	usersNamed    = ` WHERE u.client = $1 AND u.id = ANY($2)`
)

// Members returns a page of a segment's users, in the order of their creation, and
// where changes go on from: whoever follows these from then on misses none.
// Faults: building, quarantined, segment_building, segment_unknown, stale.
func (m Model) Members(ctx context.Context, client id.Client, eventual bool, segment id.Segment, page readmodel.Page) ([]Member, eventstore.Position, error) {
	s, err := m.progress(ctx, client, eventual, segment)
	if err != nil {
		return nil, "", err
	}
	from := int64(0)
	if page.After != eventstore.Start {
		last, err := strconv.ParseInt(string(page.After), 10, 64)
		if err != nil {
			return nil, "", err
		}
		from = last + 1
	}
	var found []Member
	for len(found) < page.Limit {
		numbers, next, err := m.numbers(ctx, client, segment, from, page.Limit-len(found))
		if err != nil || len(numbers) == 0 && next < 0 {
			return found, s.reached + afterAll, err
		}
		if len(numbers) > 0 {
			users, err := m.named(ctx, client, usersByNumber, numbers)
			if err != nil {
				return nil, "", err
			}
			found = append(found, users...)
		}
		if from = next; from < 0 {
			break
		}
	}
	return found, s.reached + afterAll, nil
}

// numbers returns the numbers of at most limit members, from a number on. next is the
// number to go on with, below 0 at the end.
func (m Model) numbers(ctx context.Context, client id.Client, segment id.Segment, from int64, limit int) (numbers []int64, next int64, err error) {
	type row struct {
		number int64 // of a block, or of a user
		bits   []byte
		in     *bool // nil: it is a block
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, memberBlocks, []any{string(segment), from / usersPerBlock, blocksRead},
		func(r *row) []any { return []any{&r.number, &r.bits, &r.in} })
	if err != nil {
		return nil, -1, err
	}
	changed := slices.IndexFunc(rows, func(r row) bool { return r.in != nil })
	if changed < 0 {
		changed = len(rows)
	}
	end := int64(math.MaxInt64)
	if changed == blocksRead {
		end = (rows[changed-1].number + 1) * usersPerBlock
	}
	blocks := map[int64][]byte{}
	for _, r := range rows[:changed] {
		blocks[r.number] = r.bits
	}
	for _, r := range rows[changed:] {
		if r.number >= from && r.number < end {
			at := r.number / usersPerBlock
			if blocks[at] == nil {
				blocks[at] = make([]byte, usersPerBlock/8)
			}
			setBit(blocks[at], r.number%usersPerBlock, *r.in)
		}
	}
	for _, block := range readmodel.SortedKeys(blocks) {
		for i, some := range blocks[block] {
			for some != 0 {
				number := block*usersPerBlock + int64(i)*8 + int64(bits.TrailingZeros8(some))
				some &= some - 1
				if number < from {
					continue
				}
				if len(numbers) == limit {
					return numbers, number, nil
				}
				numbers = append(numbers, number)
			}
		}
	}
	if end == math.MaxInt64 {
		return numbers, -1, nil
	}
	return numbers, end, nil
}

// named returns users by a condition, with their names. Who is gone is left out.
func (m Model) named(ctx context.Context, client id.Client, where string, arg any) ([]Member, error) {
	type row struct {
		Member
		external readmodel.Sealed
		key      seal.WrappedKey
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, namedUsers+readmodel.JoinKey(`$1`)+where, []any{arg}, func(r *row) []any {
		return []any{
			readmodel.Text(&r.Place), readmodel.Text(&r.User), &r.external.Box, readmodel.Text(&r.external.Event), readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
		}
	})
	if err != nil {
		return nil, err
	}
	users := make([]Member, 0, len(rows))
	for _, r := range rows {
		external, err := m.Open(ctx, r.key, string(r.User), r.external, client, eventstore.UserStream(client, r.User), "external_id")
		if err != nil {
			return nil, err
		}
		if external != nil {
			r.ExternalID = string(external)
			users = append(users, r.Member)
		}
	}
	return users, nil
}

// Change is a user that entered or left a segment, or was erased.
type Change struct {
	User       id.User
	ExternalID string // empty where the user was erased since
	Change     string // entered, left or erased
	At         time.Time
	Place      eventstore.Position // in the list of changes
}

// afterAll ends a place that is behind all changes of a position: in the order of places,
// ids of users stand before it.
const afterAll = "/~"

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
	c.changed_at, c.position || '/' || c.user_id, c.nth = $6
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
// Faults: building, cursor_expired, quarantined, segment_building, segment_unknown, stale.
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
	if position < string(s.from) && (!newest || position != "") {
		return nil, false, "", fault.New(fault.Gone, "cursor_expired",
			"Changes from there on are not told any more: they are 30 days old, or another rule counts since. Read the members again.")
	}
	type row struct {
		told Change
		end  bool // of what is looked through
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, sql, []any{string(segment), position, user, page.Limit + 1, changesRead},
		func(r *row) []any {
			return []any{readmodel.Text(&r.told.User), &r.told.Change, &r.told.At, readmodel.Text(&r.told.Place), &r.end}
		})
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
	rows, err := m.Pool.Query(ctx, segmentsChanged, readmodel.Column(asked, func(a ChangesAfter) string { return string(a.Client) }),
		readmodel.Column(asked, func(a ChangesAfter) string { return string(a.Segment) }), positions, users)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Looked, err error) {
		return l, row.Scan(&l.Changed, readmodel.Text(&l.UpTo))
	})
}

const segmentsOfUsers = `
SELECT u.id, v.segment FROM segment_users u JOIN segment_versions v ON v.client = $1 AND v.serves AND v.number = ANY(u.versions)
WHERE u.client = $1 AND u.id = ANY($2) ORDER BY u.id, v.segment`

// Of returns the segments that each of these users is in.
// Faults: building, quarantined, stale.
func (m Model) Of(ctx context.Context, client id.Client, eventual bool, users []id.User) (map[id.User]map[string]bool, error) {
	type row struct {
		user    id.User
		segment string
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, segmentsOfUsers, []any{readmodel.Texts(users)},
		func(r *row) []any { return []any{readmodel.Text(&r.user), &r.segment} })
	in := make(map[id.User]map[string]bool, len(users))
	for _, r := range found {
		if in[r.user] == nil {
			in[r.user] = map[string]bool{}
		}
		in[r.user][r.segment] = true
	}
	return in, err
}

// SegmentOfUser is a segment that a user is in, and why; nil where that took too long to tell.
type SegmentOfUser struct {
	Segment
	Why []rule.Comparison
}

const (
	judgedUsers = `
SELECT ` + segmentUserColumns + `, c.now, k.id AS key, k.client_key, k.wrapped
FROM segment_users u JOIN segment_clients c ON c.client = u.client`
	judgedByID         = ` WHERE u.client = $1 AND u.id = ANY((SELECT $2::text[])::text[])` // planned once for any number: else 0.7 ms each time
	judgedByNumber     = ` WHERE u.client = $1 AND u.number = ANY($2) ORDER BY u.number`
	servingVersions    = `SELECT v.number, v.segment FROM segment_versions v WHERE v.client = $1 AND v.serves`
	countSegmentUsers  = `SELECT count(*) FROM segment_users WHERE client = $1`
	segmentUsersNumber = `SELECT c.users FROM segment_clients c WHERE c.client = $1`
	countNumbered      = countSegmentUsers + ` AND number = ANY($2)`
)

// OfUser returns the segments that a user is in, in order of their creation, each with
// what the rule that counts makes of the user.
// Faults: building, quarantined, stale.
func (m Model) OfUser(ctx context.Context, client id.Client, eventual bool, user id.User) ([]SegmentOfUser, error) {
	var facts rule.Facts
	var in []int32
	var of knownOfUser
	if err := m.judged(ctx, client, eventual, nil, nil, judgedByID, []string{string(user)}, func(u *segmentUser, _ int) bool {
		facts, in, of = *u.facts, u.versions, u.known
		return true
	}); err != nil || len(in) == 0 {
		return nil, err
	}
	stored, err := readmodel.Query(ctx, m.Reader, m, client, true, segmentsOfUser, []any{in}, func(s *storedSegment) []any {
		return append(s.basics(), readmodel.Text(&s.Layer))
	})
	if err != nil {
		return nil, err
	}
	segments, err := m.opened(ctx, client, stored)
	if err != nil {
		return nil, err
	}
	found, ids := make([]SegmentOfUser, len(segments)), make(map[string]bool, len(segments))
	for i, s := range segments {
		found[i].Segment, ids[string(s.ID)] = s, true
	}
	facts.InSegment = func(segment string) bool { return ids[segment] }
	return found, m.explain(ctx, client, found, &facts, of, maxExplained)
}

const (
	// maxExplained is some 3 s, as that of filters is.
	// limit: requests | steps that explain to which segments a user belongs, six of them for each byte that a rule takes in memory | {maxExplained} | `why` is empty for the rest
	maxExplained = 300_000_000
	// limit: models | steps that explain to which segments a user belongs, at a time | {explainedAtOnce}
	explainedAtOnce = 20_000_000
)

// explain says why a user is in each of some segments, until that took so many steps.
func (m Model) explain(ctx context.Context, client id.Client, found []SegmentOfUser, facts *rule.Facts, of knownOfUser, most int) error {
	for steps := 0; len(found) > 0 && steps < most; {
		if err := m.Judging.Do(ctx, client, func() error {
			for upTo := min(most, steps+explainedAtOnce); len(found) > 0 && steps < upTo; found = found[1:] {
				if err := ctx.Err(); err != nil {
					return err
				}
				facts.InCluster = of.inCluster(found[0].Layer)
				steps += found[0].explain(facts)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// explain says why a user is in the segment, and what that took.
func (s *SegmentOfUser) explain(facts *rule.Facts) (steps int) {
	parsed, err := rule.Parse(s.Rule, rule.Users)
	if err != nil {
		return parseSteps * len(s.Rule)
	}
	s.Why, steps = parsed.Explain(facts)
	return steps + parseSteps*parsed.Size()
}

// served are the segments of the versions that serve.
type served map[int32]string

// of are the segments that a user is in.
func (s served) of(u *segmentUser) (in []string) {
	for _, number := range u.versions {
		if segment := s[number]; segment != "" {
			in = append(in, segment)
		}
	}
	return in
}

// serving reads which versions serve, as of what the client was told.
func (m Model) serving(ctx context.Context, client id.Client, eventual bool) (served, error) {
	type row struct {
		number  int32
		segment string
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, servingVersions, nil, func(r *row) []any { return []any{&r.number, &r.segment} })
	serving := make(served, len(found))
	for _, r := range found {
		serving[r.number] = r.segment
	}
	return serving, err
}

// judged reads users and calls judge with each, as of the time of judgements. Users who
// cannot be opened are left out. The facts of a user are gone when the next is judged. What
// a rule asks beside traits is read for the rule by; nil: for any rule.
func (m Model) judged(ctx context.Context, client id.Client, eventual bool, serving served, by *rule.Rule, where string, arg any, judge func(u *segmentUser, steps int) (goOn bool)) error {
	return m.Judging.Do(ctx, client, func() error { return m.judge(ctx, client, eventual, serving, by, where, arg, judge) })
}

func (m Model) judge(ctx context.Context, client id.Client, eventual bool, serving served, by *rule.Rule, where string, arg any, judge func(u *segmentUser, steps int) (goOn bool)) error {
	type row struct {
		segmentUser
		now time.Time
		key seal.WrappedKey
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, judgedUsers+readmodel.JoinKey(`$1`)+where, []any{arg}, func(r *row) []any {
		return append(r.columns(), &r.now, readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped)
	})
	if err != nil {
		return err
	}
	known, err := m.known(ctx, client, true, by, readmodel.Column(found, func(r row) id.User { return r.id }))
	if err != nil {
		return err
	}
	c := segmented{Model: m, client: client, spend: freely}
	for i := range found {
		u := &found[i].segmentUser
		if err := c.open(ctx, u, found[i].key); err != nil {
			return err
		}
		if u.facts == nil {
			continue
		}
		in := serving.of(u)
		u.known = known[u.id]
		*u.facts = u.known.facts(*u.facts)
		u.facts.Now = found[i].now
		u.facts.InSegment = func(segment string) bool { return slices.Contains(in, segment) }
		goOn := judge(u, u.openSteps())
		if u.close(); !goOn {
			break
		}
	}
	return nil
}

// known reads what a rule asks of users beside their traits; nil: what any may.
func (m Model) known(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, users []id.User) (map[id.User]knownOfUser, error) {
	a := asked{any: true}
	sql := selectKnown
	if r != nil {
		a = asked{}
		a.by(r)
	} else {
		sql = strings.Replace(selectKnown, ` AND what = ANY($3)`, ` AND $3::text[] IS NOT NULL`, 1)
	}
	if !a.any || len(users) == 0 {
		return nil, nil
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, sql, []any{readmodel.Texts(users), readmodel.Texts(a.acts)}, (*knownRow).columns)
	return knownOf(rows), err
}

// Known tells rules what a rule asks of users beside their traits, outside of any layer.
// Faults: building, quarantined, stale.
func (m Model) Known(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, users []id.User) (func(id.User, rule.Facts) rule.Facts, error) {
	known, err := m.known(ctx, client, eventual, r, users)
	return func(user id.User, facts rule.Facts) rule.Facts { return known[user].facts(facts) }, err
}

const namedSegments = `
SELECT s.id, s.layer, coalesce(cardinality(v.blocked) > 0, false) AS blocked, coalesce(v.serves AND v.blocked IS NULL, false) AS counts
FROM segments s LEFT JOIN LATERAL (
	SELECT serves, blocked FROM segment_versions WHERE client = $1 AND segment = s.id ORDER BY serves DESC LIMIT 1) v ON true
WHERE s.client = $1 AND s.id = ANY($2)`

// CheckNamed refuses a rule at a place of a request that names a segment of another
// consent layer than its own, or one that is not there, is blocked or judges its first
// members: whom that names is not known.
// Faults: building, invalid, quarantined, segment_building, stale.
func (m Model) CheckNamed(ctx context.Context, client id.Client, eventual bool, pointer string, r *rule.Rule, layer id.ConsentLayer) error {
	if len(r.Segments()) == 0 {
		return nil
	}
	type row struct {
		segment         id.Segment
		layer           id.ConsentLayer
		blocked, counts bool
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, namedSegments, []any{r.Segments()}, func(r *row) []any {
		return []any{readmodel.Text(&r.segment), readmodel.Text(&r.layer), &r.blocked, &r.counts}
	})
	if err != nil {
		return err
	}
	for _, named := range r.Segments() {
		if !slices.ContainsFunc(found, func(s row) bool { return string(s.segment) == named }) {
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + named + ", and there is no such segment"})
		}
	}
	for _, s := range found {
		switch {
		case s.layer != layer:
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + string(s.segment) + ", which is not of the same consent_layer_id"})
		case s.blocked:
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + string(s.segment) + ", which is blocked: whom it names is not known"})
		case !s.counts:
			err = errSegmentBuilding() // unless another one is refused
		}
	}
	return err
}

// Named says whom of some users a filter of pairs surely names, for a viewer. Users that
// are not in the result were not judged.
// Faults: building, quarantined, stale.
func (m Model) Named(ctx context.Context, client id.Client, filter *rule.Filter, viewer id.User, users []id.User) (map[id.User]bool, error) {
	named := make(map[id.User]bool, len(users))
	serving, err := m.serving(ctx, client, false) // which waits until the model has what was acknowledged
	if err != nil {
		return nil, err
	}
	var self *rule.Facts
	if err := m.judged(ctx, client, true, serving, filter.Rule, judgedByID, []string{string(viewer)}, func(u *segmentUser, _ int) bool {
		self = u.facts
		return true
	}); err != nil || self == nil {
		return named, err
	}
	for some := range slices.Chunk(users, usersRead) {
		if filter.Exhausted() {
			break
		}
		if err := m.judged(ctx, client, true, serving, filter.Rule, judgedByID, readmodel.Texts(some), func(u *segmentUser, steps int) bool {
			u.facts.Viewer, u.facts.InCluster = self, u.known.inCluster(id.ConsentLayer(filter.Layer))
			named[u.id] = filter.Names(u.facts, steps)
			return !filter.Exhausted()
		}); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// Preview is what a rule would name.
type Preview struct {
	Users   int     // of the client, without those who cannot be opened any more
	Judged  int     // all of them, or a sample
	Named   int     // of those judged
	Members int     // of all, about
	Share   float64 // of those judged
	Margin  float64 // of the share, for 19 of 20 samples; 0: all were judged
	Sample  []Member
	Apart   []Distinction // of those judged, in these of the schema's traits
}

// Distinction is a trait that some users have otherwise than all.
type Distinction = clustering.Distinction

const (
	// previewAll is how many users a preview judges at most: of more it judges a random
	// sample.
	// limit: models | users that a preview judges, of more a random sample | {previewAll}
	previewAll = 20_000
	// limit: models | users that a preview shows | {previewShown}
	previewShown = 20
)

// Preview judges users by a rule that is no segment's yet, under a consent layer or none.
// It compares those whom the rule names with all, in the traits of a schema. It judges as
// of the client's time now, or of its last event where that is later.
// Faults: building, quarantined, stale.
func (m Model) Preview(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, within event.Within, schema traits.Schema, now time.Time) (p Preview, err error) {
	p.Users, err = readmodel.Count(ctx, m.Reader, m, client, eventual, countSegmentUsers)
	if err != nil || p.Users == 0 {
		return p, err
	}
	numbered, err := readmodel.Count(ctx, m.Reader, m, client, true, segmentUsersNumber)
	if err != nil {
		return p, err
	}
	numbers := sampled(numbered, previewAll)
	serving, err := m.serving(ctx, client, true)
	if err != nil {
		return p, err
	}
	filter, by, asked := rule.Filter{Rule: r, Now: now}, r, 0
	if within.Layer != "" {
		by = nil // who grants it is asked of all
		schema = schema.Restrict(traits.Permit(within.TraitPaths))
	}
	var apart *clustering.Apart
	var wrong error
	for some := range slices.Chunk(numbers, usersRead) {
		if filter.Exhausted() {
			break
		}
		asked += len(some)
		if err := m.judged(ctx, client, true, serving, by, judgedByNumber, some, func(u *segmentUser, steps int) bool {
			p.Judged++
			named := namedUnder(within.Layer, &filter, u, steps)
			if apart == nil {
				apart = clustering.NewApart(schema, u.facts.Now)
			}
			if wrong = compare(apart, u.facts.Traits, named); wrong != nil || !named {
				return wrong == nil
			}
			if p.Named++; len(p.Sample) < previewShown {
				p.Sample = append(p.Sample, Member{User: u.id, ExternalID: u.facts.ExternalID})
			}
			return true
		}); cmp.Or(err, wrong) != nil {
			return p, cmp.Or(err, wrong)
		}
	}
	found := p.Users
	if asked < numbered {
		if found, err = readmodel.Count(ctx, m.Reader, m, client, true, countNumbered, numbers[:asked]); err != nil {
			return p, err
		}
	}
	if found > 0 { // nobody stands for who cannot be opened any more
		p.Users = int(math.Round(float64(p.Users) * float64(p.Judged) / float64(found)))
	}
	if p.Margin = margin(p.Named, p.Judged, p.Users); p.Judged == 0 {
		return p, nil
	}
	p.Apart = apart.Distinctions()
	p.Share = float64(p.Named) / float64(p.Judged)
	p.Members = int(math.Round(p.Share * float64(p.Users)))
	return p, nil
}

// namedUnder says whether a filter names whom it took so many steps to open, under a consent layer
// or none. Who has not granted it takes steps, too.
func namedUnder(layer id.ConsentLayer, filter *rule.Filter, u *segmentUser, steps int) bool {
	u.facts.InCluster = u.known.inCluster(layer)
	return filter.Names(u.facts, steps) && (layer == "" || u.known.granted[layer])
}

// margin is how far the share of all may be from that of those judged, either way, in 19 of
// 20 random samples. It is Wilson's, since the usual one is 0 where none of a few was met,
// and one user more: where nearly all were judged Wilson's comes to a part of one.
func margin(named, judged, all int) float64 {
	switch {
	case judged >= all:
		return 0
	case judged == 0:
		return 1
	}
	const z = 1.96
	share := float64(min(named, judged-named)) / float64(judged) // off it is further towards a half
	z2 := z * z / float64(judged) * float64(all-judged) / float64(all-1)
	return min(1, (share+z2/2+math.Sqrt(z2*share*(1-share)+z2*z2/4))/(1+z2)-share+1/float64(all))
}

// compare counts a user who is named by a rule, or is not.
func compare(apart *clustering.Apart, of map[string]any, named bool) error {
	doc, err := json.Marshal(of)
	if err != nil {
		return err
	}
	flat, err := traits.Flatten(doc)
	if err != nil {
		return err
	}
	apart.Count(flat, named)
	return nil
}

// sampled are at most so many of n numbers, the same each time, drawn one after the other:
// each beginning of them is a random sample, too.
func sampled(n, most int) []int64 {
	random := splitmix.Source(1)
	numbers, moved := make([]int64, min(n, most)), map[int]int64{} // where another number stands than the place's own
	at := func(i int) int64 {
		if number, ok := moved[i]; ok {
			return number
		}
		return int64(i)
	}
	for i := range numbers {
		drawn := i + random.IntN(n-i)
		numbers[i], moved[drawn] = at(drawn), at(i)
	}
	return numbers
}

const (
	clientsSwept = 1_000 // at a time
	// limit: models | users whom time may have moved, of all clients, that a look reads before it asks for each client | {dueRead}
	dueRead          = 10_000
	buildingSegments = `SELECT DISTINCT client FROM segment_versions WHERE NOT serves LIMIT $1`
	restoredClients  = `SELECT DISTINCT client FROM segment_versions v WHERE ` + isRestored + ` LIMIT $1`
	isRestored       = `v.serves AND v.blocked = '{}'
	AND NOT EXISTS (SELECT FROM segment_versions n WHERE n.client = v.client AND n.segment = v.segment AND NOT n.serves)`
	// A look goes by those who are due first; where these may be of few clients, by client: to
	// read all of 500,000 who are due took 600 ms, each second until they are judged.
	dueSegments = `
WITH RECURSIVE first AS MATERIALIZED (SELECT client FROM segment_users WHERE due <= $1 ORDER BY due LIMIT $3),
each AS (
	(SELECT client FROM segment_users WHERE due IS NOT NULL AND (SELECT count(*) FROM first) = $3 ORDER BY client LIMIT 1)
	UNION ALL
	SELECT (SELECT u.client FROM segment_users u WHERE u.due IS NOT NULL AND u.client > e.client ORDER BY u.client LIMIT 1)
	FROM each e WHERE e.client IS NOT NULL
)
SELECT client FROM first
UNION
SELECT e.client FROM each e WHERE EXISTS (SELECT FROM segment_users u WHERE u.client = e.client AND u.due <= $1)
UNION
SELECT k.client FROM segment_clocks k WHERE EXISTS (SELECT FROM segment_users u WHERE u.client = k.client AND u.due <= $1 + k.ahead OFFSET 0)
LIMIT $2`
)

// Building returns clients of which a rule has not judged everyone yet.
func (m Model) Building(ctx context.Context) ([]id.Client, error) {
	return m.clients(ctx, buildingSegments, clientsSwept)
}

var restoredSegments = segmentColumns(membersOfOne) + fromSegments + ` AND EXISTS (SELECT FROM segment_versions v
WHERE v.client = s.client AND v.segment = s.id AND ` + isRestored + `) ORDER BY s.created_position LIMIT 1`

// Restored returns clients of which a segment is not blocked any more, and is to be built
// anew.
func (m Model) Restored(ctx context.Context) ([]id.Client, error) {
	return m.clients(ctx, restoredClients, clientsSwept)
}

// RestoredOf returns such a segment of a client; ok is false where there is none.
// Faults: building, quarantined, stale.
func (m Model) RestoredOf(ctx context.Context, client id.Client) (segment id.Segment, text string, changed eventstore.Revision, ok bool, err error) {
	stored, err := readmodel.Query(ctx, m.Reader, m, client, false, restoredSegments, nil, (*storedSegment).columns)
	if err != nil || len(stored) == 0 {
		return "", "", 0, false, err
	}
	found, err := m.opened(ctx, client, stored)
	if err != nil {
		return "", "", 0, false, err
	}
	return found[0].ID, found[0].Rule, found[0].Changed, found[0].Rule != "", nil
}

// Waiting returns clients of which time alone may have moved users by a moment.
func (m Model) Waiting(ctx context.Context, now time.Time) ([]id.Client, error) {
	return m.clients(ctx, dueSegments, now, clientsSwept, dueRead)
}

func (m Model) clients(ctx context.Context, sql string, args ...any) ([]id.Client, error) {
	rows, _ := m.Pool.Query(ctx, sql, args...) // what it fails with, its rows end with
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if projector.TablesMissing(err) {
		return nil, nil // there is nothing yet
	}
	clients := make([]id.Client, len(found))
	for i, c := range found {
		clients[i] = id.Client(c)
	}
	return clients, err
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
