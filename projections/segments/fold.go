package segments

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// The members of a version stand in three places, of which a later one overrides an earlier
// one: its blocks (a bit for each user), its deltas in order, and the rows of
// segment_changes after segment_clients.folded. A change of a user writes a row of
// segment_changes alone.
//
// After some number of events of a client its changes are folded. Users who are new since
// the last fold go into blocks at once: their numbers follow each other, so these blocks
// are few. Changes of other users go into one delta for each version. A version's deltas go
// into its blocks when its turn in a rotation comes. So a block takes many changes at once,
// and no fold writes many blocks: 1,000 versions of a million users have 123,000 blocks,
// and a fold writes 4,000 of them instead of 89,000.

// folding says how often changes are folded.
type folding struct {
	least, most int   // events of a client: an eighth of its users, within these bounds
	rotation    int64 // a version is due at each fold while there are fewer users, at each second one while there are fewer than twice as many, ...
}

const (
	foldLeast = 4_096
	// limit: models | events of a client after which what they changed in its segments goes into the bitmaps of members | an eighth of its users, {foldLeast} to {foldMost}
	foldMost = 8_192
	// limit: models | users of a client for each of these times, of which one writes a segment's bitmaps | {foldRotation}
	foldRotation = 32_768
)

// next is how many events of a client with so many users come before the next fold.
func (f folding) next(users int64) int { return int(min(max(users/8, int64(f.least)), int64(f.most))) }

func (m Model) folding() folding {
	if m.often != nil {
		return *m.often
	}
	return folding{foldLeast, foldMost, foldRotation}
}

// members are the versions of which users became, or ceased to be, members: by blocks, in the order in which they did.
type members map[memberBlock]*[]memberBit

// memberBlock names a block of a version: as one number, which a map finds faster than two.
type memberBlock int64

func blockOf(version, block int) memberBlock { return memberBlock(version)<<32 | memberBlock(block) }

func (b memberBlock) version() int { return int(b >> 32) }
func (b memberBlock) block() int   { return int(b & math.MaxUint32) }

type memberBit struct {
	user uint16 // of its block
	in   bool
}

func (m members) set(version int, user int64, in bool) {
	at := blockOf(version, int(user/usersPerBlock))
	bits := m[at]
	if bits == nil {
		bits = new([]memberBit)
		m[at] = bits
	}
	*bits = append(*bits, memberBit{uint16(user % usersPerBlock), in})
}

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

// flips is what judgements of a transaction change.
type flips struct {
	members members
	changes []userChange
}

// change adds what an event changed of a user to the members of the versions that still
// exist.
func (c *segmented) change(of members, u userChange) {
	for number, in := range u.flips() {
		if c.versions[number] != nil {
			of.set(number, u.number, in)
		}
	}
}

// unsay takes an erased user out of the versions that a change which is not folded yet
// tells of.
func (c *segmented) unsay(of members, u userChange) {
	c.change(of, userChange{number: u.number, went: slices.Concat(u.entered, u.went)})
}

// delta is what changed in a version from one fold to the next: users, by their numbers in order, who
// were not in it and are, and who were and are not.
type delta struct {
	version, fold int
	entered, went []int64
}

const (
	selectUnfolded = `
SELECT number, entered, went FROM segment_changes WHERE client = $1 AND position > $2 AND NOT erased ORDER BY position, user_id`
	takeDeltas   = `DELETE FROM segment_deltas WHERE client = $1 AND version = ANY($2) RETURNING version, fold, entered, went`
	takeErased   = `DELETE FROM segment_deltas WHERE client = $1 AND (entered && $2::bigint[] OR went && $2) RETURNING version, fold, entered, went`
	dropDeltas   = `DELETE FROM segment_deltas WHERE client = $1 AND version = ANY($2)`
	dropBlocks   = `DELETE FROM segment_blocks WHERE client = $1 AND version = ANY($2)`
	keepFolded   = `UPDATE segment_clients SET folded = $2, folds = $3, folded_users = $4 WHERE client = $1`
	selectBlocks = `
SELECT b.version, b.block, b.members FROM unnest($2::int[], $3::int[]) AS w (version, block)
JOIN segment_blocks b ON b.client = $1 AND b.version = w.version AND b.block = w.block`
	writeBlocks = `
INSERT INTO segment_blocks (client, version, block, members, serves)
SELECT $1, * FROM unnest($2::int[], $3::int[], $4::bytea[], $5::boolean[])
ON CONFLICT (client, version, block) DO UPDATE SET members = excluded.members`
	dropEmptyBlocks = `
DELETE FROM segment_blocks b USING unnest($2::int[], $3::int[]) AS w (version, block)
WHERE b.client = $1 AND b.version = w.version AND b.block = w.block`
)

