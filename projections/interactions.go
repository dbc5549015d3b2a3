package projections

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/ranking"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Interactions is the read model of what users did about the items of their
// feeds, as far as ranking needs it.
type Interactions struct{ readmodel.Reader }

// Name of the read model.
func (Interactions) Name() string { return "interactions" }

// Wants says which events the model is made of.
func (Interactions) Wants(t string) bool {
	return t == "feed.interaction_recorded" || t == "end_user.erased"
}

// Version of the read model's tables.
func (Interactions) Version() int { return 3 }

// Schema of the read model. Who was erased is kept, so that an interaction that
// was on its way then names nobody.
func (Interactions) Schema() string {
	return `
CREATE TABLE interactions (
	client    text COLLATE "C" NOT NULL,
	user_id   text COLLATE "C" NOT NULL,
	item      text COLLATE "C" NOT NULL,
	hidden    boolean NOT NULL, -- dismissed or converted: it is shown to this user no more
	shown     integer NOT NULL, -- impressions, as far as popularity counts them, and one more
	answered  integer NOT NULL, -- clicks and conversions that popularity counts
	seen      timestamptz[] NOT NULL, -- the newest impressions since the last answer
	PRIMARY KEY (client, user_id, item)
);
CREATE INDEX interactions_item ON interactions (client, item);
CREATE INDEX interactions_hidden ON interactions (client, user_id) WHERE hidden;
CREATE TABLE popularity ( -- of users
	client      text COLLATE "C" NOT NULL,
	item        text COLLATE "C" NOT NULL,
	impressions double precision NOT NULL,
	clicks      double precision NOT NULL, -- and conversions, weighed
	rate        double precision NOT NULL, -- the expected click rate
	PRIMARY KEY (client, item)
);
CREATE INDEX popularity_ranked ON popularity (client, rate DESC, item) WHERE clicks > 0;
CREATE TABLE interaction_erased (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id)
);`
}

// maxSeen bounds the impressions that are kept of one item: after so many
// without an answer, next to nothing is left of its score.
// limit: models | unanswered impressions of an item that are kept | {maxSeen}
const maxSeen = 20

// maxCounted bounds what a user counts for in how popular an item is: its first so many
// impressions, and an answer to each of them. So nobody makes an item popular alone.
// limit: models | impressions of an item that one user counts for in how popular it is, and as many clicks and conversions | {maxCounted}
const maxCounted = 5

// interactionKey is a user and an item of theirs.
type interactionKey struct {
	client id.Client
	user   id.User
	item   string
}

// itemKey is an item for all users.
type itemKey struct {
	client id.Client
	item   string
}

type interactionRow struct {
	interactionKey
	hidden          bool
	shown, answered int
	seen            []time.Time
}

type popularityRow struct {
	itemKey
	ranking.Response
}

// counts says whether what the user does still counts in the item's popularity.
func (r *interactionRow) counts() bool { return r.shown <= maxCounted }

// interactionRows is what a batch touches of the tables.
type interactionRows struct {
	interactions map[interactionKey]*interactionRow
	popularity   map[itemKey]*popularityRow
	erased       []itemKey        // users, by this batch
	gone         map[itemKey]bool // users who were erased: nothing is counted of them any more
}

const (
	loadInteractions = `
SELECT i.client, i.user_id, i.item, i.hidden, i.shown, i.answered, i.seen FROM interactions i
JOIN unnest($1::text[], $2::text[], $3::text[]) AS k (client, user_id, item)
	ON i.client = k.client AND i.user_id = k.user_id AND i.item = k.item`
	loadPopularity = `
SELECT p.client, p.item, p.impressions, p.clicks FROM popularity p
JOIN unnest($1::text[], $2::text[]) AS k (client, item) ON p.client = k.client AND p.item = k.item`
	loadInteractionErased = `
SELECT e.client, e.user_id FROM interaction_erased e
JOIN unnest($1::text[], $2::text[]) AS k (client, user_id) ON e.client = k.client AND e.user_id = k.user_id`
	noteInteractionErased = `
INSERT INTO interaction_erased (client, user_id) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING`
	eraseInteractions = `
DELETE FROM interactions i USING unnest($1::text[], $2::text[]) AS e (client, user_id)
WHERE i.client = e.client AND (i.user_id = e.user_id OR i.item = e.user_id)`
	erasePopularity = `
DELETE FROM popularity p USING unnest($1::text[], $2::text[]) AS e (client, item)
WHERE p.client = e.client AND p.item = e.item`
	// The times of all rows come as one array, and each row takes its part.
	upsertInteractions = `
INSERT INTO interactions (client, user_id, item, hidden, shown, answered, seen)
SELECT n.client, n.user_id, n.item, n.hidden, n.shown, n.answered, ($7::timestamptz[])[n.first + 1 : n.last]
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::integer[], $6::integer[], $8::integer[], $9::integer[])
	AS n (client, user_id, item, hidden, shown, answered, first, last)
ON CONFLICT (client, user_id, item) DO UPDATE
SET hidden = excluded.hidden, shown = excluded.shown, answered = excluded.answered, seen = excluded.seen`
	upsertPopularity = `
INSERT INTO popularity (client, item, impressions, clicks, rate)
SELECT * FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[])
ON CONFLICT (client, item) DO UPDATE SET impressions = excluded.impressions, clicks = excluded.clicks, rate = excluded.rate`
)

