package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/epochs"
	"kindred/eventstore/seal/keystest"
	"kindred/eventstore/seal/pgkeys"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
)

// endEpochs ends the epochs of all who are erased, as a running service does
// within minutes.
func endEpochs(t testing.TB, f *app.App) {
	t.Helper()
	r := f.Rotation()
	r.BatchErasures, r.KeepRetired = 0, 0
	for range 3 {
		if err := r.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// opensRow says whether somebody who has the master key, the keys of clients and
// the epoch keys of now opens a key as it was stored once.
func opensRow(t testing.TB, f *app.App, client id.Client, subject string, row seal.WrappedKey) error {
	t.Helper()
	master, err := app.MasterKeys(t.Context(), f.Config, f.Pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	root, err := pgkeys.Keys{Pool: f.Pool}.Root(t.Context(), seal.ClientKey, client)
	if err != nil {
		t.Fatal(err)
	}
	keys := keystest.NewMemory()
	if _, err := keys.MakeRoot(t.Context(), seal.RootKey{Kind: seal.ClientKey, Client: client, WrappedKey: root}); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{{Client: client, Subject: subject, WrappedKey: row}}); err != nil {
		t.Fatal(err)
	}
	thief := seal.New(keys, master, rand.Reader)
	if thief.Epochs, err = f.OpenEpochs(t.Context(), f.Pool); err != nil {
		t.Fatal(err)
	}
	_, err = thief.With(t.Context(), row, client, subject)
	return err
}

// onDisk counts the files under directories that hold some bytes.
func onDisk(t testing.TB, what []byte, dirs ...string) (n int) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return ignoreGone(err)
			}
			content, err := os.ReadFile(path)
			if bytes.Contains(content, what) {
				n++
			}
			return ignoreGone(err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) { // the server removes files meanwhile
		return nil
	}
	return err
}

func TestWhatIsOnTheDiskOpensNothingOfTheErased(t *testing.T) {
	t.Parallel()
	s := startService(t, impatient, func(c *app.Config) { c.DatabaseURL = pgtest.Durable(t).URL() })
	a := s.signUp()
	gone := a.createUser("gone", map[string]any{"town": "Ghent"})
	a.createUser("stays", map[string]any{"town": "Bruges"})
	f := openApp(t, s.Config)
	row, err := pgkeys.Keys{Pool: f.Pool}.Subject(t.Context(), a.Client.ID, string(gone.ID))
	if err != nil {
		t.Fatal(err)
	}
	if err := opensRow(t, f, a.Client.ID, string(gone.ID), row); err != nil {
		t.Fatalf("who looks finds nothing: %v", err)
	}
	var data string
	if err := f.Pool.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	dirs := []string{data, s.Config.DataDir}
	files, err := filepath.Glob(filepath.Join(s.Config.EpochKeys(), "*", "x*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.TrimSpace(text)
	if onDisk(t, text, dirs...) != 1 || onDisk(t, epoch, dirs...) != 0 {
		t.Fatal("the epoch key is where it should not be")
	}

	wantDone(t, a.send("DELETE", "/api/v1/users/"+string(gone.ID), nil))
	endEpochs(t, f)
	if _, err := f.Pool.Exec(t.Context(), `CHECKPOINT`); err != nil {
		t.Fatal(err)
	}
	if onDisk(t, row.Wrapped, data) == 0 {
		t.Fatal("the log of the server does not hold the key any more: this shows nothing")
	}
	if err := opensRow(t, f, a.Client.ID, string(gone.ID), row); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("what is on the disk opens with the master key: %v", err)
	}
	if onDisk(t, text, dirs...)+onDisk(t, epoch, dirs...) != 0 {
		t.Error("the key of an epoch that is over is on the disk")
	}
	if user := want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:stays")); !strings.Contains(string(user.Traits), "Bruges") {
		t.Errorf("%+v", user)
	}
}

// TestErasuresAreTrueOnTheDiskWithinMinutes adds up what a service waits for.
func TestErasuresAreTrueOnTheDiskWithinMinutes(t *testing.T) {
	t.Parallel()
	if sum := epochs.BatchErasures + epochs.KeepRetired + 4*epochs.LookEvery; sum.Minutes() > 6.5 {
		t.Errorf("an erasure may take %s, of the 10 minutes that are promised", sum)
	}
}

