package seal

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrEpoch: the key of an epoch is not there, or takes no more keys.
var ErrEpoch = errors.New("the key of an epoch is not there, or it takes no more keys")

// Epoch is a key under which the keys of some subjects are wrapped once more. It
// stands outside of the key table and is destroyed soon after one of these
// subjects is erased, when the others have moved to another epoch: what was
// written of the table before opens nothing then, whoever has the master key.
type Epoch struct {
	ID     string // an x and 16 hex digits, which no client key begins with
	cipher cipher.AEAD
}

// NewEpoch makes an epoch of its id and its key of 32 bytes.
func NewEpoch(name string, key []byte) (Epoch, error) {
	c, err := newCipher(key)
	return Epoch{name, c}, err
}

// NewEpochKey draws an epoch's id and its key.
func NewEpochKey(entropy io.Reader) (name string, key []byte, err error) {
	name, key, err = newKey(entropy)
	return "x" + name, key, err
}

// Epochs gives and finds epochs. It may be used by many goroutines.
type Epochs interface {
	// Take takes a place for one new key.
	Take(ctx context.Context) (Epoch, error)
	// GiveBack gives back places that were taken for keys that are not stored.
	GiveBack(epoch string, places int)
	// Find finds an epoch, or fails with ErrEpoch.
	Find(ctx context.Context, name string) (Epoch, error)
}

// splitUnder tells apart what wraps a subject's key; the epoch is empty where
// there is none.
func splitUnder(under string) (epoch, root string) {
	epoch, root, found := strings.Cut(under, "/")
	if !found {
		return "", under
	}
	return epoch, root
}

// put wraps a key once more.
func (e Epoch) put(entropy io.Reader, key SubjectKey) (SubjectKey, error) {
	key.Under = e.ID + "/" + key.Under
	wrapped, err := wrap(entropy, e.cipher, key.Wrapped, key.boundToEpoch())
	key.Wrapped = wrapped
	return key, err
}

// take undoes put.
func (e Epoch) take(key SubjectKey) (SubjectKey, error) {
	wrapped, err := unwrap(e.cipher, key.Wrapped, key.boundToEpoch())
	_, key.Under = splitUnder(key.Under)
	key.Wrapped = wrapped
	return key, err
}

// Move takes a stored key from its epoch, if it has one, and puts it under
// another. What the client key has wrapped stays as it is.
func Move(entropy io.Reader, key SubjectKey, from, to Epoch) (SubjectKey, error) {
	if epoch, _ := splitUnder(key.Under); epoch != "" {
		if epoch != from.ID {
			return key, fmt.Errorf("move the key %s: it is under another epoch: %w", key.ID, ErrRefused)
		}
		var err error
		if key, err = from.take(key); err != nil {
			return key, fmt.Errorf("move the key %s: %w", key.ID, err)
		}
	}
	return to.put(entropy, key)
}

func (k SubjectKey) boundToEpoch() []byte {
	return associate("kindred.epoch.1", string(k.Client), k.Subject, k.ID, k.Under)
}

// bare takes a stored key from its epoch. The row may have been read before its
// key moved to another epoch; then it is read anew.
func (v *Vault) bare(ctx context.Context, row SubjectKey) (SubjectKey, error) {
	epoch, _ := splitUnder(row.Under)
	if epoch == "" {
		return row, nil
	}
	if v.Epochs == nil {
		return row, fmt.Errorf("%w: there are none here", ErrEpoch)
	}
	with, err := v.Epochs.Find(ctx, epoch)
	if err == nil {
		return with.take(row)
	}
	if !errors.Is(err, ErrEpoch) {
		return row, err
	}
	now, readErr := v.keys.Subject(ctx, row.Client, row.Subject)
	if readErr != nil {
		return row, readErr
	}
	moved, _ := splitUnder(now.Under)
	switch {
	case len(now.Wrapped) == 0:
		return row, ErrErased
	case moved == epoch || moved == "":
		return row, err
	}
	row.WrappedKey = now
	if with, err = v.Epochs.Find(ctx, moved); err != nil {
		return row, err
	}
	return with.take(row)
}

// giveBack gives back the places of those drawn keys that others forestalled.
func (v *Vault) giveBack(drawn, stored []SubjectKey) {
	if v.Epochs == nil {
		return
	}
	unused := map[string]int{}
	for i, key := range drawn {
		if i >= len(stored) || stored[i].ID != key.ID {
			epoch, _ := splitUnder(key.Under)
			unused[epoch]++
		}
	}
	for epoch, n := range unused {
		v.Epochs.GiveBack(epoch, n)
	}
}
