package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the database at url to the schema of this binary: every embedded
// migration once, in the order of its name, each in a transaction of its own, and
// then the functions, whenever they have changed, unless the database has a later
// edition of them. Any number of processes may call it at the same time; one
// migrates, the others wait. It changes nothing in a database that holds a migration
// this binary does not have, or has in another wording, that was made before there
// was a release, or whose encoding is not UTF-8.
func Migrate(ctx context.Context, url string) error {
	return migrate(ctx, url, migrations)
}

// Fingerprint names the schema that [Migrate] leads to: equal exactly when the
// migrations are equal. 16 hexadecimal digits.
func Fingerprint() string {
	known, err := readMigrations(migrations)
	if err != nil {
		panic(err) // an embedded file that cannot be read: the binary is broken
	}
	h := sha256.New()
	for _, m := range known {
		fmt.Fprintf(h, "%s %x\n", m.name, m.hash())
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

const isMigrated = `SELECT to_regclass('public.schema_migration') IS NOT NULL`

// Migrated says whether the database at url was ever brought to a schema of
// [Migrate]. It changes nothing.
func Migrated(ctx context.Context, url string) (bool, error) {
	conn, err := Connect(ctx, url, "kindred")
	if err != nil {
		return false, fmt.Errorf("reach database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) // a failed close changes nothing
	var migrated bool
	if err := conn.QueryRow(ctx, isMigrated).Scan(&migrated); err != nil {
		return false, fmt.Errorf("look for the migration history: %w", err)
	}
	return migrated, nil
}

type migration struct{ name, sql string }

func (m migration) hash() []byte {
	sum := sha256.Sum256([]byte(m.sql))
	return sum[:]
}

// once says that it runs once: NNN_what.sql. The others run whenever they have changed.
func (m migration) once() bool { return m.name[0] >= '0' && m.name[0] <= '9' }

// edition is the number in the first line of a migration that runs whenever it has changed: one more with each change.
func (m migration) edition() (n int) {
	_, _ = fmt.Sscanf(m.sql, "-- Edition %d.", &n) // 0: it says none
	return n
}

// readMigrations returns the migrations in fsys, in order: by name, so that those
// that run once come before the others.
func readMigrations(fsys fs.FS) ([]migration, error) {
	files, err := fs.Glob(fsys, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	known := make([]migration, 0, len(files))
	for _, file := range files {
		sql, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		known = append(known, migration{path.Base(file), string(sql)})
	}
	return known, nil
}

const (
	// The lock lives as long as the session.
	lockMigrations = `SET lock_timeout = '5min'; SELECT pg_advisory_lock(hashtextextended('kindred migrations', 0))`

	// What holds a table for long, such as a dump, keeps a migration waiting, and this whoever comes behind it. So it
	// gives way, after longer than a server takes to call off its own vacuum, and comes again, for 5 minutes.
	lockTables = `SET lock_timeout = '1500ms'`
	giveWay    = `SELECT pg_sleep(5)`
	lockTries  = 46

	createHistory = `
CREATE TABLE IF NOT EXISTS schema_migration (
	name       text PRIMARY KEY,
	sha256     bytea NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE schema_migration ADD COLUMN IF NOT EXISTS edition integer NOT NULL DEFAULT 0`
	selectHistory = `SELECT name, sha256, edition FROM schema_migration ORDER BY name`
	insertHistory = `
INSERT INTO schema_migration (name, sha256, edition) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET sha256 = excluded.sha256, applied_at = excluded.applied_at, edition = excluded.edition`

	// unreleased is a migration that no release has: the first of those before the first.
	unreleased = "001_log.sql"
)

func migrate(ctx context.Context, url string, fsys fs.FS) error {
	known, err := readMigrations(fsys)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	conn, err := Connect(ctx, url, "kindred migrate")
	if err != nil {
		return fmt.Errorf("reach database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) // also releases the lock; a failed close changes nothing

	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" && encoding != "" { // others do not hold every text
		return fmt.Errorf("the database keeps its texts as %s: make one with createdb --encoding=UTF8 --template=template0", encoding)
	}
	if err := keepsSession(ctx, conn, url); err != nil { // before a lock is held by a session that may be lent to somebody else
		return err
	}
	if _, err := conn.Exec(ctx, lockMigrations); err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	if _, err := conn.Exec(ctx, createHistory); err != nil {
		return fmt.Errorf("create migration history: %w", err)
	}
	current, err := history(ctx, conn, known)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, lockTables); err != nil {
		return fmt.Errorf("bound the waits for tables: %w", err)
	}
	for _, m := range known {
		if current[m.name] {
			continue
		}
		if err := m.apply(ctx, conn); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}

// history returns the names of the migrations that the database holds as they are
// here, or in a later edition. It refuses a history that the known ones do not explain.
func history(ctx context.Context, conn *pgx.Conn, known []migration) (map[string]bool, error) {
	byName := make(map[string]migration, len(known))
	for _, m := range known {
		byName[m.name] = m
	}
	rows, err := conn.Query(ctx, selectHistory)
	if err != nil {
		return nil, fmt.Errorf("read migration history: %w", err)
	}
	current := map[string]bool{}
	var (
		name    string
		hash    []byte
		edition int
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &hash, &edition}, func() error {
		m, ok := byName[name]
		switch same := bytes.Equal(m.hash(), hash); {
		case !ok && name == unreleased:
			return errors.New("the database was made before the first release of kindred, whose schema is another; start with a new database")
		case !ok:
			return fmt.Errorf("the database was migrated by a newer version of kindred: "+
				"it holds %s, which this version does not know; start that version, or a later one", name)
		case !same && m.once():
			return fmt.Errorf("the database was migrated by a different build of kindred: "+
				"its %s is not the one of this build; start the build that made it, or a new database", name)
		default:
			current[name] = same || edition > m.edition()
			return nil
		}
	})
	return current, err
}

const selectBackend = `SELECT pg_backend_pid()`

// keepsSession fails where a pooler lends the session of a connection to others between its
// transactions: then notifications, settings, prepared statements and locks are anybody's.
func keepsSession(ctx context.Context, conn *pgx.Conn, url string) error {
	other, err := Connect(ctx, url, "kindred migrate")
	if err != nil {
		return fmt.Errorf("reach database: %w", err)
	}
	defer other.Close(context.WithoutCancel(ctx)) // a failed close changes nothing
	var backends [3]string
	for i, ask := range []struct {
		*pgx.Conn
		sql string
	}{{conn, selectBackend}, {other, "BEGIN; " + selectBackend}, {conn, selectBackend}} {
		results, err := ask.PgConn().Exec(ctx, ask.sql).ReadAll() // prepares nothing
		if err != nil {
			return fmt.Errorf("look for a pooler: %w", err)
		}
		backends[i] = string(results[len(results)-1].Rows[0][0])
	}
	if backends[0] == backends[1] || backends[0] != backends[2] {
		return errors.New("a pooler before the database lends its sessions by the transaction: give PgBouncer pool_mode = session, and start it again")
	}
	return nil
}

func (m migration) apply(ctx context.Context, conn *pgx.Conn) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, m.sql); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, insertHistory, m.name, m.hash(), m.edition())
			return err
		})
		if !LockTimedOut(err) {
			return err
		}
		if try == lockTries {
			return fmt.Errorf("a dump, or another transaction, holds a table for 5 minutes and more: %w", err)
		}
		if _, err := conn.Exec(ctx, giveWay); err != nil {
			return err
		}
	}
}

// LockTimedOut says whether a statement waited for a lock for longer than lock_timeout.
func LockTimedOut(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03" // SQLSTATE lock_not_available
}
