package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/projector"
	"kindred/panics"
	"kindred/projections/readmodel"
)

// Filter selects events; a zero field selects all.
type Filter struct {
	Stream, Type, Actor string
	From, To            time.Time // recorded at or after, and before
	After               int64     // ordinal; -1: from the beginning
	Below               int64     // ordinal; 0: to the end
	Newest              bool      // first
}

const (
	// maxWalk is how many events a page looks at, where filters that no index serves
	// together select few of them.
	// limit: requests | events that a page of a filtered history looks at | {maxWalk} | a `next_cursor`, even if it holds nothing
	maxWalk = 5_000
	// The clocks of those who record a client's events are less than an hour apart:
	// by that, an index tells which ordinals a time concerns.
	entriesOf = `SELECT w.ordinal, w.position, w.hash, w.fits, w.n = $3 AS last FROM (
	SELECT e.ordinal, e.position, e.hash, row_number() OVER (ORDER BY e.ordinal`
	entriesWalk   = `) AS n, `
	entriesAfter  = `true AS fits FROM history_events e WHERE e.client = $1 AND e.ordinal > $2`
	entriesBelow  = ` AND e.ordinal < $%d`
	entriesStream = ` AND hashtextextended(e.stream, 0) = hashtextextended($%[1]d, 0) AND e.stream = $%[1]d`
	entriesType   = ` AND e.type = $%d`
	entriesActor  = ` AND e.actor = $%d`
	entriesFrom   = ` AND e.ordinal > coalesce((SELECT b.ordinal FROM history_events b
		WHERE b.client = $1 AND b.recorded_at < $%d::timestamptz - interval '1 hour' ORDER BY b.recorded_at DESC LIMIT 1), -1)`
	entriesTo = ` AND e.ordinal < coalesce((SELECT b.ordinal FROM history_events b
		WHERE b.client = $1 AND b.recorded_at >= $%d::timestamptz + interval '1 hour' ORDER BY b.recorded_at LIMIT 1), 9223372036854775807)`
	fitsType    = `e.type = $%d AND `
	fitsFrom    = `e.recorded_at >= $%d AND `
	fitsTo      = `e.recorded_at < $%d AND `
	entriesBy   = ` ORDER BY e.ordinal`
	entriesFit  = ` LIMIT $3) w WHERE w.fits OR w.n = $3 ORDER BY w.ordinal`
	entriesPage = ` LIMIT $%d`
)

// List returns entries of a client in order, or the newest first. It looks at 5,000
// at most: more is the ordinal after which, or below which, to go on where fewer than
// limit were found among those; nil: there are no more.
// Faults: building, overloaded, quarantined, stale.
func (m History) List(ctx context.Context, client id.Client, eventual bool, f Filter, limit int) (found []Entry, more *int64, err error) {
	fits, w := readmodel.Where{Args: []any{f.After, maxWalk}}, readmodel.Where{}
	argue := func(on *readmodel.Where, condition string, arg any) {
		on.Args = fits.Args
		on.And(condition, arg)
		fits.Args = on.Args
	}
	if f.Type != "" && f.Actor != "" {
		argue(&fits, fitsType, f.Type)
	} else if f.Type != "" {
		argue(&w, entriesType, f.Type)
	}
	if f.Actor != "" {
		argue(&w, entriesActor, f.Actor)
	}
	if f.Stream != "" {
		argue(&w, entriesStream, f.Stream)
	}
	if f.Below != 0 {
		argue(&w, entriesBelow, f.Below)
	}
	if !f.From.IsZero() {
		argue(&w, entriesFrom, f.From)
		argue(&fits, fitsFrom, f.From)
	}
	if !f.To.IsZero() {
		argue(&w, entriesTo, f.To)
		argue(&fits, fitsTo, f.To)
	}
	order := ""
	if f.Newest {
		order = " DESC"
	}
	w.SQL += entriesBy + order + entriesFit + order
	argue(&w, entriesPage, limit)
	type row struct {
		Entry
		fits, last bool
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, entriesOf+order+entriesWalk+fits.SQL+entriesAfter+w.SQL, fits.Args,
		func(r *row) []any {
			return []any{&r.Ordinal, readmodel.Text(&r.Position), hashInto{&r.Hash}, &r.fits, &r.last}
		})
	for _, r := range rows {
		if r.fits {
			found = append(found, r.Entry)
		}
		if r.last && len(found) < limit && (!f.Newest || r.Ordinal != 0) {
			more = &r.Ordinal
		}
	}
	return found, more, err
}

// ListKnown is List where the model has held what f names before. Where it holds nothing of that, it is waited
// for: a crash of Postgres takes from it what was not flushed, and it applies that again.
// Faults: building, overloaded, quarantined, stale.
func (m History) ListKnown(ctx context.Context, client id.Client, f Filter, limit int) ([]Entry, error) {
	found, _, err := m.List(ctx, client, true, f, limit)
	if err == nil && len(found) == 0 {
		m.AtOnce = false
		found, _, err = m.List(ctx, client, false, f, limit)
	}
	return found, err
}

