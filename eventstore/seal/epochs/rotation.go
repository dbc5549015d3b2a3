package epochs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

const (
	// BatchErasures is how long erasures of a bucket are batched before it moves: it moves once
	// for all of them.
	BatchErasures = 2 * time.Minute
	// KeepRetired is how long the key of a retired epoch stays, for a server that forgets
	// what it has committed.
	KeepRetired = 3 * time.Minute

	// LookEvery is how often the next steps are looked for.
	LookEvery   = 15 * time.Second
	adoptEvery  = 4 // buckets of keys without an epoch, in a turn
	sweepEvery  = 10 * time.Minute
	orphanAfter = time.Hour // a file that no row names is of a process that was killed
)

// Rotation ends the epochs of erased subjects. One process does at a time.
type Rotation struct {
	*Epochs
	// Lead does work whenever no other process does, until ctx ends.
	Lead                       func(ctx context.Context, name string, work func(context.Context) error) error
	Logger                     *slog.Logger
	BatchErasures, KeepRetired time.Duration
}

// Run ends epochs until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	return r.Lead(ctx, "policy_epochs", r.drive)
}

func (r *Rotation) drive(ctx context.Context) error {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	sweep := time.NewTimer(0)
	defer sweep.Stop()
	for {
		err := r.Turn(ctx)
		select {
		case <-sweep.C:
			sweep.Reset(sweepEvery)
			err = errors.Join(err, r.Sweep(ctx, orphanAfter))
		default:
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			r.Logger.WarnContext(ctx, "epochs are not ended, trying again: what was erased may still be opened from backups", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const (
	// pullBack has nothing wait for a time that the server's clock gave before it was set back.
	pullBack = `
UPDATE public.epochs SET closing_at = CASE WHEN closing_at > now() THEN now() ELSE closing_at END,
	retired_at = CASE WHEN retired_at > now() THEN now() ELSE retired_at END
WHERE closing_at > now() OR retired_at > now()`
	closeEpochs = `
UPDATE public.epochs SET closing_at = now() WHERE closing_at IS NULL AND id IN (
	SELECT DISTINCT left(client_key, 17) FROM public.subject_keys WHERE wrapped IS NULL AND client_key <> '')`
	selectDue = `
SELECT id FROM public.epochs WHERE retired_at IS NULL AND closing_at <= now() - $1::interval ORDER BY closing_at`
)

// Turn takes the next step with every epoch that is due for one. What one of them
// keeps from it, the others do not wait for.
func (r *Rotation) Turn(ctx context.Context) error {
	at, err := r.directory(ctx)
	if errors.Is(err, errNone) {
		at, err = "", nil // there may be keys that have no epoch yet
	}
	if err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, pullBack); err != nil {
		return fmt.Errorf("bring the times of epochs back: %w", err)
	}
	if _, err := r.pool.Exec(ctx, closeEpochs); err != nil {
		return fmt.Errorf("close epochs: %w", err)
	}
	due, err := r.names(ctx, selectDue, r.BatchErasures)
	if err != nil {
		return fmt.Errorf("list epochs to end: %w", err)
	}
	var failed []error
	for _, name := range due {
		if err := r.retire(ctx, name); err != nil {
			failed = append(failed, fmt.Errorf("move the keys of epoch %s: %w", name, err))
		}
	}
	for range adoptEvery {
		n, err := r.move(ctx, "")
		if err != nil {
			failed = append(failed, fmt.Errorf("put keys under an epoch: %w", err))
		}
		if n < maxKeys {
			break
		}
	}
	if at != "" {
		failed = append(failed, r.destroyRetired(ctx, at))
	}
	return errors.Join(failed...)
}

func (r *Rotation) names(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, _ := r.pool.Query(ctx, sql, args...) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// retire moves all keys of an epoch: a bucket at once, of which there are several
// only where a server has forgotten reservations.
func (r *Rotation) retire(ctx context.Context, name string) error {
	for {
		n, err := r.move(ctx, name)
		if err != nil || n < maxKeys {
			return err
		}
	}
}

const (
	moveSettings = `SET LOCAL synchronous_commit TO on; SET LOCAL lock_timeout TO '10s'`
	// It waits for callers that make keys under the epoch, and keeps others from it.
	lockEpoch  = `SELECT id FROM public.epochs WHERE id = $1 AND retired_at IS NULL FOR UPDATE`
	selectKeys = `
SELECT client, subject, id, client_key, wrapped FROM public.subject_keys
WHERE client_key >= $1 AND client_key < $2 ORDER BY client_key LIMIT $3 FOR UPDATE`
	updateKeys = `
UPDATE public.subject_keys k SET client_key = n.client_key, wrapped = n.wrapped
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS n (client, subject, client_key, wrapped)
WHERE k.client = n.client AND k.subject = n.subject`
	retireEpoch = `UPDATE public.epochs SET retired_at = clock_timestamp() WHERE id = $1`
)

// move moves at most a bucket of keys from an epoch to a new one, and says how
// many rows it saw. The epoch is retired where no more are left. The empty name
// is of the keys that have no epoch.
func (r *Rotation) move(ctx context.Context, name string) (n int, err error) {
	var from, to seal.Epoch
	if name != "" {
		if from, err = r.read(ctx, name); err != nil {
			return 0, err
		}
	}
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, moveSettings); err != nil {
			return err
		}
		if name != "" {
			locked, err := tx.Exec(ctx, lockEpoch, name)
			if err != nil || locked.RowsAffected() == 0 {
				return err // or another process did it
			}
		}
		keys, err := r.keysOf(ctx, tx, name)
		if err != nil {
			return err
		}
		n = len(keys)
		if to, err = r.moveKeys(ctx, tx, keys, from); err != nil {
			return err
		}
		if name == "" || n == maxKeys {
			return nil
		}
		_, err = tx.Exec(ctx, retireEpoch, name)
		return err
	})
	if err != nil {
		return 0, err // a file that was made has no row, or else it has its keys
	}
	if n > 0 && name != "" {
		r.Logger.InfoContext(ctx, "the keys of an epoch have moved", "epoch", name, "to", to.ID, "keys", n)
	}
	return n, nil
}

// keysOf locks the rows of an epoch. Whoever destroys one of these keys just now
// waits, and destroys it where it then is.
func (r *Rotation) keysOf(ctx context.Context, tx pgx.Tx, name string) ([]seal.SubjectKey, error) {
	least, end := name+"/", name+"0" // which is next after the slash
	if name == "" {
		least, end = "0", "x"
	}
	rows, _ := tx.Query(ctx, selectKeys, least, end, maxKeys) // what it fails with, its rows end with
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k seal.SubjectKey, err error) {
		err = row.Scan(&k.Client, &k.Subject, &k.ID, &k.Under, &k.Wrapped)
		return k, err
	})
}

