// Package epochs keeps the keys of epochs in files, beside the key table and not
// in it, and ends an epoch soon after one of its subjects was erased.
//
// The keys of at most 4,096 subjects stand under an epoch: its bucket. A row of
// subject_keys names the epoch that it is under. An epoch goes through these
// states, which its row in the table epochs holds, and never back:
//
//	made      its file is durable; it has no row yet, so no key can be under it
//	open      its row stands: processes reserve places in it for new keys
//	closing   a subject under it was erased. No more places are reserved, and
//	          processes that have some give them up within confirmEvery
//	retired   in one transaction that locked its row, and so kept new keys from
//	          coming under it, its living keys moved to another epoch, and its
//	          tombstones were let go of. check_epochs refuses keys that come later
//	over      its file is overwritten and removed, then its row
//
// A kill between any two of these steps loses no key, since the file of an epoch
// is durable before its row is made, and a row of a key cannot name an epoch
// without a row; and since the file goes after the transaction that moved the
// last key away has committed. What a kill leaves is a file without a row, which
// is retired an hour later, or a step that the next turn takes again.
//
// A retired epoch's file stays for [Rotation].KeepRetired: a standby that is promoted,
// or a server that is restored to moments before, may have forgotten that the
// keys moved. It has then forgotten that the epoch is retired, too, so the file
// stays. Reservations that it has forgotten let a bucket grow beyond 4,096; it is
// then divided when it is ended.
//
// The rows of subject_keys name what is to be done: a tombstone that names an
// epoch ends that epoch, be it that the process that erased was killed.
//
// A directory belongs to one database, which records the directory's id: a
// process that does not find it, or does not find in it what the database names,
// makes none beside it, but refuses.
package epochs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	gosync "sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore/seal"
)

const (
	keySize = 32
	// limit: log | users of one epoch | {maxKeys}
	maxKeys = 4096 // of subjects under one epoch

	firstPlaces  = 64              // that a process reserves first; then four times as many
	confirmEvery = 2 * time.Second // how long a process trusts that its epoch is open
	keptFor      = 30 * time.Second
	// limit: log | epochs in memory | {maxKept}
	maxKept     = 1 << 14 // epochs in memory, about 1 KiB each
	reserveTime = 10 * time.Second
	// A process that was held up for longer between making a file and naming it in
	// the database may find the file gone.
	nameWithin = time.Minute
)

// Epochs are the epochs of one database. It fulfils seal.Epochs.
type Epochs struct {
	pool    *pgxpool.Pool
	path    string // what the directories of each database stand under
	entropy io.Reader
	now     func() time.Time
	made    func(path string)

	locked  chan struct{} // held by whoever reserves places, or looks for the directory
	mu      gosync.Mutex  // guards what follows
	at      dir           // where the files are; empty: not looked for yet
	kept    *simplelru.LRU[string, keptEpoch]
	filling places // new keys are put under these
	ahead   places // reserved before they are needed
	more    int    // places that are reserved next
	busy    bool   // some are reserved ahead just now
}

// places are what is left of those that were reserved under an epoch.
type places struct {
	epoch seal.Epoch
	left  int
	until time.Time // the epoch is open until then, or at least not retired
}

type keptEpoch struct {
	seal.Epoch
	until time.Time
}

// Options say what a process does with epochs.
type Options struct {
	Path    string            // the directory that replicas share
	Entropy io.Reader         // safe for concurrent use
	Now     func() time.Time  // ages what is known
	Made    func(path string) // is told of a directory that was made; may be nil
}

// Open finds the epochs of a database, and fails where some that it names cannot
// be found. A database that names none gets its directory with its first key.
func Open(ctx context.Context, pool *pgxpool.Pool, o Options) (*Epochs, error) {
	kept, err := simplelru.NewLRU[string, keptEpoch](maxKept, nil)
	if err != nil {
		return nil, err
	}
	e := &Epochs{
		pool: pool, path: o.Path, entropy: o.Entropy, now: o.Now, made: o.Made,
		locked: make(chan struct{}, 1), kept: kept, more: firstPlaces,
	}
	at, err := e.directory(ctx)
	if errors.Is(err, errNone) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	return e, e.check(ctx, at)
}

// Make makes the directory unless there is one.
func (e *Epochs) Make(ctx context.Context) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer func() { <-e.locked }()
	_, err := e.makeDirectory(ctx)
	return err
}

