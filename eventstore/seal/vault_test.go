package seal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/testkit"
)

const (
	acme = id.Client("cli_acme")
	user = "usr_1"
)

var place = seal.Place{Client: acme, Stream: "user-1", Event: "evt_1", Field: "traits"}

func TestMemoryConformance(t *testing.T) {
	keystest.Run(t, func(*testing.T) seal.Keys { return keystest.NewMemory() })
}

func masterText(name string, fill byte) string {
	return name + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func master(t testing.TB, entries ...string) seal.MasterKeys {
	t.Helper()
	return testkit.Must(seal.ParseMasterKeys(strings.Join(entries, ",")))(t)
}

// prepared is a vault where the user has a key.
func prepared(t testing.TB) (*seal.Vault, *keystest.Memory) {
	t.Helper()
	keys := keystest.NewMemory()
	v := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	if err := v.Prepare(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	return v, keys
}

func sealed(t testing.TB, v *seal.Vault, plain string) *event.Box {
	t.Helper()
	return testkit.Must(v.Seal(t.Context(), user, place, []byte(plain)))(t)
}

func TestWhatWasSealedOpensInItsPlace(t *testing.T) {
	v, keys := prepared(t)
	for _, plain := range []string{"", "x", strings.Repeat("long", 1<<16)} {
		box := sealed(t, v, plain)
		if got, err := v.Open(t.Context(), user, place, box); err != nil || string(got) != plain {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		row := testkit.Must(keys.Subject(t.Context(), acme, user))(t)
		if got, err := openWith(t, v, row, user, place, box); err != nil || string(got) != plain {
			t.Fatalf("with the row: got %d bytes, %v", len(got), err)
		}
		if len(plain) > 1 && (bytes.Contains(box.Cipher, []byte(plain)) || bytes.Contains(box.Commitment, []byte(plain))) {
			t.Fatal("the plaintext stands in the box")
		}
	}
}

func TestSealingTwiceTellsNothing(t *testing.T) {
	v, _ := prepared(t)
	a, b := sealed(t, v, "same"), sealed(t, v, "same")
	if bytes.Equal(a.Cipher, b.Cipher) || bytes.Equal(a.Commitment, b.Commitment) {
		t.Fatal("equal plaintexts can be told")
	}
}

func TestNothingOpensElsewhere(t *testing.T) {
	v, keys := prepared(t)
	for client, subject := range map[id.Client]string{"cli_bolt": user, acme: "usr_2"} {
		if err := v.Prepare(t.Context(), client, subject); err != nil {
			t.Fatal(err)
		}
	}
	box := sealed(t, v, "hello")
	in := func(change func(*seal.Place)) seal.Place {
		p := place
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		subject string
		place   seal.Place
		box     *event.Box
	}{
		"another subject": {"usr_2", place, box},
		"another client":  {user, in(func(p *seal.Place) { p.Client = "cli_bolt" }), box},
		"another stream":  {user, in(func(p *seal.Place) { p.Stream = "user-2" }), box},
		"another event":   {user, in(func(p *seal.Place) { p.Event = "evt_2" }), box},
		"another field":   {user, in(func(p *seal.Place) { p.Field = "external_id" }), box},
		"a shifted boundary": {user, in(func(p *seal.Place) {
			p.Stream, p.Event = p.Stream+"e", p.Event[1:]
		}), box},
		"another key id":     {user, place, &event.Box{Key: "x", Commitment: box.Commitment, Cipher: box.Cipher}},
		"another commitment": {user, place, &event.Box{Key: box.Key, Commitment: sealed(t, v, "hello").Commitment, Cipher: box.Cipher}},
		"no commitment":      {user, place, &event.Box{Key: box.Key, Cipher: box.Cipher}},
		"no cipher":          {user, place, &event.Box{Key: box.Key, Commitment: box.Commitment}},
		"no box":             {user, place, nil},
	} {
		if plain, err := v.Open(t.Context(), c.subject, c.place, c.box); !errors.Is(err, seal.ErrRefused) || plain != nil {
			t.Errorf("%s: got %q, %v", name, plain, err)
		}
	}
	row := testkit.Must(keys.Subject(t.Context(), acme, user))(t)
	if _, err := openWith(t, v, row, "usr_2", place, box); !errors.Is(err, seal.ErrRefused) {
		t.Errorf("a key in another's row: got %v", err)
	}
}

func TestACommitmentIsSHA256OfSaltAndPlaintext(t *testing.T) {
	// The salt is what the source of entropy gave, so a known one shows it.
	v := seal.New(keystest.NewMemory(), master(t, masterText("a", 1)), sevens{})
	if err := v.Prepare(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(append(bytes.Repeat([]byte{7}, 32), "hello"...))
	if box := sealed(t, v, "hello"); !bytes.Equal(box.Commitment, want[:]) {
		t.Fatalf("got %x, want %x", box.Commitment, want)
	}
}

type sevens struct{}

func (sevens) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 7
	}
	return len(p), nil
}

func TestErasureIsForGood(t *testing.T) {
	v, keys := prepared(t)
	box := sealed(t, v, "hello")
	before := testkit.Must(keys.Subject(t.Context(), acme, user))(t)
	if err := v.Destroy(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	for name, attempt := range map[string]func(*seal.Vault) error{
		"open":    func(v *seal.Vault) error { _, err := v.Open(t.Context(), user, place, box); return err },
		"seal":    func(v *seal.Vault) error { _, err := v.Seal(t.Context(), user, place, nil); return err },
		"prepare": func(v *seal.Vault) error { return v.Prepare(t.Context(), acme, "usr_9", user) },
		"open with its row": func(v *seal.Vault) error {
			_, err := v.With(t.Context(), seal.WrappedKey{ID: before.ID, Under: before.Under}, acme, user)
			return err
		},
	} {
		for _, v := range []*seal.Vault{v, seal.New(keys, master(t, masterText("a", 1)), rand.Reader)} {
			if err := attempt(v); !errors.Is(err, seal.ErrErased) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
	if after, err := keys.Subject(t.Context(), acme, user); err != nil || len(after.Wrapped) > 0 {
		t.Errorf("the key is still there: %v", err)
	}
	if len(before.Wrapped) == 0 {
		t.Error("there was no key to begin with")
	}
}

func TestASubjectWithoutAKeyIsErased(t *testing.T) {
	v, _ := prepared(t)
	box := sealed(t, v, "hello")
	nobody := place
	nobody.Client = "cli_nobody"
	if _, err := v.Open(t.Context(), user, nobody, box); !errors.Is(err, seal.ErrErased) {
		t.Errorf("a client without a key: got %v", err)
	}
	if _, err := v.Seal(t.Context(), "usr_2", place, nil); !errors.Is(err, seal.ErrErased) {
		t.Errorf("a subject without a key: got %v", err)
	}
}

func TestErasureElsewhereBitesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, keys := prepared(t)
		box := sealed(t, v, "hello")
		elsewhere := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
		if err := elsewhere.Destroy(t.Context(), acme, user); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the bubble's clock
		if _, err := v.Open(t.Context(), user, place, box); !errors.Is(err, seal.ErrErased) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestErasureElsewhereBitesAtOnceWhereItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, keys := prepared(t)
		box := sealed(t, v, "hello")
		elsewhere := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
		before := v.Now()
		if err := elsewhere.Destroy(t.Context(), acme, user); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the bubble's clock
		if got, err := v.OpenAsOf(t.Context(), before, user, place, box); err != nil || string(got) != "hello" {
			t.Fatalf("as of before: got %q, %v", got, err)
		}
		if got, err := v.OpenAsOf(t.Context(), v.Now(), user, place, box); !errors.Is(err, seal.ErrErased) {
			t.Fatalf("as of now: got %q, %v", got, err)
		}
	})
}

// slowKeys answers Subject only once it may, so that a Destroy can come between.
type slowKeys struct {
	*keystest.Memory
	reading, answer chan struct{}
}

func (k slowKeys) Subject(ctx context.Context, client id.Client, subject string) (seal.WrappedKey, error) {
	key, err := k.Memory.Subject(ctx, client, subject)
	k.reading <- struct{}{}
	<-k.answer
	return key, err
}

func TestALateAnswerDoesNotOutliveDestroy(t *testing.T) {
	v, memory := prepared(t)
	box := sealed(t, v, "hello")
	keys := slowKeys{memory, make(chan struct{}), make(chan struct{})}
	v = seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	opened := make(chan error)
	go func() {
		_, err := v.Open(t.Context(), user, place, box)
		opened <- err
	}()
	<-keys.reading
	if err := v.Destroy(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	close(keys.answer)
	if err := <-opened; !errors.Is(err, seal.ErrErased) {
		t.Fatalf("got %v", err)
	}
}

// lateRoots answers as the table stood when it was asked, once it is told to.
type lateRoots struct {
	seal.Keys
	asked, answer chan struct{}
}

func (k lateRoots) Root(ctx context.Context, kind seal.Kind, client id.Client) (seal.WrappedKey, error) {
	key, err := k.Keys.Root(ctx, kind, client)
	if errors.Is(err, seal.ErrNoKey) {
		k.asked <- struct{}{}
		<-k.answer
	}
	return key, err
}

// Two requests make the first key of a client: it is not lost to the one that found none.
func TestAKeyThatAnotherHasJustMadeIsNotLost(t *testing.T) {
	keys := lateRoots{keystest.NewMemory(), make(chan struct{}), make(chan struct{})}
	v := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	made := make(chan error, 2)
	index := func() {
		_, err := v.Index(t.Context(), acme, "user", "x")
		made <- err
	}
	for range 2 {
		go index()
	}
	<-keys.asked
	<-keys.asked
	for range 2 { // the second one answers once the first has made the key
		keys.answer <- struct{}{}
		if err := <-made; err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Verify(t.Context(), acme); err != nil {
		t.Error(err)
	}
}

func TestPrepareRacingDestroyNeverResurrects(t *testing.T) {
	_, keys := prepared(t)
	vaults := make([]*seal.Vault, 3)
	for i := range vaults {
		vaults[i] = seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	}
	for round := range 200 {
		subject := fmt.Sprint("usr_", round)
		var all sync.WaitGroup
		for _, v := range vaults {
			all.Go(func() {
				if err := v.Prepare(t.Context(), acme, subject); err != nil && !errors.Is(err, seal.ErrErased) {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if err := vaults[0].Destroy(t.Context(), acme, subject); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if err := vaults[0].Prepare(t.Context(), acme, subject); !errors.Is(err, seal.ErrErased) {
			t.Fatalf("round %d: got %v", round, err)
		}
	}
}

func TestRewrapTouchesRootKeysOnly(t *testing.T) {
	v, keys := prepared(t)
	box := sealed(t, v, "hello")
	index, err := v.Index(t.Context(), acme, "email", "a@example.com")
	if err != nil {
		t.Fatal(err)
	}
	secret := testkit.Must(v.SealSecret(t.Context(), "signing", []byte("private")))(t)
	subjectBefore, _ := keys.Subject(t.Context(), acme, user)

	both := seal.New(keys, master(t, masterText("b", 2), masterText("a", 1)), rand.Reader)
	if n, err := both.Rewrap(t.Context()); err != nil || n != 3 {
		t.Fatalf("rewrapped %d, %v; want acme's two and the service's own", n, err)
	}
	if n, err := both.Rewrap(t.Context()); err != nil || n != 0 {
		t.Fatalf("again: rewrapped %d, %v", n, err)
	}
	if after, _ := keys.Subject(t.Context(), acme, user); !bytes.Equal(after.Wrapped, subjectBefore.Wrapped) {
		t.Error("a subject key was rewrapped")
	}
	only := seal.New(keys, master(t, masterText("b", 2)), rand.Reader)
	if got, err := only.Open(t.Context(), user, place, box); err != nil || string(got) != "hello" {
		t.Errorf("open: %q, %v", got, err)
	}
	if got, err := only.Index(t.Context(), acme, "email", "a@example.com"); err != nil || got != index {
		t.Errorf("index: %v", err)
	}
	if got, err := only.OpenSecret(t.Context(), "signing", secret); err != nil || string(got) != "private" {
		t.Errorf("secret: %q, %v", got, err)
	}
	old := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	if _, err := old.Open(t.Context(), user, place, box); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("without the new master key: %v; want its name", err)
	}
	impostor := seal.New(keys, master(t, masterText("b", 3)), rand.Reader)
	_, err = impostor.Open(t.Context(), user, place, box)
	if !errors.Is(err, seal.ErrRefused) || !strings.Contains(err.Error(), `master key "b" is another one`) {
		t.Errorf("with another key of that name: %v", err)
	}
	if _, err := impostor.Rewrap(t.Context()); !errors.Is(err, seal.ErrRefused) { // who believed it would drop the key that opens
		t.Errorf("rewrap with another key of that name: %v", err)
	}
}

func TestAMasterKeyThatIsNotConfiguredIsMissed(t *testing.T) {
	v, keys := prepared(t)
	box := sealed(t, v, "plain")
	other := seal.New(keys, master(t, masterText("b", 2)), rand.Reader)
	if _, err := other.Open(t.Context(), user, place, box); !errors.Is(err, seal.ErrMaster) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("got %v", err)
	}
}

// Whoever believed that all is rewrapped would drop the key that opens the rest.
func TestRewrapStopsAtAKeyThatItCannotOpen(t *testing.T) {
	_, keys := prepared(t)
	before := testkit.Must(keys.Root(t.Context(), seal.ClientKey, acme))(t)
	if n, err := seal.New(keys, master(t, masterText("b", 2)), rand.Reader).Rewrap(t.Context()); n != 0 || !errors.Is(err, seal.ErrMaster) {
		t.Errorf("without the key that wraps: rewrapped %d, %v", n, err)
	}
	if after := testkit.Must(keys.Root(t.Context(), seal.ClientKey, acme))(t); after.Under != before.Under || !bytes.Equal(after.Wrapped, before.Wrapped) {
		t.Errorf("the key is under %q now", after.Under)
	}
}

func TestRewrapOfManyGoesOnToTheEnd(t *testing.T) {
	_, keys := prepared(t)
	old := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	for c := range 450 {
		if _, err := old.Index(t.Context(), id.Client(fmt.Sprint("cli_", c)), "slug", "x"); err != nil {
			t.Fatal(err)
		}
	}
	both := seal.New(keys, master(t, masterText("b", 2), masterText("a", 1)), rand.Reader)
	if n, err := both.Rewrap(t.Context()); err != nil || n != 451 {
		t.Fatalf("rewrapped %d, %v", n, err)
	}
}

func TestAnIndexDependsOnAllItIsGiven(t *testing.T) {
	v, _ := prepared(t)
	seen := map[[32]byte]string{}
	for _, c := range [][3]string{
		{"", "email", "x"},
		{"cli_acme", "email", "x"},
		{"cli_bolt", "email", "x"},
		{"", "slug", "x"},
		{"", "email", "y"},
		{"", "emailx", ""},
		{"", "", "emailx"},
	} {
		for range 2 {
			index := testkit.Must(v.Index(t.Context(), id.Client(c[0]), c[1], c[2]))(t)
			if before, found := seen[index]; found && before != fmt.Sprint(c) {
				t.Errorf("%q has the index of %s", c, before)
			}
			seen[index] = fmt.Sprint(c)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d indexes of 7 values", len(seen))
	}
}

func TestASecretOpensUnderItsNameOnly(t *testing.T) {
	v, _ := prepared(t)
	secret := testkit.Must(v.SealSecret(t.Context(), "one", []byte("private")))(t)
	if _, err := v.OpenSecret(t.Context(), "two", secret); !errors.Is(err, seal.ErrRefused) {
		t.Errorf("another name: %v", err)
	}
	for n := range secret {
		if _, err := v.OpenSecret(t.Context(), "one", secret[:n]); !errors.Is(err, seal.ErrRefused) {
			t.Fatalf("%d bytes of it: %v", n, err)
		}
	}
}

// countingKeys counts statements, and holds the first until it may go on.
type countingKeys struct {
	*keystest.Memory
	statements atomic.Int32
	first      chan struct{}
}

func (k *countingKeys) MakeSubjects(ctx context.Context, keys []seal.SubjectKey) ([]seal.SubjectKey, error) {
	if k.statements.Add(1) == 1 {
		<-k.first
	}
	return k.Memory.MakeSubjects(ctx, keys)
}

func TestConcurrentPreparesShareStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &countingKeys{Memory: keystest.NewMemory(), first: make(chan struct{})}
		v := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
		quitting, quit := context.WithCancel(t.Context())
		callers := []context.Context{quitting, t.Context(), t.Context()}
		var all sync.WaitGroup
		for c := range 300 {
			all.Go(func() {
				err := v.Prepare(callers[c%3], acme, fmt.Sprint("usr_", c))
				if c%3 != 0 && err != nil {
					t.Errorf("caller %d, who stayed: %v", c, err)
				}
			})
		}
		synctest.Wait() // one runs, all others wait
		quit()
		synctest.Wait()
		close(keys.first)
		all.Wait()
		if n := keys.statements.Load(); n > 3 {
			t.Errorf("%d statements", n)
		}
	})
}

// Keys of several clients are made in one statement. It fails for one that was deleted meanwhile.
func TestAClientThatIsDeletedFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &countingKeys{Memory: keystest.NewMemory(), first: make(chan struct{})}
		v := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
		errs := map[id.Client]error{}
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, client := range []id.Client{"cli_first", acme, "cli_bolt"} {
			all.Go(func() {
				err := v.Prepare(t.Context(), client, user)
				mu.Lock()
				defer mu.Unlock()
				errs[client] = err
			})
			synctest.Wait() // the first runs, the others wait for the next statement
		}
		if _, err := keys.DestroyClient(t.Context(), acme); err != nil {
			t.Fatal(err)
		}
		close(keys.first)
		all.Wait()
		if errs["cli_first"] != nil || errs["cli_bolt"] != nil || !errors.Is(errs[acme], seal.ErrDeleted) {
			t.Errorf("%v", errs)
		}
	})
}

func TestABadNameSpoilsNobodysStatement(t *testing.T) {
	v, _ := prepared(t)
	for _, bad := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 201)} {
		if err := v.Prepare(t.Context(), acme, bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
		if err := v.Destroy(t.Context(), id.Client(bad), user); err == nil {
			t.Errorf("client %q was taken", bad)
		}
	}
}

