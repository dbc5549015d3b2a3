package epochs_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/epochs"
	"kindred/eventstore/seal/keystest"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const acme = id.Client("cli_acme")

// fixture is a database with a directory for its epochs.
type fixture struct {
	testing.TB
	pool   *pgxpool.Pool
	path   string
	master seal.MasterKeys
	boxes  map[string]*event.Box
	now    func() time.Time // nil: as it is
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	master := keystest.NewMaster(t)
	return &fixture{TB: t, pool: pgtest.New(t), path: filepath.Join(t.TempDir(), "epochs"), master: master, boxes: map[string]*event.Box{}}
}

func (w *fixture) options() epochs.Options {
	now := w.now
	if now == nil {
		now = time.Now
	}
	return epochs.Options{Path: w.path, Entropy: rand.Reader, Now: now}
}

// process is one that knows nothing yet.
type process struct {
	*fixture
	epochs *epochs.Epochs
	vault  *seal.Vault
}

func (w *fixture) process() process { return w.processOn(w.pool) }

func (w *fixture) processOn(pool *pgxpool.Pool) process {
	w.Helper()
	e, err := epochs.Open(w.Context(), pool, w.options())
	if err != nil {
		w.Fatal(err)
	}
	v := seal.New(pgkeys.Keys{Pool: pool}, w.master, rand.Reader)
	v.Epochs = e
	return process{w, e, v}
}

// another is a process beside this one.
func (p process) another() process { return p.processOn(p.pool) }

func (p process) rotation() *epochs.Rotation {
	return &epochs.Rotation{Epochs: p.epochs, Logger: slog.New(slog.DiscardHandler)}
}

// turn takes as many steps as end an epoch.
func (p process) turn() {
	p.Helper()
	for range 3 {
		if err := p.rotation().Turn(p.Context()); err != nil {
			p.Fatal(err)
		}
	}
}

func place(user string) seal.Place {
	return seal.Place{Client: acme, Stream: "user-" + user, Event: "evt_1", Field: "traits"}
}

// keyed makes keys for users, and seals something for each.
func (p process) keyed(users ...string) {
	p.Helper()
	for len(users) > 0 {
		n := min(len(users), seal.MaxPrepare)
		if err := p.vault.Prepare(p.Context(), acme, users[:n]...); err != nil {
			p.Fatal(err)
		}
		for _, user := range users[:n] {
			box, err := p.vault.Seal(p.Context(), user, place(user), []byte("of "+user))
			if err != nil {
				p.Fatal(err)
			}
			p.boxes[user] = box
		}
		users = users[n:]
	}
}

func named(prefix string, n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("usr_%s%d", prefix, i)
	}
	return users
}

func (p process) erase(user string) {
	p.Helper()
	if err := p.vault.Destroy(p.Context(), acme, user); err != nil {
		p.Fatal(err)
	}
}

// check opens what was sealed for users; those who are erased must not open.
func (p process) check(erased map[string]bool) {
	p.Helper()
	fresh := p.vaultAlone()
	for user, box := range p.boxes {
		got, err := fresh.Open(p.Context(), user, place(user), box)
		if erased[user] != errors.Is(err, seal.ErrErased) || !erased[user] && string(got) != "of "+user {
			p.Errorf("%s, erased %t: %q, %v", user, erased[user], got, err)
		}
	}
}

// vaultAlone is a vault that has cached nothing.
func (p process) vaultAlone() *seal.Vault {
	v := seal.New(pgkeys.Keys{Pool: p.pool}, p.master, rand.Reader)
	v.Epochs = p.epochs
	return v
}

func (w *fixture) row(user string) seal.WrappedKey {
	w.Helper()
	row, err := pgkeys.Keys{Pool: w.pool}.Subject(w.Context(), acme, user)
	if err != nil {
		w.Fatal(err)
	}
	return row
}