// lock waits for the lock.
func (e *Epochs) lock(ctx context.Context) error {
	select {
	case e.locked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNone = errors.New("there are no epochs yet")

// A copy of a database has another identity, unless it is one of the server's
// files; so has the same one after a dump and a restore.
const selectDirectory = `
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()),
	coalesce((SELECT id FROM public.epoch_directory), '')`

// directory is where the files of the database's epochs are, or errNone.
func (e *Epochs) directory(ctx context.Context) (dir, error) {
	e.mu.Lock()
	at := e.at
	e.mu.Unlock()
	if at != "" {
		return at, nil
	}
	database, name, err := e.recorded(ctx)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", errNone
	}
	at = dir(filepath.Join(e.path, name))
	owner, err := os.ReadFile(at.file(ownerFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: the epoch keys of this database are in a directory %s, which is not in %s: let KINDRED_EPOCH_DIR name where "+
			"replicas share it, or put the keys back with kindred keys restore", seal.ErrEpoch, name, e.path)
	case err != nil:
		return "", fmt.Errorf("%w: %w", seal.ErrEpoch, err)
	case string(owner) != database+"\n":
		return "", fmt.Errorf("%w: the epoch keys in %s belong to another database, of which this one is a copy: give it its own from a "+
			"snapshot with kindred keys restore", seal.ErrEpoch, at)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = at
	return at, nil
}

func (e *Epochs) recorded(ctx context.Context) (database, name string, err error) {
	if err := e.pool.QueryRow(ctx, selectDirectory).Scan(&database, &name); err != nil {
		return "", "", fmt.Errorf("look for the directory of the epoch keys: %w", err)
	}
	return database, name, nil
}

const insertDirectory = `INSERT INTO public.epoch_directory (id) VALUES ($1) ON CONFLICT DO NOTHING`

// makeDirectory makes the directory where the database names none. Of processes
// that do so at once, one is right; the others find its directory, or fail.
func (e *Epochs) makeDirectory(ctx context.Context) (dir, error) {
	at, err := e.directory(ctx)
	if !errors.Is(err, errNone) {
		return at, err
	}
	fresh, name, err := e.newDirectory(ctx)
	if err != nil {
		return "", err
	}
	done, err := e.pool.Exec(ctx, insertDirectory, name)
	if err != nil {
		return "", fmt.Errorf("record the directory of the epoch keys: %w", err) // it may be recorded: it stays
	}
	if done.RowsAffected() == 0 {
		if err := os.RemoveAll(string(fresh)); err != nil {
			return "", fmt.Errorf("remove a directory for epoch keys: %w", err)
		}
	} else if e.made != nil {
		e.made(string(fresh))
	}
	return e.directory(ctx)
}

// newDirectory makes a directory that says which database it belongs to.
func (e *Epochs) newDirectory(ctx context.Context) (at dir, name string, err error) {
	database, _, err := e.recorded(ctx)
	if err != nil {
		return "", "", err
	}
	raw := make([]byte, 16)
	if _, err := io.ReadFull(e.entropy, raw); err != nil {
		return "", "", fmt.Errorf("read entropy: %w", err)
	}
	name = hex.EncodeToString(raw)
	at = dir(filepath.Join(e.path, name))
	if err := errors.Join(makeDir(string(at)), at.put(ownerFile, []byte(database+"\n"))); err != nil {
		return "", "", fmt.Errorf("make a directory for epoch keys: %w", err)
	}
	return at, name, nil
}

const selectLiving = `SELECT id, fingerprint FROM public.epochs WHERE retired_at IS NULL`

// check fails unless the keys of all epochs that are not retired are there. One
// that is missing may have been retired meanwhile.
func (e *Epochs) check(ctx context.Context, at dir) error {
	missing, n, err := e.missing(ctx, at)
	if err == nil && n > 0 {
		missing, n, err = e.missing(ctx, at)
	}
	if err == nil && n > 0 {
		err = fmt.Errorf("%d epoch keys that the database names are not in %s, such as that of %s: put them back from a snapshot "+
			"with kindred keys restore: %w", n, at, missing[0], seal.ErrEpoch)
	}
	return err
}

func (e *Epochs) missing(ctx context.Context, at dir) (names []string, n int, err error) {
	named, err := e.living(ctx)
	if err != nil {
		return nil, 0, err
	}
	for name, want := range named {
		key, err := at.key(name)
		if err != nil || fingerprint(name, key) != want {
			names = append(names, name)
		}
	}
	return names, len(names), nil
}

// living are the epochs that are not retired, with their fingerprints.
func (e *Epochs) living(ctx context.Context) (map[string][sha256.Size]byte, error) {
	rows, _ := e.pool.Query(ctx, selectLiving) // what it fails with, its rows end with
	found := map[string][sha256.Size]byte{}
	var (
		name    string
		printed []byte
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &printed}, func() error {
		var of [sha256.Size]byte
		copy(of[:], printed)
		found[name] = of
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list the epochs: %w", err)
	}
	return found, nil
}

// fingerprint tells whether a key is that of an epoch, and nothing else.
func fingerprint(name string, key []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("kindred.epoch-key.1 "+name+" "), key...))
}

// Find finds an epoch. What was found is good for half a minute: no process opens
// keys by an epoch that has been over for longer.
func (e *Epochs) Find(ctx context.Context, name string) (seal.Epoch, error) {
	now := e.now()
	e.mu.Lock()
	kept, found := e.kept.Get(name)
	e.mu.Unlock()
	if found && now.Before(kept.until) {
		return kept.Epoch, nil
	}
	epoch, err := e.read(ctx, name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.kept.Remove(name)
		return seal.Epoch{}, err
	}
	e.kept.Add(name, keptEpoch{epoch, now.Add(keptFor)})
	return epoch, nil
}

func (e *Epochs) read(ctx context.Context, name string) (seal.Epoch, error) {
	at, err := e.directory(ctx)
	if errors.Is(err, errNone) {
		return seal.Epoch{}, fmt.Errorf("%w: the database names no directory of theirs", seal.ErrEpoch)
	}
	if err != nil {
		return seal.Epoch{}, err
	}
	key, err := at.key(name)
	if err != nil {
		return seal.Epoch{}, err
	}
	return seal.NewEpoch(name, key)
}
