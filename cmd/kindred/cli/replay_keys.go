package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

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
)

// keyTables hold what is wrapped or signed, and nothing that the log could
// give again. An export takes those of its client alone.
func keyTables(client id.Client) map[string]string {
	tables := map[string]string{
		"client_keys":  "client, id, master, wrapped, created_at",
		"peppers":      "client, id, master, wrapped, created_at",
		"epochs":       "id, fingerprint, keys, made_at, closing_at, retired_at",
		"subject_keys": "client, subject, id, client_key, wrapped, lookup, created_at, destroyed_at",
	}
	if client == "" {
		tables["audit_keys"] = "kid, public_jwk, sealed_seed, created_at"
		tables["audit_heads"] = "client, size, root, signed_at, jws"
	}
	return tables
}

// A head of what was not copied would say that something is missing.
const dropHeads = `
DELETE FROM audit_heads h WHERE size > coalesce((SELECT t.size FROM history_trees t WHERE t.client = h.client), 0)`

// keysOf selects the rows of a table of keys: all, or what one client's need.
func keysOf(client id.Client, table string) string {
	of := ` WHERE client = '` + string(client) + `'` // an export's head was parsed: letters, digits and an underscore
	switch {
	case client == "":
		return ""
	case table == "epochs":
		return ` WHERE id IN (SELECT left(client_key, 17) FROM public.subject_keys` + of + `)`
	}
	return of
}

// copyKeys copies wrapped keys as they are, and the epochs that they are under, in
// place of those that an earlier run has copied. It comes after the events and the
// history: no event is without its key then, and who was erased meanwhile is erased
// here too.
func (r *replaying) copyKeys(ctx context.Context, pool *pgxpool.Pool, from *epochs.Epochs, client id.Client) error {
	release, err := from.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	one := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly} // for all tables: keys move from epoch to epoch
	err = pgx.BeginTxFunc(ctx, pool, one, func(source pgx.Tx) error {
		return pgx.BeginFunc(ctx, r.to.Pool, func(tx pgx.Tx) error {
			tables := keyTables(client)
			for _, table := range slices.Sorted(maps.Keys(tables)) { // epochs before what is under them
				if err := copyTable(ctx, source, tx, table, tables[table], keysOf(client, table)); err != nil {
					return fmt.Errorf("%s: %w", table, err)
				}
			}
			if err := r.to.Epochs.CopyFrom(ctx, tx, from); err != nil || client != "" {
				return err
			}
			_, err := tx.Exec(ctx, dropHeads)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("copy the keys: %w", err)
	}
	return nil
}

func copyTable(ctx context.Context, source, to pgx.Tx, table, columns, where string) error {
	if _, err := to.Exec(ctx, `DELETE FROM public.`+table); err != nil {
		return err
	}
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := source.Conn().PgConn().CopyTo(ctx, writer, `COPY (SELECT `+columns+` FROM public.`+table+where+`) TO STDOUT BINARY`)
		sent <- errors.Join(err, writer.CloseWithError(err))
	}()
	_, err := to.Conn().PgConn().CopyFrom(ctx, reader, `COPY public.`+table+` (`+columns+`) FROM STDIN BINARY`)
	return errors.Join(err, reader.Close(), <-sent)
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
			found = append(found, seal.SubjectKey{Client: record.Client, Subject: bearer.Subject()})
		}
		return keys.Bury(ctx, found)
	})
	if err != nil {
		return fmt.Errorf("note the keys that are gone: %w", err)
	}
	return nil
}
