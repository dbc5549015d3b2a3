package seal

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
)

// rootKey is a client key or a pepper, unwrapped.
type rootKey struct {
	id     string
	secret []byte
	cipher cipher.AEAD
}

// Index is the keyed hash under which a value is looked up: HMAC-SHA256 under
// the client's pepper over purpose and value, each behind its length. Without
// a client it is the service's own pepper, for what is unique across clients.
func (v *Vault) Index(ctx context.Context, client id.Client, purpose, value string) ([32]byte, error) {
	pepper, err := v.makeRoot(ctx, Pepper, client)
	if err != nil {
		return [32]byte{}, fmt.Errorf("index %s: %w", purpose, err)
	}
	mac := hmac.New(sha256.New, pepper.secret)
	mac.Write(associate("kindred.index.1", purpose, value))
	return [32]byte(mac.Sum(nil)), nil
}

// Lookup is what finds a subject of a client by a value that no two of them
// have: the first half of Index.
func (v *Vault) Lookup(ctx context.Context, client id.Client, purpose, value string) ([]byte, error) {
	keyed, err := v.Index(ctx, client, purpose, value)
	return keyed[:16], err
}

// Find returns the subject of a client that each lookup finds, or "". The keys that are found
// with them are held for a moment: what follows opens, and seals.
func (v *Vault) Find(ctx context.Context, client id.Client, lookups ...[]byte) ([]string, error) {
	wanted := make([]Lookup, len(lookups))
	for i, lookup := range lookups {
		wanted[i] = Lookup{client, lookup}
	}
	asOf := v.Now()
	found, err := v.finds.Ask(ctx, wanted)
	subjects := make([]string, len(found))
	for i, key := range found {
		if subjects[i] = key.Subject; key.Subject != "" {
			_, _ = v.hold(ctx, key, asOf) // whoever needs it is told what is wrong with it
		}
	}
	return subjects, err
}

// LookupOf returns what finds a subject, nil where nothing does.
func (v *Vault) LookupOf(ctx context.Context, client id.Client, subject string) ([]byte, error) {
	return v.keys.LookupOf(ctx, client, subject)
}

// SealSecret seals a secret of the service itself, such as a signing key. It
// opens only under the same name.
func (v *Vault) SealSecret(ctx context.Context, name string, plain []byte) ([]byte, error) {
	root, err := v.makeRoot(ctx, ClientKey, "")
	if err != nil {
		return nil, fmt.Errorf("seal secret %s: %w", name, err)
	}
	sealed, err := wrap(v.entropy, root.cipher, plain, associate("kindred.secret.1", name))
	if err != nil {
		return nil, fmt.Errorf("seal secret %s: %w", name, err)
	}
	return sealed, nil
}

// OpenSecret opens what SealSecret sealed, or fails with ErrRefused.
func (v *Vault) OpenSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	root, err := v.root(ctx, ClientKey, "")
	if err != nil {
		return nil, fmt.Errorf("open secret %s: %w", name, err)
	}
	plain, err := unwrap(root.cipher, sealed, associate("kindred.secret.1", name))
	if err != nil {
		return nil, fmt.Errorf("open secret %s: %w", name, err)
	}
	return plain, nil
}

// SealFor seals something with the key of a subject, which Prepare has made. It
// opens only for the same subject under the same name.
func (v *Vault) SealFor(ctx context.Context, client id.Client, subject, name string, plain []byte) ([]byte, error) {
	box, err := v.Seal(ctx, subject, Place{Client: client, Stream: subject, Field: name}, plain)
	if err != nil {
		return nil, err
	}
	return box.MarshalBinary()
}

// OpenFor opens what SealFor sealed, or fails as Open does.
func (v *Vault) OpenFor(ctx context.Context, client id.Client, subject, name string, sealed []byte) ([]byte, error) {
	var box event.Box
	if err := box.UnmarshalBinary(sealed); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return v.Open(ctx, subject, Place{Client: client, Stream: subject, Field: name}, &box)
}

// CheckMaster fails where the master keys do not open the service's own key: one may be another
// than the one of its id that wraps.
func (v *Vault) CheckMaster(ctx context.Context) error {
	if _, err := v.root(ctx, ClientKey, ""); err != nil && !errors.Is(err, ErrErased) {
		return err
	}
	return nil
}

const rewrapBatch = 200

// Rewrap puts client keys and peppers under the active master key, and says
// how many it did. Subject keys and what they sealed stay as they are. When it
// has succeeded, and no process runs with another active key, the other master
// keys can go.
func (v *Vault) Rewrap(ctx context.Context) (n int, err error) {
	if err := v.CheckMaster(ctx); err != nil {
		return 0, fmt.Errorf("rewrap: %w", err)
	}
	for {
		keys, err := v.keys.RootsNotUnder(ctx, v.master.active, rewrapBatch)
		if err != nil {
			return n, fmt.Errorf("rewrap: %w", err)
		}
		if len(keys) == 0 {
			return n, nil
		}
		for i, key := range keys {
			secret, err := v.unwrapRoot(key)
			if err != nil {
				return n, fmt.Errorf("rewrap the %s of %q: %w", key.Kind, key.Client, err)
			}
			if keys[i], err = v.wrapRoot(key.Kind, key.Client, key.ID, secret); err != nil {
				return n, fmt.Errorf("rewrap: %w", err)
			}
		}
		if err := v.keys.Rewrap(ctx, keys); err != nil {
			return n, fmt.Errorf("rewrap: %w", err)
		}
		n += len(keys)
	}
}

