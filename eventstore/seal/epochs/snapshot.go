package epochs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/postgres"
)

const (
	lockHold   = `SELECT pg_advisory_lock_shared(` + holdKeys + `)`
	unlockHold = `SELECT pg_advisory_unlock_shared(` + holdKeys + `)`
	unlockTime = 5 * time.Second
)

// Held keeps the keys of all epochs from being destroyed.
type Held struct{ conn *pgxpool.Conn }

// Hold keeps the keys of all epochs from being destroyed, by any process, until it
// is released, its connection is lost or this process dies. Erasures wait for as
// long with their last step.
func (e *Epochs) Hold(ctx context.Context) (*Held, error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("hold the epoch keys: %w", err)
	}
	h := &Held{conn}
	if _, err := conn.Exec(ctx, lockHold); err != nil {
		h.Release(ctx)
		return nil, fmt.Errorf("hold the epoch keys: %w", err)
	}
	return h, nil
}

// Check fails where the keys may not have been held all the time: the lock went with
// the connection.
func (h *Held) Check(ctx context.Context) error {
	if err := h.conn.Ping(ctx); err != nil {
		return fmt.Errorf("the connection that held the epoch keys was lost, and some may be destroyed: %w", err)
	}
	return nil
}

// Release lets the keys be destroyed again.
func (h *Held) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	if _, err := h.conn.Exec(ctx, unlockHold); err != nil {
		_ = h.conn.Hijack().Close(ctx) // the lock goes with the connection
		return
	}
	h.conn.Release()
}

// snapshot is what Snapshot encrypts, as JSON.
type snapshot struct {
	Version   int               `json:"kindred_epochs"` // 1
	Directory string            `json:"directory"`
	TakenAt   time.Time         `json:"taken_at"`
	Keys      map[string][]byte `json:"keys"` // by the ids of epochs
}

const (
	// limit: log | a copy of the epochs | {maxSnapshot B}
	maxSnapshot    = 256 << 20 // bytes, of three million epochs
	selectAll      = `SELECT id, retired_at IS NOT NULL FROM public.epochs`
	snapshotFormat = 1
)

// Snapshot writes the keys of all epochs that the database names, those included
// that are about to be destroyed, encrypted to the recipients. It opens a dump of
// the database as of any moment since the keys were held. It says how many keys
// it wrote.
func (e *Epochs) Snapshot(ctx context.Context, to io.Writer, recipients ...age.Recipient) (n int, err error) {
	held, err := e.Hold(ctx)
	if err != nil {
		return 0, err
	}
	defer held.Release(ctx)
	at, err := e.directory(ctx)
	if err != nil {
		return 0, err
	}
	s := snapshot{Version: snapshotFormat, Directory: filepath.Base(string(at)), TakenAt: e.now().UTC()}
	if s.Keys, err = all(ctx, e.pool, at); err != nil {
		return 0, err
	}
	sealed, err := age.Encrypt(to, recipients...)
	if err != nil {
		return 0, fmt.Errorf("encrypt a snapshot: %w", err)
	}
	if err := errors.Join(json.NewEncoder(sealed).Encode(s), sealed.Close()); err != nil {
		return 0, fmt.Errorf("write a snapshot: %w", err)
	}
	return len(s.Keys), nil
}

// all reads the keys of all epochs that a database names.
func all(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, at dir,
) (map[string][]byte, error) {
	rows, err := db.Query(ctx, selectAll)
	if err != nil {
		return nil, fmt.Errorf("list the epochs: %w", err)
	}
	keys := map[string][]byte{}
	var (
		name    string
		retired bool
	)
	if _, err = pgx.ForEachRow(rows, []any{&name, &retired}, func() error {
		key, err := at.key(name)
		if retired && errors.Is(err, fs.ErrNotExist) {
			return nil // its row is about to go as well
		}
		keys[name] = key
		return err
	}); err != nil {
		return nil, fmt.Errorf("read the epoch keys: %w", err)
	}
	return keys, nil
}

// Restoring says what a restored database got.
type Restoring struct {
	Epochs int // whose keys are there now
	Lost   int // epochs whose keys are not to be had
	Erased int // subjects whose keys were under these

	Stays string // the directory of the database that this one is a copy of, where it is here
	Left  string // directories that restorings which were killed have left, with commas between
}

