package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// Without anybody's doing, the system begins to write after half a minute, and
// the server after five.
func TestWhatTheServerAddsIsWrittenSoon(t *testing.T) {
	t.Parallel()
	dir := pgtest.DiskDir(t)
	local := start(t, dir)
	ask(t, local, `CREATE TABLE added (it text)`)
	path := filepath.Join(dir, "data", ask(t, local, `SELECT pg_relation_filepath('added')`))
	ask(t, local, `INSERT INTO added SELECT repeat('x', 1000) FROM generate_series(1, 50000)`)
	testkit.Eventually(t, "the system has written nearly all", func() bool { return unwritten(t, path) < 100 })
}

// unwritten counts the pages of a file that the system has yet to write.
func unwritten(t *testing.T, path string) uint64 {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found unix.Cachestat_t
	err = unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &found, 0)
	if errors.Is(err, unix.ENOSYS) {
		t.Skip("this kernel, older than Linux 6.5, does not tell")
	}
	if err != nil {
		t.Fatal(err)
	}
	return found.Dirty + found.Writeback
}