// flip is what several changes from one fold to the next make of whether a user is in a version.
type flip struct{ entered, is bool } // by the first of them, and after the last

// fold folds what changed up to a position. It is the log that says when, and which versions are
// due, so that a rebuild makes the same rows.
func (c *segmented) fold(ctx context.Context, at eventstore.Position) error {
	changed, others, err := c.unfolded(ctx)
	if err != nil {
		return err
	}
	rotation := 1 + int(c.users/c.folding().rotation)
	due := c.numbers(func(v *segmentVersion) bool { return (v.number+c.folds)%rotation == 0 })
	taken, err := c.removeDeltas(ctx, takeDeltas, due)
	if err != nil {
		return err
	}
	for _, d := range taken {
		for _, user := range d.entered {
			changed.set(d.version, user, true)
		}
		for _, user := range d.went {
			changed.set(d.version, user, false)
		}
	}
	var deltas []delta
	for _, number := range readmodel.SortedKeys(others) {
		if _, is := slices.BinarySearch(due, number); !is {
			deltas = append(deltas, deltaOf(number, c.folds, others[number]))
			continue
		}
		for user, f := range others[number] {
			changed.set(number, user, f.is)
		}
	}
	if err := c.insertDeltas(ctx, deltas); err != nil {
		return err
	}
	c.folds++
	c.folded, c.foldedUsers, c.foldIn = at, c.users, c.folding().next(c.users)
	if err := readmodel.Do(ctx, c.tx, "note how far changes are folded", keepFolded, string(c.client), string(at), c.folds, c.foldedUsers); err != nil {
		return err
	}
	return c.writeMembers(ctx, changed)
}

// unfolded is what changed since the last fold: of users who are new since then, and of each version's
// others.
func (c *segmented) unfolded(ctx context.Context) (changed members, of map[int]map[int64]flip, err error) {
	changed, of = members{}, map[int]map[int64]flip{}
	var u userChange
	err = c.each(ctx, "read what changed in segments", []any{&u.number, &u.entered, &u.went}, func() {
		if u.number >= c.foldedUsers {
			c.change(changed, u)
			return
		}
		for number, in := range u.flips() {
			if of[number] == nil {
				of[number] = map[int64]flip{}
			}
			f, again := of[number][u.number]
			if f.is = in; !again {
				f.entered = in
			}
			of[number][u.number] = f
		}
	}, selectUnfolded, string(c.folded))
	maps.DeleteFunc(of, func(number int, _ map[int64]flip) bool { return c.versions[number] == nil })
	return changed, of, err
}

// deltaOf is what flips change in a version.
func deltaOf(version, fold int, flips map[int64]flip) delta {
	d := delta{version, fold, []int64{}, []int64{}}
	for _, user := range readmodel.SortedKeys(flips) {
		switch f := flips[user]; {
		case f.entered != f.is: // it is where it was
		case f.is:
			d.entered = append(d.entered, user)
		default:
			d.went = append(d.went, user)
		}
	}
	return d
}

// removeDeltas deletes deltas, and returns them in order.
func (c *segmented) removeDeltas(ctx context.Context, deleted string, arg any) (deltas []delta, err error) {
	var d delta
	err = c.each(ctx, "take deltas of segments", []any{&d.version, &d.fold, &d.entered, &d.went}, func() { deltas = append(deltas, d) }, deleted, arg)
	slices.SortFunc(deltas, func(a, b delta) int { return cmp.Compare(a.fold, b.fold) })
	return deltas, err
}

// eraseDeltas takes users who are erased out of the deltas, and out of the blocks what these said.
func (c *segmented) eraseDeltas(ctx context.Context, users []int64, of members) error {
	deltas, err := c.removeDeltas(ctx, takeErased, users)
	if err != nil {
		return err
	}
	for i := range deltas {
		d := &deltas[i]
		gone := func(user int64) bool {
			is := slices.Contains(users, user)
			if is {
				of.set(d.version, user, false)
			}
			return is
		}
		d.entered, d.went = slices.DeleteFunc(d.entered, gone), slices.DeleteFunc(d.went, gone)
	}
	return c.insertDeltas(ctx, deltas)
}

