package domain

import (
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Roles of a member.
const (
	RoleOwner   = "owner"
	RoleAdmin   = "admin"
	RoleViewer  = "viewer"
	RoleAuditor = "auditor"
)

// Member is somebody who can log in for a client.
type Member struct {
	ID    id.Member
	Role  string
	Added int64 // revision at which it was added
}

// Member returns a member, or nil.
func (c *Client) Member(member id.Member) *Member { return c.members[member] }

// Barred says whether a member was removed, or abandoned before it was added,
// since the stream's last snapshot: it cannot be added any more.
func (c *Client) Barred(member id.Member) bool { return c.barred[member] }

// AddMember lets somebody log in.
// Faults: add_again, client_unknown, invalid, not_in_sandbox, owner_only, too_many_members.
func (c *Client) AddMember(actor id.Member, added event.MemberAdded) ([]event.Event, error) {
	if err := c.exists(); err != nil {
		return nil, err
	}
	if err := c.hasMembers(); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]string{RoleOwner, RoleAdmin, RoleViewer, RoleAuditor}, added.Role):
		return nil, fault.NewInvalid(fault.Field{Pointer: "/role", Detail: "must be one of owner, admin, viewer, auditor"})
	case c.barred[added.Member]:
		return nil, ErrAddAgain()
	case added.Role == RoleOwner && !c.isOwner(actor):
		return nil, fault.New(fault.Forbidden, "owner_only", "Only an owner can add an owner.")
	case len(c.members) >= maxMembers:
		return nil, fault.New(fault.Conflict, "too_many_members", "A client has at most %d members. Remove one first.", maxMembers)
	}
	return []event.Event{added}, nil
}

// ErrAddAgain tells that a member was, or may have been, barred while it was added.
// Faults: add_again.
func ErrAddAgain() error {
	return fault.New(fault.Unavailable, "add_again", "Adding the member took too long. Please try again.")
}

// RemoveMember ends a membership and the member's API keys, but for those kept. At
// least one owner stays.
// Faults: last_owner, member_unknown, owner_only.
func (c *Client) RemoveMember(actor, member id.Member, kept ...id.Key) ([]event.Event, error) {
	m := c.members[member]
	if m == nil {
		return nil, fault.UnknownMember()
	}
	if m.Role == RoleOwner {
		if !c.isOwner(actor) {
			return nil, fault.New(fault.Forbidden, "owner_only", "Only an owner can remove an owner.")
		}
		if c.owners() == 1 {
			return nil, fault.New(fault.Conflict, "last_owner", "The last owner cannot be removed. Add another owner first.")
		}
	}
	return []event.Event{event.MemberRemoved{Member: member, RevokesKeys: true, KeptKeys: kept, Added: new(m.Added)}}, nil
}

// AbandonMember bars a member who was reserved an address but never added.
func (c *Client) AbandonMember(member id.Member) []event.Event {
	if !c.Lives() || c.members[member] != nil || c.barred[member] {
		return nil
	}
	return []event.Event{event.MemberAbandoned{Member: member}}
}

func (c *Client) isOwner(member id.Member) bool {
	m := c.members[member]
	return m != nil && m.Role == RoleOwner
}

func (c *Client) owners() (n int) {
	for _, m := range c.members {
		if m.Role == RoleOwner {
			n++
		}
	}
	return n
}

// maxEmail bounds an e-mail address, in bytes (RFC 5321, section 4.5.3.1.3).
// limit: client | e-mail address | {maxEmail} bytes | 422 `invalid`
const maxEmail = 254

// CheckEmail returns the address without surrounding space, or a fault that
// points at it.
// Faults: invalid.
func CheckEmail(email string) (string, error) {
	email = strings.TrimSpace(email)
	parsed, err := mail.ParseAddress(email)
	_, host, _ := strings.Cut(email, "@")
	if err != nil || parsed.Address != email || len(email) > maxEmail || host == "" ||
		strings.ContainsFunc(email, func(r rune) bool { return !isSeen(r) }) { // two that look the same would be two accounts
		return "", fault.NewInvalid(fault.Field{Pointer: "/email", Detail: "must be an e-mail address, such as ada@example.com"})
	}
	return email, nil
}

// EmailKey is the form in which addresses are compared: two that differ in case alone,
// or in how an é is written (RFC 6532, section 3.1), are one.
func EmailKey(email string) string {
	return norm.NFC.String(strings.ToLower(strings.TrimSpace(email)))
}
