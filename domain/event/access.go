package event

import (
	"time"

	"kindred/domain/id"
)

// A member's access stream holds the member's later passwords and sessions. Each of
// its events says how all of that stands, so that a reader reads one.
type (
	// MemberPasswordSet: the member has chosen another password, which ends all
	// tokens from before, and all sessions but one.
	MemberPasswordSet struct {
		fact
		Member       id.Member      `json:"member_id"`
		PasswordHash *Personal      `json:"password_hash"` // a PHC string
		Standing     AccessStanding `json:"standing"`
	}
	// SessionOpened: the member has logged in for longer than a token lives.
	SessionOpened struct {
		fact
		Member   id.Member      `json:"member_id"`
		Session  id.Session     `json:"session_id"`
		Ended    []id.Session   `json:"ended,omitempty"` // that it takes the place of
		Standing AccessStanding `json:"standing"`
	}
	// SessionEnded: a session was ended before its time.
	SessionEnded struct {
		fact
		Member   id.Member      `json:"member_id"`
		Session  id.Session     `json:"session_id"`
		Standing AccessStanding `json:"standing"`
	}
)

// AccessStanding is how a member gets in after an event.
type AccessStanding struct {
	Changes     int               `json:"password_changes"`       // of the password, so far
	PasswordSet *int64            `json:"password_set,omitempty"` // revision of the last MemberPasswordSet; nil: none
	Sessions    []SessionStanding `json:"sessions"`               // that were not ended, the oldest first
}

// SessionStanding is a session that was not ended.
type SessionStanding struct {
	Session  id.Session `json:"session_id"`
	Hash     []byte     `json:"hash"` // SHA-256 of its secret
	OpenedAt time.Time  `json:"opened_at"`
}

const (
	// SessionIdle is how long a session lasts that is not used.
	// limit: client | session that is not used | {SessionIdle} | 401 `invalid_session`
	SessionIdle = 12 * time.Hour
	// SessionLifetime is how long a session lasts.
	// limit: client | session | {SessionLifetime} | 401 `invalid_session`
	SessionLifetime = 7 * 24 * time.Hour
)

// Over says whether a session that was last seen at a time has ended by now.
func (s SessionStanding) Over(seen, now time.Time) bool {
	return !Recent(SessionLifetime, s.OpenedAt, now) || !Recent(SessionIdle, seen, now)
}

func (e MemberPasswordSet) Subject() string   { return string(e.Member) }
func (e MemberPasswordSet) Personal() []Field { return []Field{{"password_hash", e.PasswordHash}} }

var accessEvents = []definition{
	define[MemberPasswordSet]("member.password_set", 1),
	define[SessionOpened]("session.opened", 1),
	define[SessionEnded]("session.ended", 1),
}
