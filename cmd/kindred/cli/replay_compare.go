package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/projector"
	"kindred/eventstore/replay"
	"kindred/postgres"
	"kindred/projections"
)

var errUnequal = errors.New("the second kindred is not equal to the first")

const (
	standTries = 600
	standPause = 50 * time.Millisecond
	// limit: tools | clients of which a replay prints the first difference | {maxUnlike}
	maxUnlike = 100 // clients whose first difference is looked for
)

// snapshot is a kindred as of a moment at which all its read models had come
// equally far.
type snapshot struct{ tx pgx.Tx }

func (s snapshot) end(ctx context.Context) {
	_ = s.tx.Rollback(context.WithoutCancel(ctx)) // it was only read
}

// standing takes a snapshot in which all read models are at one place, not
// before another.
func standing(ctx context.Context, pool *pgxpool.Pool, after eventstore.Position) (snapshot, eventstore.Position, error) {
	for range standTries {
		tx, err := pool.BeginTx(ctx, projector.Snapshot)
		if err != nil {
			return snapshot{}, "", err
		}
		at, same, err := projector.Places(ctx, tx, projections.All())
		if err == nil && same && at >= after {
			return snapshot{tx}, at, nil
		}
		snapshot{tx}.end(ctx)
		if err != nil {
			return snapshot{}, "", err
		}
		if err := backoff.Sleep(ctx, standPause); err != nil {
			return snapshot{}, "", err
		}
	}
	return snapshot{}, "", errors.New("the read models of the first kindred never came to one place: are they built, and is it less busy later? The same command goes on from here")
}

// compareLogs compares the events of both logs by their hashes: of each client
// the size and the root of its Merkle tree, and where these differ, event by
// event.
func (r *replaying) compareLogs(ctx context.Context, there func() replay.Source) error {
	end, err := r.to.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	here := func() replay.Source { return &replay.Log{Store: r.to.Log.Store, UpTo: end} }
	bar := newBar(r.errs, "events compared")
	compared := int64(0)
	count := func(page []eventstore.Record) error {
		compared += int64(len(page))
		bar.Show(compared, 2*r.mark.Events)
		return nil
	}
	theirs, err := replay.Grow(ctx, there(), count)
	if err != nil {
		return err
	}
	ours, err := replay.Grow(ctx, here(), count)
	if err != nil {
		return err
	}
	bar.End()
	unlike := ours.Unlike(theirs)
	for i, client := range unlike {
		if i >= maxUnlike {
			break
		}
		d, _, err := replay.First(ctx, client, here(), there())
		if err != nil {
			return err
		}
		fmt.Fprintf(r.out, "the log of %q differs from event %d on: %q here, %q there\n", client, d.Ordinal, d.Here, d.There)
	}
	if len(unlike) > 0 {
		return fmt.Errorf("%w: the events of %d clients differ", errUnequal, len(unlike))
	}
	clients := len(ours)
	if ours[""] != nil {
		clients-- // events of none
	}
	_, err = fmt.Fprintf(r.out, "log: %d events of %d clients, the same by hash and Merkle root\n", ours.Events(), clients)
	return err
}

// compareModels compares every read model with those of the first kindred, in
// a snapshot of it.
func (r *replaying) compareModels(ctx context.Context, theirs pgx.Tx, client id.Client) error {
	return pgx.BeginTxFunc(ctx, r.to.Pool, projector.Snapshot, func(tx pgx.Tx) error {
		here, err := projector.NewSide(ctx, tx, projections.History{}, client)
		if err != nil {
			return err
		}
		there, err := projector.NewSide(ctx, theirs, projections.History{}, client)
		if err != nil {
			return err
		}
		unlike := 0
		for _, model := range projections.All() {
			checked, err := projector.Compare(ctx, model, here, there, printDifferences(r.out, model,
				"has a row that the first kindred does not have", "lacks a row that the first kindred has"))
			if err != nil {
				return err
			}
			if checked.Differences > 0 {
				unlike++
			}
			fmt.Fprintf(r.out, "%s: %d rows compared, %d differences\n", model.Name(), checked.Rows, checked.Differences)
		}
		if unlike > 0 {
			return fmt.Errorf("%w: %d read models differ", errUnequal, unlike)
		}
		return nil
	})
}

// compareExport compares the read models with those that the client has now
// where it was exported, unless more has happened there.
func (r *replaying) compareExport(ctx context.Context, url string, head audit.Head) error {
	pool, err := postgres.Open(ctx, url, postgres.Options{MaxConns: 2, SearchPath: projector.SearchPath(projections.All()...)})
	if err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	defer pool.Close()
	still, _, err := standing(ctx, pool, eventstore.Start)
	if err != nil {
		return err
	}
	defer still.end(ctx)
	size, err := projections.HistorySize(ctx, still.tx, head.Client)
	if err != nil {
		return fmt.Errorf("read the history of %s: %w", head.Client, err)
	}
	if size != head.Size {
		_, err := fmt.Fprintf(r.out, "read models: not compared, %d events have happened since the export\n", size-head.Size)
		return err
	}
	return r.compareModels(ctx, still.tx, head.Client)
}
