package postgres_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// ownerDir names, to a child process of these tests, the directory that it shall own.
const ownerDir = "KINDRED_TEST_OWNER_DIR"

func TestMain(m *testing.M) {
	dir, isOwner := os.LookupEnv(ownerDir)
	if !isOwner {
		code := m.Run()
		removeModel()
		os.Exit(code)
	}
	local, err := postgres.StartLocal(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(local.PID())
	<-local.Done()
}

// owner is a process that owns a private server.
type owner struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startOwner(t *testing.T, dir string) *owner {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerDir+"="+dir)
	out := testkit.Must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &owner{cmd, bufio.NewScanner(out)}
	t.Cleanup(o.kill)
	return o
}

// serverPID waits until the server runs.
func (o *owner) serverPID(t *testing.T) int {
	t.Helper()
	o.out.Scan()
	pid, err := strconv.Atoi(o.out.Text())
	if err != nil {
		t.Fatalf("the owner says: %s", o.out.Text())
	}
	return pid
}

func (o *owner) kill() {
	_ = o.cmd.Process.Kill() // it may have ended
	_ = o.cmd.Wait()
}

// model is a directory with a cluster, to be copied: making one takes much longer.
var model = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "kindred-model-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return dir, err
	}
	local, err := postgres.StartLocal(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return dir, err
	}
	return dir, local.Stop(context.Background())
})

func removeModel() {
	if dir, _ := model(); dir != "" { // what went wrong with it was told by a test
		os.RemoveAll(dir)
	}
}

// newCluster is a directory with a cluster that has run and stopped in order.
func newCluster(t *testing.T) string {
	t.Helper()
	from := testkit.Must(model())(t)
	dir := pgtest.Dir(t)
	for _, part := range []string{"data", "socket"} {
		if out, err := exec.Command("cp", "-Rp", filepath.Join(from, part), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

func start(t *testing.T, dir string) *postgres.Local {
	t.Helper()
	return testkit.Must(tryStart(t, dir))(t)
}

func tryStart(t *testing.T, dir string) (*postgres.Local, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience())
	defer cancel()
	local, err := postgres.StartLocal(ctx, dir, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(func() { stop(t, local) })
	}
	return local, err
}

func stop(t *testing.T, local *postgres.Local) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testkit.Patience())
	defer cancel()
	if err := local.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// ask runs a statement and returns the one text that it yields, if any.
func ask(t *testing.T, local *postgres.Local, sql string) string {
	t.Helper()
	conn := testkit.Must(pgx.Connect(t.Context(), local.URL()))(t)
	defer conn.Close(t.Context())
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func TestAFreshServerIsOutOfReachOfTheNetworkAndFlushes(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	local := start(t, dir)
	got := map[string]string{}
	for _, setting := range []string{
		"listen_addresses", "fsync", "full_page_writes", "synchronous_commit", "data_checksums", "server_encoding",
	} {
		got[setting] = ask(t, local, "SHOW "+setting)
	}
	want := map[string]string{
		"listen_addresses": "", "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		"data_checksums": "on", "server_encoding": "UTF8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"socket", "data"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if group, err := syscall.Getpgid(local.PID()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("Ctrl-C would reach the server: group %d, %v", group, err)
	}
}

func TestDataOutlivesAStopInOrder(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	local := start(t, dir)
	ask(t, local, `CREATE TABLE kept AS SELECT 'yes' AS it`)
	stop(t, local)
	stop(t, local) // saying it twice is not an error
	if _, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not stopped in order: %v", err)
	}
	select {
	case <-local.Done():
		t.Errorf("an ordered stop counts as an end of its own: %v", local.Err())
	default:
	}
	if got := ask(t, start(t, dir), `SELECT it FROM kept`); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

func TestASecondStartRefusesAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	dir := newCluster(t)
	local := start(t, dir)
	if err := local.Announce("http://127.0.0.1:8080"); err != nil {
		t.Fatal(err)
	}
	_, err := tryStart(t, dir)
	if !errors.Is(err, postgres.ErrInUse) {
		t.Fatalf("second start: %v", err)
	}
	for _, part := range []string{strconv.Itoa(os.Getpid()), "http://127.0.0.1:8080", dir} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	ask(t, local, `SELECT 'still here'`)
}

func TestOfManyStartsOneWins(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	const starts = 6
	errs := make([]error, starts)
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() { _, errs[i] = tryStart(t, dir) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, postgres.ErrInUse):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d starts won", won)
	}
}

func TestAServerEndsWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	dir := newCluster(t)
	owner := startOwner(t, dir)
	pid := owner.serverPID(t)
	owner.kill()
	testkit.Eventually(t, "the server ends", func() bool { return !runs(pid) })
	ask(t, start(t, dir), `SELECT 'up again'`)
}

