package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	keySize   = 32 // AES-256
	nonceSize = 12 // NIST SP 800-38D
	saltSize  = 32
	tagSize   = 16
)

func newCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// associate joins what a ciphertext is bound to: each part behind its length
// as 8 bytes big-endian, so that no two lists of parts give the same bytes.
func associate(parts ...string) []byte {
	size := 0
	for _, p := range parts {
		size += 8 + len(p)
	}
	joined := make([]byte, 0, size)
	for _, p := range parts {
		joined = binary.BigEndian.AppendUint64(joined, uint64(len(p)))
		joined = append(joined, p...)
	}
	return joined
}

// wrap makes nonce || AES-256-GCM(plain).
func wrap(entropy io.Reader, with cipher.AEAD, plain, bound []byte) ([]byte, error) {
	out := make([]byte, nonceSize, nonceSize+len(plain)+tagSize)
	if _, err := io.ReadFull(entropy, out); err != nil {
		return nil, fmt.Errorf("read entropy: %w", err)
	}
	return with.Seal(out, out, plain, bound), nil
}

// unwrap opens what wrap made.
func unwrap(with cipher.AEAD, wrapped, bound []byte) ([]byte, error) {
	if len(wrapped) < nonceSize+tagSize {
		return nil, ErrRefused
	}
	plain, err := with.Open(nil, wrapped[:nonceSize], wrapped[nonceSize:], bound)
	if err != nil {
		return nil, ErrRefused
	}
	return plain, nil
}
