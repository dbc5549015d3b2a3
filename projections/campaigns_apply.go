package projections

import (
	"cmp"
	"context"
	"encoding/json"
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

// slotLength divides the hours of every time zone.
const slotLength = 15 * time.Minute

// planCampaigns has each statement planned for the tables as they are: a plan that was kept
// from when a client had few campaigns and impressions reads all of them to find one. It
// ends with the transaction.
const planCampaigns = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`

// Apply changes the model by a batch of events.
func (Campaigns) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	if err := readmodel.Do(ctx, tx, "plan for campaigns", planCampaigns); err != nil {
		return err
	}
	b := newCampaignBatch()
	var moved pgx.Batch
	for _, r := range batch {
		if e, ok := r.Event.(event.ClockMoved); ok {
			campaignClocks.Move(&moved, e)
			continue
		}
		if e, erased := r.Event.(event.EndUserErased); erased {
			// What came before in this batch must be in the tables.
			if err := b.flush(ctx, tx); err != nil {
				return err
			}
			for _, sql := range []string{noteCampaignErased, eraseImpressions, eraseCampaignUsers} {
				if err := readmodel.Do(ctx, tx, "erase a user's impressions", sql, string(r.Client), string(e.User)); err != nil {
					return err
				}
			}
			continue
		}
		b.add(r)
	}
	if err := readmodel.Send(ctx, tx, "clocks of campaigns", &moved); err != nil {
		return err
	}
	return b.flush(ctx, tx)
}

const (
	noteCampaignErased = `INSERT INTO campaign_erased (client, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	eraseImpressions   = `UPDATE campaign_impressions SET user_id = NULL WHERE client = $1 AND user_id = $2`
	eraseCampaignUsers = `DELETE FROM campaign_users WHERE client = $1 AND user_id = $2`
)

// campaignBatch gathers what events add to the tables.
type campaignBatch struct {
	changes     map[campaignKey][]eventstore.Recorded
	added       map[campaignKey]*campaignAdded
	slots       map[slotKey]*slotAdded
	impressions []eventstore.Recorded
	answers     map[impressionKey]int64
	users       map[campaignUser]*userAdded
}

type (
	campaignKey struct {
		client   id.Client
		campaign id.Campaign
	}
	slotKey struct {
		campaignKey
		slot time.Time
	}
	impressionKey struct {
		client     id.Client
		impression id.Impression
	}
	campaignUser struct {
		campaignKey
		user id.User
	}
	campaignAdded struct {
		spent *int64 // what was spent in all; nil: as before
		Totals
		reach int64
	}
	slotAdded struct {
		spentMinor int64
		Totals
	}
	userAdded struct{ impressions, engaged int64 }
)

func newCampaignBatch() *campaignBatch {
	return &campaignBatch{
		changes: map[campaignKey][]eventstore.Recorded{}, added: map[campaignKey]*campaignAdded{},
		slots: map[slotKey]*slotAdded{}, answers: map[impressionKey]int64{}, users: map[campaignUser]*userAdded{},
	}
}

func (b *campaignBatch) add(r eventstore.Recorded) {
	switch e := r.Event.(type) {
	case event.CampaignSpendRecorded:
		of := campaignKey{r.Client, e.Campaign}
		total, slot := entry(b.added, of), entry(b.slots, slotOf(of, r.RecordedAt))
		total.spent = &e.SpentMinor
		total.Spends++
		slot.Spends++
		slot.spentMinor += e.AmountMinor
	case event.CampaignEngagementRecorded:
		if e.Kind == "impression" {
			b.impressions = append(b.impressions, r) // it counts if it is new
			return
		}
		of := campaignKey{r.Client, e.Campaign}
		total, slot := entry(b.added, of), entry(b.slots, slotOf(of, r.RecordedAt))
		switch e.Kind {
		case "click":
			total.Clicks++
			slot.Clicks++
		default:
			total.Conversions++
			slot.Conversions++
		}
		b.answers[impressionKey{r.Client, e.Impression}]++
	default:
		if campaign := changedCampaign(r.Event); campaign != "" {
			of := campaignKey{r.Client, campaign}
			b.changes[of] = append(b.changes[of], r)
		}
	}
}

// entry is the value of a key, made where there is none.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

func slotOf(of campaignKey, at time.Time) slotKey { return slotKey{of, at.UTC().Truncate(slotLength)} }

// changedCampaign names the campaign whose terms or status an event changes.
// Opening, closing and exhaustion change neither.
func changedCampaign(e event.Event) id.Campaign {
	switch e := e.(type) {
	case event.CampaignDrafted:
		return e.Campaign
	case event.CampaignChanged:
		return e.Campaign
	case event.CampaignScheduled:
		return e.Campaign
	case event.CampaignStarted:
		return e.Campaign
	case event.CampaignPaused:
		return e.Campaign
	case event.CampaignResumed:
		return e.Campaign
	case event.CampaignCompleted:
		return e.Campaign
	case event.CampaignCancelled:
		return e.Campaign
	}
	return ""
}

// flush writes what was gathered and starts anew.
func (b *campaignBatch) flush(ctx context.Context, tx pgx.Tx) error {
	for _, write := range []func(context.Context, pgx.Tx) error{
		b.writeImpressions, b.writeAnswers, b.writeUsers, b.writeSlots, b.writeChanges, b.writeTotals,
	} {
		if err := write(ctx, tx); err != nil {
			return err
		}
	}
	*b = *newCampaignBatch()
	return nil
}

// An impression that stands in the log twice counts once, where it stands first.
const insertImpressions = `
INSERT INTO campaign_impressions (client, id, campaign, user_id, shown_at, position)
SELECT n.client, n.id, n.campaign,
	CASE WHEN NOT EXISTS (SELECT FROM campaign_erased e WHERE e.client = n.client AND e.user_id = n.user_id) THEN n.user_id END,
	n.shown_at, n.position
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[])
	AS n (client, id, campaign, user_id, shown_at, position)
ON CONFLICT (client, id) DO NOTHING RETURNING client, id`

func (b *campaignBatch) writeImpressions(ctx context.Context, tx pgx.Tx) error {
	if len(b.impressions) == 0 {
		return nil
	}
	shown := func(r eventstore.Recorded) event.CampaignEngagementRecorded {
		return r.Event.(event.CampaignEngagementRecorded)
	}
	rows, err := tx.Query(ctx, insertImpressions,
		readmodel.Column(b.impressions, func(r eventstore.Recorded) string { return string(r.Client) }),
		readmodel.Column(b.impressions, func(r eventstore.Recorded) string { return string(shown(r).Impression) }),
		readmodel.Column(b.impressions, func(r eventstore.Recorded) string { return string(shown(r).Campaign) }),
		readmodel.Column(b.impressions, func(r eventstore.Recorded) string { return string(shown(r).User) }),
		readmodel.Column(b.impressions, func(r eventstore.Recorded) time.Time { return r.RecordedAt }),
		readmodel.Column(b.impressions, func(r eventstore.Recorded) string { return string(r.Position) }),
	)
	if err != nil {
		return fmt.Errorf("insert impressions: %w", err)
	}
	fresh, key := map[impressionKey]bool{}, impressionKey{}
	_, err = pgx.ForEachRow(rows, []any{readmodel.Text(&key.client), readmodel.Text(&key.impression)}, func() error {
		fresh[key] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert impressions: %w", err)
	}
	for _, r := range b.impressions {
		e := shown(r)
		key := impressionKey{r.Client, e.Impression}
		if !fresh[key] {
			continue
		}
		delete(fresh, key)
		of := campaignKey{r.Client, e.Campaign}
		entry(b.added, of).Impressions++
		entry(b.slots, slotOf(of, r.RecordedAt)).Impressions++
		entry(b.users, campaignUser{of, e.User}).impressions++
	}
	return nil
}

// An impression is engaged with its first answer, in the slot in which it was
// shown.
const addAnswers = `
UPDATE campaign_impressions i SET answers = i.answers + new.answers
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS new (client, id, answers)
WHERE i.client = new.client AND i.id = new.id
RETURNING i.client, i.campaign, i.user_id, i.shown_at, i.answers = new.answers`

func (b *campaignBatch) writeAnswers(ctx context.Context, tx pgx.Tx) error {
	if len(b.answers) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.answers), func(x, y impressionKey) int {
		return cmp.Or(cmp.Compare(x.client, y.client), cmp.Compare(x.impression, y.impression))
	})
	rows, err := tx.Query(ctx, addAnswers,
		readmodel.Column(keys, func(k impressionKey) string { return string(k.client) }),
		readmodel.Column(keys, func(k impressionKey) string { return string(k.impression) }),
		readmodel.Column(keys, func(k impressionKey) int64 { return b.answers[k] }),
	)
	if err != nil {
		return fmt.Errorf("count answers: %w", err)
	}
	var (
		of    campaignKey
		user  id.User
		shown time.Time
		first bool
	)
	_, err = pgx.ForEachRow(rows, []any{readmodel.Text(&of.client), readmodel.Text(&of.campaign), readmodel.Text(&user), &shown, &first}, func() error {
		if !first {
			return nil
		}
		entry(b.added, of).Engaged++
		entry(b.slots, slotOf(of, shown)).Engaged++
		if user != "" {
			entry(b.users, campaignUser{of, user}).engaged++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("count answers: %w", err)
	}
	return nil
}

const upsertCampaignUsers = `
INSERT INTO campaign_users AS u (client, campaign, user_id, impressions, engaged)
SELECT n.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
	AS n (client, campaign, user_id, impressions, engaged)
WHERE NOT EXISTS (SELECT FROM campaign_erased e WHERE e.client = n.client AND e.user_id = n.user_id)
ON CONFLICT (client, campaign, user_id) DO UPDATE
	SET impressions = u.impressions + excluded.impressions, engaged = u.engaged + excluded.engaged
RETURNING u.client, u.campaign, xmax = 0 -- whether the row is new`

func (b *campaignBatch) writeUsers(ctx context.Context, tx pgx.Tx) error {
	if len(b.users) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.users), func(x, y campaignUser) int {
		return cmp.Or(x.compare(y.campaignKey), cmp.Compare(x.user, y.user))
	})
	rows, err := tx.Query(ctx, upsertCampaignUsers,
		readmodel.Column(keys, func(k campaignUser) string { return string(k.client) }),
		readmodel.Column(keys, func(k campaignUser) string { return string(k.campaign) }),
		readmodel.Column(keys, func(k campaignUser) string { return string(k.user) }),
		readmodel.Column(keys, func(k campaignUser) int64 { return b.users[k].impressions }),
		readmodel.Column(keys, func(k campaignUser) int64 { return b.users[k].engaged }),
	)
	if err != nil {
		return fmt.Errorf("count users: %w", err)
	}
	var (
		of    campaignKey
		fresh bool
	)
	_, err = pgx.ForEachRow(rows, []any{readmodel.Text(&of.client), readmodel.Text(&of.campaign), &fresh}, func() error {
		if fresh {
			entry(b.added, of).reach++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("count users: %w", err)
	}
	return nil
}

func (k campaignKey) compare(other campaignKey) int {
	return cmp.Or(cmp.Compare(k.client, other.client), cmp.Compare(k.campaign, other.campaign))
}

const upsertSlots = `
INSERT INTO campaign_slots AS s (client, campaign, slot, spent_minor, spends, impressions, engaged, clicks, conversions)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
ON CONFLICT (client, campaign, slot) DO UPDATE SET spent_minor = s.spent_minor + excluded.spent_minor,
	spends = s.spends + excluded.spends, impressions = s.impressions + excluded.impressions,
	engaged = s.engaged + excluded.engaged, clicks = s.clicks + excluded.clicks, conversions = s.conversions + excluded.conversions`

func (b *campaignBatch) writeSlots(ctx context.Context, tx pgx.Tx) error {
	if len(b.slots) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.slots), func(x, y slotKey) int { return cmp.Or(x.compare(y.campaignKey), x.slot.Compare(y.slot)) })
	count := func(of func(*slotAdded) int64) []int64 {
		return readmodel.Column(keys, func(k slotKey) int64 { return of(b.slots[k]) })
	}
	return readmodel.Do(ctx, tx, "count slots", upsertSlots,
		readmodel.Column(keys, func(k slotKey) string { return string(k.client) }),
		readmodel.Column(keys, func(k slotKey) string { return string(k.campaign) }),
		readmodel.Column(keys, func(k slotKey) time.Time { return k.slot }),
		count(func(s *slotAdded) int64 { return s.spentMinor }), count(func(s *slotAdded) int64 { return s.Spends }),
		count(func(s *slotAdded) int64 { return s.Impressions }), count(func(s *slotAdded) int64 { return s.Engaged }),
		count(func(s *slotAdded) int64 { return s.Clicks }), count(func(s *slotAdded) int64 { return s.Conversions }),
	)
}

