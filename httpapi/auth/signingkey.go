package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"kindred/httpapi"
)

// State is where a key stands in its life.
type State string

// The states of a key. Each follows from the key's times alone.
const (
	Next     State = "next"     // published, does not sign yet
	Active   State = "active"   // signs
	Retiring State = "retiring" // published until the last token that it signed has expired
)

// KeyInfo describes a signing key to an operator. RemovedAt is zero while no
// successor is planned.
type KeyInfo struct {
	ID          string // RFC 7638 thumbprint
	Algorithm   string // ES256 or EdDSA
	State       State
	ActivatesAt time.Time
	RemovedAt   time.Time
}

// keyRow is a row of signing_keys.
type keyRow struct {
	kid         string
	alg         jose.SignatureAlgorithm
	publicJWK   []byte
	sealedJWK   []byte // the private key, under the master key
	activatesAt time.Time
	retiresAt   *time.Time
	removedAt   *time.Time
}

// signingKey is a key ready for use.
type signingKey struct {
	keyRow
	signer jose.Signer
	public any         // an *ecdsa.PublicKey or ed25519.PublicKey
	jwk    httpapi.JWK // the public key as it is published
}

// generate makes a key pair whose private half is sealed. The times are the
// caller's to set.
func generate(ctx context.Context, alg jose.SignatureAlgorithm, entropy io.Reader, secrets Secrets) (keyRow, error) {
	var (
		private any
		err     error
	)
	switch alg {
	case jose.ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), entropy)
	case jose.EdDSA:
		_, private, err = ed25519.GenerateKey(entropy)
	default:
		return keyRow{}, fmt.Errorf("%s is not an algorithm of this service", alg)
	}
	if err != nil {
		return keyRow{}, fmt.Errorf("generate: %w", err)
	}
	jwk := jose.JSONWebKey{Key: private, Algorithm: string(alg), Use: "sig"}
	thumbprint, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return keyRow{}, fmt.Errorf("take the thumbprint: %w", err)
	}
	jwk.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)

	row := keyRow{kid: jwk.KeyID, alg: alg}
	if row.publicJWK, err = json.Marshal(jwk.Public()); err != nil {
		return keyRow{}, fmt.Errorf("encode the public key: %w", err)
	}
	plain, err := json.Marshal(jwk)
	if err != nil {
		return keyRow{}, fmt.Errorf("encode the private key: %w", err)
	}
	if row.sealedJWK, err = secrets.SealSecret(ctx, row.secret(), plain); err != nil {
		return keyRow{}, fmt.Errorf("seal the private key: %w", err)
	}
	return row, nil
}

// open makes a row ready for use.
func (r keyRow) open(ctx context.Context, secrets Secrets) (*signingKey, error) {
	plain, err := secrets.OpenSecret(ctx, r.secret(), r.sealedJWK)
	if err != nil {
		return nil, err
	}
	var private jose.JSONWebKey
	if err := json.Unmarshal(plain, &private); err != nil {
		return nil, errBadKey // the cause might quote the key
	}
	var published httpapi.JWK
	if err := json.Unmarshal(r.publicJWK, &published); err != nil {
		return nil, errBadKey
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: r.alg, Key: jose.JSONWebKey{Key: private.Key, KeyID: r.kid}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, errBadKey
	}
	return &signingKey{keyRow: r, signer: signer, public: private.Public().Key, jwk: published}, nil
}

var errBadKey = errors.New("the stored key is not a key of its algorithm")

// secret names the private key to [Secrets].
func (r keyRow) secret() string { return "signing_key/" + r.kid }

func (r keyRow) publishedAt(now time.Time) bool {
	return r.removedAt == nil || now.Before(*r.removedAt)
}

func (r keyRow) stateAt(now time.Time) State {
	switch {
	case now.Before(r.activatesAt):
		return Next
	case r.retiresAt == nil || now.Before(*r.retiresAt):
		return Active
	default:
		return Retiring
	}
}

func (r keyRow) info(now time.Time) KeyInfo {
	info := KeyInfo{ID: r.kid, Algorithm: string(r.alg), State: r.stateAt(now), ActivatesAt: r.activatesAt}
	if r.removedAt != nil {
		info.RemovedAt = *r.removedAt
	}
	return info
}
