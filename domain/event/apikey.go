package event

import "kindred/domain/id"

type (
	// APIKeyIssued: a long-lived credential exists. The raw key is known to
	// its holder alone.
	APIKeyIssued struct {
		fact
		Key         id.Key    `json:"key_id"`
		Name        string    `json:"name"`
		Hash        []byte    `json:"hash"`        // SHA-256 of the raw key
		Fingerprint string    `json:"fingerprint"` // what a person can compare
		Scopes      []string  `json:"scopes"`
		IssuedBy    id.Member `json:"issued_by"`
	}
	// APIKeyRevoked ends the key and every token that was exchanged for it.
	APIKeyRevoked struct {
		fact
		Key id.Key `json:"key_id"`
	}
)

var apiKeyEvents = []definition{
	define[APIKeyIssued]("api_key.issued", 1),
	define[APIKeyRevoked]("api_key.revoked", 1),
}
