package domain

import (
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Holder is for whom a claim stands: a client, and for an e-mail address the
// member.
type Holder struct {
	Client id.Client
	Member id.Member
}

// Claim is the fold of a claim's stream, or of its last event, which says all: who
// holds an address or a slug.
type Claim struct {
	Holder    Holder
	Held      bool
	Confirmed bool
}

// Apply folds an event.
func (c *Claim) Apply(e event.Event) {
	switch e := e.(type) {
	case event.Reserved:
		*c = Claim{Holder: Holder{e.Client, e.Member}, Held: true}
	case event.Confirmed:
		*c = Claim{Holder: Holder{e.Client, e.Member}, Held: true, Confirmed: true}
	case event.Released:
		*c = Claim{}
	}
}

// Reserve takes what is free. Reserving again for the same holder adds nothing.
// Faults: already_claimed.
func (c *Claim) Reserve(h Holder) ([]event.Event, error) {
	switch {
	case c.Held && c.Holder == h:
		return nil, nil
	case c.Held:
		return nil, fault.New(fault.Conflict, "already_claimed", "It is taken.")
	}
	return []event.Event{event.Reserved{Client: h.Client, Member: h.Member}}, nil
}

// Confirm makes a reservation of h final.
func (c *Claim) Confirm(h Holder) []event.Event {
	if !c.Held || c.Holder != h || c.Confirmed {
		return nil
	}
	return []event.Event{event.Confirmed{Client: h.Client, Member: h.Member}}
}

// Release frees what h holds.
func (c *Claim) Release(h Holder) []event.Event {
	if !c.Held || c.Holder != h {
		return nil
	}
	return []event.Event{event.Released{Client: h.Client, Member: h.Member}}
}