// runs tells whether the process is there and not merely unmourned.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestAServerThatIsOnItsWayOutIsSeenOff(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	dir := newCluster(t)
	owner := startOwner(t, dir)
	pid := owner.serverPID(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that it learns of the death late
		t.Fatal(err)
	}
	owner.kill()
	var started *postgres.Local
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		started, err = tryStart(t, dir)
	}()
	testkit.Eventually(t, "the new owner holds the lock", func() bool {
		owner, err := os.ReadFile(filepath.Join(dir, "owner.lock"))
		return err == nil && strings.Contains(string(owner), strconv.Itoa(os.Getpid()))
	})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if started.PID() == pid {
		t.Error("adopted a server that was stopping")
	}
	ask(t, started, `SELECT 'up'`)
}

func TestAServerThatOutlivedItsOwnerIsAdopted(t *testing.T) {
	t.Parallel()
	dir := newCluster(t)
	pid := postgres.StartOrphan(t.Context(), t, dir, false)
	local := start(t, dir)
	if local.PID() != pid {
		t.Errorf("pid %d instead of %d", local.PID(), pid)
	}
	ask(t, local, `SELECT 'works'`)
	stop(t, local)

	postgres.StartOrphan(t.Context(), t, dir, false)
	local = start(t, dir)
	killed(t, local)
	stop(t, local)
	ask(t, start(t, dir), `SELECT 'up again'`)
}

func TestAServerThatIsNotKnownForOneIsNeverJoinedByAnother(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	local := start(t, dir)
	stop(t, local)
	pid := postgres.StartOrphan(t.Context(), t, dir, true)
	testkit.Eventually(t, "it answers", func() bool {
		conn, err := pgx.Connect(t.Context(), local.URL())
		return err == nil && conn.Close(t.Context()) == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if second, err := postgres.StartLocal(ctx, dir, slog.New(slog.DiscardHandler)); err == nil {
		t.Errorf("pid %d beside pid %d", second.PID(), pid)
		stop(t, second)
	}
	ask(t, local, `SELECT 'still here'`)
}

// killed kills the server and waits for word of it.
func killed(t *testing.T, local *postgres.Local) {
	t.Helper()
	if err := local.Err(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := syscall.Kill(local.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-local.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the owner does not learn of it")
	}
	if err := local.Err(); err == nil || !strings.Contains(err.Error(), strconv.Itoa(local.PID())) {
		t.Errorf("after: %v", err)
	}
}

func TestAKilledServerIsNoticedAndRecovers(t *testing.T) {
	t.Parallel()
	dir := newCluster(t)
	local := start(t, dir)
	ask(t, local, `CREATE TABLE kept AS SELECT 'yes' AS it`)
	// A busy session outlives the server for a while, and is in the way of a new one.
	busy := testkit.Must(pgx.Connect(t.Context(), local.URL()))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = busy.Exec(t.Context(), `SELECT /* busy */ count(*) FROM generate_series(1, 5000000)`)
	}()
	testkit.Eventually(t, "the session is busy", func() bool {
		return ask(t, local, `SELECT pid::text FROM pg_stat_activity WHERE query LIKE 'SELECT /* busy */%'`) != ""
	})
	killed(t, local)
	stop(t, local)
	defer func() { <-ended }()
	if got := ask(t, start(t, dir), `SELECT it FROM kept`); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

func TestAStaleNoteOfAProcessDoesNotKeepTheServerFromStarting(t *testing.T) {
	t.Parallel()
	for name, keepsRunning := range map[string]bool{"dead": false, "alive and another": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newCluster(t)
			data := filepath.Join(dir, "data")
			owner := ownerOf(t, data)

			// Only a process of the same account is one that PostgreSQL would yield to.
			other := exec.Command("sleep", "600")
			other.SysProcAttr = &syscall.SysProcAttr{}
			if os.Geteuid() == 0 {
				other.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
			}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() {
				_ = other.Process.Kill() // it may have ended
				_ = other.Wait()
			}
			defer end()
			if !keepsRunning {
				end()
			}

			note := fmt.Sprintf("%d\n%s\n1700000000\n5432\n%s\n\n\nready   \n",
				other.Process.Pid, data, filepath.Join(dir, "socket"))
			for _, path := range []string{
				filepath.Join(data, "postmaster.pid"), filepath.Join(dir, "socket", ".s.PGSQL.5432.lock"),
			} {
				if err := os.WriteFile(path, []byte(note), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
					t.Fatal(err)
				}
			}
			ask(t, start(t, dir), `SELECT 'up'`)
		})
	}
}

func ownerOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info := testkit.Must(os.Stat(path))(t)
	return info.Sys().(*syscall.Stat_t)
}

