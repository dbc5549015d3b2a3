package seal_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/golden"
)

// What was sealed is opened by later releases, with the keys that operators keep.
func TestKeysAndWhatTheySealStay(t *testing.T) {
	generated, err := seal.GenerateMasterKey(sevens{})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"master key " + generated}
	keys := keystest.NewMemory()
	v := seal.New(keys, master(t, masterText("a", 1)), sevens{})
	if err := v.Prepare(t.Context(), acme, user); err != nil {
		t.Fatal(err)
	}
	row := func(of string, key seal.WrappedKey, err error) {
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s under %s: %x", of, key.ID, key.Under, key.Wrapped))
	}
	root, err := keys.Root(t.Context(), seal.ClientKey, acme)
	row("key of a client", root, err)
	subject, err := keys.Subject(t.Context(), acme, user)
	row("key of a subject", subject, err)

	name, key, err := seal.NewEpochKey(sevens{})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := seal.NewEpoch(name, key)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := seal.Move(sevens{}, seal.SubjectKey{Client: acme, Subject: user, WrappedKey: subject}, seal.Epoch{}, epoch)
	row("the same in an epoch", moved.WrappedKey, err)

	box, err := json.Marshal(sealed(t, v, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, "a sealed field "+string(box))
	stored, err := sealed(t, v, "hello").MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, "the same in a read model "+hex.EncodeToString(stored))
	kept, err := v.SealFor(t.Context(), acme, user, "line", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, "sealed for a subject "+hex.EncodeToString(kept))
	secret, err := v.SealSecret(t.Context(), "signing key", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, "a secret of the service "+hex.EncodeToString(secret))
	index, err := v.Index(t.Context(), acme, "purpose", "value")
	if err != nil {
		t.Fatal(err)
	}
	lookup, err := v.Lookup(t.Context(), acme, "purpose", "value")
	if err != nil {
		t.Fatal(err)
	}
	pepper, err := keys.Root(t.Context(), seal.Pepper, acme)
	row("pepper of a client", pepper, err)
	golden.Check(t, "sealed.txt", append(lines, fmt.Sprintf("index %x", index), fmt.Sprintf("lookup %x", lookup)))
}