// root finds a root key. One that was never made counts as destroyed.
func (v *Vault) root(ctx context.Context, kind Kind, client id.Client) (rootKey, error) {
	v.follow()
	key, server, found := v.roots.get(kind, client)
	if found {
		return key, nil
	}
	row, err := v.keys.Root(ctx, kind, client)
	if errors.Is(err, ErrNoKey) {
		v.roots.drop(kind, client, server, v.Now())
		return rootKey{}, ErrErased
	}
	if err != nil {
		return rootKey{}, err
	}
	return v.holdRoot(RootKey{kind, client, row}, server)
}

// lostFor is how long a client of which a root key was lost appends nothing: whoever
// sealed or derived something under that key before gives up within 30 s.
const lostFor = 35 * time.Second

// follow invalidates what it holds once the server of the key table is another.
func (v *Vault) follow() {
	if v.Server == nil {
		return
	}
	if now := v.Server(); v.server.Swap(now) != now {
		v.Invalidate()
	}
}

// Invalidate makes every key be read again before it is used: the key table may be
// another server's by now, which lacks the last commits of the one before.
func (v *Vault) Invalidate() {
	v.roots.invalidate()
	v.subjects.forget(v.Now())
}

// Verify fails with ErrLost where a root key that this process has used for a client
// a moment ago is not the one in the key table. Who commits what was sealed
// or derived asks for it last, after Invalidate.
func (v *Vault) Verify(ctx context.Context, client id.Client) error {
	v.follow()
	for _, kind := range []Kind{ClientKey, Pepper} {
		if !v.roots.stale(kind, client) {
			continue
		}
		if _, err := v.root(ctx, kind, client); err != nil && !errors.Is(err, ErrErased) {
			return fmt.Errorf("read the %s of %q again: %w", kind, client, err)
		}
	}
	if v.roots.lostWithin(client, v.Now(), lostFor) {
		return ErrLost
	}
	return nil
}

// makeRoot finds a root key, or makes it.
func (v *Vault) makeRoot(ctx context.Context, kind Kind, client id.Client) (rootKey, error) {
	key, err := v.root(ctx, kind, client)
	if !errors.Is(err, ErrErased) {
		return key, err
	}
	if client != "" {
		if err := checkNames(string(client)); err != nil {
			return rootKey{}, err
		}
	}
	name, secret, err := newKey(v.entropy)
	if err != nil {
		return rootKey{}, err
	}
	made, err := v.wrapRoot(kind, client, name, secret)
	if err != nil {
		return rootKey{}, err
	}
	_, server, _ := v.roots.get(kind, client)
	row, err := v.keys.MakeRoot(ctx, made)
	if err != nil {
		return rootKey{}, err
	}
	return v.holdRoot(RootKey{kind, client, row}, server)
}

// holdRoot keeps what the key table of a server said.
func (v *Vault) holdRoot(row RootKey, server int64) (rootKey, error) {
	if len(row.Wrapped) == 0 {
		return rootKey{}, ErrDeleted
	}
	secret, err := v.unwrapRoot(row)
	if err != nil {
		return rootKey{}, fmt.Errorf("%s of %q: %w", row.Kind, row.Client, err)
	}
	c, err := newCipher(secret)
	if err != nil {
		return rootKey{}, err
	}
	key := rootKey{row.ID, secret, c}
	v.roots.put(row.Kind, row.Client, key, server, v.Now())
	return key, nil
}

func (v *Vault) unwrapRoot(row RootKey) ([]byte, error) {
	with, err := v.master.cipher(row.Under)
	if err != nil {
		return nil, err
	}
	secret, err := unwrap(with, row.Wrapped, row.bound())
	if err != nil {
		return nil, fmt.Errorf("master key %q is another one than the key was wrapped under, unless the key is damaged: %w", row.Under, err)
	}
	return secret, nil
}

func (v *Vault) wrapRoot(kind Kind, client id.Client, name string, secret []byte) (RootKey, error) {
	key := RootKey{kind, client, WrappedKey{ID: name, Under: v.master.active}}
	with, err := v.master.cipher(key.Under)
	if err != nil {
		return RootKey{}, err
	}
	key.Wrapped, err = wrap(v.entropy, with, secret, key.bound())
	return key, err
}

func (k RootKey) bound() []byte {
	return associate("kindred.root-key.1", string(k.Kind), string(k.Client), k.ID, k.Under)
}

// newKey draws a key and its id.
func newKey(entropy io.Reader) (name string, secret []byte, err error) {
	raw := make([]byte, 8+keySize)
	if _, err := io.ReadFull(entropy, raw); err != nil {
		return "", nil, fmt.Errorf("make a key: %w", err)
	}
	return hex.EncodeToString(raw[:8]), raw[8:], nil
}