func TestACrashWhileTheClusterIsMadeLeavesNoHalfOfOne(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	owner := startOwner(t, dir)
	halves := func() []string {
		return testkit.Must(filepath.Glob(filepath.Join(dir, "data.new-*", "global")))(t)
	}
	testkit.Eventually(t, "initdb is under way", func() bool { return len(halves()) == 1 })
	owner.kill()
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the cluster was complete before the crash: %v", err)
	}
	ask(t, start(t, dir), `SELECT 'up'`)
	if left := halves(); len(left) != 0 {
		t.Errorf("left: %s", left)
	}
}

func TestAwkwardPathsWork(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"long":        strings.Repeat("long/", 30),
		"punctuation": `it's, "100%" [sure] ü?&#`,
		"space":       "a b",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := start(t, filepath.Join(pgtest.Dir(t), part))
			socket := ask(t, local, `SHOW unix_socket_directories`)
			ask(t, local, `SELECT 'up'`)
			stop(t, local)
			socket = strings.Trim(socket, `"`)
			_, err := os.Stat(socket)
			if elsewhere := filepath.Dir(socket) == "/tmp"; elsewhere != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is elsewhere: %t; after the stop: %v", socket, elsewhere, err)
			}
		})
	}
}

func TestADirectoryThatSomebodyElseHasPutInOurPlaceIsRefused(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"link":             func(path string) error { return os.Symlink("/tmp", path) },
		"file":             func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"open to everyone": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(pgtest.Dir(t), strings.Repeat("long/", 30))
			local := start(t, dir)
			socket := strings.Trim(ask(t, local, `SHOW unix_socket_directories`), `"`)
			stop(t, local)
			if err := put(socket); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(socket) })
			if _, err := tryStart(t, dir); err == nil || !strings.Contains(err.Error(), socket) {
				t.Errorf("the start says: %v", err)
			}
		})
	}
}

func TestAClusterOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(version string) error{
		"older":     func(path string) error { return os.WriteFile(path, []byte("9\n"), 0o600) },
		"newer":     func(path string) error { return os.WriteFile(path, []byte("99\n"), 0o600) },
		"not a one": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newCluster(t)
			data := filepath.Join(dir, "data")
			if err := edit(filepath.Join(data, "PG_VERSION")); err != nil {
				t.Fatal(err)
			}
			before := listing(t, data)
			_, err := tryStart(t, dir)
			if err == nil || !strings.Contains(err.Error(), data) {
				t.Errorf("the start says: %v", err)
			}
			if diff := cmp.Diff(before, listing(t, data)); diff != "" {
				t.Errorf("the cluster was touched: %s", diff)
			}
		})
	}
}

