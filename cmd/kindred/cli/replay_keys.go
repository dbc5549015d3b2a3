package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/app"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/replay"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/epochs"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres"
	"kindred/projections/auditing"
)

// copyKeys copies wrapped keys as they are, and the epochs that they are under, in
// place of those that were copied before. It comes after the events: none is without
// its key then, and who was erased meanwhile is erased here too.
func (r *replaying) copyKeys(ctx context.Context, pool *pgxpool.Pool, from *epochs.Epochs, client id.Client) error {
	held, err := from.Hold(ctx)
	if err != nil {
		return err
	}
	defer held.Release(ctx)
	err = r.copyRows(ctx, pool, func(source, tx pgx.Tx) error {
		if err := r.to.Epochs.CopyFrom(ctx, source, tx, from, client); err != nil { // before what is under them
			return err
		}
		return pgkeys.Copy(ctx, source, tx, client)
	})
	if err != nil {
		return fmt.Errorf("copy the keys: %w", err)
	}
	return nil
}

// copyHeads copies the signed heads of histories, as far as these were copied. An export
// has none but its own.
func (r *replaying) copyHeads(ctx context.Context, pool *pgxpool.Pool) error {
	return r.copyRows(ctx, pool, func(source, tx pgx.Tx) error { return auditing.CopyHeads(ctx, source, tx) })
}

// copyRows copies from the database of the first kindred as of one moment: keys move from
// epoch to epoch.
func (r *replaying) copyRows(ctx context.Context, pool *pgxpool.Pool, rows func(source, tx pgx.Tx) error) error {
	one := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, pool, one, func(source pgx.Tx) error {
		return pgx.BeginFunc(ctx, r.to.Pool, func(tx pgx.Tx) error { return rows(source, tx) })
	})
}

// copyKeysOf copies the keys of one client from another database.
func (r *replaying) copyKeysOf(ctx context.Context, url string, client id.Client) error {
	pool, err := openKeys(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	from, err := r.to.OpenEpochs(ctx, pool)
	if err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	return r.copyKeys(ctx, pool, from, client)
}

// findMasterKeys makes sure that there are master keys where another database
// holds what is sealed.
func (e environ) findMasterKeys(ctx context.Context, config app.Config, url string) error {
	pool, err := openKeys(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = app.MasterKeys(ctx, config, pool, e.logger)
	return err
}

func openKeys(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := postgres.Open(ctx, url, postgres.Options{MaxConns: 4})
	if err != nil {
		return nil, fmt.Errorf("--keys: %w", err)
	}
	return pool, nil
}

// buryKeys notes for everybody of whom something is sealed that the key is
// gone, so that none is made anew beside what it does not open.
func (r *replaying) buryKeys(ctx context.Context, export replay.Source) error {
	keys := pgkeys.Keys{Pool: r.to.Pool}
	_, err := replay.Grow(ctx, export, func(page []eventstore.Record) error {
		var found []seal.SubjectKey
		for _, record := range page {
			recorded, err := r.to.Log.Decode(record)
			if err != nil {
				return err
			}
			bearer, ok := recorded.Event.(event.PersonalData)
			if !ok {
				continue
			}
			if subject := bearer.Subject(); !seal.LearntUnder(record.Client, subject) { // what was learnt is learnt anew
				found = append(found, seal.SubjectKey{Client: record.Client, Subject: subject})
			}
		}
		return keys.Bury(ctx, found)
	})
	if err != nil {
		return fmt.Errorf("note the keys that are gone: %w", err)
	}
	return nil
}
