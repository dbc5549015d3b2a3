package projections

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Statistics is the read model of how much happened to each client, and when. It
// holds numbers alone, so that an erasure has nothing to take from it.
type Statistics struct{ readmodel.Reader }

// The metrics.
const (
	MetricUsers      = "users"
	MetricMatches    = "matches"
	MetricDeliveries = "deliveries"
	MetricSpend      = "spend"
)

// What the metrics are made of. Those of spend are currencies, in minor units.
const (
	PartCreated   = "created"
	PartErased    = "erased"
	PartRecorded  = "recorded"
	PartFirstTry  = "first_try"
	PartRetried   = "retried"
	PartDropped   = "dropped"   // as the event says
	PartCancelled = "cancelled" // as the event says
)

// Name of the read model.
func (Statistics) Name() string { return "statistics" }

// Wants says which events the model is made of.
func (Statistics) Wants(t string) bool {
	switch t {
	case "end_user.created", "end_user.erased", "match.computed", "deliveries.ended", "campaign.spend_recorded":
		return true
	}
	return false
}

// Version of the read model's tables.
func (Statistics) Version() int { return 1 }

// Options of the read model. Of most events the type is all that counts.
func (Statistics) Options() projector.Options { return projector.Options{Verbatim: true} }

// Schema of the read model. Slots are quarters of an hour, as those of campaigns.
func (Statistics) Schema() string {
	return `
CREATE TABLE statistics (
	client text COLLATE "C" NOT NULL,
	metric text COLLATE "C" NOT NULL,
	slot   timestamptz NOT NULL,
	part   text COLLATE "C" NOT NULL,
	n      bigint NOT NULL,
	PRIMARY KEY (client, metric, slot, part)
) WITH (fillfactor = 80);`
}

// AddCount adds two counts of statistics, up to the largest that there is: what campaigns spend is
// bounded, and how many there are is not.
func AddCount(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// capped is the same of a numeric.
func capped(sum string) string { return `least(` + sum + `, 9223372036854775807)::bigint` }

var upsertStatistics = `
INSERT INTO statistics AS s (client, metric, slot, part, n)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[])
ON CONFLICT (client, metric, slot, part) DO UPDATE SET n = ` + capped(`s.n::numeric + excluded.n`)

type statisticKey struct {
	client       id.Client
	slot         int64 // in seconds
	metric, part string
}

// Apply changes the model by a batch of events.
func (Statistics) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	counted := map[statisticKey]int64{}
	registry := sync.OnceValue(event.All)
	for _, r := range batch {
		count := func(metric, part string, n int64) {
			k := statisticKey{r.Client, r.RecordedAt.Truncate(slotLength).Unix(), metric, part}
			counted[k] = AddCount(counted[k], n)
		}
		switch r.Type {
		case "end_user.created":
			count(MetricUsers, PartCreated, 1)
		case "end_user.erased":
			count(MetricUsers, PartErased, 1)
		case "match.computed":
			count(MetricMatches, PartRecorded, 1)
		case "deliveries.ended", "campaign.spend_recorded":
			e, err := decoded(registry, r)
			if err != nil {
				return err
			}
			switch e := e.(type) {
			case event.DeliveriesEnded:
				for _, ended := range e.Deliveries {
					count(MetricDeliveries, partOf(ended), 1)
				}
			case event.CampaignSpendRecorded:
				count(MetricSpend, e.Currency, e.AmountMinor)
			}
		}
	}
	if len(counted) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(counted), statisticKey.compare)
	return readmodel.Do(ctx, tx, "count statistics", upsertStatistics,
		readmodel.Column(keys, func(k statisticKey) string { return string(k.client) }),
		readmodel.Column(keys, func(k statisticKey) string { return k.metric }),
		readmodel.Column(keys, func(k statisticKey) time.Time { return time.Unix(k.slot, 0) }),
		readmodel.Column(keys, func(k statisticKey) string { return k.part }),
		readmodel.Column(keys, func(k statisticKey) int64 { return counted[k] }),
	)
}

func (k statisticKey) compare(other statisticKey) int {
	return cmp.Or(cmp.Compare(k.client, other.client), cmp.Compare(k.metric, other.metric),
		cmp.Compare(k.slot, other.slot), cmp.Compare(k.part, other.part))
}

// partOf is what a delivery that has ended counts as.
func partOf(ended event.Ending) string {
	switch {
	case ended.State != "delivered":
		return ended.State
	case ended.Attempts > 1:
		return PartRetried
	}
	return PartFirstTry
}

// Counted is what was counted in an hour or a day.
type Counted struct {
	Start time.Time        // zero: all before the first interval
	Parts map[string]int64 // those that are not 0
}

// The number of users at a time follows from all who came and went before it, so a series
// of users begins with the sum of those.
var statisticSeries = `
SELECT CASE WHEN s.slot >= $3 THEN date_trunc($4, s.slot, $5) END AS start, s.part, ` + capped(`sum(s.n)`) + ` AS n
FROM statistics s WHERE s.client = $1 AND s.metric = $2 AND s.slot < $6`

const (
	statisticSince = ` AND s.slot >= $3`
	statisticOrder = ` GROUP BY 1, 2 ORDER BY 1 NULLS FIRST, 2`
)

// Series returns what was counted of a metric from one time to another, in order,
// without the intervals in which there was nothing; of users also what came before.
// unit is "hour" or "day" in a time zone of the IANA database, else it is
// ErrZoneUnknown; both times begin such intervals.
// Faults: building, overloaded, quarantined, stale.
func (m Statistics) Series(ctx context.Context, client id.Client, eventual bool, metric, unit string, zone *time.Location, from, to time.Time) ([]Counted, error) {
	sql := statisticSeries
	if metric != MetricUsers {
		sql += statisticSince
	}
	type row struct {
		start time.Time
		part  string
		n     int64
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, sql+statisticOrder, []any{metric, from, unit, zone.String(), to},
		func(r *row) []any { return []any{(*zeronull.Timestamptz)(&r.start), &r.part, &r.n} })
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "22023" { // invalid_parameter_value
		return nil, ErrZoneUnknown
	}
	var series []Counted
	for _, r := range rows {
		if !r.start.IsZero() {
			r.start = startOf(unit, r.start, zone)
		}
		if n := len(series); n == 0 || !series[n-1].Start.Equal(r.start) {
			series = append(series, Counted{Start: r.start, Parts: map[string]int64{}})
		}
		series[len(series)-1].Parts[r.part] = r.n
	}
	return series, err
}