const getSize = `SELECT size FROM history_trees WHERE client = $1`

// HistorySize is how many events a client has, as a transaction on any database sees it.
func HistorySize(ctx context.Context, tx pgx.Tx, client id.Client) (size int64, err error) {
	err = tx.QueryRow(ctx, getSize, string(client)).Scan(&size)
	return size, err
}

const getTree = `SELECT t.size, t.peaks, t.position, t.recorded_at FROM history_trees t WHERE t.client = $1`

// Tree returns the tree of a client as it is now; an empty one where nothing
// happened yet.
// Faults: building, overloaded, quarantined, stale.
func (m History) Tree(ctx context.Context, client id.Client, eventual bool) (Grown, error) {
	type row struct {
		Grown
		peaks []byte
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getTree, nil, func(r *row) []any {
		return []any{&r.Size, &r.peaks, readmodel.Text(&r.Position), &r.RecordedAt}
	})
	if err != nil || len(found) == 0 {
		return Grown{}, err
	}
	found[0].Peaks = hashes(found[0].peaks)
	return found[0].Grown, nil
}

// Trees returns the trees of clients as the model holds them; none of a client
// that it does not know.
func (m History) Trees(ctx context.Context, clients []id.Client) (map[id.Client]*Grown, error) {
	trees := make(map[id.Client]*Grown, len(clients))
	for _, client := range clients {
		trees[client] = nil
	}
	b := entering{trees: trees}
	if err := b.load(ctx, m.Pool); err != nil {
		return nil, fmt.Errorf("read trees: %w", err)
	}
	return trees, nil
}

