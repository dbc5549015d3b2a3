// Package auth answers two questions: who is calling, and may they have a
// token. A token that it accepts was signed by a key of this service, has not
// expired, and stands for an API key or a member that was not revoked more
// than a second ago; where it cannot know, it says so instead of guessing.
//
// Servers exchange an API key for a token signed with ES256; members log in
// with a password for one signed with EdDSA. Both kinds verify against the
// published key set alone.
package auth

import (
	"context"
	"time"

	"kindred/domain/id"
)

// Skew is how far the clocks of two replicas may be apart.
const Skew = time.Minute

// Account is a member that can log in.
type Account struct {
	Client       id.Client
	Home         id.Client // of which it is a member: Client, or that beside which the sandbox stands
	ClientName   string
	ClientSlug   string
	Member       id.Member
	Email        string
	Role         string // owner, admin, viewer or auditor
	PasswordHash string // a PHC string
	// PasswordChanges is how often the password was changed.
	PasswordChanges int
}

// Accounts looks up members. Both methods answer a fault of kind Missing for
// an account that does not exist or was removed.
type Accounts interface {
	ByEmail(ctx context.Context, email string) (Account, error)
	ByMember(ctx context.Context, client id.Client, member id.Member) (Account, error)
	// LoggedIn notes that somebody has logged in from a network, in the history of
	// the client. It fails with a fault of kind Missing for a member who was removed.
	LoggedIn(ctx context.Context, account Account, network string) error
	// SetPassword records the PHC string of another password, and ends the member's
	// tokens and sessions but for one. It fails with a fault of kind Missing for a member
	// who was removed, or whose password was changed since account was looked up.
	SetPassword(ctx context.Context, account Account, hash string, keep id.Session) (kept SessionRecord, position string, err error)
}

// SessionRecord is a member's session.
type SessionRecord struct {
	Session   id.Session
	Client    id.Client
	Member    id.Member
	OpenedAt  time.Time
	SeenAt    time.Time // to 5 minutes
	ExpiresAt time.Time // at the latest
	Over      bool      // it has lasted too long, or was not used for too long
}

// Sessions keeps the sessions of members. Only hashes of their secrets are kept.
type Sessions interface {
	// Open opens a session whose secret has a [Hash]. It fails with a fault of kind
	// Missing for a member who was removed, or whose password was changed since account
	// was looked up.
	Open(ctx context.Context, account Account, hash [32]byte) (opened SessionRecord, position string, err error)
	// ByHash finds a session, as of all acknowledged writes; a fault of kind Missing when
	// there is none.
	ByHash(ctx context.Context, client id.Client, member id.Member, hash [32]byte) (SessionRecord, error)
	// NoteSeen notes that a session is used now, unless it was within 5 minutes.
	NoteSeen(ctx context.Context, session SessionRecord) error
}

// KeyRecord is what an API key stands for.
type KeyRecord struct {
	Key      id.Key
	Client   id.Client
	IssuedBy id.Member
	Scopes   []string
	Implied  []string // scopes that its tokens have beyond those
	Revoked  bool
	Expires  time.Time // zero: never
	LastUsed time.Time // the hour of its last exchange, as far as it was noted
}

// KeyLookup finds an API key by its [Hash], as of all acknowledged writes; a
// fault of kind Missing when there is none.
type KeyLookup interface {
	ByHash(ctx context.Context, hash [32]byte) (KeyRecord, error)
	// NoteUse notes that a key was exchanged in this hour.
	NoteUse(ctx context.Context, client id.Client, key id.Key) error
}

// RevocationSource tells what was revoked.
type RevocationSource interface {
	// Since returns what tokens go with (see [httpapi.Principal.Subjects]) whose
	// revocation was noted within a time until now, by the clock that notes them; they
	// may come more than once. The id of a client among them stands for more of the
	// client's, which only Revoked tells. Unless there are most, all that were
	// acknowledged before upTo are among those of this call and of earlier ones.
	// upTo is a reading of this process's own clock, taken before the source was
	// asked, so that no two clocks are compared.
	Since(ctx context.Context, within time.Duration, most int) (revoked []string, upTo time.Time, err error)
	// Revoked says whether any of a client's subjects was revoked, as of all that was
	// acknowledged.
	Revoked(ctx context.Context, client id.Client, subjects ...string) (bool, error)
}

// Secrets keeps small secrets under the service's master key. The name is
// bound to the secret: what was sealed under one cannot be opened under
// another.
type Secrets interface {
	SealSecret(ctx context.Context, name string, plain []byte) ([]byte, error)
	OpenSecret(ctx context.Context, name string, sealed []byte) ([]byte, error)
}