func TestADumpAndItsSnapshotOpenWhoWasNotErasedBefore(t *testing.T) {
	t.Parallel()
	s := startService(t, impatient)
	a := s.signUp()
	a.importUsers(130, func(i int) string { return fmt.Sprintf(`{"n":%d}`, i) })
	f := openApp(t, s.Config)
	listed := each[httpapi.User](t, a, "/api/v1/users", 200)
	erase := func(users []httpapi.User) {
		t.Helper()
		for _, user := range users {
			wantDone(t, a.send("DELETE", "/api/v1/users/"+string(user.ID), nil))
		}
		endEpochs(t, f)
	}
	erase(listed[:10])

	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kept, dump, readable := filepath.Join(dir, "epochs.age"), filepath.Join(dir, "dump.sql"), filepath.Join(dir, "identity")
	if err := os.WriteFile(readable, []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var bin string
	if err := f.Pool.QueryRow(t.Context(), `SELECT setting FROM pg_config WHERE name = 'BINDIR'`).Scan(&bin); err != nil {
		t.Fatal(err)
	}
	snapshot := []string{
		"keys", "snapshot", "--to", kept, "--recipient", identity.Recipient().String(), "--",
		filepath.Join(bin, "pg_dump"), "--dbname", s.Config.DatabaseURL, "--file", dump,
	}
	if said, err := tool(t, s.Config, snapshot...); err != nil || said != "" { // the dump might stand there
		t.Fatalf("%v\n%s", err, said)
	}
	if _, err := tool(t, s.Config, append(slices.Clip(snapshot), "--no-such-flag")...); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second snapshot in the same file is refused after the dump: %v", err)
	}
	if content, err := os.ReadFile(kept); err != nil || !bytes.HasPrefix(content, []byte("age-encryption.org/v1")) {
		t.Errorf("the snapshot is not encrypted: %v", err)
	}
	nowhere := filepath.Join(dir, "nowhere", "epochs.age")
	dumped := filepath.Join(dir, "dumped")
	if _, err := tool(t, s.Config, "keys", "snapshot", "--to", nowhere, "--recipient", identity.Recipient().String(), "--", "touch", dumped); err == nil {
		t.Error("a snapshot is written where no directory is")
	}
	if _, err := os.Lstat(dumped); err == nil {
		t.Error("that a snapshot cannot be written is told after the dump")
	}
	const loseHold = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32 | objid::bigint) = hashtextextended('kindred epochs', 0)`
	unfit := filepath.Join(dir, "unfit.age")
	if said, err := tool(t, s.Config, "keys", "snapshot", "--to", unfit, "--recipient", identity.Recipient().String(), "--",
		filepath.Join(bin, "psql"), "-X", "-q", "-o", os.DevNull, "-d", s.Config.DatabaseURL, "-c", loseHold); err == nil || !strings.Contains(err.Error(), "was lost") {
		t.Errorf("a snapshot whose epochs were not held during the dump: %v\n%s", err, said)
	}
	if _, err := os.Lstat(unfit); err == nil {
		t.Error("a snapshot that may not fit its dump is there")
	}
	erase(listed[10:60])
	erase(listed[60:110])

	second := s.Config
	second.DatabaseURL = emptyDatabase(t, s.Config.DatabaseURL)
	load := exec.CommandContext(t.Context(), filepath.Join(bin, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", second.DatabaseURL, "-f", dump)
	if said, err := load.CombinedOutput(); err != nil {
		t.Fatalf("restore the dump: %v\n%s", err, said)
	}
	if said, err := tool(t, second, "keys", "list"); err == nil || !strings.Contains(err.Error(), "keys restore") {
		t.Errorf("a restored database without its snapshot: %v\n%s", err, said)
	}
	stranger := second
	if stranger.MasterKey, err = seal.GenerateMasterKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	if said, err := tool(t, stranger, "keys", "restore", "--from", kept, "--identity", readable); err == nil || !strings.Contains(err.Error(), "master key") {
		t.Errorf("keys are restored beside a master key that does not open them: %v\n%s", err, said)
	}
	if said, err := tool(t, second, "keys", "restore", "--from", kept, "--identity", readable); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	users := func(s *service) map[id.User]bool {
		found := map[id.User]bool{}
		for _, user := range each[httpapi.User](t, a.at(s), "/api/v1/users", 200) {
			if user.ExternalID == "" || len(user.Traits) == 0 {
				t.Errorf("%+v", user)
			}
			found[user.ID] = true
		}
		return found
	}
	r := startService(t, impatient, func(c *app.Config) {
		c.DatabaseURL, c.MasterKey, c.EpochDir, c.PublicURL = second.DatabaseURL, second.MasterKey, second.EpochKeys(), s.Config.PublicURL
	})
	if got := users(r); len(got) != 120 || got[listed[3].ID] || !got[listed[10].ID] || !got[listed[129].ID] {
		t.Errorf("%d users are there, of 130 of whom 10 were erased before", len(got))
	}
	if got := users(s); len(got) != 20 || got[listed[10].ID] || !got[listed[129].ID] {
		t.Errorf("%d users are left where the dump is from", len(got))
	}
}

// emptyDatabase makes a database beside another, without a schema.
func emptyDatabase(t testing.TB, beside string) string {
	t.Helper()
	config, err := pgx.ParseConfig(beside)
	if err != nil {
		t.Fatal(err)
	}
	name := "kindred_test_" + strings.ToLower(rand.Text())
	run := func(ctx context.Context, sql string) {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			_, err = conn.Exec(ctx, sql)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	run(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0`)
	t.Cleanup(func() { run(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`) })
	return strings.Replace(beside, config.Database, name, 1)
}

func TestASecondMachineThatSharesNoEpochsDoesNotStart(t *testing.T) {
	t.Parallel()
	s := startService(t)
	other := s.Config
	other.EpochDir = t.TempDir()
	said, err := tool(t, other, "keys", "list")
	if err == nil || !strings.Contains(err.Error(), "KINDRED_EPOCH_DIR") {
		t.Errorf("%v\n%s", err, said)
	}
	if made, err := os.ReadDir(other.EpochDir); err != nil || len(made) != 0 {
		t.Errorf("it made %v, %v", made, err)
	}
	startService(t, replicaOf(s)).signUp()
}