// opensOld says whether somebody with the master key, the client's keys and the
// files of epochs as they are opens a row that was there once.
func (p process) opensOld(user string, row seal.WrappedKey) error {
	p.Helper()
	keys := keystest.NewMemory()
	root, err := pgkeys.Keys{Pool: p.pool}.Root(p.Context(), seal.ClientKey, acme)
	if err != nil {
		p.Fatal(err)
	}
	if _, err := keys.MakeRoot(p.Context(), seal.RootKey{Kind: seal.ClientKey, Client: acme, WrappedKey: root}); err != nil {
		p.Fatal(err)
	}
	if _, err := keys.MakeSubjects(p.Context(), []seal.SubjectKey{{Client: acme, Subject: user, WrappedKey: row}}); err != nil {
		p.Fatal(err)
	}
	thief := seal.New(keys, p.master, rand.Reader)
	thief.Epochs = p.another().epochs
	_, err = thief.Open(p.Context(), user, place(user), p.boxes[user])
	return err
}

func (w *fixture) count(sql string) (n int) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), sql).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// files are the epochs that are on the disk.
func (w *fixture) files() []string {
	w.Helper()
	found, err := filepath.Glob(filepath.Join(w.path, "*", "x*"))
	if err != nil {
		w.Fatal(err)
	}
	return found
}

func TestWhatWasWrittenOfAnErasedKeyOpensNothing(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 10)...)
	other := p.another()
	before := map[string]seal.WrappedKey{"usr_0": p.row("usr_0"), "usr_1": p.row("usr_1")}
	if err := p.opensOld("usr_0", before["usr_0"]); err != nil {
		t.Fatalf("the search for old rows finds nothing: %v", err)
	}
	secret := testkit.Must(os.ReadFile(p.files()[0]))(t)

	other.erase("usr_0")
	other.turn()

	if err := p.opensOld("usr_0", before["usr_0"]); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("what was written of an erased key: %v", err)
	}
	for _, p := range []process{p, other, p.another()} {
		p.check(map[string]bool{"usr_0": true})
	}
	files := p.files()
	if len(files) != 1 || p.count(`SELECT count(*) FROM epochs`) != 1 {
		t.Errorf("of one bucket there are the epochs %q", files)
	}
	for _, file := range files {
		if now, err := os.ReadFile(file); err != nil || bytes.Equal(now, secret) {
			t.Errorf("%s holds the old key, or: %v", file, err)
		}
	}
	// Who has read a row before it moved opens it all the same.
	late := p.another()
	with := testkit.Must(late.vault.With(t.Context(), before["usr_1"], acme, "usr_1"))(t)
	if got, err := with.Open(place("usr_1"), p.boxes["usr_1"]); err != nil || string(got) != "of usr_1" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := late.vault.With(t.Context(), before["usr_0"], acme, "usr_0"); !errors.Is(err, seal.ErrErased) {
		t.Errorf("with the old row of the erased: %v", err)
	}
}

