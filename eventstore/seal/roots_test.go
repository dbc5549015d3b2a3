package seal_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
)

// movable is a key table that may be another server's later.
type movable struct{ seal.Keys }

// A server that takes over may lack the last keys of the one before: what was sealed under
// these would be lost.
func TestNothingRestsOnAKeyThatIsLostWithAServer(t *testing.T) {
	under := master(t, masterText("a", 1))
	replaced := keystest.NewMemory()
	if err := seal.New(replaced, under, rand.Reader).Prepare(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		next func(before seal.Keys) seal.Keys
		want error
	}{
		"one that has all":         {func(before seal.Keys) seal.Keys { return before }, nil},
		"one that has nothing":     {func(seal.Keys) seal.Keys { return keystest.NewMemory() }, seal.ErrLost},
		"one that has another key": {func(seal.Keys) seal.Keys { return replaced }, seal.ErrLost},
		"one that cannot be asked": {func(before seal.Keys) seal.Keys { return troubled{before} }, errTrouble},
	} {
		now, server, table := time.Now(), int64(1), &movable{keystest.NewMemory()}
		v := seal.New(table, under, rand.Reader)
		v.Now, v.Server = func() time.Time { return now }, func() int64 { return server }
		if err := errors.Join(v.Prepare(t.Context(), acme, user), v.Verify(t.Context(), acme)); err != nil {
			t.Fatal(err)
		}
		table.Keys, server = test.next(table.Keys), server+1
		for _, later := range []time.Duration{0, 35*time.Second - 1} {
			now = now.Add(later)
			if err := v.Verify(t.Context(), acme); !errors.Is(err, test.want) {
				t.Errorf("%s, %s later: %v; want %v", name, later, err, test.want)
			}
		}
		if now = now.Add(1); errors.Is(test.want, seal.ErrLost) && v.Verify(t.Context(), acme) != nil {
			t.Errorf("%s: who sealed under the lost key has given up, and nothing is appended yet", name)
		}
	}
}

// What is looked up by another pepper is not found.
func TestAServerThatTakesOverIsAskedForThePepper(t *testing.T) {
	under := master(t, masterText("a", 1))
	server, table, next := int64(1), &movable{keystest.NewMemory()}, keystest.NewMemory()
	v := seal.New(table, under, rand.Reader)
	v.Server = func() int64 { return server }
	before, err1 := v.Index(t.Context(), acme, "user", "ada")
	want, err2 := seal.New(next, under, rand.Reader).Index(t.Context(), acme, "user", "ada")
	table.Keys, server = next, server+1
	got, err3 := v.Index(t.Context(), acme, "user", "ada")
	if err := errors.Join(err1, err2, err3); err != nil || got != want || got == before {
		t.Errorf("it is looked up under the pepper of the server before: %v", err)
	}
}

// The key of a user is read again, too, and an answer of the server before is not kept.
func TestAServerThatTakesOverIsAskedForTheKeysOfUsers(t *testing.T) {
	_, memory := prepared(t)
	table := &movable{memory}
	v := seal.New(table, master(t, masterText("a", 1)), rand.Reader)
	sealed(t, v, "hello")
	table.Keys = keystest.NewMemory()
	v.Invalidate()
	if _, err := v.Seal(t.Context(), user, place, nil); !errors.Is(err, seal.ErrErased) {
		t.Errorf("it is sealed under a key that is lost: %v", err)
	}

	keys := slowKeys{memory, make(chan struct{}), make(chan struct{})}
	v = seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	done := make(chan error)
	go func() {
		_, err := v.Seal(t.Context(), user, place, nil)
		done <- err
	}()
	<-keys.reading
	v.Invalidate()
	close(keys.answer)
	if err := <-done; err != nil || v.Known(acme, user) {
		t.Errorf("a key of the server before is kept: %v, %v", v.Known(acme, user), err)
	}
}
