package seal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

// oneEpoch is all epochs that there are.
type oneEpoch struct {
	seal.Epoch
	taken, givenBack int
	full             int // from which place on none is taken; 0: all are
	findErr          error
}

func (e *oneEpoch) Take(context.Context) (seal.Epoch, error) {
	if e.taken == e.full-1 {
		return seal.Epoch{}, errTrouble
	}
	e.taken++
	return e.Epoch, nil
}

func (e *oneEpoch) GiveBack(_ string, places int) { e.givenBack += places }

func (e *oneEpoch) Find(context.Context, string) (seal.Epoch, error) { return e.Epoch, e.findErr }

func newEpoch(t *testing.T) *oneEpoch {
	t.Helper()
	return &oneEpoch{Epoch: testkit.Must(seal.NewEpoch("x0123456789abcdef", bytes.Repeat([]byte{9}, 32)))(t)}
}

// An epoch is ended once its places are taken.
func TestPlacesOfKeysThatAreNotStoredAreGivenBack(t *testing.T) {
	forestalled, keys := prepared(t)
	if err := forestalled.Prepare(t.Context(), acme, "usr_2"); err != nil {
		t.Fatal(err)
	}
	epoch, v := newEpoch(t), seal.New(keys, master(t, masterText("a", 1)), rand.Reader)
	v.Epochs = epoch
	if err := v.Prepare(t.Context(), acme, user, "usr_2", "usr_3"); err != nil || epoch.taken != 3 || epoch.givenBack != 2 {
		t.Errorf("of 3 places, one of which is used, %d were taken and %d given back: %v", epoch.taken, epoch.givenBack, err)
	}
	epoch.taken, epoch.givenBack, epoch.full = 0, 0, 3
	if err := v.Prepare(t.Context(), acme, "usr_4", "usr_5", "usr_6"); !errors.Is(err, errTrouble) || epoch.givenBack != 2 {
		t.Errorf("where the third cannot be taken, %d are given back: %v", epoch.givenBack, err)
	}
	if _, err := v.Draw(t.Context(), acme, "usr_4"); !errors.Is(err, errTrouble) {
		t.Errorf("a key is drawn under no epoch: %v", err)
	}
}

// unreadable is a key table from which nothing can be read a second time.
type unreadable struct {
	seal.Keys
	reads int
}

func (k *unreadable) Subject(ctx context.Context, client id.Client, subject string) (seal.WrappedKey, error) {
	if k.reads++; k.reads > 1 {
		return seal.WrappedKey{}, errTrouble
	}
	return k.Keys.Subject(ctx, client, subject)
}

// Only what was destroyed is erased: not what is under an epoch that is not found, or cannot be read again.
func TestAKeyWhoseEpochIsNotFoundIsNotErased(t *testing.T) {
	_, keys := prepared(t)
	under, epoch := master(t, masterText("a", 1)), newEpoch(t)
	v := seal.New(keys, under, rand.Reader)
	v.Epochs = epoch
	if err := v.Prepare(t.Context(), acme, "usr_2"); err != nil {
		t.Fatal(err)
	}
	box := testkit.Must(v.Seal(t.Context(), "usr_2", place, []byte("hello")))(t)
	notFound, away := newEpoch(t), newEpoch(t)
	notFound.findErr, away.findErr = seal.ErrEpoch, errTrouble
	for name, test := range map[string]struct {
		keys   seal.Keys
		epochs seal.Epochs
		want   error
	}{
		"found":                         {keys, epoch, nil},
		"no epochs":                     {keys, nil, seal.ErrEpoch},
		"not found":                     {keys, notFound, seal.ErrEpoch},
		"not found, and not read again": {&unreadable{Keys: keys}, notFound, errTrouble},
		"cannot be asked for":           {keys, away, errTrouble},
	} {
		v := seal.New(test.keys, under, rand.Reader)
		v.Epochs = test.epochs
		if _, err := v.Open(t.Context(), "usr_2", place, box); !errors.Is(err, test.want) || errors.Is(err, seal.ErrErased) {
			t.Errorf("%s: %v; want %v", name, err, test.want)
		}
	}
}
