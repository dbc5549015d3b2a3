package domain

import (
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

const (
	// limit: client | sandboxes of a client | {maxSandboxes} | 409 `too_many_sandboxes`
	maxSandboxes = 10 // at one time
	// limit: client | time after which a sandbox deletes itself | {minSandboxLife} to {maxSandboxLife} | 422 `invalid`
	minSandboxLife = time.Minute
	maxSandboxLife = 365 * 24 * time.Hour
	// limit: client | clock of a sandbox ahead of the machine's | {maxClockAhead} | 422 `invalid`
	maxClockAhead = 10 * 365 * 24 * time.Hour
)

// Sandboxes is the fold of the stream that says which sandboxes stand beside a client.
// Its last event says all.
type Sandboxes struct{ Standing []event.SandboxStanding }

// Apply folds an event.
func (s *Sandboxes) Apply(e event.Event) {
	switch e := e.(type) {
	case event.SandboxAdded:
		s.Standing = e.Standing
	case event.SandboxRemoved:
		s.Standing = e.Standing
	}
}

// Get returns a sandbox.
// Faults: sandbox_unknown.
func (s *Sandboxes) Get(sandbox id.Client) (event.SandboxStanding, error) {
	if i := s.at(sandbox); i >= 0 {
		return s.Standing[i], nil
	}
	return event.SandboxStanding{}, fault.UnknownSandbox()
}

func (s *Sandboxes) at(sandbox id.Client) int {
	return slices.IndexFunc(s.Standing, func(one event.SandboxStanding) bool { return one.Sandbox == sandbox })
}

// Add takes a place for a sandbox, which is to live for a time; 0: until it is deleted.
// Faults: invalid, too_many_sandboxes.
func (s *Sandboxes) Add(sandbox id.Client, name string, life time.Duration, now time.Time) ([]event.Event, error) {
	if err := CheckName("/name", name); err != nil {
		return nil, err
	}
	if life != 0 && (life < minSandboxLife || life > maxSandboxLife) {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/expires_in", Detail: "must be 60 to 31536000 seconds"})
	}
	if len(s.Standing) >= maxSandboxes {
		return nil, fault.New(fault.Conflict, "too_many_sandboxes", "A client has at most %d sandboxes. Delete one first.", maxSandboxes)
	}
	one := event.SandboxStanding{Sandbox: sandbox, Name: name}
	if life != 0 {
		one.ExpiresAt = new(now.Add(life).UTC().Truncate(time.Second))
	}
	return []event.Event{event.SandboxAdded{
		Sandbox: sandbox, Name: name, ExpiresAt: one.ExpiresAt, Standing: append(slices.Clone(s.Standing), one),
	}}, nil
}

// Remove gives the place of a sandbox back, which was deleted. Doing it twice adds nothing.
func (s *Sandboxes) Remove(sandbox id.Client) []event.Event {
	at := s.at(sandbox)
	if at < 0 {
		return nil
	}
	return []event.Event{event.SandboxRemoved{Sandbox: sandbox, Standing: slices.Delete(slices.Clone(s.Standing), at, at+1)}}
}

// OpenSandbox opens a client that is a sandbox. Doing it twice adds nothing.
func (c *Client) OpenSandbox(parent *Client, of event.SandboxStanding) []event.Event {
	if c.ID != "" {
		return nil
	}
	// Slugs of companies have no two hyphens in a row: none is that of a sandbox.
	slug := parent.Slug + "--" + string(of.Sandbox)[len("cli_"):]
	return []event.Event{event.SandboxOpened{Client: of.Sandbox, Parent: parent.ID, Name: of.Name, Slug: slug}}
}

// hasMembers refuses what is about members where there are none.
func (c *Client) hasMembers() error {
	if c.ID.Sandbox() {
		return ErrNotInSandbox()
	}
	return nil
}

// ErrNotInSandbox says that something is done in the client beside which a sandbox stands.
// Faults: not_in_sandbox.
func ErrNotInSandbox() error {
	return fault.New(fault.Conflict, "not_in_sandbox",
		"A sandbox has no members, sessions and sandboxes of its own: those of the client beside which it stands count. Do this there.")
}

// Sandbox is the fold of a sandbox's own stream: its clock, and its end. Its last event
// says all.
type Sandbox struct {
	Ahead   time.Duration // of the machine's clock
	To      time.Time     // where its last move put it
	Deleted bool
}

// Apply folds an event.
func (s *Sandbox) Apply(e event.Event) {
	switch e := e.(type) {
	case event.ClockMoved:
		s.Ahead, s.To = e.Ahead(), e.To
	case event.ClientDeleted:
		s.Deleted = true
	}
}

// Delete ends the sandbox. Doing it twice adds nothing.
func (s *Sandbox) Delete(sandbox, parent id.Client) []event.Event {
	if s.Deleted {
		return nil
	}
	return []event.Event{event.ClientDeleted{Client: sandbox, Parent: parent}}
}

// Move moves the clock forward to a time; now is the machine's. To where it stands already,
// or where its last move has put it, adds nothing: of two callers who move it to the same
// time, one is a moment late.
// Faults: clock_backward, invalid, sandbox_only.
func (s *Sandbox) Move(client id.Client, to, now time.Time) ([]event.Event, error) {
	if !client.Sandbox() {
		return nil, fault.New(fault.Conflict, "sandbox_only", "Only the clock of a sandbox can be moved, and this client is none. Make one with POST /api/v1/clients/%s/sandboxes.", client)
	}
	to = to.UTC().Truncate(time.Microsecond)
	now = now.UTC().Truncate(time.Microsecond)
	by := to.Sub(now.Add(s.Ahead)) // of a time that is too far ahead, the longest that there is
	switch {
	case by == 0, to.Equal(s.To):
		return nil, nil
	case by < 0:
		return nil, fault.New(fault.Conflict, "clock_backward", "The clock says %s. It can be moved forward only.", now.Add(s.Ahead).Format(time.RFC3339))
	case to.Sub(now) > maxClockAhead:
		return nil, fault.NewInvalid(fault.Field{Pointer: "/to", Detail: "must be within 10 years from now"})
	}
	return []event.Event{event.ClockMoved{
		Client: client, To: to, MovedMicros: by.Microseconds(), AheadMicros: (s.Ahead + by).Microseconds(),
	}}, nil
}