// Restore gives a database a directory of its own with the keys of the epochs that
// it names: from snapshots, and from the directory that it had where that is to be
// found. Where some are not to be had it fails, unless they are given up: then
// their subjects count as erased, and what was learnt of many users is learnt anew. No service may run on the database. The
// directory it had is destroyed, unless it belongs to another database. What a
// restoring that was killed has left is not: a physical copy of the database, which
// has its identity, may name it.
func Restore(ctx context.Context, pool *pgxpool.Pool, o Options, identities []age.Identity, snapshots []io.Reader, giveUp bool) (Restoring, error) {
	e := &Epochs{pool: pool, path: o.Path, entropy: o.Entropy, now: o.Now}
	database, name, err := e.recorded(ctx)
	if err != nil {
		return Restoring{}, err
	}
	if name == "" {
		return Restoring{}, errors.New("this database names no epochs: there is nothing to restore")
	}
	named, err := e.living(ctx)
	if err != nil {
		return Restoring{}, err
	}
	before := dir(filepath.Join(o.Path, name))
	keys := map[string][]byte{}
	for _, from := range snapshots {
		s, err := open(from, identities)
		if err != nil {
			return Restoring{}, err
		}
		if s.Directory != name {
			return Restoring{}, fmt.Errorf("this snapshot is of the epochs in directory %q, and the database names %s", s.Directory, name)
		}
		maps.Copy(keys, s.Keys)
	}
	var lost []string
	for epoch, want := range named {
		if _, found := keys[epoch]; !found {
			keys[epoch], _ = before.key(epoch) // not there: it is looked at below
		}
		if fingerprint(epoch, keys[epoch]) != want {
			lost = append(lost, epoch)
		}
	}
	if len(lost) > 0 && !giveUp {
		return Restoring{}, fmt.Errorf("the keys of %d epochs that the database names are neither in a snapshot nor in %s: give the snapshots "+
			"of that time, too, or --give-up them, and whose keys they are as erased: %w", len(lost), before, seal.ErrEpoch)
	}
	erased, err := e.replace(ctx, name, named, keys, lost)
	if err != nil {
		return Restoring{}, err
	}
	done := Restoring{Epochs: len(named) - len(lost), Lost: len(lost), Erased: erased}
	if done.Left, err = e.left(ctx, name); err != nil {
		return done, err
	}
	owner, err := os.ReadFile(before.file(ownerFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return done, nil
	case err != nil:
		return done, fmt.Errorf("read who owns the directory before: %w", err)
	case string(owner) != database+"\n":
		done.Stays = string(before)
		return done, nil
	}
	if err := before.remove(); err != nil {
		return done, fmt.Errorf("remove the directory before: %w", err)
	}
	return done, nil
}

// left lists the directories of this database that it does not name, but for the one that it named before.
func (e *Epochs) left(ctx context.Context, before string) (string, error) {
	database, now, err := e.recorded(ctx)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(e.path)
	if err != nil {
		return "", fmt.Errorf("list the directories of epoch keys: %w", err)
	}
	var left []string
	for _, entry := range entries {
		at := dir(filepath.Join(e.path, entry.Name()))
		owner, err := os.ReadFile(at.file(ownerFile))
		if err == nil && string(owner) == database+"\n" && entry.Name() != now && entry.Name() != before {
			left = append(left, string(at))
		}
	}
	return strings.Join(left, ", "), nil
}

func open(from io.Reader, identities []age.Identity) (s snapshot, err error) {
	plain, err := age.Decrypt(from, identities...)
	if err != nil {
		return s, fmt.Errorf("decrypt a snapshot: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(plain, maxSnapshot)).Decode(&s); err != nil {
		return s, errors.New("this is no snapshot of epoch keys") // the error could quote one
	}
	if s.Version != snapshotFormat {
		return s, fmt.Errorf("this snapshot is of version %d; this release reads version %d", s.Version, snapshotFormat)
	}
	return s, nil
}

const (
	replaceDirectory = `UPDATE public.epoch_directory SET id = $1 WHERE id = $2`
	giveUpKeys       = `
WITH made_anew AS (DELETE FROM public.subject_keys WHERE ` + lostKeys + ` AND ` + learntUnder + `)
UPDATE public.subject_keys SET wrapped = NULL, lookup = NULL, destroyed_at = now(), client_key = ''
WHERE ` + lostKeys + ` AND NOT ` + learntUnder
	lostKeys    = `client_key >= $1 || '/' AND client_key < $1 || '0' AND wrapped IS NOT NULL`
	learntUnder = `(subject = client OR left(subject, 4) = 'lay_')` // as seal.LearntUnder
	giveUpEpoch = `DELETE FROM public.epochs WHERE id = $1`
)

// replace lets the database name a new directory, with the keys of those epochs
// that are not lost.
func (e *Epochs) replace(ctx context.Context, before string, named map[string][sha256.Size]byte, keys map[string][]byte, lost []string) (erased int, err error) {
	for _, epoch := range lost {
		delete(keys, epoch)
	}
	at, name, err := e.newDirectory(ctx)
	if err != nil {
		return 0, err
	}
	for epoch := range named {
		if key, found := keys[epoch]; found {
			if err := at.putKey(epoch, key); err != nil {
				return 0, errors.Join(err, at.remove()) // nothing names it
			}
		}
	}
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, replaceDirectory, name, before)
		if err == nil && done.RowsAffected() != 1 {
			err = errors.New("another process did so meanwhile")
		}
		for _, epoch := range lost {
			if err != nil {
				return err
			}
			if done, err = tx.Exec(ctx, giveUpKeys, epoch); err == nil {
				erased += int(done.RowsAffected())
				_, err = tx.Exec(ctx, giveUpEpoch, epoch)
			}
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("let the database name other epoch keys: %w", err)
	}
	return erased, nil
}

// remove destroys a directory, with what is in it.
func (d dir) remove() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := wipe(d.file(entry.Name())); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(string(d)), postgres.SyncDir(filepath.Dir(string(d))))
}

// CopyFrom puts the epochs of another database, which must be held, in place of those
// that are here, with their keys: all, or those that a client's keys are under.
func (e *Epochs) CopyFrom(ctx context.Context, theirs, tx pgx.Tx, from *Epochs, client id.Client) error {
	where := ""
	if client != "" { // it was parsed: letters, digits and an underscore
		where = ` WHERE id IN (SELECT left(client_key, 17) FROM public.subject_keys WHERE client = '` + string(client) + `')`
	}
	if err := postgres.CopyRows(ctx, theirs, tx, "epochs", "id, fingerprint, keys, made_at, closing_at, retired_at", where); err != nil {
		return fmt.Errorf("copy the epochs: %w", err)
	}
	source, err := from.directory(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := all(ctx, tx, source)
	if err != nil {
		return err
	}
	to, err := e.makeDirectory(ctx)
	if err != nil {
		return err
	}
	for name, key := range keys {
		if err := to.putKey(name, key); err != nil {
			return err
		}
	}
	return nil
}