var deltaColumns = []string{"client", "version", "fold", "entered", "went"}

// insertDeltas inserts deltas. One that says nothing is no row.
func (c *segmented) insertDeltas(ctx context.Context, deltas []delta) error {
	deltas = slices.DeleteFunc(deltas, func(d delta) bool { return len(d.entered)+len(d.went) == 0 })
	return copyRows(ctx, c.tx, "segment_deltas", deltaColumns, deltas, func(d delta) []any {
		return []any{string(c.client), d.version, d.fold, d.entered, d.went}
	})
}

func setBit(bits []byte, n int64, is bool) {
	if mask := byte(1) << (n % 8); is {
		bits[n/8] |= mask
	} else {
		bits[n/8] &^= mask
	}
}

// blocksAtOnce are read, and written, together: a fold of 1,000 segments of a million users is of
// 90,000 blocks, of 1 KiB.
// limit: models | blocks of members that are read and written together | {blocksAtOnce}
const blocksAtOnce = 4_096

// writeMembers sets the bits of members.
func (c *segmented) writeMembers(ctx context.Context, changed members) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(changed)), blocksAtOnce) {
		if err := c.writeBlocks(ctx, some, changed); err != nil {
			return err
		}
	}
	return nil
}

// writeBlocks sets the bits of members in some blocks. One without any is no row.
func (c *segmented) writeBlocks(ctx context.Context, at []memberBlock, changed members) error {
	version, block := memberBlock.version, memberBlock.block
	blocks := map[memberBlock][]byte{}
	var ofVersion, number int
	var bits []byte
	if err := c.each(ctx, "read members of segments", []any{&ofVersion, &number, &bits}, func() {
		blocks[blockOf(ofVersion, number)] = bits
	}, selectBlocks, readmodel.Column(at, version), readmodel.Column(at, block)); err != nil {
		return err
	}
	var written, empty []memberBlock
	for _, b := range at {
		bits := blocks[b]
		if bits == nil {
			bits = make([]byte, usersPerBlock/8)
			blocks[b] = bits
		}
		for _, bit := range *changed[b] {
			setBit(bits, int64(bit.user), bit.in)
		}
		if slices.ContainsFunc(bits, func(some byte) bool { return some != 0 }) {
			written = append(written, b)
		} else {
			empty = append(empty, b)
		}
	}
	if len(empty) > 0 {
		if err := readmodel.Do(ctx, c.tx, "drop empty blocks of segments", dropEmptyBlocks, string(c.client), readmodel.Column(empty, version), readmodel.Column(empty, block)); err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return nil
	}
	return readmodel.Do(ctx, c.tx, "write members of segments", writeBlocks, string(c.client), readmodel.Column(written, version), readmodel.Column(written, block),
		readmodel.Column(written, func(b memberBlock) []byte { return blocks[b] }),
		readmodel.Column(written, func(b memberBlock) bool { return c.versions[b.version()].serves }))
}

// unfolded is how many more members versions have than their blocks and deltas say.
const unfolded = `
WITH unfolded AS MATERIALIZED (
	SELECT f.number, sum(f.change) AS members
	FROM segment_clients s JOIN segment_changes c ON c.client = s.client AND c.position > s.folded
		CROSS JOIN LATERAL (SELECT unnest(c.entered), 1 UNION ALL SELECT unnest(c.went), -1) f (number, change)
	WHERE s.client = $1 GROUP BY f.number)`

// folded is SQL for how many members a version v has by its blocks and deltas. membersOf
// adds what is not folded yet, from unfolded. membersOfOne does the same for one version,
// without adding up all others: for 10,000 changes of 40 versions each that would take 30
// ms.
const (
	folded = `coalesce((SELECT sum(bit_count(b.members)) FROM segment_blocks b WHERE b.client = v.client AND b.version = v.number), 0)
	+ coalesce((SELECT sum(cardinality(d.entered) - cardinality(d.went)) FROM segment_deltas d WHERE d.client = v.client AND d.version = v.number), 0)`
	membersOf = `(` + folded + ` + coalesce((SELECT u.members FROM unfolded u WHERE u.number = v.number), 0))::bigint`

	membersOfOne = `(` + folded + ` + coalesce((
	SELECT sum((v.number = ANY(c.entered))::int - (v.number = ANY(c.went))::int)
	FROM segment_clients s JOIN segment_changes c ON c.client = s.client AND c.position > s.folded WHERE s.client = v.client), 0))::bigint`
)
