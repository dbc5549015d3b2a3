package projections

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Spends is the read model of the spends of all campaigns, by their ids, for
// the life of each campaign.
type Spends struct{ readmodel.Reader }

// Name of the read model.
func (Spends) Name() string { return "spends" }

// Wants says which events concern the read model.
func (Spends) Wants(t string) bool { return t == "campaign.spend_recorded" }

// Version of the read model's tables.
func (Spends) Version() int { return 1 }

// Options of the read model. A spend that is missing would be recorded again.
func (Spends) Options() projector.Options { return projector.Options{Gapless: true} }

// Schema of the read model.
func (Spends) Schema() string {
	return `
CREATE TABLE spends (
	client       text COLLATE "C" NOT NULL,
	campaign     text COLLATE "C" NOT NULL,
	id           text COLLATE "C" NOT NULL,
	amount_minor bigint NOT NULL,
	currency     text NOT NULL,
	spent_minor  bigint NOT NULL, -- with this one
	budget_minor bigint NOT NULL,
	position     log_position NOT NULL,
	recorded_at  timestamptz NOT NULL,
	PRIMARY KEY (client, campaign, id)
);`
}

const insertSpends = `
INSERT INTO spends (client, campaign, id, amount_minor, currency, spent_minor, budget_minor, position, recorded_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::timestamptz[])
ON CONFLICT (client, campaign, id) DO NOTHING -- what stands in the log twice counts where it stands first`

// Apply changes the model by a batch of events.
func (Spends) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	type row struct {
		eventstore.Recorded
		spend event.CampaignSpendRecorded
	}
	var rows []row
	for _, r := range batch {
		if e, ok := r.Event.(event.CampaignSpendRecorded); ok {
			rows = append(rows, row{r, e})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "insert spends", insertSpends,
		readmodel.Column(rows, func(r row) string { return string(r.Client) }),
		readmodel.Column(rows, func(r row) string { return string(r.spend.Campaign) }),
		readmodel.Column(rows, func(r row) string { return r.spend.SpendID }),
		readmodel.Column(rows, func(r row) int64 { return r.spend.AmountMinor }),
		readmodel.Column(rows, func(r row) string { return r.spend.Currency }),
		readmodel.Column(rows, func(r row) int64 { return r.spend.SpentMinor }),
		readmodel.Column(rows, func(r row) int64 { return r.spend.BudgetMinor }),
		readmodel.Column(rows, func(r row) string { return string(r.Position) }),
		readmodel.Column(rows, func(r row) time.Time { return r.RecordedAt }),
	)
}

// One look into the index for each id: a plan that is made while the table is
// small would else read all of a campaign's spends when it has grown.
var findSpends = `WITH ` + projector.Fresh(Spends{}) + `
SELECT fresh.reached, fresh.quarantined, s.id, s.amount_minor, s.currency, s.spent_minor, s.budget_minor, s.position, s.recorded_at
FROM fresh LEFT JOIN (
	SELECT found.* FROM unnest($3::text[]) AS wanted (id), LATERAL (
		SELECT s.id, s.amount_minor, s.currency, s.spent_minor, s.budget_minor, s.position, s.recorded_at
		FROM spends s WHERE s.client = $1 AND s.campaign = $2 AND s.id = wanted.id LIMIT 1) found
) s ON true`

// Recorded returns the spends of a campaign that have one of these ids, and
// the position that the model had reached in the same moment: it holds every
// spend up to there. It waits for nothing.
// Faults: overloaded, quarantined, stale.
func (m Spends) Recorded(ctx context.Context, client id.Client, campaign id.Campaign, ids []string) (found []eventstore.Recorded, reached eventstore.Position, err error) {
	reader := projector.Reader{Of: m, Progress: m.Progress, Client: client, Look: m.InPlace}
	err = reader.Read(ctx, true, func(ctx context.Context) (at projector.At, err error) {
		found = nil
		rows, _ := m.Pool.Query(ctx, findSpends, string(client), string(campaign), ids) // what it fails with, its rows end with
		var (
			spendID, currency, position *string
			amount, spent, budget       *int64
			recordedAt                  *time.Time
		)
		_, err = pgx.ForEachRow(rows, []any{&at.Reached, &at.Quarantined, &spendID, &amount, &currency, &spent, &budget, &position, &recordedAt}, func() error {
			if spendID != nil {
				found = append(found, eventstore.Recorded{
					Record: eventstore.Record{Position: eventstore.Position(*position), Proposed: eventstore.Proposed{RecordedAt: *recordedAt}},
					Event: event.CampaignSpendRecorded{
						Campaign: campaign, SpendID: *spendID, AmountMinor: *amount, Currency: *currency, SpentMinor: *spent, BudgetMinor: *budget,
					},
				})
			}
			return nil
		})
		reached = at.Reached
		return at, err
	})
	if fault.Is(err, "building") {
		return nil, eventstore.Start, nil // there is no table yet: it holds what stands up to the start
	}
	return found, reached, err
}