// Unsigned returns at most so many clients, at random, that have grown since their
// last head was signed, but none whose part of the model has stopped.
func (m History) Unsigned(ctx context.Context, most int) ([]id.Client, error) {
	_, joins := projector.FreshEach(m)
	rows, err := m.Pool.Query(ctx, `
SELECT w.client FROM history_trees w`+joins+`
WHERE paused.paused IS NOT false AND w.size IS DISTINCT FROM (SELECT max(h.size) FROM public.audit_heads h WHERE h.client = w.client)
ORDER BY random() LIMIT $1`, most)
	if err != nil {
		return nil, fmt.Errorf("list clients with something to sign: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[id.Client])
}

const (
	// It looks at the events of an hour at most, see entriesOf.
	sizeAt = `
SELECT coalesce(max(e.ordinal) + 1, 0) AS size FROM history_events e WHERE e.client = $1 AND e.recorded_at <= $2
	AND e.ordinal < coalesce((SELECT b.ordinal FROM history_events b
		WHERE b.client = $1 AND b.recorded_at >= $2::timestamptz + interval '1 hour' ORDER BY b.recorded_at LIMIT 1), 9223372036854775807)`
	// Positions grow with ordinals, so that halves are left out one after the other.
	sizeUpTo = `
SELECT (WITH RECURSIVE search (low, high) AS (
	SELECT 0::bigint, coalesce(max(e.ordinal) + 1, 0) FROM history_events e WHERE e.client = $1
	UNION ALL
	SELECT CASE WHEN e.position <= $2 THEN e.ordinal + 1 ELSE low END, CASE WHEN e.position <= $2 THEN high ELSE e.ordinal END
	FROM search JOIN history_events e ON e.client = $1 AND e.ordinal = (low + high) / 2 WHERE low < high
) SELECT low FROM search WHERE low = high) AS size`
)

// SizeAt is how many events a client had recorded by a time: everything up to
// the last event that was recorded no later.
// Faults: building, overloaded, quarantined, stale.
func (m History) SizeAt(ctx context.Context, client id.Client, eventual bool, at time.Time) (int64, error) {
	size, err := readmodel.Count(ctx, m.Reader, m, client, eventual, sizeAt, at)
	return int64(size), err
}

// SizeUpTo is how many events of a client stand at a position or before it.
// Faults: building, overloaded, quarantined, stale.
func (m History) SizeUpTo(ctx context.Context, client id.Client, eventual bool, at eventstore.Position) (int64, error) {
	size, err := readmodel.Count(ctx, m.Reader, m, client, eventual, sizeUpTo, string(at))
	return int64(size), err
}

const selectNodes = `
SELECT n.client, n.level, n.index, n.hash FROM unnest($1::text[], $2::smallint[], $3::bigint[]) AS wanted (client, level, index)
JOIN history_nodes n ON n.client = wanted.client AND n.level = wanted.level AND n.index = wanted.index
UNION ALL
SELECT e.client, 0, e.ordinal, e.hash FROM unnest($1::text[], $2::smallint[], $3::bigint[]) AS wanted (client, level, index)
JOIN history_events e ON e.client = wanted.client AND wanted.level = 0 AND e.ordinal = wanted.index`

type nodeName struct {
	client id.Client
	level  int
	index  int64
}

// treeNodes are nodes of clients' trees: nil until they are read, or where the
// model does not hold them.
type treeNodes map[nodeName]*audit.Hash

// want notes which nodes of a client's tree are looked up.
func (n treeNodes) want(client id.Client) audit.Nodes {
	return func(level int, index int64) audit.Hash {
		depth := level % nodeStep
		for i := range int64(1) << depth {
			n[nodeName{client, level - depth, index<<depth + i}] = nil
		}
		return audit.Hash{}
	}
}

// of hands out the nodes of a client's tree. It clears whole where one is missing.
func (n treeNodes) of(client id.Client, whole *bool) audit.Nodes {
	return func(level int, index int64) audit.Hash {
		depth := level % nodeStep
		var tree audit.Subtree
		for i := range int64(1) << depth {
			hash := n[nodeName{client, level - depth, index<<depth + i}]
			if hash == nil {
				*whole = false
				return audit.Hash{}
			}
			tree.Append(*hash)
		}
		return tree.Root()
	}
}

// Prove runs ask twice: first to learn which nodes of a client's tree it looks
// up, then with these nodes.
// Faults: stale.
func (m History) Prove(ctx context.Context, client id.Client, ask func(audit.Nodes) error) error {
	nodes := treeNodes{}
	if err := ask(nodes.want(client)); err != nil {
		return err
	}
	if err := m.fetch(ctx, nodes); err != nil {
		return fmt.Errorf("read the tree of %s: %w", client, err)
	}
	whole := true
	err := ask(nodes.of(client, &whole))
	if !whole {
		return ErrShorter()
	}
	return err
}

// ErrShorter is the fault that the model does not hold a tree as far as is asked.
// Faults: stale.
func ErrShorter() error {
	return fault.New(fault.Unavailable, "stale", "The history is not that long yet; try again.").After(time.Second)
}

// RootsAt returns the roots that clients' trees had at sizes above 0. A tree that
// is not as long has none.
func (m History) RootsAt(ctx context.Context, sizes map[id.Client]int64) (map[id.Client]audit.Hash, error) {
	nodes := treeNodes{}
	for client, size := range sizes {
		if _, err := audit.RootAt(nodes.want(client), size); err != nil {
			return nil, err
		}
	}
	if err := m.fetch(ctx, nodes); err != nil {
		return nil, fmt.Errorf("read trees: %w", err)
	}
	roots := make(map[id.Client]audit.Hash, len(sizes))
	for client, size := range sizes {
		whole := true
		root, err := audit.RootAt(nodes.of(client, &whole), size)
		if err != nil {
			return nil, err
		}
		if whole {
			roots[client] = root
		}
	}
	return roots, nil
}

func (m History) fetch(ctx context.Context, nodes treeNodes) error {
	names := slices.Collect(maps.Keys(nodes))
	rows, err := m.Pool.Query(ctx, selectNodes, readmodel.Column(names, func(n nodeName) string { return string(n.client) }),
		readmodel.Column(names, func(n nodeName) int16 { return int16(n.level) }), readmodel.Column(names, func(n nodeName) int64 { return n.index }))
	if err != nil {
		return err
	}
	var (
		name nodeName
		hash audit.Hash
	)
	_, err = pgx.ForEachRow(rows, []any{&name.client, &name.level, &name.index, hashInto{&hash}}, func() error {
		read := hash
		if name.level == 0 {
			read = audit.Leaf(hash)
		}
		nodes[name] = &read
		return nil
	})
	return err
}

// hashInto takes a bytea of 32 bytes.
type hashInto struct{ into *audit.Hash }

// ScanBytes takes the value (pgtype.BytesScanner).
func (h hashInto) ScanBytes(v []byte) error {
	if len(v) != len(h.into) {
		return fmt.Errorf("a hash of %d bytes", len(v))
	}
	copy(h.into[:], v)
	return nil
}

// readsAtOnce bounds the reads of single events that are under way.
// limit: models | reads of single events for a history | {readsAtOnce}
const readsAtOnce = 16

// Events reads from the log what stands at entries; what it has lost is the
// zero Record. Where that is large, it reads the first of them alone, readsAtOnce at least.
func Events(ctx context.Context, log eventstore.Store, entries []Entry) ([]eventstore.Record, error) {
	records, read := make([]eventstore.Record, len(entries)), len(entries)
	var size atomic.Int64
	group, ctx := panics.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i, entry := range entries {
		if i >= readsAtOnce && size.Load() >= readmodel.MaxPage {
			read = i
			break
		}
		group.Go(func() error {
			r, err := log.At(ctx, entry.Position)
			if errors.Is(err, eventstore.ErrNotFound) {
				return nil
			}
			size.Add(int64(len(r.Data) + len(r.Meta)))
			records[i] = r
			return err
		})
	}
	err := group.Wait()
	return records[:read], err
}