const updateTotals = `
UPDATE campaigns c SET spent_minor = coalesce(new.spent_minor, c.spent_minor), spends = c.spends + new.spends,
	impressions = c.impressions + new.impressions, engaged = c.engaged + new.engaged,
	clicks = c.clicks + new.clicks, conversions = c.conversions + new.conversions, reach = c.reach + new.reach
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
	AS new (client, id, spent_minor, spends, impressions, engaged, clicks, conversions, reach)
WHERE c.client = new.client AND c.id = new.id`

func (b *campaignBatch) writeTotals(ctx context.Context, tx pgx.Tx) error {
	if len(b.added) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.added), campaignKey.compare)
	count := func(of func(*campaignAdded) int64) []int64 {
		return readmodel.Column(keys, func(k campaignKey) int64 { return of(b.added[k]) })
	}
	return readmodel.Do(ctx, tx, "count totals", updateTotals,
		readmodel.Column(keys, func(k campaignKey) string { return string(k.client) }),
		readmodel.Column(keys, func(k campaignKey) string { return string(k.campaign) }),
		readmodel.Column(keys, func(k campaignKey) *int64 { return b.added[k].spent }),
		count(func(a *campaignAdded) int64 { return a.Spends }), count(func(a *campaignAdded) int64 { return a.Impressions }),
		count(func(a *campaignAdded) int64 { return a.Engaged }), count(func(a *campaignAdded) int64 { return a.Clicks }),
		count(func(a *campaignAdded) int64 { return a.Conversions }), count(func(a *campaignAdded) int64 { return a.reach }),
	)
}