// Apply changes the model by a batch of events.
func (Interactions) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	rows := interactionRows{map[interactionKey]*interactionRow{}, map[itemKey]*popularityRow{}, nil, map[itemKey]bool{}}
	for _, r := range batch {
		if e, ok := r.Event.(event.InteractionRecorded); ok {
			rows.touch(r.Client, e)
		}
	}
	if err := rows.load(ctx, tx); err != nil {
		return err
	}
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.InteractionRecorded:
			rows.record(r, e)
		case event.EndUserErased:
			user := itemKey{r.Client, string(e.User)}
			rows.erased, rows.gone[user] = append(rows.erased, user), true
		}
	}
	maps.DeleteFunc(rows.interactions, func(of interactionKey, _ *interactionRow) bool { return rows.isGone(of) })
	maps.DeleteFunc(rows.popularity, func(of itemKey, _ *popularityRow) bool { return rows.gone[of] })
	return rows.write(ctx, tx)
}

func (rows *interactionRows) touch(client id.Client, e event.InteractionRecorded) (*interactionRow, *popularityRow) {
	of, item := interactionKey{client, e.User, e.Item}, itemKey{client, e.Item}
	if rows.interactions[of] == nil {
		rows.interactions[of] = &interactionRow{interactionKey: of}
	}
	if _, err := id.Parse[id.User](e.Item); err != nil {
		return rows.interactions[of], &popularityRow{} // campaigns count their own
	}
	if rows.popularity[item] == nil {
		rows.popularity[item] = &popularityRow{itemKey: item}
	}
	return rows.interactions[of], rows.popularity[item]
}

// isGone says whether somebody was erased whom a row is about.
func (rows *interactionRows) isGone(of interactionKey) bool {
	return rows.gone[itemKey{of.client, string(of.user)}] || rows.gone[itemKey{of.client, of.item}]
}

func (rows *interactionRows) record(r eventstore.Recorded, e event.InteractionRecorded) {
	if rows.isGone(interactionKey{r.Client, e.User, e.Item}) {
		return // it was on its way
	}
	own, all := rows.touch(r.Client, e)
	switch e.Kind {
	case "impression":
		own.seen = append(own.seen, r.RecordedAt)
		own.seen = own.seen[max(0, len(own.seen)-maxSeen):]
		if own.shown = min(own.shown+1, maxCounted+1); own.counts() {
			all.Impressions++
		}
	case "click", "conversion":
		own.seen = nil
		own.hidden = own.hidden || e.Kind == "conversion"
		if own.counts() && own.answered < max(own.shown, 1) {
			own.answered++
			all.Clicks += ranking.ClickWeight(e.Position)
		}
	case "dismiss":
		own.hidden = true
	}
}

