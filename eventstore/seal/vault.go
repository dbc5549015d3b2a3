// Package seal keeps personal fields readable only as long as their subject's
// key exists: once that key is destroyed, nothing sealed with it can be read
// again, in the log, in a read model or in a copy of either.
//
// A master key wraps client keys, a client key wraps the keys of the client's
// subjects (users, members, webhooks), and a subject's key seals fields. Each
// ciphertext is bound to its place, so that it opens nowhere else. A subject's
// wrapped key is wrapped once more, under the key of an [Epoch].
package seal

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"kindred/coalesce"
	"kindred/domain/event"
	"kindred/domain/id"
)

// Errors, for errors.Is.
var (
	// ErrErased: the key was destroyed, or never made where it must exist.
	ErrErased = errors.New("the key of what is sealed was destroyed")
	// ErrDeleted: so were the keys of the client that everything of it is under.
	ErrDeleted = fmt.Errorf("%w: its client was deleted", ErrErased)
	// ErrRefused: the bytes were not sealed here: another place, another
	// subject, another key, or damage.
	ErrRefused = errors.New("a sealed field does not open in this place")
	// ErrLost: a key that was used a moment ago is lost, with a server that was
	// replaced by one that lacked it.
	ErrLost = errors.New("a key that was just used is lost with a server; try again in half a minute")
	// ErrTaken: another subject has the lookup that was asked for.
	ErrTaken = errors.New("another subject is found by the same lookup")
)

// Place is where a sealed field stands. It opens nowhere else.
type Place struct {
	Client id.Client
	Stream string
	Event  id.Event
	Field  string
}

func (p Place) bound() []byte {
	return associate("kindred.field.1", string(p.Client), p.Stream, string(p.Event), p.Field)
}

// Vault seals and opens. It may be used by many goroutines.
type Vault struct {
	Now func() time.Time // ages the cached keys of subjects
	// Server counts the servers that the key table has been on; nil: it stays on one.
	Server func() int64
	server atomic.Int64 // as Server said last
	// Epochs are what the keys of subjects are wrapped under once more; nil: nothing.
	Epochs Epochs

	keys     Keys
	master   MasterKeys
	entropy  io.Reader
	roots    *rootCache
	subjects *subjectCache
	group    *coalesce.Coalescer[[]SubjectKey, []SubjectKey]
	finds    *coalesce.Coalescer[[]Lookup, []SubjectKey]
}

// New makes a vault on a key table. The entropy must be safe for concurrent
// use, as crypto/rand.Reader is.
func New(keys Keys, master MasterKeys, entropy io.Reader) *Vault {
	return &Vault{
		Now:  time.Now, //nolint:forbidigo // the default; tests set the field
		keys: keys, master: master, entropy: entropy,
		roots: newRootCache(), subjects: newSubjectCache(),
		group: newGroup(keys.MakeSubjects), finds: newGroup(keys.Find),
	}
}

// Seal seals a field with the key of its subject, which Prepare has made.
// It fails with ErrErased where there is none.
func (v *Vault) Seal(ctx context.Context, subject string, p Place, plain []byte) (*event.Box, error) {
	key, err := v.subject(ctx, p.Client, subject, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", p.Field, err)
	}
	return v.seal(key, p, plain)
}

// SealWith is Seal with a key that was just drawn.
func (v *Vault) SealWith(key Drawn, p Place, plain []byte) (*event.Box, error) {
	return v.seal(key.key, p, plain)
}

func (v *Vault) seal(key subjectKey, p Place, plain []byte) (*event.Box, error) {
	out := make([]byte, nonceSize, nonceSize+saltSize+len(plain)+tagSize)
	if _, err := io.ReadFull(v.entropy, out); err != nil {
		return nil, fmt.Errorf("seal %s: read entropy: %w", p.Field, err)
	}
	salted := make([]byte, saltSize, saltSize+len(plain))
	if _, err := io.ReadFull(v.entropy, salted); err != nil {
		return nil, fmt.Errorf("seal %s: read entropy: %w", p.Field, err)
	}
	salted = append(salted, plain...)
	commitment := sha256.Sum256(salted)
	return &event.Box{
		Key:        key.id,
		Commitment: commitment[:],
		Cipher:     key.cipher.Seal(out, out, salted, p.bound()),
	}, nil
}

// Open opens a field. It fails with ErrErased once the subject's key was
// destroyed, and with ErrRefused for what was not sealed in this place.
func (v *Vault) Open(ctx context.Context, subject string, p Place, b *event.Box) ([]byte, error) {
	return v.OpenAsOf(ctx, time.Time{}, subject, p, b)
}

// OpenAsOf is Open with a key that was still there at a moment: for who asks after an
// erasure, which another process may have answered, and is to see nothing of the subject.
func (v *Vault) OpenAsOf(ctx context.Context, moment time.Time, subject string, p Place, b *event.Box) ([]byte, error) {
	key, err := v.subject(ctx, p.Client, subject, moment)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.Field, err)
	}
	return key.open(p, b)
}

// SubjectCipher opens the fields of one subject.
type SubjectCipher struct{ key subjectKey }

// With makes a SubjectCipher of a row of the key table that the caller has just read
// in a statement of its own, so that no further one is needed. It fails with
// ErrErased where the key was destroyed.
func (v *Vault) With(ctx context.Context, row WrappedKey, client id.Client, subject string) (SubjectCipher, error) {
	key, err := v.unwrapSubject(ctx, SubjectKey{Client: client, Subject: subject, WrappedKey: row})
	if err != nil {
		return SubjectCipher{}, fmt.Errorf("open with a key: %w", err)
	}
	return SubjectCipher{key}, nil
}

