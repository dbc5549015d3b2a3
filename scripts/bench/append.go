package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/postgres"
)

const bareEvents = `
CREATE TABLE bare (LIKE events INCLUDING ALL);
CREATE SEQUENCE bare_position;
ALTER TABLE bare ALTER position SET DEFAULT nextval('bare_position')`

const insertBare = `
INSERT INTO bare (client, stream, revision, event_id, type, version, data, meta, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`

// appending holds the store against bare inserts, each its own commit, into a
// table of the same shape.
type appending struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
	data  []byte
	meta  []byte
}

// appends are the shapes that have a target: writers to the store, and those
// beside it who insert.
var appends = []struct {
	writers, beside int
	least           float64
}{{1, 1, 0.6}, {32, 32, 1.2}, {256, 32, 1.8}}

func measureAppend(ctx context.Context, b *bench) ([]Figure, error) {
	url, err := b.fixture.database(ctx, "appending")
	if err != nil {
		return nil, err
	}
	if err := postgres.Migrate(ctx, url); err != nil {
		return nil, err
	}
	pool, err := postgres.Open(ctx, url, postgres.Options{MaxConns: connections, AppName: "bench"})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, bareEvents); err != nil {
		return nil, err
	}
	store, err := pgstore.Open(ctx, pool, nil)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	a := appending{pool, store, []byte(`{"traits":"` + strings.Repeat("x", 400) + `"}`), []byte(`{"actor":"` + strings.Repeat("y", 200) + `"}`)}
	var figures []Figure
	for _, shape := range appends {
		var ours, theirs [2][]float64 // events a second, p99
		for round := range b.o.rounds {
			got, err := together(ctx, b.pace(shape.writers), a.writer(a.append))
			if err != nil {
				return figures, err
			}
			beside, err := together(ctx, b.pace(shape.beside), a.writer(a.insert))
			if err != nil {
				return figures, err
			}
			ours[0], theirs[0] = append(ours[0], got.PerSecond), append(theirs[0], beside.PerSecond)
			ours[1], theirs[1] = append(ours[1], got.P99), append(theirs[1], beside.P99)
			fmt.Fprintf(b.say, "  append, %d writers %d/%d: %s/s beside %s/s of %d\n", shape.writers, round+1, b.o.rounds,
				number(got.PerSecond), number(beside.PerSecond), shape.beside)
		}
		name := fmt.Sprintf("append, %d writers", shape.writers)
		if shape.writers == 1 {
			name = "append, 1 writer"
		}
		var p99 *Target // more writers than are held against wait longer by design
		if shape.writers == shape.beside {
			p99 = ratioAtMost(1 / min(shape.least, 1))
		}
		figures = append(figures,
			measured("append", name, "events/s", ours[0], theirs[0], ratioAtLeast(shape.least)),
			measured("append", name+", p99", "ms", ours[1], theirs[1], p99))
	}
	return figures, nil
}

// writer makes workers that write an event of about 650 bytes to a new stream
// each time.
func (a appending) writer(write func(context.Context, eventstore.Stream, eventstore.Proposed) error) func(context.Context) (worker, error) {
	return func(ctx context.Context) (worker, error) {
		ids := id.Random(rand.Reader)
		client := id.Next[id.Client](ids)
		return worker{func() error {
			stream := eventstore.UserStream(client, id.Next[id.User](ids))
			return write(context.WithoutCancel(ctx), stream, eventstore.Proposed{
				ID: id.Next[id.Event](ids), Type: "end_user.created", Version: 1, Client: client,
				RecordedAt: time.Now().UTC().Truncate(time.Microsecond), Data: a.data, Meta: a.meta,
			})
		}, func() {}}, nil
	}
}

func (a appending) append(ctx context.Context, stream eventstore.Stream, e eventstore.Proposed) error {
	_, err := a.store.Append(ctx, stream, eventstore.NoStream, []eventstore.Proposed{e})
	return err
}

func (a appending) insert(ctx context.Context, stream eventstore.Stream, e eventstore.Proposed) error {
	raw, err := id.Bytes(e.ID)
	if err != nil {
		return err
	}
	_, err = a.pool.Exec(ctx, insertBare, e.Client, stream, 0, pgtype.UUID{Bytes: raw, Valid: true}, e.Type, e.Version, e.Data, e.Meta, e.RecordedAt)
	return err
}
