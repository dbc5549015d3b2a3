package event

import "kindred/domain/id"

// A claim makes an e-mail address or a slug unique among all clients. Its
// stream is named by a keyed hash of what it claims.
type (
	// Reserved: nobody else can have it until it is released.
	Reserved struct {
		fact
		Client id.Client `json:"client_id"`
		Member id.Member `json:"member_id,omitempty"` // set for an address
	}
	// Confirmed: what it was reserved for has been recorded.
	Confirmed struct {
		fact
		Client id.Client `json:"client_id"`
		Member id.Member `json:"member_id,omitempty"`
	}
	// Released: it is free again.
	Released struct {
		fact
		Client id.Client `json:"client_id"`
		Member id.Member `json:"member_id,omitempty"`
	}
)

var claimEvents = []definition{
	define[Reserved]("claim.reserved", 1),
	define[Confirmed]("claim.confirmed", 1),
	define[Released]("claim.released", 1),
}