// moveKeys puts the living among keys under a new epoch, and lets go of the
// tombstones. What does not open is put there as it is.
func (r *Rotation) moveKeys(ctx context.Context, tx pgx.Tx, keys []seal.SubjectKey, from seal.Epoch) (to seal.Epoch, err error) {
	living := 0
	for _, k := range keys {
		if len(k.Wrapped) > 0 {
			living++
		}
	}
	if living > 0 {
		at, err := r.makeDirectory(ctx)
		if err != nil {
			return to, err
		}
		if to, err = r.begin(ctx, tx, at, living); err != nil {
			return to, err
		}
	}
	clients, subjects, under, wrapped := make([]id.Client, len(keys)), make([]string, len(keys)), make([]string, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		clients[i], subjects[i] = k.Client, k.Subject
		if len(k.Wrapped) == 0 {
			continue
		}
		moved, err := seal.Move(r.entropy, k, from, to)
		if errors.Is(err, seal.ErrRefused) { // it is lost, and is not to keep what was erased beside it
			r.Logger.ErrorContext(ctx, "a key was damaged, and opens nothing any more", "client", k.Client, "subject", k.Subject, "error", err)
			moved.Under, moved.Wrapped, err = strings.Replace(k.Under, from.ID, to.ID, 1), k.Wrapped, nil
		}
		if err != nil {
			return to, err
		}
		under[i], wrapped[i] = moved.Under, moved.Wrapped
	}
	if len(keys) > 0 {
		_, err = tx.Exec(ctx, updateKeys, clients, subjects, under, wrapped)
	}
	return to, err
}

const (
	// holdKeys is the lock of callers that must find every key that the database names.
	holdKeys = `hashtextextended('kindred epochs', 0)`

	tryDestroy    = `SELECT pg_try_advisory_xact_lock(` + holdKeys + `)`
	selectRetired = `
SELECT e.id FROM public.epochs e WHERE e.retired_at <= now() - $1::interval AND NOT EXISTS (
	SELECT FROM public.subject_keys k WHERE k.client_key >= e.id || '/' AND k.client_key < e.id || '0')
ORDER BY e.retired_at`
	deleteEpoch = `DELETE FROM public.epochs WHERE id = $1 AND retired_at IS NOT NULL`
)

// destroyRetired destroys the keys of epochs that have been retired for long
// enough, unless somebody holds them. One that cannot be destroyed keeps back no other.
func (r *Rotation) destroyRetired(ctx context.Context, at dir) error {
	retired, err := r.names(ctx, selectRetired, r.KeepRetired)
	if err != nil || len(retired) == 0 {
		return err
	}
	var failed []error
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		var free bool
		if err := tx.QueryRow(ctx, tryDestroy).Scan(&free); err != nil {
			return err
		}
		if !free {
			r.Logger.WarnContext(ctx, "a snapshot or a replay holds the keys of epochs that are over", "epochs", len(retired))
			return nil
		}
		for _, name := range retired {
			if err := at.destroy(name); err != nil {
				failed = append(failed, err)
				continue
			}
			if _, err := tx.Exec(ctx, deleteEpoch, name); err != nil {
				return err
			}
			r.Logger.InfoContext(ctx, "the key of an epoch is destroyed", "epoch", name)
		}
		return nil
	})
	return errors.Join(append(failed, err)...)
}

const retireOrphans = `
INSERT INTO public.epochs (id, fingerprint, keys, closing_at, retired_at)
SELECT name, '', 0, now(), now() FROM unnest($1::text[]) name ON CONFLICT DO NOTHING`

// Sweep retires the files that no row names and that were made so long ago: their
// processes were killed before they could name them, or a server has forgotten it.
func (r *Rotation) Sweep(ctx context.Context, after time.Duration) error {
	at, err := r.directory(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := at.old(r.now().Add(-after))
	if err != nil {
		return fmt.Errorf("list the epoch keys: %w", err)
	}
	if _, err := r.pool.Exec(ctx, retireOrphans, names); err != nil {
		return fmt.Errorf("retire epochs that nothing names: %w", err)
	}
	return nil
}
