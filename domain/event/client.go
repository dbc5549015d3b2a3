package event

import (
	"encoding/json"

	"kindred/domain/id"
)

// A client's stream holds the client and its members, so that what must hold
// among them (one owner at least) is decided in one place.
type (
	// ClientSignedUp opens the stream of a client.
	ClientSignedUp struct {
		fact
		Client id.Client `json:"client_id"`
		Name   string    `json:"name"`
		Slug   string    `json:"slug"`
	}
	// ClientAbandoned closes the stream of a client whose sign-up did not get
	// as far as its first event, so that it never can.
	ClientAbandoned struct {
		fact
		Client id.Client `json:"client_id"`
	}
	// ClientRenamed: the company has a new name; the slug stays.
	ClientRenamed struct {
		fact
		Client id.Client `json:"client_id"`
		Name   string    `json:"name"`
	}
	// ClientSettingsChanged carries all settings, as they are from now on.
	ClientSettingsChanged struct {
		fact
		Client   id.Client `json:"client_id"`
		Settings Settings  `json:"settings"`
	}
	// MemberAdded: somebody can log in.
	MemberAdded struct {
		fact
		Member       id.Member `json:"member_id"`
		Role         string    `json:"role"` // owner, admin or viewer
		Email        *Personal `json:"email"`
		PasswordHash *Personal `json:"password_hash"` // a PHC string
	}
	// MemberRemoved ends a membership, and the API keys that the member made
	// but for those kept.
	MemberRemoved struct {
		fact
		Member id.Member `json:"member_id"`
		// RevokesKeys is false in version 1: keys outlived the member then.
		RevokesKeys bool     `json:"revokes_api_keys"`
		KeptKeys    []id.Key `json:"kept_api_keys,omitempty"`
		Added       *int64   `json:"added,omitempty"` // revision of the MemberAdded; nil: not known
	}
	// MemberLoggedIn: somebody logged in from a network, which is said once an
	// hour. It stands in a stream of the member's own.
	MemberLoggedIn struct {
		fact
		Member  id.Member `json:"member_id"`
		Network *Personal `json:"network"` // an IPv4 address or an IPv6 /64
	}
	// MemberAbandoned bars a member whose e-mail address was reserved, but
	// who was never added.
	MemberAbandoned struct {
		fact
		Member id.Member `json:"member_id"`
	}
	// ClientSnapshotTaken says how the client stood when it was recorded: a reader
	// that comes backwards can stop here.
	ClientSnapshotTaken struct {
		fact
		Client   id.Client        `json:"client_id"`
		Revision int64            `json:"revision"` // of this event
		Name     string           `json:"name"`
		Slug     string           `json:"slug"`
		Settings Settings         `json:"settings"`
		Members  []MemberStanding `json:"members"` // by their ids
	}
)

// MemberStanding is a member as a snapshot shows it.
type MemberStanding struct {
	Member id.Member `json:"member_id"`
	Role   string    `json:"role"`
	Added  int64     `json:"added"` // revision of the MemberAdded
}

// Settings are what a client may choose for all of its users.
type Settings struct {
	// WebhookUserIDs says how deliveries name users: "user_id" (usr_…, the
	// default) or "external_id" (the client's own).
	WebhookUserIDs string `json:"webhook_user_ids"`
	// MatchingRequiresLayer refuses comparisons that name no consent layer.
	MatchingRequiresLayer bool `json:"matching_requires_layer"`
	// AutomaticMatching computes the matches of users who are created or change.
	AutomaticMatching AutomaticMatching `json:"automatic_matching"`
	// MatchRule is a rule of pairs that must hold of both, each as seen by the other, or
	// they are no match without a consent layer; "": none.
	MatchRule string `json:"match_rule,omitempty"`
}

// AutomaticMatching is whether it is wanted, for how many of a user's best
// matches, and from which score on.
type AutomaticMatching struct {
	On       bool    `json:"on"`
	K        int     `json:"k"`
	MinScore float64 `json:"min_score"`
}

// DefaultAutomaticMatching is what counts where nothing was chosen.
func DefaultAutomaticMatching() AutomaticMatching { return AutomaticMatching{K: 10, MinScore: 0.7} }

// upcastSettings1: version 1 knew no automatic matching.
func upcastSettings1(data json.RawMessage) (json.RawMessage, error) {
	var old struct {
		Client   id.Client      `json:"client_id"`
		Settings map[string]any `json:"settings"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	old.Settings["automatic_matching"] = DefaultAutomaticMatching()
	return json.Marshal(old)
}

func (e MemberAdded) Subject() string { return string(e.Member) }
func (e MemberAdded) Personal() []Field {
	return []Field{{"email", e.Email}, {"password_hash", e.PasswordHash}}
}

func (e MemberLoggedIn) Subject() string   { return string(e.Member) }
func (e MemberLoggedIn) Personal() []Field { return []Field{{"network", e.Network}} }

var clientEvents = []definition{
	define[ClientSignedUp]("client.signed_up", 1),
	define[ClientAbandoned]("client.abandoned", 1),
	define[ClientRenamed]("client.renamed", 1),
	define[ClientSettingsChanged]("client.settings_changed", 3, upcast(1, upcastSettings1)),
	define[MemberAdded]("member.added", 1),
	define[MemberRemoved]("member.removed", 2), // version 1 did not say where the member was added
	define[MemberLoggedIn]("member.logged_in", 1),
	define[MemberAbandoned]("member.abandoned", 1),
	define[ClientSnapshotTaken]("client.snapshot_taken", 1),
}
