package seal_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/golden"
	"kindred/testkit"
)

// What was sealed is opened by later releases, with the keys that operators keep.
func TestKeysAndWhatTheySealStay(t *testing.T) {
	generated := testkit.Must(seal.GenerateMasterKey(sevens{}))(t)
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
	epoch := testkit.Must(seal.NewEpoch(name, key))(t)
	moved, err := seal.Move(sevens{}, seal.SubjectKey{Client: acme, Subject: user, WrappedKey: subject}, seal.Epoch{}, epoch)
	row("the same in an epoch", moved.WrappedKey, err)

	box := testkit.Must(json.Marshal(sealed(t, v, "hello")))(t)
	lines = append(lines, "a sealed field "+string(box))
	stored := testkit.Must(sealed(t, v, "hello").MarshalBinary())(t)
	lines = append(lines, "the same in a read model "+hex.EncodeToString(stored))
	kept := testkit.Must(v.SealFor(t.Context(), acme, user, "line", []byte("hello")))(t)
	lines = append(lines, "sealed for a subject "+hex.EncodeToString(kept))
	secret := testkit.Must(v.SealSecret(t.Context(), "signing key", []byte("hello")))(t)
	lines = append(lines, "a secret of the service "+hex.EncodeToString(secret))
	index := testkit.Must(v.Index(t.Context(), acme, "purpose", "value"))(t)
	lookup := testkit.Must(v.Lookup(t.Context(), acme, "purpose", "value"))(t)
	pepper, err := keys.Root(t.Context(), seal.Pepper, acme)
	row("pepper of a client", pepper, err)
	golden.Check(t, "sealed.txt", append(lines, fmt.Sprintf("index %x", index), fmt.Sprintf("lookup %x", lookup)))
}
