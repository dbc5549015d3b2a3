package audit

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"kindred/domain/id"
)

// MarshalText writes the hash in hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return errors.New("a hash has 64 hexadecimal digits")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Head says what the tree of a client was at a time. It is signed as a JWS
// (RFC 7515, compact, EdDSA) of type headType.
type Head struct {
	Client   id.Client `json:"client"`
	Size     int64     `json:"size"` // events
	Root     Hash      `json:"root"`
	SignedAt time.Time `json:"signed_at"`
}

const headType = "kindred-head"

// Key signs heads.
type Key struct {
	ID      string // RFC 7638 thumbprint
	private ed25519.PrivateKey
}

// NewKey makes a key.
func NewKey(entropy io.Reader) (Key, error) {
	_, private, err := ed25519.GenerateKey(entropy)
	if err != nil {
		return Key{}, fmt.Errorf("generate an audit key: %w", err)
	}
	return keyOf(private)
}

// KeyFromSeed opens a key from what Seed returned.
func KeyFromSeed(seed []byte) (Key, error) {
	if len(seed) != ed25519.SeedSize {
		return Key{}, errors.New("this is not an audit key")
	}
	return keyOf(ed25519.NewKeyFromSeed(seed))
}

func keyOf(private ed25519.PrivateKey) (Key, error) {
	thumbprint, err := (&jose.JSONWebKey{Key: private.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return Key{}, fmt.Errorf("name an audit key: %w", err)
	}
	return Key{ID: base64.RawURLEncoding.EncodeToString(thumbprint), private: private}, nil
}

// Seed is the secret that the key follows from.
func (k Key) Seed() []byte { return k.private.Seed() }

// Public is the key as it is published: a JWK.
func (k Key) Public() ([]byte, error) {
	return json.Marshal(jose.JSONWebKey{Key: k.private.Public(), KeyID: k.ID, Algorithm: string(jose.EdDSA), Use: "sig"})
}

// Sign signs a head.
func (k Key) Sign(h Head) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: k.private, KeyID: k.ID},
	}, (&jose.SignerOptions{}).WithType(headType))
	if err != nil {
		return "", fmt.Errorf("sign a head: %w", err)
	}
	payload, err := json.Marshal(h)
	if err != nil {
		return "", fmt.Errorf("encode a head: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign a head: %w", err)
	}
	return signed.CompactSerialize()
}

// Keys verify heads: a JSON Web Key Set.
type Keys struct{ set jose.JSONWebKeySet }

// ParseKeys reads a JSON Web Key Set (RFC 7517).
func ParseKeys(jwks []byte) (Keys, error) {
	var k Keys
	if err := json.Unmarshal(jwks, &k.set); err != nil {
		return k, fmt.Errorf("read the audit keys: %w", err)
	}
	if len(k.set.Keys) == 0 {
		return k, errors.New("read the audit keys: there is none")
	}
	return k, nil
}

// ErrHead: a head is not one, or was not signed by a known key.
var ErrHead = errors.New("the head was not signed by a known audit key")

// Verify reads a signed head.
func (k Keys) Verify(signed string) (Head, error) {
	jws, err := jose.ParseSignedCompact(signed, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return Head{}, fmt.Errorf("%w: it is no JWS", ErrHead)
	}
	header := jws.Signatures[0].Protected
	if header.ExtraHeaders[jose.HeaderType] != headType {
		return Head{}, fmt.Errorf("%w: it is of another type", ErrHead)
	}
	for _, key := range k.set.Key(header.KeyID) {
		if payload, err := jws.Verify(key.Key); err == nil {
			var h Head
			if err := json.Unmarshal(payload, &h); err != nil {
				return Head{}, fmt.Errorf("%w: %w", ErrHead, err)
			}
			return h, nil
		}
	}
	return Head{}, ErrHead
}
