package travel

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

const (
	firstPage = 100              // events
	pageBytes = 3 << 20          // that the events of a page should have, judged by the one before
	longest   = 30 * time.Minute // that a state may take to be built
)

// models are those that a state holds.
func models() []projector.ReadModel {
	return []projector.ReadModel{
		projections.Users{},
		projections.Webhooks{},
		projections.Campaigns{},
		projections.Clusters{},
		projections.Consent{},
		projections.APIKeys{},
		segments.Model{},
	}
}

// Sources are what states are built from, and with.
type Sources struct {
	Runner  *projector.Runner
	History projections.History
	Log     *eventstore.Log
	Now     func() time.Time
	Logger  *slog.Logger
}

// State is a client as it was. Reader finds the models that Build lists; they
// are read with the first answer, eventual: they do not change any more.
type State struct {
	Client     id.Client
	Size       int64     // events that it had
	RecordedAt time.Time // the latest of them; zero where there was none
	Reader     readmodel.Reader
}

// Build applies the first size events of a client to throw-away tables, and
// runs work on the state that they make. Its memory is bounded. Report, which
// may be nil, is called after each batch.
// Faults: building, history_changed, overloaded, quarantined, stale.
func (s Sources) Build(ctx context.Context, client id.Client, size int64, report func(projector.Rebuilding),
	work func(context.Context, *State) error,
) error {
	err := s.Runner.Scratch(ctx, models(), func(ctx context.Context, schema string) error {
		ctx, lose := context.WithCancel(ctx)
		defer lose()
		pool, err := within(ctx, s.History.Pool, schema, lose)
		if err != nil {
			return err
		}
		defer pool.Close()
		b := building{Sources: s, pool: pool, client: client, size: size, began: s.Now()}
		if err := b.all(ctx, report); err != nil {
			return err
		}
		reader := s.History.Reader
		reader.Pool = pool
		return work(ctx, &State{Client: client, Size: size, RecordedAt: b.recordedAt, Reader: reader})
	})
	if err != nil {
		return fmt.Errorf("build the state of %s after %d events: %w", client, size, err)
	}
	return nil
}

// within opens a connection that finds the tables of a schema first. Where a crash of the server has emptied
// them, it is not opened, and lose is called.
func within(ctx context.Context, like *pgxpool.Pool, schema string, lose func()) (*pgxpool.Pool, error) {
	config := like.Config()
	config.MaxConns, config.MinConns = 1, 0
	postgres.Set(config.ConnConfig, postgres.Settings{
		"search_path":        pgx.Identifier{schema}.Sanitize() + ", public",
		"synchronous_commit": "off",
	})
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		whole, err := projector.ScratchWhole(ctx, conn)
		if err == nil && !whole {
			lose()
			err = toBuildAnew()
		}
		return err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// building is a state on its way: all events below next are applied.
type building struct {
	Sources
	pool       *pgxpool.Pool
	client     id.Client
	size, next int64
	most       int // events of the next page
	after      eventstore.Position
	recordedAt time.Time
	began      time.Time
}

func (b *building) all(ctx context.Context, report func(projector.Rebuilding)) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for b.most = firstPage; b.next < b.size; {
		records, err := b.read(ctx)
		if err != nil {
			return err
		}
		if err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			for _, m := range models() {
				if err := projector.Fold(ctx, tx, b.Log, m, records); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		b.next += int64(len(records))
		b.most = min(2*b.most, projector.MaxBatch, eventstore.Fitting(records, pageBytes))
		if report != nil {
			left := float64(b.Now().Sub(b.began)) * float64(b.size-b.next) / float64(b.next)
			report(projector.Rebuilding{Events: b.next, Expected: b.size, Left: time.Duration(left)})
		}
	}
	return nil
}

// read reads the next events that the history knows, as the log holds them; fewer
// at once where they are large.
func (b *building) read(ctx context.Context) ([]eventstore.Record, error) {
	entries, err := b.History.ListKnown(ctx, b.client, projections.Filter{After: b.next - 1, Below: b.size}, b.most)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, lost(b.next)
	}
	records, err := b.records(ctx, entries)
	if err != nil {
		return nil, err
	}
	for i, r := range records {
		if r.Position != entries[i].Position {
			return nil, lost(entries[i].Ordinal)
		}
		if r.RecordedAt.After(b.recordedAt) {
			b.recordedAt = r.RecordedAt
		}
	}
	if len(records) == 0 {
		return nil, lost(entries[0].Ordinal)
	}
	b.after = records[len(records)-1].Position
	return records, nil
}

func lost(ordinal int64) error {
	return fault.New(fault.Conflict, "history_changed",
		"The log does not hold event %d as the history knows it: it was changed behind the service's back.", ordinal)
}

// records reads what stands at entries, at once where the store can.
func (b *building) records(ctx context.Context, entries []projections.Entry) ([]eventstore.Record, error) {
	if store, ok := b.Log.Store.(eventstore.ClientReader); ok {
		return store.ReadClient(ctx, b.client, b.after, entries[len(entries)-1].Position, len(entries))
	}
	return projections.Events(ctx, b.Log.Store, entries)
}
