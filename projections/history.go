package projections

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// History is the read model of what happened to each client: where its events
// stand in the log, by ordinal, and the Merkle tree over their hashes. The
// events themselves are read from the log.
type History struct{ readmodel.Reader }

// Entry says where an event stands.
type Entry struct {
	Ordinal  int64 // counted from 0 for each client
	Position eventstore.Position
	Hash     audit.Hash // of the event as it was when it was entered
}

// Grown is the tree of a client.
type Grown struct {
	audit.Tree
	Position   eventstore.Position // of the last event
	RecordedAt time.Time           // the latest of all
}

// Name of the read model.
func (History) Name() string { return "history" }

// Version of the read model's tables.
func (History) Version() int { return 1 }

// Options of the read model. Events are entered as they are stored, whatever they say. A head
// is signed over every event before it, and one that somebody kept says as much of a client
// that was deleted.
func (History) Options() projector.Options {
	return projector.Options{Verbatim: true, Gapless: true, KeepsDeleted: true, Indexes: historyIndexes}
}

// Schema of the read model. Nodes are kept of every nodeStep-th level alone;
// those between follow from at most eight of them.
func (History) Schema() string {
	return `
CREATE TABLE history_events (
	client      text COLLATE "C" NOT NULL,
	ordinal     bigint NOT NULL,
	position    log_position NOT NULL,
	stream      text COLLATE "C" NOT NULL,
	type        text COLLATE "C" NOT NULL,
	actor       text COLLATE "C" NOT NULL,
	recorded_at timestamptz NOT NULL,
	hash        bytea NOT NULL,
	PRIMARY KEY (client, ordinal)
);
CREATE TABLE history_nodes (
	client text COLLATE "C" NOT NULL,
	level  smallint NOT NULL,
	index  bigint NOT NULL,
	hash   bytea NOT NULL,
	PRIMARY KEY (client, level, index)
);
CREATE TABLE history_trees (
	client      text COLLATE "C" PRIMARY KEY,
	size        bigint NOT NULL,
	peaks       bytea NOT NULL,
	position    log_position NOT NULL,
	recorded_at timestamptz NOT NULL
) WITH (fillfactor = 50);`
}

var historyIndexes = []string{
	`CREATE INDEX IF NOT EXISTS history_events_stream ON history_events (hashtextextended(stream, 0), ordinal);`,
	`CREATE INDEX IF NOT EXISTS history_events_recorded ON history_events (client, recorded_at);`,
	`CREATE INDEX IF NOT EXISTS history_events_type ON history_events (client, type, ordinal);`,
	`CREATE INDEX IF NOT EXISTS history_events_actor ON history_events (client, actor, ordinal);`,
}

const nodeStep = 4

const (
	selectTrees = `SELECT client, size, peaks, position, recorded_at FROM history_trees WHERE client = ANY($1)`
	insertNodes = `
INSERT INTO history_nodes (client, level, index, hash)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::bytea[])`
	upsertTrees = `
INSERT INTO history_trees (client, size, peaks, position, recorded_at)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::timestamptz[])
ON CONFLICT (client) DO UPDATE SET
	size = excluded.size, peaks = excluded.peaks, position = excluded.position, recorded_at = excluded.recorded_at`
)

var eventColumns = []string{"client", "ordinal", "position", "stream", "type", "actor", "recorded_at", "hash"}

// entering is a batch on its way into the tables.
type entering struct {
	entries []enteredEvent
	nodes   []enteredNode
	trees   map[id.Client]*Grown
}

type enteredEvent struct {
	eventstore.Recorded
	Entry
	actor string
}

type enteredNode struct {
	client id.Client
	level  int16
	index  int64
	hash   audit.Hash
}

// Apply enters a batch of events.
func (History) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	b := entering{trees: map[id.Client]*Grown{}}
	for _, r := range batch {
		if r.Client != "" {
			b.trees[r.Client] = &Grown{}
		}
	}
	if len(b.trees) == 0 {
		return nil
	}
	if err := b.load(ctx, tx); err != nil {
		return fmt.Errorf("read the trees: %w", err)
	}
	for _, r := range batch {
		if r.Client == "" {
			continue
		}
		if err := b.enter(r); err != nil {
			return err
		}
	}
	return b.write(ctx, tx)
}

func (b *entering) load(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) error {
	rows, _ := db.Query(ctx, selectTrees, slices.Collect(maps.Keys(b.trees))) // what it fails with, its rows end with
	var (
		client id.Client
		found  Grown
		peaks  []byte
	)
	_, err := pgx.ForEachRow(rows, []any{&client, &found.Size, &peaks, &found.Position, &found.RecordedAt}, func() error {
		grown := found
		grown.Peaks = hashes(peaks)
		b.trees[client] = &grown
		return nil
	})
	return err
}

func (b *entering) enter(r eventstore.Recorded) error {
	hash, err := eventstore.Hash(r.Record)
	if err != nil {
		return err
	}
	actor, _, _ := audit.Shown(r.Meta) // it is in the history whatever it says
	tree := b.trees[r.Client]
	b.entries = append(b.entries, enteredEvent{r, Entry{tree.Size, r.Position, hash}, actor})
	tree.Append(hash, func(level int, index int64, h audit.Hash) {
		if level%nodeStep == 0 {
			b.nodes = append(b.nodes, enteredNode{r.Client, int16(level), index, h})
		}
	})
	tree.Position = r.Position
	if r.RecordedAt.After(tree.RecordedAt) {
		tree.RecordedAt = r.RecordedAt
	}
	return nil
}

func (b *entering) write(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"history_events"}, eventColumns, pgx.CopyFromSlice(len(b.entries), func(i int) ([]any, error) {
		e := &b.entries[i]
		return []any{
			string(e.Client), e.Ordinal, string(e.Position), string(e.Stream), e.Type, e.actor, e.RecordedAt, e.Hash[:],
		}, nil
	})); err != nil {
		return fmt.Errorf("enter events: %w", err)
	}
	if len(b.nodes) > 0 {
		if err := readmodel.Do(ctx, tx, "keep nodes", insertNodes,
			readmodel.Column(b.nodes, func(n enteredNode) string { return string(n.client) }),
			readmodel.Column(b.nodes, func(n enteredNode) int16 { return n.level }),
			readmodel.Column(b.nodes, func(n enteredNode) int64 { return n.index }),
			readmodel.Column(b.nodes, func(n enteredNode) []byte { return n.hash[:] }),
		); err != nil {
			return err
		}
	}
	trees := readmodel.SortedValues(b.trees)
	return readmodel.Do(ctx, tx, "keep trees", upsertTrees,
		readmodel.Texts(readmodel.SortedKeys(b.trees)),
		readmodel.Column(trees, func(t *Grown) int64 { return t.Size }),
		readmodel.Column(trees, func(t *Grown) []byte {
			return slices.Concat(readmodel.Column(t.Peaks, func(h audit.Hash) []byte { return h[:] })...)
		}),
		readmodel.Column(trees, func(t *Grown) string { return string(t.Position) }),
		readmodel.Column(trees, func(t *Grown) time.Time { return t.RecordedAt }),
	)
}

// hashes splits what was joined.
func hashes(joined []byte) []audit.Hash {
	out := make([]audit.Hash, len(joined)/32)
	for i := range out {
		out[i] = audit.Hash(joined[32*i:])
	}
	return out
}
