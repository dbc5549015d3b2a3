package segments

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

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

// afterAll ends a place that is behind all changes of a position: in the order of places,
// ids of users stand before it.
const afterAll = "/~"

// Members returns a page of a segment's users, in the order of their creation, and
// where changes go on from: whoever follows these from then on misses none.
// Faults: building, overloaded, quarantined, segment_building, segment_unknown, stale.
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
