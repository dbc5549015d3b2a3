package event

import (
	"time"

	"kindred/domain/id"
)

// A client's stream of sandboxes says which stand beside it: each of its events all of
// them, so that a reader reads one. The clock of a sandbox, and its end, stand in a
// stream of the sandbox's own, of which the last event says all. The end of a client that is
// none stands at the end of the stream of the client itself.
type (
	// SandboxAdded reserves a place for a sandbox beside the client.
	SandboxAdded struct {
		fact
		Sandbox   id.Client         `json:"sandbox_id"`
		Name      string            `json:"name"`
		ExpiresAt *time.Time        `json:"expires_at,omitempty"` // when it is deleted; nil: when somebody asks for it
		Standing  []SandboxStanding `json:"standing"`
	}
	// SandboxRemoved gives the place back, once the sandbox was deleted.
	SandboxRemoved struct {
		fact
		Sandbox  id.Client         `json:"sandbox_id"`
		Standing []SandboxStanding `json:"standing"`
	}
	// SandboxOpened opens the stream of a client that is a sandbox.
	SandboxOpened struct {
		fact
		Client id.Client `json:"client_id"`
		Parent id.Client `json:"parent_id"` // beside which it stands
		Name   string    `json:"name"`
		Slug   string    `json:"slug"`
	}
	// ClockMoved: the clock of a sandbox is ahead of the machine's from now on.
	ClockMoved struct {
		fact
		Client      id.Client `json:"client_id"`
		To          time.Time `json:"to"`
		MovedMicros int64     `json:"moved_us"` // by how much
		AheadMicros int64     `json:"ahead_us"` // of the machine's, after all moves
	}
	// ClientDeleted: the client is over. Nothing is recorded of it any more but what was on its
	// way, and that what it had claimed is free. The keys of everything in it are destroyed.
	ClientDeleted struct {
		fact
		Client id.Client `json:"client_id"`
		Parent id.Client `json:"parent_id,omitempty"` // of a sandbox: beside which it stood
	}
)

// SandboxStanding is a sandbox that was not deleted.
type SandboxStanding struct {
	Sandbox   id.Client  `json:"sandbox_id"`
	Name      string     `json:"name"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Ahead is how far the clock is ahead of the machine's.
func (e ClockMoved) Ahead() time.Duration { return time.Duration(e.AheadMicros) * time.Microsecond }

var sandboxEvents = []definition{
	define[SandboxAdded]("sandbox.added", 1),
	define[SandboxRemoved]("sandbox.removed", 1),
	define[SandboxOpened]("sandbox.opened", 1),
	define[ClockMoved]("client.clock_moved", 1),
	define[ClientDeleted]("client.deleted", 1),
}