func TestMasterKeysAreReadStrictly(t *testing.T) {
	good := masterText("a", 1)
	for _, bad := range []string{
		"", ",", "a", "a:", ":" + good[2:], good + "," + good, good + ",", "a:AAAA",
		"a b:" + good[2:], "a:" + good[2:] + "A", strings.ToUpper(good[:2]) + "!" + good[3:],
	} {
		_, err := seal.ParseMasterKeys(bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if strings.Contains(err.Error(), good[2:10]) {
			t.Errorf("the error quotes the key: %v", err)
		}
	}
	m := master(t, " "+good+" , "+masterText("b", 2)+"\n")
	if m.String() != "master key a" {
		t.Errorf("active is the %s", m)
	}
	for _, shown := range []string{fmt.Sprint(m), fmt.Sprintf("%+v %#v", m, m)} {
		if strings.Contains(shown, "1 1 1") || strings.Contains(shown, "0x1") {
			t.Errorf("printing tells the key: %s", shown)
		}
	}
}

func FuzzOpen(f *testing.F) {
	v, _ := prepared(f)
	box, err := v.Seal(f.Context(), user, place, []byte("hello"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(box.Key, box.Commitment, box.Cipher)
	f.Add("", []byte{}, []byte{})
	f.Add(box.Key, box.Commitment[:31], box.Cipher[:40])
	f.Fuzz(func(t *testing.T, key string, commitment, cipher []byte) {
		plain, err := v.Open(t.Context(), user, place, &event.Box{Key: key, Commitment: commitment, Cipher: cipher})
		same := key == box.Key && bytes.Equal(commitment, box.Commitment) && bytes.Equal(cipher, box.Cipher)
		if opened := err == nil && string(plain) == "hello"; opened != same {
			t.Fatalf("opened %t, the box itself %t: %v", opened, same, err)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	v, _ := prepared(b)
	plain := bytes.Repeat([]byte("x"), 300)
	for b.Loop() {
		if _, err := v.Seal(b.Context(), user, place, plain); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	v, _ := prepared(b)
	box := sealed(b, v, strings.Repeat("x", 300))
	for b.Loop() {
		if _, err := v.Open(b.Context(), user, place, box); err != nil {
			b.Fatal(err)
		}
	}
}

func openWith(tb testing.TB, v *seal.Vault, row seal.WrappedKey, subject string, p seal.Place, box *event.Box) ([]byte, error) {
	tb.Helper()
	with, err := v.With(tb.Context(), row, p.Client, subject)
	if err != nil {
		return nil, err
	}
	return with.Open(p, box)
}

func BenchmarkOpenWith(b *testing.B) {
	v, keys := prepared(b)
	box := sealed(b, v, strings.Repeat("x", 300))
	row := testkit.Must(keys.Subject(b.Context(), acme, user))(b)
	for b.Loop() {
		if _, err := openWith(b, v, row, user, place, box); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOfADeletedClientNothingOpensAndNothingIsMade(t *testing.T) {
	v, keys := prepared(t)
	box := sealed(t, v, "hello")
	theirs := place
	theirs.Client = "cli_bolt"
	if err := v.Prepare(t.Context(), theirs.Client, user); err != nil {
		t.Fatal(err)
	}
	other := testkit.Must(v.Seal(t.Context(), user, theirs, []byte("hello")))(t)
	if _, err := v.Index(t.Context(), acme, "user", "ada"); err != nil {
		t.Fatal(err)
	}
	if err := v.DestroyClient(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	for name, attempt := range map[string]func(*seal.Vault) error{
		"open":    func(v *seal.Vault) error { _, err := v.Open(t.Context(), user, place, box); return err },
		"seal":    func(v *seal.Vault) error { _, err := v.Seal(t.Context(), user, place, nil); return err },
		"prepare": func(v *seal.Vault) error { return v.Prepare(t.Context(), acme, "usr_2") },
		"draw":    func(v *seal.Vault) error { _, err := v.Draw(t.Context(), acme, "usr_2"); return err },
		"index":   func(v *seal.Vault) error { _, err := v.Index(t.Context(), acme, "user", "ada"); return err },
	} {
		for _, v := range []*seal.Vault{v, seal.New(keys, master(t, masterText("a", 1)), rand.Reader)} {
			want := seal.ErrDeleted
			if name == "open" || name == "seal" { // the user's own key says so first
				want = seal.ErrErased
			}
			if err := attempt(v); !errors.Is(err, want) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
	if got, err := v.Open(t.Context(), user, theirs, other); err != nil || string(got) != "hello" {
		t.Errorf("of another client: got %q, %v", got, err)
	}
}

func TestALookupThatAnotherSubjectHasIsRefused(t *testing.T) {
	v, keys := prepared(t)
	ada, bob := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	prepare := func(v *seal.Vault, wanted ...seal.Wanted) []error {
		t.Helper()
		return testkit.Must(v.PrepareEach(t.Context(), acme, wanted))(t)
	}
	prepare(v, seal.Wanted{Subject: "usr_ada", Lookup: ada}, seal.Wanted{Subject: "usr_gone", Lookup: bob})
	if err := v.Destroy(t.Context(), acme, "usr_gone"); err != nil {
		t.Fatal(err)
	}
	elsewhere := seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	want := []error{nil, seal.ErrTaken, seal.ErrErased, nil, seal.ErrTaken}
	for i, err := range prepare(elsewhere, seal.Wanted{Subject: "usr_ada", Lookup: ada}, seal.Wanted{Subject: "usr_2", Lookup: ada},
		seal.Wanted{Subject: "usr_gone", Lookup: bob}, seal.Wanted{Subject: "usr_3", Lookup: bob}, seal.Wanted{Subject: user, Lookup: bytes.Repeat([]byte{3}, 16)}) {
		if !errors.Is(err, want[i]) {
			t.Errorf("the subject %d: got %v, want %v", i, err, want[i])
		}
	}
	if found, err := v.Find(t.Context(), acme, ada, bob); err != nil || found[0] != "usr_ada" || found[1] != "usr_3" {
		t.Errorf("found %q, %v", found, err)
	}
}

// troubled is a key table that cannot be asked.
type troubled struct{ seal.Keys }

var errTrouble = errors.New("trouble")

func (troubled) Root(context.Context, seal.Kind, id.Client) (seal.WrappedKey, error) {
	return seal.WrappedKey{}, errTrouble
}

func (troubled) Subject(context.Context, id.Client, string) (seal.WrappedKey, error) {
	return seal.WrappedKey{}, errTrouble
}

func (troubled) MakeSubjects(context.Context, []seal.SubjectKey) ([]seal.SubjectKey, error) {
	return nil, errTrouble
}

func (troubled) Find(context.Context, []seal.Lookup) ([]seal.SubjectKey, error) {
	return nil, errTrouble
}

func (troubled) Destroy(context.Context, id.Client, string) error { return errTrouble }

func (troubled) DestroyClient(context.Context, id.Client) (bool, error) { return false, errTrouble }

// noMaker is a key table in which no key can be made, but all are found.
type noMaker struct{ seal.Keys }

func (noMaker) MakeSubjects(ctx context.Context, keys []seal.SubjectKey) ([]seal.SubjectKey, error) {
	return troubled{}.MakeSubjects(ctx, keys)
}

// notListed is a key table whose root keys cannot be listed, and notStored one that takes none.
type (
	notListed struct{ seal.Keys }
	notStored struct{ seal.Keys }
)

func (notListed) RootsNotUnder(context.Context, string, int) ([]seal.RootKey, error) {
	return nil, errTrouble
}

func (notStored) MakeRoot(context.Context, seal.RootKey) (seal.WrappedKey, error) {
	return seal.WrappedKey{}, errTrouble
}

func (notStored) Rewrap(context.Context, []seal.RootKey) error { return errTrouble }

// What cannot be destroyed is not taken for destroyed, nor what cannot be read for erased, and without
// entropy nothing is sealed.
func TestTroubleIsTold(t *testing.T) {
	v, keys := prepared(t)
	box := sealed(t, v, "hello")
	under := master(t, masterText("a", 1))
	noTable, noEntropy := seal.New(troubled{keys}, under, rand.Reader), seal.New(keys, under, iotest.ErrReader(errTrouble))
	for name, attempt := range map[string]func() error{
		"destroy":                    func() error { return noTable.Destroy(t.Context(), acme, user) },
		"destroy a client":           func() error { return noTable.DestroyClient(t.Context(), acme) },
		"open":                       func() error { _, err := noTable.Open(t.Context(), user, place, box); return err },
		"seal":                       func() error { _, err := noTable.Seal(t.Context(), user, place, nil); return err },
		"prepare":                    func() error { return noTable.Prepare(t.Context(), acme, "usr_2") },
		"prepare where none is made": func() error { return seal.New(noMaker{keys}, under, rand.Reader).Prepare(t.Context(), acme, "usr_2") },
		"draw":                       func() error { _, err := noTable.Draw(t.Context(), acme, "usr_2"); return err },
		"find":                       func() error { _, err := noTable.Find(t.Context(), acme, make([]byte, 16)); return err },
		"look up":                    func() error { _, err := noTable.Lookup(t.Context(), acme, "user", "ada"); return err },
		"rewrap what is not listed": func() error {
			_, err := seal.New(notListed{keys}, master(t, masterText("b", 2), masterText("a", 1)), rand.Reader).Rewrap(t.Context())
			return err
		},
		"rewrap where none is stored": func() error {
			_, err := seal.New(notStored{keys}, master(t, masterText("b", 2), masterText("a", 1)), rand.Reader).Rewrap(t.Context())
			return err
		},
		"index where no key is stored": func() error {
			_, err := seal.New(notStored{keys}, under, rand.Reader).Index(t.Context(), "cli_bolt", "user", "ada")
			return err
		},
		"index":                 func() error { _, err := noTable.Index(t.Context(), acme, "user", "ada"); return err },
		"seal without entropy":  func() error { _, err := noEntropy.Seal(t.Context(), user, place, nil); return err },
		"draw without entropy":  func() error { _, err := noEntropy.Draw(t.Context(), acme, "usr_2"); return err },
		"make a key without it": func() error { return noEntropy.Prepare(t.Context(), acme, "usr_2") },
	} {
		if err := attempt(); !errors.Is(err, errTrouble) || errors.Is(err, seal.ErrErased) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got, err := v.Open(t.Context(), user, place, box); err != nil || string(got) != "hello" {
		t.Errorf("it opens no more: got %q, %v", got, err)
	}
}

// entropyFailsOnce is entropy of which one read fails.
type entropyFailsOnce struct{ reads, failing int }

func (e *entropyFailsOnce) Read(p []byte) (int, error) {
	if e.reads++; e.reads == e.failing {
		return 0, errTrouble
	}
	return rand.Read(p)
}

// A nonce, a salt or a key that was not drawn would be zeros, which all can guess.
func TestNothingIsSealedWithWhatWasNotDrawn(t *testing.T) {
	under := master(t, masterText("a", 1))
	for name, test := range map[string]struct {
		reads   int
		attempt func(*keystest.Memory, io.Reader) error
	}{
		"seal": {2, func(keys *keystest.Memory, entropy io.Reader) error {
			_, err := seal.New(keys, under, entropy).Seal(t.Context(), user, place, nil)
			return err
		}},
		"make a key": {2, func(keys *keystest.Memory, entropy io.Reader) error {
			return seal.New(keys, under, entropy).Prepare(t.Context(), acme, "usr_2")
		}},
		"make a client's key": {4, func(keys *keystest.Memory, entropy io.Reader) error {
			return seal.New(keys, under, entropy).Prepare(t.Context(), "cli_bolt", user)
		}},
		"draw": {2, func(keys *keystest.Memory, entropy io.Reader) error {
			_, err := seal.New(keys, under, entropy).Draw(t.Context(), acme, "usr_2")
			return err
		}},
		"index": {2, func(keys *keystest.Memory, entropy io.Reader) error {
			_, err := seal.New(keys, under, entropy).Index(t.Context(), acme, "user", "ada")
			return err
		}},
		"seal a secret": {3, func(keys *keystest.Memory, entropy io.Reader) error {
			_, err := seal.New(keys, under, entropy).SealSecret(t.Context(), "signing", nil)
			return err
		}},
		"rewrap": {1, func(keys *keystest.Memory, entropy io.Reader) error {
			_, err := seal.New(keys, master(t, masterText("b", 2), masterText("a", 1)), entropy).Rewrap(t.Context())
			return err
		}},
		"make a master key": {1, func(_ *keystest.Memory, entropy io.Reader) error {
			_, err := seal.GenerateMasterKey(entropy)
			return err
		}},
		"make an epoch": {1, func(_ *keystest.Memory, entropy io.Reader) error {
			_, _, err := seal.NewEpochKey(entropy)
			return err
		}},
	} {
		for failing := range test.reads + 1 { // the 0th: none fails
			_, keys := prepared(t)
			entropy := &entropyFailsOnce{failing: failing}
			if err := test.attempt(keys, entropy); failing > 0 != errors.Is(err, errTrouble) || failing == 0 && (err != nil || entropy.reads != test.reads) {
				t.Errorf("%s, where read %d fails: %v, after %d reads", name, failing, err, entropy.reads)
			}
		}
	}
}

func TestOneCallPreparesABoundedNumber(t *testing.T) {
	v, _ := prepared(t)
	subjects := make([]string, seal.MaxPrepare+1)
	for i := range subjects {
		subjects[i] = fmt.Sprint("usr_many_", i)
	}
	if err := v.Prepare(t.Context(), acme, subjects...); err == nil {
		t.Errorf("%d are prepared at once", len(subjects))
	}
	if err := v.Prepare(t.Context(), acme, subjects[1:]...); err != nil {
		t.Errorf("%d are not prepared: %v", len(subjects)-1, err)
	}
}
