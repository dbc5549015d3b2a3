package seal

import (
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// MasterKeys open every root key; the active one wraps new ones. They are
// configured and never stored.
type MasterKeys struct {
	active  string
	ciphers map[string]cipher.AEAD
}

// String names the active key and tells no secret.
func (m MasterKeys) String() string { return "master key " + m.active }

// GoString is String.
func (m MasterKeys) GoString() string { return m.String() }

var masterID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ParseMasterKeys reads "id:base64[,id:base64…]", 32 bytes each; the first is
// active. Errors name a key by its place in the list, and quote nothing.
func ParseMasterKeys(text string) (MasterKeys, error) {
	m := MasterKeys{ciphers: map[string]cipher.AEAD{}}
	for i, entry := range strings.Split(strings.TrimSpace(text), ",") {
		name, encoded, found := strings.Cut(strings.TrimSpace(entry), ":")
		if !found || !masterID.MatchString(name) {
			return MasterKeys{}, fmt.Errorf(
				"master key %d: want id:base64, the id of letters, digits, dots, underscores and hyphens", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != keySize {
			return MasterKeys{}, fmt.Errorf("master key %d: want %d bytes in base64 after the id", i+1, keySize)
		}
		if _, twice := m.ciphers[name]; twice {
			return MasterKeys{}, fmt.Errorf("master key %d: its id occurs twice", i+1)
		}
		if m.ciphers[name], err = newCipher(key); err != nil {
			return MasterKeys{}, err
		}
		if i == 0 {
			m.active = name
		}
	}
	return m, nil
}

// GenerateMasterKey makes a new master key, as ParseMasterKeys reads it.
func GenerateMasterKey(entropy io.Reader) (string, error) {
	raw := make([]byte, 4+keySize)
	if _, err := io.ReadFull(entropy, raw); err != nil {
		return "", fmt.Errorf("make a master key: %w", err)
	}
	return fmt.Sprintf("m%x:%s", raw[:4], base64.StdEncoding.EncodeToString(raw[4:])), nil
}

// cipher returns the cipher of a master key.
func (m MasterKeys) cipher(name string) (cipher.AEAD, error) {
	c, found := m.ciphers[name]
	if !found {
		return nil, fmt.Errorf("%w: keys are wrapped under master key %q, which is not configured; add it to the list",
			ErrMaster, name)
	}
	return c, nil
}

// ErrMaster: a master key is not configured here.
var ErrMaster = errors.New("a master key is missing")
