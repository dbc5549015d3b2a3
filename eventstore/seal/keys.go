package seal

import (
	"context"
	"errors"

	"kindred/domain/id"
)

// ErrNoKey is returned by Keys for a key that was never made.
var ErrNoKey = errors.New("there is no such key")

// WrappedKey is a key as it is stored.
type WrappedKey struct {
	ID      string // names the key; a box says by it what opens it
	Under   string // the id of the key that wraps it; of a subject's, behind that of its epoch and a slash
	Wrapped []byte // nonce || AES-256-GCM(key); empty once the key was destroyed
}

// Kind tells the two sorts of root keys apart.
type Kind string

// The root keys of a client. Both are wrapped under a master key.
const (
	ClientKey Kind = "client key" // wraps the keys of the client's subjects
	Pepper    Kind = "pepper"     // keys the HMACs under which values are looked up
)

// RootKey is a client key or a pepper. The empty client is the service itself.
type RootKey struct {
	Kind   Kind
	Client id.Client
	WrappedKey
}

// SubjectKey is the key of one user, member or webhook.
type SubjectKey struct {
	Client  id.Client
	Subject string
	Lookup  []byte // of [Vault.Lookup]: what finds the subject, of at most one; nil: nothing but its name
	WrappedKey
}

// Lookup finds a subject of a client (see [Vault.Lookup]).
type Lookup struct {
	Client id.Client
	Value  []byte
}

// Keys keeps wrapped keys durably: what a method has answered survives a
// crash. Package keystest is its conformance suite. All methods may be called
// by many goroutines and processes.
type Keys interface {
	// Root finds a root key, or fails with ErrNoKey. A destroyed key is found, with
	// nothing wrapped.
	Root(ctx context.Context, kind Kind, client id.Client) (WrappedKey, error)
	// MakeRoot stores a root key unless there is one, and returns the one that
	// is stored.
	MakeRoot(ctx context.Context, key RootKey) (WrappedKey, error)
	// RootsNotUnder lists at most limit root keys that another master key wraps.
	RootsNotUnder(ctx context.Context, master string, limit int) ([]RootKey, error)
	// Rewrap stores root keys in their new wrapping. Keys that are not there
	// any more under their id, or were destroyed, are left alone.
	Rewrap(ctx context.Context, keys []RootKey) error

	// Subject finds the key of a subject, or fails with ErrNoKey. A destroyed
	// key is found, with nothing wrapped.
	Subject(ctx context.Context, client id.Client, subject string) (WrappedKey, error)
	// MakeSubjects stores the keys of the subjects that have none, nor ever
	// had, and whose lookup no other subject has. It returns what is stored for
	// each, in the order of keys: its own key, or else that of the subject that
	// has its lookup. A subject may occur more than once; its first key counts. It fails
	// with ErrDeleted, and stores none, where the root key of one's client was destroyed.
	MakeSubjects(ctx context.Context, keys []SubjectKey) ([]SubjectKey, error)
	// Destroy removes the key of a subject for good, and its lookup, which
	// another may have then. It leaves a tombstone, also where there was no key.
	Destroy(ctx context.Context, client id.Client, subject string) error

	// DestroyClient removes a client's root keys for good: their tombstones have nothing
	// wrapped, and stay, and no key of a subject is made any more. It destroys some more of
	// the keys of the client's subjects, as Destroy does, and says whether there are more.
	DestroyClient(ctx context.Context, client id.Client) (more bool, err error)

	// Find returns the subject that each client's lookup finds, with its key and without
	// the lookup; nothing where it finds none.
	Find(ctx context.Context, wanted []Lookup) ([]SubjectKey, error)
	// LookupOf returns the lookup of a subject, nil where it has none.
	LookupOf(ctx context.Context, client id.Client, subject string) ([]byte, error)
}