const (
	insertCampaign = `
INSERT INTO campaigns (client, id, created_position, terms, status, spent_minor, revision, created_at, updated_at, spends, impressions, engaged, clicks, conversions, reach)
VALUES ($1, $2, $3, $4, 'draft', 0, 0, $5, $5, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING`
	changeCampaign = `
UPDATE campaigns SET terms = coalesce($3, terms), status = coalesce($4, status), started_at = coalesce($5, started_at),
	revision = revision + 1, updated_at = $6
WHERE client = $1 AND id = $2`
	// A campaign that is scheduled without a time, or for the year 0, which
	// Postgres cannot read, is due at once.
	setDue = `
UPDATE campaigns SET due = CASE
	WHEN status = 'scheduled' THEN least(coalesce(substring(terms::jsonb ->> 'starts_at' FROM '^(?!0000).*')::timestamptz, updated_at), (terms::jsonb ->> 'ends_at')::timestamptz)
	WHEN status IN ('running', 'paused') THEN (terms::jsonb ->> 'ends_at')::timestamptz
END
WHERE client = $1 AND id = $2`
)

func (b *campaignBatch) writeChanges(ctx context.Context, tx pgx.Tx) error {
	var statements pgx.Batch
	keys := slices.SortedFunc(maps.Keys(b.changes), campaignKey.compare)
	for _, k := range keys {
		for _, r := range b.changes[k] {
			if err := queueChange(&statements, k, r); err != nil {
				return err
			}
		}
		statements.Queue(setDue, string(k.client), string(k.campaign))
	}
	return readmodel.Send(ctx, tx, "campaigns", &statements)
}

func queueChange(statements *pgx.Batch, of campaignKey, r eventstore.Recorded) error {
	var terms, status *string
	var startedAt *time.Time
	encode := func(t event.CampaignTerms) error {
		data, err := json.Marshal(t)
		terms = new(string(data))
		return err
	}
	switch e := r.Event.(type) {
	case event.CampaignDrafted:
		err := encode(e.CampaignTerms)
		statements.Queue(insertCampaign, string(of.client), string(of.campaign), string(r.Position), terms, r.RecordedAt)
		return err
	case event.CampaignChanged:
		if err := encode(e.CampaignTerms); err != nil {
			return err
		}
	case event.CampaignScheduled:
		status = new("scheduled")
	case event.CampaignStarted:
		status = new("running")
		startedAt = &e.StartedAt
	case event.CampaignPaused:
		status = new("paused")
	case event.CampaignResumed:
		status = new("running")
	case event.CampaignCompleted:
		status = new("completed")
	case event.CampaignCancelled:
		status = new("cancelled")
	}
	statements.Queue(changeCampaign, string(of.client), string(of.campaign), terms, status, startedAt, r.RecordedAt)
	return nil
}
