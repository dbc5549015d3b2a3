package auth

import (
	"cmp"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// Cost is what a new hash takes to compute, with one lane. The zero Cost
// stands for 19 MiB and two passes (OWASP's first choice for argon2id), about
// 20 ms of one core.
type Cost struct{ MemoryKiB, Passes uint32 }

const (
	hashLanes = 1
	saltBytes = 16
	hashBytes = 32
)

// Stored hashes may ask for no more than this.
const (
	// limit: edge | what a stored hash of a password may ask for | {maxMemoryKiB << 10 B}, {maxPasses} passes, {maxLanes} lanes, {maxPHC} bytes of text
	maxMemoryKiB = 64 * 1024
	maxPasses    = 10
	maxLanes     = 4
	maxPHC       = 256 // bytes of the string
)

// Passwords hashes and verifies passwords with argon2id. How many at a time is for
// the edge to say, which has a class for the operations that do (httpapi.Limits).
type Passwords struct {
	entropy io.Reader
	cost    Cost
}

// NewPasswords draws salts from entropy.
func NewPasswords(entropy io.Reader, cost Cost) *Passwords {
	return &Passwords{entropy, cmp.Or(cost, Cost{MemoryKiB: 19 << 10, Passes: 2})}
}

// Hash returns the PHC string of a password.
func (p *Passwords) Hash(password string) (string, error) {
	salt := make([]byte, saltBytes)
	if _, err := io.ReadFull(p.entropy, salt); err != nil {
		return "", fmt.Errorf("read entropy: %w", err)
	}
	h := p.blank(salt)
	h.hash = h.compute(password)
	return h.String(), nil
}

// Verify says whether a password belongs to a stored PHC string. With no
// stored string it takes as long and says no, so that the time does not tell
// whether an account exists. It fails, without naming the content, for a stored
// string that cannot be used.
func (p *Passwords) Verify(stored, password string) (bool, error) {
	if stored == "" {
		stored = p.blank(make([]byte, saltBytes)).String() // the hash that no password has
	}
	h, err := parsePHC(stored)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(h.compute(password), h.hash) == 1, nil
}

// phc is an argon2id hash with its parameters, written as
// $argon2id$v=19$m=19456,t=2,p=1$salt$hash (the PHC string format).
type phc struct {
	memoryKiB, passes uint32
	lanes             uint8
	salt, hash        []byte
}

// blank is a new hash that is yet to be computed.
func (p *Passwords) blank(salt []byte) phc {
	return phc{memoryKiB: p.cost.MemoryKiB, passes: p.cost.Passes, lanes: hashLanes, salt: salt, hash: make([]byte, hashBytes)}
}

// compute takes an é as one character, however a keyboard sends it (RFC 8265, section 4.2.2).
func (h phc) compute(password string) []byte {
	length := uint32(len(h.hash)) //nolint:gosec // at most 64
	return argon2.IDKey(norm.NFC.Bytes([]byte(password)), h.salt, h.passes, h.memoryKiB, h.lanes, length)
}

var errBadHash = errors.New("the stored password hash is not an argon2id PHC string within its limits")

func (h phc) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.memoryKiB, h.passes, h.lanes, b64.EncodeToString(h.salt), b64.EncodeToString(h.hash))
}

func parsePHC(s string) (phc, error) {
	parts := strings.Split(s, "$")
	if len(s) > maxPHC || len(parts) != 6 {
		return phc{}, errBadHash
	}
	var h phc
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memoryKiB, &h.passes, &h.lanes); err != nil {
		return phc{}, errBadHash
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	hash, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil {
		return phc{}, errBadHash
	}
	h.salt, h.hash = salt, hash
	switch {
	case h.String() != s, // another algorithm or version, or written otherwise
		h.lanes < 1 || h.lanes > maxLanes,
		h.passes < 1 || h.passes > maxPasses,
		h.memoryKiB < 8*uint32(h.lanes) || h.memoryKiB > maxMemoryKiB,
		len(salt) < 8 || len(salt) > 64,
		len(hash) < 16 || len(hash) > 64:
		return phc{}, errBadHash
	}
	return h, nil
}