func TestAnErasureRewrapsItsBucketAlone(t *testing.T) {
	w := newFixture(t)
	var all sync.WaitGroup
	var processes []process
	for i := range 2 {
		p := w.process()
		p.fixture = &fixture{TB: t, pool: w.pool, path: w.path, master: w.master, boxes: map[string]*event.Box{}}
		processes = append(processes, p)
		all.Go(func() { p.keyed(named(fmt.Sprint(i, "_"), 5000)...) })
	}
	all.Wait()
	if most := w.count(`SELECT max(n) FROM (SELECT count(*) AS n FROM subject_keys GROUP BY left(client_key, 17)) b`); most > 4096 {
		t.Errorf("%d keys are under one epoch", most)
	}
	made := w.count(`SELECT count(*) FROM epochs`)
	if made > 6 {
		t.Errorf("%d epochs for 10,000 keys", made)
	}
	for _, p := range processes {
		if err := p.epochs.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(`SELECT sum(keys) FROM epochs`); n != 10_000 {
		t.Errorf("%d places are taken by 10,000 keys", n)
	}
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE before AS SELECT * FROM subject_keys`); err != nil {
		t.Fatal(err)
	}
	bucket := w.count(`SELECT count(*) FROM subject_keys WHERE left(client_key, 17) = (SELECT left(client_key, 17) FROM subject_keys WHERE subject = 'usr_1_7')`)
	processes[0].erase("usr_1_7")
	processes[0].turn()
	if n := w.count(`SELECT count(*) FROM subject_keys k JOIN before b USING (client, subject) WHERE k.wrapped IS DISTINCT FROM b.wrapped`); n != bucket {
		t.Errorf("%d rows have changed, of a bucket of %d", n, bucket)
	}
	processes[0].check(nil)
	processes[1].check(map[string]bool{"usr_1_7": true})
}

func TestAKeyThatWasDamagedKeepsNoErasureBack(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 4)...)
	before := p.row("usr_0")
	if _, err := p.pool.Exec(t.Context(), `UPDATE subject_keys SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1) WHERE subject = 'usr_1'`); err != nil {
		t.Fatal(err)
	}
	damaged := p.row("usr_1")
	p.erase("usr_0")
	p.turn()
	if err := p.opensOld("usr_0", before); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("what was written of an erased key: %v", err)
	}
	if now := p.row("usr_1"); now.Under == damaged.Under || !bytes.Equal(now.Wrapped, damaged.Wrapped) {
		t.Errorf("%+v was damaged, and is %+v", damaged, now)
	}
	if _, err := p.vaultAlone().Open(t.Context(), "usr_1", place("usr_1"), p.boxes["usr_1"]); !errors.Is(err, seal.ErrRefused) {
		t.Errorf("the damaged key: %v", err)
	}
	delete(p.boxes, "usr_1")
	p.check(map[string]bool{"usr_0": true})
}

// TestWhatIsNotStoredTakesNoPlace: a change of a user that is there draws a key
// that is not needed.
func TestWhatIsNotStoredTakesNoPlace(t *testing.T) {
	w := newFixture(t)
	w.process().keyed(named("", 50)...)
	p := w.process()
	for range 200 {
		if err := p.vaultAlone().Prepare(t.Context(), acme, named("", 50)...); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.epochs.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT sum(keys) FROM epochs`); n > 64 {
		t.Errorf("%d places are taken", n)
	}
}

func TestAKeyThatComesAfterTheEndOfItsEpochIsRefused(t *testing.T) {
	p := newFixture(t).process()
	p.keyed("usr_0")
	drawn := testkit.Must(p.vault.Draw(t.Context(), acme, "usr_late"))(t)
	p.erase("usr_0")
	p.turn()
	keys := pgkeys.Keys{Pool: p.pool}
	if _, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{drawn.SubjectKey}); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("got %v", err)
	}
	if n := p.count(`SELECT count(*) FROM subject_keys WHERE subject = 'usr_late'`); n != 0 {
		t.Error("it is stored all the same, and nobody will open it")
	}
	// The process learns within moments that its epoch is over.
	testkit.Eventually(t, "it makes keys again", func() bool { return p.vault.Prepare(t.Context(), acme, "usr_late") == nil })
}

// failing kills its process, as it were, before its statement number at.
type failing struct {
	at, seen atomic.Int32
}