// listing maps each file to its size and time of change.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			found[path] = fmt.Sprint(info.Size(), info.Mode(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRootUsesAnotherDirectoryWhereTheServersAccountCannotWalk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root changes accounts")
	}
	dir := filepath.Join(t.TempDir(), "data") // below a directory for root alone
	if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	local := testkit.Must(postgres.StartLocal(t.Context(), dir, slog.New(slog.NewTextHandler(&said, nil))))(t)
	instead := filepath.Dir(ask(t, local, `SHOW data_directory`))
	t.Cleanup(func() { os.RemoveAll(instead) })
	defer stop(t, local)
	if !strings.HasPrefix(instead, "/var/tmp/kindred-") || !strings.Contains(said.String(), instead) {
		t.Errorf("%s; said: %s", instead, &said)
	}
	if _, err := tryStart(t, dir); !errors.Is(err, postgres.ErrInUse) {
		t.Errorf("second start: %v", err)
	}
}

func TestAClusterIsServedWhereItWasMade(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root changes accounts")
	}
	dir := newCluster(t)
	local := start(t, dir)
	ask(t, local, `CREATE TABLE kept AS SELECT 'yes' AS it`)
	stop(t, local)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tryStart(t, dir); err == nil || !strings.Contains(err.Error(), "cannot reach it") {
		t.Errorf("out of reach: %v", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, start(t, dir), `SELECT it FROM kept`); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

func TestAClusterMadeElsewhereIsServedFromThere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root changes accounts")
	}
	dir := pgtest.Dir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	local := start(t, dir)
	instead := filepath.Dir(ask(t, local, `SHOW data_directory`))
	t.Cleanup(func() { os.RemoveAll(instead) })
	ask(t, local, `CREATE TABLE kept AS SELECT 'yes' AS it`)
	stop(t, local)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	local = start(t, dir)
	defer stop(t, local)
	if got := ask(t, local, `SELECT it FROM kept`); got != "yes" {
		t.Errorf("kept: %q", got)
	}
}

func TestAStartThatIsBrokenOffLooksForNoOtherPlace(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var said bytes.Buffer
	_, err := postgres.StartLocal(ctx, pgtest.Dir(t), slog.New(slog.NewTextHandler(&said, nil)))
	if !errors.Is(err, context.Canceled) || said.Len() > 0 {
		t.Errorf("%v; said: %s", err, &said)
	}
}

func TestTheServerSeesNothingOfOurEnvironment(t *testing.T) {
	t.Setenv("KINDRED_MASTER_KEY", "a secret")
	t.Setenv("PGPORT", "1") // nor do its settings come from there
	local := start(t, newCluster(t))
	if got := ask(t, local, `SHOW port`); got != "5432" {
		t.Errorf("port %s", got)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", local.PID()))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no /proc")
	}
	if err != nil || bytes.Contains(environ, []byte("KINDRED")) {
		t.Errorf("the server has our environment: %v", err) // which is not to be shown
	}
}

func TestWithoutAServerToStartTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("PG_BINDIR", t.TempDir())
	dir := pgtest.Dir(t)
	_, err := tryStart(t, dir)
	if err == nil || !strings.Contains(err.Error(), "scripts/install-postgres") {
		t.Errorf("the start says: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(left, fs.DirEntry.IsDir) {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestTheServersLogHoldsNoValues(t *testing.T) {
	t.Parallel()
	dir := newCluster(t)
	local := start(t, dir)
	conn, err := pgx.Connect(t.Context(), local.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SELECT 'ada@example.org'::int`)
	if err == nil {
		t.Fatal("that is a number?")
	}
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	if err != nil || len(log) == 0 || bytes.Contains(log, []byte("ada@")) {
		t.Errorf("%s, %v", log, err)
	}
}
