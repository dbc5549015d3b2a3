package segments

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Of clients that never had a segment, what creates and changes users is applied for all of
// them at once. It is as if each were applied by itself.

const (
	lockWithout  = `SELECT client, now, users, fold_in FROM segment_clients WHERE client = ANY($1) AND versions = 0 ORDER BY client FOR UPDATE`
	usersWithout = `
SELECT u.client, ` + segmentUserColumns + `
FROM unnest($1::text[], $2::text[]) AS w (client, id) JOIN segment_users u ON u.client = w.client AND u.id = w.id`
	keepWithout = `
UPDATE segment_clients c SET now = n.now, users = n.users, fold_in = n.fold_in
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::int[]) AS n (client, now, users, fold_in) WHERE c.client = n.client`
)

// ApplyTogether implements [projector.PerClient].
func (m Model) ApplyTogether(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error) {
	without, err := m.without(ctx, tx, batch)
	if err != nil {
		return nil, err
	}
	for _, r := range batch {
		g := without[r.Client]
		switch {
		case g == nil:
			rest = append(rest, r)
		case m.Wants(r.Type):
			if err := g.advance(ctx, r); err != nil {
				return nil, err
			}
			if err := g.apply(ctx, r); err != nil {
				return nil, err
			}
			g.foldIn--
		}
	}
	if len(without) == 0 {
		return rest, nil
	}
	var users []userOfClient
	var clients []string
	var nows []time.Time
	var counts []int64
	var folds []int
	for _, client := range slices.Sorted(maps.Keys(without)) {
		g := without[client]
		clients, nows, counts = append(clients, string(client)), append(nows, g.now), append(counts, g.segmented.users)
		folds = append(folds, g.foldIn)
		for _, u := range readmodel.SortedValues(g.touched) {
			users = append(users, userOfClient{client, u})
		}
	}
	if err := writeUsers(ctx, tx, users); err != nil {
		return nil, err
	}
	return rest, readmodel.Do(ctx, tx, "keep the segments of clients", keepWithout, clients, nows, counts, folds)
}

// without are the clients of a batch that never had a segment, and of which it holds nothing
// but users that are created and change, on the day of the last one, and before the next fold.
func (m Model) without(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (map[id.Client]*judgedBatch, error) {
	newest, events, others := map[id.Client]time.Time{}, map[id.Client]int{}, map[id.Client]bool{}
	for _, r := range batch {
		switch r.Event.(type) {
		case event.EndUserCreated, event.EndUserTraitsChanged:
			events[r.Client]++
			if r.RecordedAt.After(newest[r.Client]) {
				newest[r.Client] = r.RecordedAt
			}
		default:
			others[r.Client] = others[r.Client] || m.Wants(r.Type)
		}
	}
	maps.DeleteFunc(newest, func(client id.Client, _ time.Time) bool { return others[client] })
	if len(newest) == 0 {
		return nil, nil
	}
	found := map[id.Client]*judgedBatch{}
	rows, _ := tx.Query(ctx, lockWithout, readmodel.Texts(slices.Collect(maps.Keys(newest)))) // what it fails with, its rows end with
	var c segmented
	if _, err := pgx.ForEachRow(rows, []any{readmodel.Text(&c.client), &c.now, &c.users, &c.foldIn}, func() error {
		if dayOf(newest[c.client]).After(dayOf(c.now)) || events[c.client] >= c.foldIn {
			return nil
		}
		one := c
		one.Model, one.tx = m, tx
		found[c.client] = newBatch(&one)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("lock clients without segments: %w", err)
	}
	var clients, ids []string
	made := madeBy(batch)
	for _, r := range batch {
		if user := userOf(r.Event); user != "" && !made[userKey{r.Client, user}] && found[r.Client] != nil {
			clients, ids = append(clients, string(r.Client)), append(ids, string(user))
		}
	}
	if len(ids) == 0 {
		return found, nil
	}
	rows, _ = tx.Query(ctx, usersWithout, clients, ids) // what it fails with, its rows end with
	var u segmentUser
	if _, err := pgx.ForEachRow(rows, append([]any{readmodel.Text(&c.client)}, u.columns()...), func() error {
		one := u
		found[c.client].users[u.id], found[c.client].there[u.id] = &one, true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read users of clients without segments: %w", err)
	}
	return found, nil
}
