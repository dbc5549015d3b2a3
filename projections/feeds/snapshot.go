package feeds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
)

const (
	// limit: kept | a feed behind a cursor | {lifetime} (410 `feed_expired`)
	lifetime   = 30 * time.Minute
	pruneEvery = time.Minute
	pruneBatch = 500
	// limit: models | batches of expired feeds that one round deletes | {maxRounds}, of {pruneBatch}
	maxRounds = 1_000 // batches to a Prune
)

// Snapshot names a frozen feed.
type Snapshot [14]byte

// item is what a snapshot holds: kind, reason, score, and whom or what it
// shows.
type item struct {
	kind   Kind
	reason Reason
	score  float64
	id     string
}

const itemSize = 1 + 1 + 4 + 16

func encode(items []item) ([]byte, error) {
	out := make([]byte, 0, len(items)*itemSize)
	for _, i := range items {
		raw, err := id.Bytes(id.User(i.id))
		if i.kind == Campaign {
			raw, err = id.Bytes(id.Campaign(i.id))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, byte(i.kind), byte(i.reason))
		out = binary.BigEndian.AppendUint32(out, math.Float32bits(float32(i.score)))
		out = append(out, raw[:]...)
	}
	return out, nil
}

func decode(raw []byte) ([]item, error) {
	if len(raw)%itemSize != 0 {
		return nil, fmt.Errorf("a feed of %d bytes", len(raw))
	}
	items := make([]item, 0, len(raw)/itemSize)
	for ; len(raw) > 0; raw = raw[itemSize:] {
		i := item{
			kind: Kind(raw[0]), reason: Reason(raw[1]),
			score: float64(math.Float32frombits(binary.BigEndian.Uint32(raw[2:]))),
			id:    string(id.From[id.User]([16]byte(raw[6:itemSize]))),
		}
		if i.kind == Campaign {
			i.id = string(id.From[id.Campaign]([16]byte(raw[6:itemSize])))
		}
		items = append(items, i)
	}
	return items, nil
}

// A crash of the database may lose the snapshots of its last moments: their
// readers begin again, and nobody waits for the disk.
const freeze = `
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO feed_snapshots (client, id, items, expires_at)
SELECT $1, $2, $3, $4 FROM quick`

func (f *Feeds) freeze(ctx context.Context, client id.Client, snapshot Snapshot, items []item) error {
	encoded, err := encode(items)
	if err != nil {
		return fmt.Errorf("freeze a feed: %w", err)
	}
	if _, err := f.Pool.Exec(ctx, freeze, client, snapshot[:], encoded, f.Now().Add(lifetime)); err != nil {
		return fmt.Errorf("freeze a feed: %w", err)
	}
	return nil
}

const thaw = `SELECT items FROM feed_snapshots WHERE client = $1 AND id = $2 AND expires_at > $3`

func (f *Feeds) thaw(ctx context.Context, client id.Client, snapshot Snapshot) ([]item, error) {
	var encoded []byte
	err := f.Pool.QueryRow(ctx, thaw, client, snapshot[:], f.Now()).Scan(&encoded)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.Gone, "feed_expired", "This feed is older than 30 minutes. Begin again without a cursor.")
	}
	if err != nil {
		return nil, fmt.Errorf("read a feed: %w", err)
	}
	return decode(encoded)
}

const prune = `
DELETE FROM feed_snapshots WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM feed_snapshots WHERE expires_at < $1 ORDER BY expires_at LIMIT $2))`

// Prune forgets the feeds that have expired.
func (f *Feeds) Prune(ctx context.Context) (n int64, err error) {
	for range maxRounds {
		tag, err := f.Pool.Exec(ctx, prune, f.Now(), pruneBatch)
		if err != nil {
			return n, fmt.Errorf("prune feeds: %w", err)
		}
		n += tag.RowsAffected()
		if tag.RowsAffected() < pruneBatch {
			break
		}
	}
	return n, nil
}

// Run prunes every minute until ctx ends.
func (f *Feeds) Run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := f.Prune(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "expired feeds not pruned", slog.Any("error", err))
		}
	}
}
