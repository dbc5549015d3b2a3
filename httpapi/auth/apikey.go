package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"kindred/domain/id"
	"kindred/httpapi"
)

// An API key is "kin_live_", in a sandbox "kin_test_", 30 random base62 characters (178 bits) and the
// CRC-32 (IEEE) of those 30 in 6 more: the scheme of GitHub's tokens, so that
// secret scanners can find keys and tell them from look-alikes.
const (
	keyPrefix   = httpapi.APIKeyPrefix
	testPrefix  = httpapi.TestKeyPrefix // as long
	keyRandom   = 30
	keyChecksum = 6
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Generate makes a new API key of a client from entropy.
func Generate(entropy io.Reader, of id.Client) (string, error) {
	random, err := randomText(entropy)
	if of.Sandbox() {
		return testPrefix + random, err
	}
	return keyPrefix + random, err
}

// randomText makes random characters and their checksum.
func randomText(entropy io.Reader) (string, error) {
	// A byte of 248 (4 * 62) or more is passed over, so that no character is
	// likelier than another. 128 bytes hold fewer than 30 usable ones with
	// a probability below 1e-100.
	var raw [128]byte
	if _, err := io.ReadFull(entropy, raw[:]); err != nil {
		return "", fmt.Errorf("read entropy: %w", err)
	}
	random := make([]byte, 0, keyRandom)
	for _, b := range raw {
		if b < 248 && len(random) < keyRandom {
			random = append(random, base62[b%62])
		}
	}
	if len(random) < keyRandom {
		return "", errors.New("make a secret: the entropy is not random")
	}
	return string(random) + checksum(string(random)), nil
}

// Check says whether key has the form of an API key and the right checksum:
// a typing error or a made-up key is told without asking the database.
func Check(key string) bool {
	body, found := strings.CutPrefix(key, keyPrefix)
	if !found {
		body, found = strings.CutPrefix(key, testPrefix)
	}
	return found && checked(body)
}

// checked says whether body is random characters and their checksum.
func checked(body string) bool {
	if len(body) != keyRandom+keyChecksum {
		return false
	}
	random := body[:keyRandom]
	for _, c := range []byte(random) {
		if strings.IndexByte(base62, c) < 0 {
			return false
		}
	}
	return body[keyRandom:] == checksum(random)
}

func checksum(random string) string {
	var digits [keyChecksum]byte
	sum := crc32.ChecksumIEEE([]byte(random)) // below 62^6
	for i := keyChecksum - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return string(digits[:])
}

// Hash is what is stored of an API key. A fast hash is enough: nobody can
// guess 178 random bits.
func Hash(key string) [32]byte { return sha256.Sum256([]byte(key)) }

// Fingerprint is what a person can compare with the key at hand: its first
// four and last four characters behind the prefix, as in
// "kin_live_h2Xk...9fQa". It is "" for what [Check] refuses.
func Fingerprint(key string) string {
	if !Check(key) {
		return ""
	}
	return key[:len(keyPrefix)+4] + "..." + key[len(key)-4:]
}