// Open opens a field, or fails with ErrRefused.
func (c SubjectCipher) Open(p Place, b *event.Box) ([]byte, error) { return c.key.open(p, b) }

// Destroy removes the key of a subject for good: here at once, and within a
// second in every other process. What was written of it before opens with the
// key of its epoch alone, which is destroyed within minutes.
func (v *Vault) Destroy(ctx context.Context, client id.Client, subject string) error {
	if err := checkNames(string(client), subject); err != nil {
		return fmt.Errorf("destroy key: %w", err)
	}
	if err := v.keys.Destroy(ctx, client, subject); err != nil {
		return fmt.Errorf("destroy key: %w", err)
	}
	v.subjects.bury(client, subject)
	return nil
}

// DestroyClient removes a client's own keys for good, and then those of all its subjects,
// as Destroy does: nothing of the client is sealed or looked up any more.
// It goes on where it was broken off.
func (v *Vault) DestroyClient(ctx context.Context, client id.Client) error {
	if err := checkNames(string(client)); err != nil {
		return fmt.Errorf("destroy the keys of a client: %w", err)
	}
	for more := true; more; {
		var err error
		if more, err = v.keys.DestroyClient(ctx, client); err != nil {
			return fmt.Errorf("destroy the keys of %s: %w", client, err)
		}
	}
	v.roots.bury(client)
	v.subjects.forget(v.Now())
	return nil
}

// subjectKey is a key that seals and opens. Without a cipher it is a tombstone.
type subjectKey struct {
	id     string
	cipher cipher.AEAD
	learnt bool // see LearntUnder
}

// LearntUnder says whether a subject is none whom a client names, but the client itself or a consent
// layer, whose key seals what was learnt of many users. Where it is lost without having been destroyed,
// another one is made, and that is learnt anew.
func LearntUnder(client id.Client, subject string) bool {
	return subject == string(client) || strings.HasPrefix(subject, "lay_")
}

func (k subjectKey) open(p Place, b *event.Box) ([]byte, error) {
	switch {
	case b != nil && b.Key != k.id && k.learnt: // that key was lost
		return nil, fmt.Errorf("open %s: %w", p.Field, ErrErased)
	case b == nil || b.Key != k.id:
		return nil, fmt.Errorf("open %s: %w", p.Field, ErrRefused)
	}
	salted, err := unwrap(k.cipher, b.Cipher, p.bound())
	if err != nil || len(salted) < saltSize {
		return nil, fmt.Errorf("open %s: %w", p.Field, ErrRefused)
	}
	commitment := sha256.Sum256(salted)
	if subtle.ConstantTimeCompare(commitment[:], b.Commitment) != 1 {
		return nil, fmt.Errorf("open %s: %w: the commitment differs", p.Field, ErrRefused)
	}
	return salted[saltSize:], nil
}

// subject returns the key of a subject, from the cache where it is fresh, and was read
// since a moment.
func (v *Vault) subject(ctx context.Context, client id.Client, subject string, since time.Time) (subjectKey, error) {
	asOf := v.Now()
	if key, found := v.subjects.get(client, subject, asOf, since); found {
		return key, key.err()
	}
	if err := checkNames(string(client), subject); err != nil {
		return subjectKey{}, err
	}
	row, err := v.keys.Subject(ctx, client, subject)
	if errors.Is(err, ErrNoKey) {
		return subjectKey{}, ErrErased
	}
	if err != nil {
		return subjectKey{}, err
	}
	return v.hold(ctx, SubjectKey{Client: client, Subject: subject, WrappedKey: row}, asOf)
}

// hold unwraps what the key table said at a time, and keeps it for a moment.
func (v *Vault) hold(ctx context.Context, row SubjectKey, asOf time.Time) (subjectKey, error) {
	if len(row.Wrapped) == 0 {
		v.subjects.bury(row.Client, row.Subject)
		return subjectKey{}, ErrErased
	}
	key, err := v.unwrapSubject(ctx, row)
	if err != nil {
		return subjectKey{}, err
	}
	key = v.subjects.put(row.Client, row.Subject, key, asOf)
	return key, key.err()
}

func (v *Vault) unwrapSubject(ctx context.Context, row SubjectKey) (subjectKey, error) {
	if len(row.Wrapped) == 0 {
		return subjectKey{}, ErrErased
	}
	row, err := v.bare(ctx, row)
	if err != nil {
		return subjectKey{}, err
	}
	root, err := v.root(ctx, ClientKey, row.Client)
	if err != nil {
		return subjectKey{}, err
	}
	if row.Under != root.id {
		return subjectKey{}, ErrRefused
	}
	key, err := unwrap(root.cipher, row.Wrapped, row.bound())
	if err != nil {
		return subjectKey{}, err
	}
	c, err := newCipher(key)
	return subjectKey{row.ID, c, LearntUnder(row.Client, row.Subject)}, err
}

func (k SubjectKey) bound() []byte {
	return associate("kindred.subject-key.1", string(k.Client), k.Subject, k.ID, k.Under)
}

func (k subjectKey) err() error {
	if k.cipher == nil {
		return ErrErased
	}
	return nil
}