func (rows *interactionRows) load(ctx context.Context, tx pgx.Tx) error {
	if len(rows.interactions) == 0 {
		return nil
	}
	touched := rows.sorted()
	found, err := tx.Query(ctx, loadInteractions,
		readmodel.Column(touched, func(r *interactionRow) string { return string(r.client) }),
		readmodel.Column(touched, func(r *interactionRow) string { return string(r.user) }),
		readmodel.Column(touched, func(r *interactionRow) string { return r.item }))
	if err != nil {
		return err
	}
	var row interactionRow
	if _, err := pgx.ForEachRow(found, []any{readmodel.Text(&row.client), readmodel.Text(&row.user), readmodel.Text(&row.item), &row.hidden, &row.shown, &row.answered, &row.seen}, func() error {
		loaded := row
		loaded.seen = slices.Clone(row.seen)
		rows.interactions[row.interactionKey] = &loaded
		return nil
	}); err != nil {
		return err
	}
	if err := rows.loadGone(ctx, tx, touched); err != nil {
		return err
	}
	items := rows.sortedItems()
	found, err = tx.Query(ctx, loadPopularity,
		readmodel.Column(items, func(r *popularityRow) string { return string(r.client) }),
		readmodel.Column(items, func(r *popularityRow) string { return r.item }))
	if err != nil {
		return err
	}
	var item popularityRow
	_, err = pgx.ForEachRow(found, []any{readmodel.Text(&item.client), readmodel.Text(&item.item), &item.Impressions, &item.Clicks}, func() error {
		loaded := item
		rows.popularity[item.itemKey] = &loaded
		return nil
	})
	return err
}

func (rows *interactionRows) loadGone(ctx context.Context, tx pgx.Tx, touched []*interactionRow) error {
	of := slices.Concat(touched, touched)
	clients := readmodel.Column(of, func(r *interactionRow) string { return string(r.client) })
	users := readmodel.Column(of, func(r *interactionRow) string { return string(r.user) })
	copy(users, readmodel.Column(touched, func(r *interactionRow) string { return r.item }))
	found, err := tx.Query(ctx, loadInteractionErased, clients, users)
	if err != nil {
		return err
	}
	var user itemKey
	_, err = pgx.ForEachRow(found, []any{readmodel.Text(&user.client), readmodel.Text(&user.item)}, func() error {
		rows.gone[user] = true
		return nil
	})
	return err
}

func (rows *interactionRows) write(ctx context.Context, tx pgx.Tx) error {
	if len(rows.erased) > 0 {
		clients := readmodel.Column(rows.erased, func(k itemKey) string { return string(k.client) })
		users := readmodel.Column(rows.erased, func(k itemKey) string { return k.item })
		for _, sql := range []string{noteInteractionErased, eraseInteractions, erasePopularity} {
			if err := readmodel.Do(ctx, tx, "erase interactions", sql, clients, users); err != nil {
				return err
			}
		}
	}
	if touched := rows.sorted(); len(touched) > 0 {
		seen := []time.Time{}
		first, last := make([]int, len(touched)), make([]int, len(touched))
		for i, r := range touched {
			first[i] = len(seen)
			seen = append(seen, r.seen...)
			last[i] = len(seen)
		}
		if err := readmodel.Do(ctx, tx, "upsert interactions", upsertInteractions,
			readmodel.Column(touched, func(r *interactionRow) string { return string(r.client) }),
			readmodel.Column(touched, func(r *interactionRow) string { return string(r.user) }),
			readmodel.Column(touched, func(r *interactionRow) string { return r.item }),
			readmodel.Column(touched, func(r *interactionRow) bool { return r.hidden }),
			readmodel.Column(touched, func(r *interactionRow) int { return r.shown }),
			readmodel.Column(touched, func(r *interactionRow) int { return r.answered }), seen, first, last,
		); err != nil {
			return err
		}
	}
	items := rows.sortedItems()
	if len(items) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "upsert popularity", upsertPopularity,
		readmodel.Column(items, func(r *popularityRow) string { return string(r.client) }),
		readmodel.Column(items, func(r *popularityRow) string { return r.item }),
		readmodel.Column(items, func(r *popularityRow) float64 { return r.Impressions }),
		readmodel.Column(items, func(r *popularityRow) float64 { return r.Clicks }),
		readmodel.Column(items, func(r *popularityRow) float64 { return r.ExpectedClickRate() }),
	)
}

func (rows *interactionRows) sorted() []*interactionRow {
	return slices.SortedFunc(maps.Values(rows.interactions), func(a, b *interactionRow) int {
		return strings.Compare(string(a.client)+"/"+string(a.user)+"/"+a.item, string(b.client)+"/"+string(b.user)+"/"+b.item)
	})
}

func (rows *interactionRows) sortedItems() []*popularityRow {
	return slices.SortedFunc(maps.Values(rows.popularity), func(a, b *popularityRow) int {
		return strings.Compare(string(a.client)+"/"+a.item, string(b.client)+"/"+b.item)
	})
}
