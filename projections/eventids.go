package projections

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// EventIDs is the read model of where the events stand that a client can have
// recorded once only: those whose ids are derived, and those that have a key. What
// has a random id and no key costs it nothing.
type EventIDs struct{ readmodel.Reader }

// Name of the read model.
func (EventIDs) Name() string { return "event_ids" }

// Wants says which events concern the read model. The repeated change of
// a user is found by the user's last event, a spend by its own id; ends of
// deliveries, addresses and what a run found have a stream, or an end of one, to
// themselves.
func (EventIDs) Wants(t string) bool {
	switch t { // by name: what is new is wanted
	case "end_user.created", "end_user.traits_changed", "end_user.erased",
		"claim.reserved", "claim.confirmed", "claim.released",
		"campaign.spend_recorded", "campaign.spending_opened", "campaign.spending_closed",
		"clustering_run.assigned", "clustering_run.profiled", "deliveries.ended":
		return false
	}
	return true
}

// Version of the read model's tables.
func (EventIDs) Version() int { return 1 }

// Options of the read model. Of most events the id is all that counts; one that is missing
// would be recorded again.
func (EventIDs) Options() projector.Options { return projector.Options{Verbatim: true, Gapless: true} }

// Schema of the read model.
func (EventIDs) Schema() string {
	return `
CREATE TABLE event_ids (
	client   text COLLATE "C" NOT NULL,
	id       uuid NOT NULL, -- the bytes of an event's id, or of its key
	revision bigint NOT NULL,
	PRIMARY KEY (client, id)
);`
}

// Of what stands in the log twice, the first counts.
const insertEventIDs = `
INSERT INTO event_ids (client, id, revision)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[]) ON CONFLICT DO NOTHING`

// Apply changes the model by a batch of events.
func (EventIDs) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	type row struct {
		client   id.Client
		id       [16]byte
		revision eventstore.Revision
	}
	var rows []row
	registry := sync.OnceValue(event.All)
	for _, r := range batch {
		keys := []id.Event{r.ID}
		switch r.Type {
		case "feed.interaction_recorded", "campaign.engagement_recorded":
			e, err := decoded(registry, r)
			if err != nil {
				return err
			}
			if key, ok := e.(event.Single).Key(); ok {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			if r.Client == "" || !id.IsDerived(key) {
				continue
			}
			raw, err := id.Bytes(key)
			if err != nil {
				return err
			}
			rows = append(rows, row{r.Client, raw, r.Revision})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "insert event ids", insertEventIDs,
		readmodel.Column(rows, func(r row) string { return string(r.client) }),
		readmodel.Column(rows, func(r row) [16]byte { return r.id }),
		readmodel.Column(rows, func(r row) int64 { return int64(r.revision) }),
	)
}

// decoded reads an event of a model that gets them as they are stored. Where it cannot, a newer
// release knows what this one does not, and leads then; what nobody can read is its client's
// trouble alone.
func decoded(registry func() *event.Registry, r eventstore.Recorded) (event.Event, error) {
	e, err := registry().Decode(r.Type, r.Version, r.Data)
	if err != nil {
		err = fmt.Errorf("%s revision %d: %w", r.Stream, r.Revision, err)
	}
	if errors.Is(err, event.ErrUnknown) {
		err = projector.Transient(err)
	}
	return e, err
}

// One look into the index for each id, as for spends.
var findEventIDs = `WITH ` + projector.Fresh(EventIDs{}) + `
SELECT fresh.reached, fresh.quarantined, e.id, e.revision
FROM fresh LEFT JOIN (
	SELECT found.* FROM unnest($2::uuid[]) AS wanted (id), LATERAL (
		SELECT e.id, e.revision FROM event_ids e WHERE e.client = $1 AND e.id = wanted.id LIMIT 1) found
) e ON true`

// Revisions returns where the first events stand that have one of these ids or
// keys, and the position that the model had reached in the same moment: it holds
// every such event up to there. It waits for nothing.
// Faults: overloaded, quarantined, stale.
func (m EventIDs) Revisions(ctx context.Context, client id.Client, ids []id.Event) (
	found map[id.Event]eventstore.Revision, reached eventstore.Position, err error,
) {
	wanted := make([][16]byte, len(ids))
	for i, one := range ids {
		if wanted[i], err = id.Bytes(one); err != nil {
			return nil, eventstore.Start, err
		}
	}
	reader := projector.Reader{Of: m, Progress: m.Progress, Client: client, Look: m.InPlace}
	err = reader.Read(ctx, true, func(ctx context.Context) (at projector.At, err error) {
		found = map[id.Event]eventstore.Revision{}
		rows, _ := m.Pool.Query(ctx, findEventIDs, string(client), wanted) // what it fails with, its rows end with
		var (
			raw      *[16]byte
			revision *int64
		)
		_, err = pgx.ForEachRow(rows, []any{&at.Reached, &at.Quarantined, &raw, &revision}, func() error {
			if raw != nil {
				found[id.From[id.Event](*raw)] = eventstore.Revision(*revision)
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
