package event

import (
	"encoding/json"
	"errors"
)

// Personal is a field that names or describes a person, or is a secret.
// A command fills Plain; the log seals it into Box before it is stored, and
// what is read back has the Box alone until somebody who may opens it.
// Plain is never marshalled.
type Personal struct {
	Plain []byte
	Box   *Box

	lifts []func([]byte) ([]byte, error)
}

// Box is a sealed field, as it is stored.
type Box struct {
	Key        string `json:"key"`        // which key of the subject sealed it
	Commitment []byte `json:"commitment"` // SHA-256(salt || plaintext)
	Cipher     []byte `json:"cipher"`     // nonce || AES-256-GCM(salt || plaintext)
}

// Private makes a personal field of a plaintext; nil stays nil.
func Private(plain []byte) *Personal {
	if plain == nil {
		return nil
	}
	return &Personal{Plain: plain}
}

// MarshalJSON writes the box. A field that was not sealed is refused, so that
// no plaintext can reach the log by mistake.
func (p *Personal) MarshalJSON() ([]byte, error) {
	if p.Box == nil {
		return nil, errors.New("a personal field was not sealed before it was stored")
	}
	return json.Marshal(p.Box)
}

// UnmarshalJSON reads the box.
func (p *Personal) UnmarshalJSON(data []byte) error {
	p.Box = new(Box)
	return json.Unmarshal(data, p.Box)
}

// Opened takes the plaintext of the box, as it was sealed, and lifts it to
// the newest shape.
func (p *Personal) Opened(plain []byte) ([]byte, error) {
	for _, lift := range p.lifts {
		var err error
		if plain, err = lift(plain); err != nil {
			return nil, err
		}
	}
	return plain, nil
}