func (f *failing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if f.seen.Add(1) < f.at.Load() {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (f *failing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAKillBetweenAnyTwoStepsLosesNoKey(t *testing.T) {
	w := newFixture(t)
	config := testkit.Must(pgxpool.ParseConfig(w.pool.Config().ConnString()))(t)
	killer := new(failing)
	killer.at.Store(1 << 30)
	config.ConnConfig.Tracer = killer
	victims := testkit.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer victims.Close()
	p := w.process()
	p.keyed(named("", 60)...)
	erased := map[string]bool{}
	kills := 0
	for at := int32(1); ; at++ {
		user := fmt.Sprintf("usr_%d", at)
		old := p.row(user)
		p.erase(user)
		erased[user] = true
		killer.at.Store(1 << 30)
		victim := w.processOn(victims)
		killer.seen.Store(0)
		killer.at.Store(at)
		var died error
		for range 3 {
			if died = victim.rotation().Turn(t.Context()); died != nil {
				break
			}
		}
		w.process().check(erased)
		next := w.process()
		var files, rows int
		testkit.Eventually(t, "one epoch is left", func() bool { // the server learns of the death when it does
			next.turn()
			if err := next.rotation().Sweep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			files, rows = len(next.files()), w.count(`SELECT count(*) FROM epochs`)
			return files == 1 && rows == 1
		})
		if files != 1 || rows != 1 {
			t.Fatalf("killed before statement %d: %d files and %d rows of epochs are left", at, files, rows)
		}
		next.check(erased)
		if err := next.opensOld(user, old); !errors.Is(err, seal.ErrEpoch) {
			t.Fatalf("killed before statement %d: %v", at, err)
		}
		if died == nil {
			break
		}
		kills++
	}
	if kills < 10 {
		t.Errorf("killed at %d places only", kills)
	}
}

// TestAServerThatForgetsAMoveLosesNoKey: a standby that is promoted may lack the
// last seconds.
func TestAServerThatForgetsAMoveLosesNoKey(t *testing.T) {
	w := newFixture(t)
	began := time.Now()
	w.now = func() time.Time { return began.Add(200 * time.Since(began)) }
	p := w.process()
	p.keyed(named("", 20)...)
	p.erase("usr_1")
	run := func(statements ...string) {
		t.Helper()
		for _, sql := range statements {
			if _, err := w.pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(`CREATE TABLE keys_then AS SELECT * FROM subject_keys`, `CREATE TABLE epochs_then AS SELECT * FROM epochs`)
	r := p.rotation()
	r.KeepRetired = time.Hour
	for range 2 {
		if err := r.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late := p.row("usr_2")
	p.keyed("usr_forgotten")
	delete(w.boxes, "usr_forgotten")
	w.now = nil
	run(`DELETE FROM subject_keys`, `DELETE FROM epochs`, `INSERT INTO epochs SELECT * FROM epochs_then`, `INSERT INTO subject_keys SELECT * FROM keys_then`)

	erased := map[string]bool{"usr_1": true}
	p.check(erased)
	w.process().check(erased)
	if row := p.row("usr_2"); row.Under == late.Under {
		t.Fatal("nothing was forgotten")
	}
	var err error
	testkit.Eventually(t, "the places that it had, of an epoch that nobody knows, are gone", func() bool {
		err = p.vault.Prepare(t.Context(), acme, "usr_later")
		return !errors.Is(err, seal.ErrEpoch)
	})
	if err != nil {
		t.Error(err)
	}
	p.turn()
	p.check(erased)
	if err := p.rotation().Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	p.turn()
	p.check(erased)
	if n := w.count(`SELECT count(*) FROM epochs`); len(w.files()) != n {
		t.Errorf("%d files for %d epochs", len(w.files()), n)
	}
}

func TestWhatIsMadeErasedAndMovedAtOnceIsRight(t *testing.T) {
	w := newFixture(t)
	began := time.Now() // a process learns in 10 ms what takes 2 s
	w.now = func() time.Time { return began.Add(200 * time.Since(began)) }
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		erased = map[string]bool{}
		boxes  = map[string]*event.Box{}
		done   = make(chan struct{})
	)
	for m := range 4 {
		p := w.process()
		all.Go(func() {
			for i := range 150 {
				user := fmt.Sprintf("usr_%d_%d", m, i)
				var err error
				for end := time.Now().Add(time.Minute); time.Now().Before(end); {
					if err = p.vault.Prepare(t.Context(), acme, user); !errors.Is(err, seal.ErrEpoch) {
						break
					}
				}
				if err != nil {
					t.Errorf("%s: %v", user, err)
					return
				}
				box, err := p.vault.Seal(t.Context(), user, place(user), []byte("of "+user))
				if err != nil {
					t.Errorf("%s: %v", user, err)
					return
				}
				gone := i%5 == 0
				mu.Lock()
				boxes[user], erased[user] = box, gone
				mu.Unlock()
				if gone {
					if err := p.vault.Destroy(t.Context(), acme, user); err != nil {
						t.Errorf("%s: %v", user, err)
					}
				}
			}
		})
	}
	var rotators sync.WaitGroup
	for range 2 {
		p := w.process()
		rotators.Go(func() {
			for {
				if err := p.rotation().Turn(t.Context()); err != nil && !errors.Is(err, seal.ErrEpoch) { // at that clock a file takes minutes
					t.Errorf("turn: %v", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	all.Wait()
	close(done)
	rotators.Wait()
	w.boxes, w.now = boxes, nil
	p := w.process()
	p.turn()
	p.check(erased)
	if n := w.count(`SELECT count(*) FROM subject_keys WHERE wrapped IS NULL AND client_key <> ''`); n != 0 {
		t.Errorf("%d erased keys still name an epoch", n)
	}
}

func TestKeysFromBeforeEpochsOpenAndMove(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.vault.Epochs = nil
	p.keyed(named("", 20)...)
	p.erase("usr_3")
	if row := p.row("usr_1"); strings.Contains(row.Under, "/") {
		t.Fatal("it has an epoch")
	}
	erased := map[string]bool{"usr_3": true}
	w.process().check(erased)
	w.process().turn()
	if n := w.count(`SELECT count(*) FROM subject_keys WHERE wrapped IS NOT NULL AND client_key < 'x'`); n != 0 {
		t.Errorf("%d keys have no epoch", n)
	}
	w.process().check(erased)
}

func TestWhoDoesNotFindTheEpochsRefuses(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed(named("", 3)...)
	refused := func(why, says string, path string, pool *pgxpool.Pool) {
		t.Helper()
		before := w.files()
		_, err := epochs.Open(t.Context(), pool, epochs.Options{Path: path, Entropy: rand.Reader, Now: time.Now})
		if !errors.Is(err, seal.ErrEpoch) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", why, err)
		}
		if entries, err := os.ReadDir(path); path != w.path && !errors.Is(err, os.ErrNotExist) || len(w.files()) != len(before) {
			t.Errorf("%s: something was made: %v, %v", why, entries, err)
		}
	}
	refused("another machine's directory", "KINDRED_EPOCH_DIR", filepath.Join(t.TempDir(), "other"), w.pool)

	copied := "kindred_copy_" + strings.ToLower(rand.Text())
	w.copyDatabase(copied)
	refused("a copy of the database", "another database", w.path, w.connect(copied))

	file := w.files()[0]
	if err := os.Rename(file, file+".lost"); err != nil {
		t.Fatal(err)
	}
	refused("a key that is lost", filepath.Base(file), w.path, w.pool)
	if err := os.WriteFile(file, []byte("AAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a key that is damaged", filepath.Base(file), w.path, w.pool)
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("the key of something else", filepath.Base(file), w.path, w.pool)

	// A process that is running answers that it cannot, and goes on when it can.
	running := seal.New(pgkeys.Keys{Pool: w.pool}, w.master, rand.Reader)
	if err := os.Rename(file+".lost", file); err != nil {
		t.Fatal(err)
	}
	q := w.process()
	running.Epochs = q.epochs
	if err := os.Rename(file, file+".lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := running.Open(t.Context(), "usr_0", place("usr_0"), w.boxes["usr_0"]); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.Rename(file+".lost", file); err != nil {
		t.Fatal(err)
	}
	if _, err := running.Open(t.Context(), "usr_0", place("usr_0"), w.boxes["usr_0"]); err != nil {
		t.Errorf("with the file: %v", err)
	}
}

// copyDatabase copies the database as a dump does.
func (w *fixture) copyDatabase(name string) {
	w.Helper()
	admin := w.connect("postgres")
	var source string
	if err := w.pool.QueryRow(w.Context(), `SELECT current_database()`).Scan(&source); err != nil {
		w.Fatal(err)
	}
	w.pool.Reset() // nobody may be connected to it
	testkit.Eventually(w.TB, "the database is copied", func() bool {
		_, err := admin.Exec(w.Context(), `CREATE DATABASE `+name+` TEMPLATE `+source+` STRATEGY file_copy`)
		return err == nil
	})
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		conn, err := pgx.ConnectConfig(ctx, admin.Config().ConnConfig)
		if err != nil {
			w.Error(err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			w.Error(err)
		}
	})
}

func (w *fixture) connect(database string) *pgxpool.Pool {
	w.Helper()
	config := w.pool.Config()
	config.ConnConfig.Database = database
	pool, err := pgxpool.NewWithConfig(w.Context(), config)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(pool.Close)
	return pool
}

func TestADumpWithItsSnapshotOpensWhoWasNotErasedBefore(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed(named("", 300)...)
	p.erase("usr_299")
	p.turn()
	atDump := map[string]bool{"usr_299": true}

	identity := testkit.Must(age.GenerateX25519Identity())(t)
	dump := "kindred_dump_" + strings.ToLower(rand.Text())
	w.copyDatabase(dump)
	var kept bytes.Buffer
	if n, err := p.epochs.Snapshot(t.Context(), &kept, identity.Recipient()); err != nil || n != 1 {
		t.Fatalf("%d keys, %v", n, err)
	}

	erased := map[string]bool{"usr_299": true}
	for round := range 2 { // each ends an epoch
		for i := range 50 {
			user := fmt.Sprintf("usr_%d", round*50+i)
			p.erase(user)
			erased[user] = true
		}
		p.turn()
	}
	p.check(erased)

	// The dump alone, with today's epochs, opens nobody who was erased since.
	elsewhere := &fixture{TB: t, pool: w.connect(dump), path: filepath.Join(t.TempDir(), "elsewhere"), master: w.master, boxes: w.boxes}
	for user := range erased {
		if !atDump[user] {
			if err := p.opensOld(user, elsewhere.row(user)); !errors.Is(err, seal.ErrEpoch) {
				t.Fatalf("%s opens from the dump alone: %v", user, err)
			}
		}
	}
	restore := func(giveUp bool, snapshots ...string) (epochs.Restoring, error) {
		var from []io.Reader
		for _, s := range snapshots {
			from = append(from, strings.NewReader(s))
		}
		return epochs.Restore(t.Context(), elsewhere.pool, elsewhere.options(), []age.Identity{identity}, from, giveUp)
	}
	if _, err := restore(false); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("without a snapshot: %v", err)
	}
	if got, err := restore(false, kept.String()); err != nil || got != (epochs.Restoring{Epochs: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}
	elsewhere.process().check(atDump)
	w.process().check(erased) // where it came from is as it was

	// Both go on by themselves.
	q := elsewhere.process()
	q.erase("usr_5")
	q.turn()
	q.check(map[string]bool{"usr_299": true, "usr_5": true})
	w.process().check(erased)
}

// The server's clock was ahead by hours as each step was taken, and is right again.
func TestAnErasureDoesNotWaitForAClockThatWasAhead(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed(named("", 10)...)
	before := w.files()
	p.erase("usr_0")
	for _, step := range []struct {
		ahead string
		keeps time.Duration
	}{
		{`UPDATE epochs SET closing_at = now() + interval '5 hours'`, time.Hour},
		{`UPDATE epochs SET retired_at = now() + interval '5 hours' WHERE retired_at IS NOT NULL`, 0},
	} {
		if done, err := w.pool.Exec(t.Context(), step.ahead); err != nil || done.RowsAffected() != 1 {
			t.Fatalf("%s: %s, %v", step.ahead, done, err)
		}
		rotation := p.rotation()
		rotation.KeepRetired = step.keeps
		if err := rotation.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.files(); len(after) != 1 || after[0] == before[0] {
		t.Errorf("the keys before were %q, and are %q now", before, after)
	}
	p.check(map[string]bool{"usr_0": true})
}

func TestAnEpochThatCannotBeDestroyedKeepsBackNoOther(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed("usr_0")
	kept := w.files()[0]
	stuck, other := filepath.Join(filepath.Dir(kept), "a"+filepath.Base(kept)[1:]), filepath.Join(filepath.Dir(kept), "b"+filepath.Base(kept)[1:])
	if err := errors.Join(os.Mkdir(stuck, 0o700), os.WriteFile(other, []byte("a key"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pool.Exec(t.Context(), `
INSERT INTO epochs (id, fingerprint, keys, closing_at, retired_at) SELECT name, '', 0, now() - interval '1 hour', now() - interval '1 hour' FROM unnest($1::text[]) name`,
		[]string{filepath.Base(stuck), filepath.Base(other)}); err != nil {
		t.Fatal(err)
	}
	if err := p.rotation().Turn(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(stuck)) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) || w.count(`SELECT count(*) FROM epochs WHERE retired_at IS NOT NULL`) != 1 {
		t.Errorf("the other one is there still: %v", err)
	}
	p.check(nil)
}

// A restoring that was killed has left a directory: the next one tells, and leaves it to the operator.
func TestARestoreTellsWhatOneThatWasKilledHasLeft(t *testing.T) {
	w := newFixture(t)
	w.process().keyed(named("", 10)...)
	left, whole := filepath.Join(w.path, strings.Repeat("0", 32)), os.DirFS(filepath.Dir(w.files()[0]))
	for name, owner := range map[string]string{left: "", filepath.Join(w.path, "another"): "0/0\n"} {
		if err := os.CopyFS(name, whole); err != nil {
			t.Fatal(err)
		}
		if owner != "" {
			if err := os.WriteFile(filepath.Join(name, "database"), []byte(owner), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // the second does not take what the first made for that
		got, err := epochs.Restore(t.Context(), w.pool, w.options(), nil, nil, false)
		if err != nil || got != (epochs.Restoring{Epochs: 1, Left: left}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	w.process().check(nil)
}

func TestEpochsThatAreLostForGoodAreGivenUpOnly(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed(named("", 10)...)
	learnt := []string{string(acme), "lay_1"}
	p.keyed(learnt...)
	if _, err := w.pool.Exec(t.Context(), `UPDATE subject_keys SET lookup = sha256(convert_to(subject, 'UTF8'))`); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.files()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := epochs.Restore(t.Context(), w.pool, w.options(), nil, nil, false); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("got %v", err)
	}
	got, err := epochs.Restore(t.Context(), w.pool, w.options(), nil, nil, true)
	if err != nil || got != (epochs.Restoring{Lost: 1, Erased: 10}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := w.count(`SELECT count(*) FROM subject_keys WHERE lookup IS NOT NULL`); n != 0 {
		t.Errorf("%d of those who count as erased are found by what their client calls them", n)
	}
	erased := map[string]bool{}
	for user := range w.boxes {
		erased[user] = true
	}
	q := w.process()
	q.check(erased)
	q.keyed("usr_new")
	q.check(erased)
	before := maps.Clone(w.boxes)
	q.keyed(learnt...) // what was learnt of all is learnt anew, and what was before is gone
	for _, subject := range learnt {
		delete(erased, subject)
		if got, err := q.vaultAlone().Open(t.Context(), subject, place(subject), before[subject]); !errors.Is(err, seal.ErrErased) {
			t.Errorf("what was learnt under %s before: %q, %v", subject, got, err)
		}
	}
	q.check(erased)
	if dirs, err := os.ReadDir(w.path); err != nil || len(dirs) != 1 {
		t.Errorf("the directories are %v, %v", dirs, err)
	}
}

func TestNoKeyIsDestroyedWhileItIsHeld(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 3)...)
	held := testkit.Must(p.epochs.Hold(t.Context()))(t)
	p.erase("usr_0")
	p.turn()
	if n := len(p.files()); n != 2 {
		t.Errorf("%d epochs are there, while they are held", n)
	}
	if err := held.Check(t.Context()); err != nil {
		t.Error(err)
	}
	held.Release(t.Context())
	p.turn()
	if n := len(p.files()); n != 1 {
		t.Errorf("%d epochs are there", n)
	}
}

func TestAKeyThatIsDestroyedIsOverwritten(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 3)...)
	file, link := p.files()[0], filepath.Join(t.TempDir(), "link") // to what the file stands on
	if err := os.Link(file, link); err != nil {
		t.Skip(err)
	}
	p.erase("usr_0")
	p.turn()
	if left, err := os.ReadFile(link); err != nil || len(left) == 0 || len(bytes.TrimSpace(left)) > 0 || slices.Contains(p.files(), file) {
		t.Errorf("%d bytes are left, %v", len(bytes.TrimSpace(left)), err)
	}
}

func TestASnapshotThatWouldLackAKeyFails(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 3)...)
	identity := testkit.Must(age.GenerateX25519Identity())(t)
	if err := os.Remove(p.files()[0]); err != nil {
		t.Fatal(err)
	}
	if n, err := p.epochs.Snapshot(t.Context(), io.Discard, identity.Recipient()); !errors.Is(err, seal.ErrEpoch) {
		t.Errorf("%d keys, %v", n, err)
	}
}

func TestWhoeverHeldTheKeysIsToldThatTheConnectionWasLost(t *testing.T) {
	p := newFixture(t).process()
	held := testkit.Must(p.epochs.Hold(t.Context()))(t)
	defer held.Release(t.Context())
	if n := p.count(`
SELECT count(pg_terminate_backend(pid)) FROM pg_locks
WHERE locktype = 'advisory' AND mode = 'ShareLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 1 {
		t.Fatalf("%d connections hold the keys", n)
	}
	testkit.Eventually(t, "it is told", func() bool { return held.Check(t.Context()) != nil })
}

// The copy and its original share the directory that all directories stand in.
func TestARestoreOfACopyLeavesTheKeysOfTheOriginal(t *testing.T) {
	w := newFixture(t)
	p := w.process()
	p.keyed(named("", 3)...)
	name := "kindred_copy_" + strings.ToLower(rand.Text())
	w.copyDatabase(name)
	its := filepath.Dir(w.files()[0])
	there := &fixture{TB: t, pool: w.connect(name), path: w.path, master: w.master, boxes: w.boxes}
	got, err := epochs.Restore(t.Context(), there.pool, there.options(), nil, nil, false)
	if err != nil || got != (epochs.Restoring{Epochs: 1, Stays: its}) {
		t.Errorf("%+v, %v", got, err)
	}
	there.process().check(nil)
	w.process().check(nil)
}

// A process that makes an epoch just now has not named it in the database yet.
func TestFilesThatNothingNamesAreSweptOnceTheyAreOld(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 3)...)
	at := filepath.Dir(p.files()[0])
	for _, name := range []string{"x0123456789abcdef", "new-1"} {
		if err := os.WriteFile(filepath.Join(at, name), []byte("AAAA\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, after := range []time.Duration{time.Hour, 0} {
		want := i + 1
		if err := p.rotation().Sweep(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(at, "new-1"))
		if n := p.count(`SELECT count(*) FROM epochs`); n != want || (err == nil) != (want == 1) {
			t.Errorf("of files as old as %v: %d epochs, %v", after, n, err)
		}
	}
}

// A server that forgets reservations lets more keys come under an epoch.
func TestAnEpochOfTooManyKeysIsEndedWithAllOfThem(t *testing.T) {
	p := newFixture(t).process()
	p.keyed(named("", 3)...)
	before := p.files()
	if _, err := p.pool.Exec(t.Context(), `
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at)
SELECT client, 'usr_gone' || n, '', client_key, now() FROM subject_keys, generate_series(1, 4100) n WHERE subject = 'usr_0'`); err != nil {
		t.Fatal(err)
	}
	p.turn()
	if n := p.count(`SELECT count(*) FROM subject_keys WHERE left(client_key, 17) = '` + filepath.Base(before[0]) + `'`); n != 0 {
		t.Errorf("%d keys are under an epoch that was ended", n)
	}
	if slices.Contains(p.files(), before[0]) {
		t.Error("its key is there")
	}
	p.check(nil)
}

func BenchmarkDraw(b *testing.B) {
	for name, with := range map[string]bool{"with an epoch": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			p := newFixture(b).process()
			if !with {
				p.vault.Epochs = nil
			}
			for b.Loop() {
				if _, err := p.vault.Draw(b.Context(), acme, "usr_1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpenWith(b *testing.B) {
	for name, with := range map[string]bool{"with an epoch": true, "without": false} {
		b.Run(name, func(b *testing.B) {
			p := newFixture(b).process()
			if !with {
				p.vault.Epochs = nil
			}
			p.keyed("usr_1")
			row := p.row("usr_1")
			for b.Loop() {
				if _, err := p.vault.With(b.Context(), row, acme, "usr_1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMove moves a full bucket, as each erasure makes necessary once.
func BenchmarkMove(b *testing.B) {
	p := newFixture(b).process()
	p.keyed(named("", 4096)...)
	for b.Loop() {
		if _, err := p.pool.Exec(b.Context(), `UPDATE epochs SET closing_at = now()`); err != nil {
			b.Fatal(err)
		}
		if err := p.rotation().Turn(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
