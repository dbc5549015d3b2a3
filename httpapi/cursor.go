package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"kindred/domain/fault"
	"kindred/domain/id"
)

// Cursors writes and reads the places where a list goes on. A cursor holds good
// for one client and one list only.
type Cursors struct {
	Key []byte // 32 bytes, the same on every replica
}

const cursorMAC = 16 // bytes of the HMAC-SHA256 that a cursor carries

// Encode makes the cursor that stands for position in a list. The list's name
// should hold its filters too.
func (c Cursors) Encode(client id.Client, list, position string) string {
	return base64.RawURLEncoding.EncodeToString(append(c.mac(client, list, position), position...))
}

// Decode returns the position that a cursor stands for. It refuses, with a
// fault of kind Unreadable, what Encode did not make for this client and list.
// Faults: bad_cursor.
func (c Cursors) Decode(client id.Client, list, cursor string) (position string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err == nil && len(raw) >= cursorMAC {
		position = string(raw[cursorMAC:])
		if hmac.Equal(raw[:cursorMAC], c.mac(client, list, position)) {
			return position, nil
		}
	}
	return "", fault.New(fault.Unreadable, "bad_cursor",
		"The cursor is not one of this list. Pass next_cursor as it was, with the same filters.")
}

func (c Cursors) mac(client id.Client, list, position string) []byte {
	return keyedHash(c.Key, string(client), list, position)[:cursorMAC]
}

// keyedHash is the HMAC-SHA256 over the length-prefixed parts.
func keyedHash[T string | []byte](key []byte, parts ...T) []byte {
	h := hmac.New(sha256.New, key)
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}
