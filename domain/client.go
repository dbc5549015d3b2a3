package domain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// What a new client is, by docs/contract.md#what-a-client-is.
const (
	ClientStatus = "active"
	ClientTier   = "graph"
)

// Bounds of a client.
const (
	// limit: client | name of the company, a sandbox, an API key, a consent layer, a segment or a campaign | {maxName} characters, a slug {maxSlug} | 422 `invalid`
	maxName = 200 // characters
	// limit: client | members | {maxMembers} | 409 `too_many_members`
	maxMembers = 1_000 // at one time

	// limit: client | automatic matches of a user | {maxAutomaticMatches} | 422 `invalid`
	maxAutomaticMatches = 100 // of a user
)

// Client is the fold of a client's stream: the company and its members.
type Client struct {
	ID        id.Client
	Name      string
	Slug      string
	Settings  event.Settings
	Abandoned bool // it was never signed up, and cannot be any more
	Deleted   bool // and has no members any more

	members map[id.Member]*Member
	barred  map[id.Member]bool // since the last snapshot
	length  int64              // of the stream, in events
}

// Apply folds an event.
func (c *Client) Apply(e event.Event) {
	switch e := e.(type) {
	case event.ClientSignedUp:
		c.open(e.Client, e.Name, e.Slug)
	case event.SandboxOpened:
		c.open(e.Client, e.Name, e.Slug)
	case event.ClientAbandoned:
		c.Abandoned = true
	case event.ClientDeleted:
		c.Deleted, c.members = true, map[id.Member]*Member{}
	case event.ClientRenamed:
		c.Name = e.Name
	case event.ClientSettingsChanged:
		c.Settings = e.Settings
	case event.MemberAdded:
		c.members[e.Member] = &Member{ID: e.Member, Role: e.Role, Added: c.length}
	case event.MemberRemoved:
		delete(c.members, e.Member)
		c.barred[e.Member] = true
	case event.MemberAbandoned:
		c.barred[e.Member] = true
	case event.ClientSnapshotTaken:
		*c = Client{
			ID: e.Client, Name: e.Name, Slug: e.Slug, Settings: e.Settings, length: e.Revision,
			members: map[id.Member]*Member{}, barred: map[id.Member]bool{},
		}
		for _, m := range e.Members {
			c.members[m.Member] = &Member{ID: m.Member, Role: m.Role, Added: m.Added}
		}
	}
	c.length++
}

func (c *Client) open(client id.Client, name, slug string) {
	c.ID, c.Name, c.Slug, c.Settings = client, name, slug, DefaultSettings()
	c.members, c.barred = map[id.Member]*Member{}, map[id.Member]bool{}
}

// Snapshot is how the client stands, for the end of its stream; nil where there
// is none.
func (c *Client) Snapshot() event.Event {
	if c.ID == "" {
		return nil
	}
	taken := event.ClientSnapshotTaken{Client: c.ID, Revision: c.length, Name: c.Name, Slug: c.Slug, Settings: c.Settings}
	for _, member := range slices.Sorted(maps.Keys(c.members)) {
		m := c.members[member]
		taken.Members = append(taken.Members, event.MemberStanding{Member: m.ID, Role: m.Role, Added: m.Added})
	}
	return taken
}

// DefaultSettings are those of a client that has chosen none.
func DefaultSettings() event.Settings {
	return event.Settings{WebhookUserIDs: "user_id", AutomaticMatching: event.DefaultAutomaticMatching()}
}

// SignUp opens a client with its owner.
// Faults: sign_up_again.
func (c *Client) SignUp(client id.Client, name, slug string, owner event.MemberAdded) ([]event.Event, error) {
	if c.Abandoned || c.ID != "" {
		return nil, fault.New(fault.Unavailable, "sign_up_again", "The sign-up took too long. Please sign up again.")
	}
	owner.Role = RoleOwner
	return []event.Event{event.ClientSignedUp{Client: client, Name: name, Slug: slug}, owner}, nil
}

// Abandon closes a stream in which nothing was signed up.
func (c *Client) Abandon(client id.Client) []event.Event {
	if c.ID != "" || c.Abandoned {
		return nil
	}
	return []event.Event{event.ClientAbandoned{Client: client}}
}

// SettingsChange is a partial update; what is nil stays.
type SettingsChange struct {
	WebhookUserIDs *string
	RequiresLayer  *bool // of matching
	Automatic      *bool
	K              *int
	MinScore       *float64
	MatchRule      *string // of pairs, checked before; "": none
}

func (s SettingsChange) of(settings event.Settings) (event.Settings, error) {
	set(&settings.WebhookUserIDs, s.WebhookUserIDs)
	set(&settings.MatchingRequiresLayer, s.RequiresLayer)
	set(&settings.AutomaticMatching.On, s.Automatic)
	set(&settings.AutomaticMatching.K, s.K)
	set(&settings.AutomaticMatching.MinScore, s.MinScore)
	set(&settings.MatchRule, s.MatchRule)
	var wrong []fault.Field
	if !slices.Contains([]string{"user_id", "external_id"}, settings.WebhookUserIDs) {
		wrong = append(wrong, fault.Field{Pointer: "/settings/webhook_user_ids", Detail: "must be user_id or external_id"})
	}
	if k := settings.AutomaticMatching.K; k < 1 || k > maxAutomaticMatches {
		wrong = append(wrong, fault.Field{Pointer: "/settings/automatic_matching/k", Detail: "must be 1 to 100"})
	}
	if s := settings.AutomaticMatching.MinScore; !(s >= 0 && s <= 1) {
		wrong = append(wrong, fault.Field{Pointer: "/settings/automatic_matching/min_score", Detail: "must be 0 to 1"})
	}
	if settings.MatchingRequiresLayer && settings.AutomaticMatching.On {
		wrong = append(wrong, fault.Field{
			Pointer: "/settings/matching_requires_layer",
			Detail:  "cannot be together with automatic_matching, which compares without a consent layer",
		})
	}
	if len(wrong) > 0 {
		return settings, fault.NewInvalid(wrong...)
	}
	return settings, nil
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// rename sets a name where one is given, and refuses what is none.
func rename(field, name *string) error {
	if name == nil {
		return nil
	}
	*field = *name
	return CheckName("/name", *name)
}

// Change renames the client and changes its settings, each where given.
// Faults: client_unknown, invalid.
func (c *Client) Change(name *string, change SettingsChange) ([]event.Event, error) {
	if err := c.exists(); err != nil {
		return nil, err
	}
	var events []event.Event
	if name != nil {
		if err := CheckName("/name", *name); err != nil {
			return nil, err
		}
		if *name != c.Name {
			events = append(events, event.ClientRenamed{Client: c.ID, Name: *name})
		}
	}
	settings, err := change.of(c.Settings)
	if err != nil {
		return nil, err
	}
	if settings != c.Settings {
		events = append(events, event.ClientSettingsChanged{Client: c.ID, Settings: settings})
	}
	return events, nil
}

func (c *Client) exists() error {
	if !c.Lives() {
		return fault.UnknownClient()
	}
	return nil
}

// Lives says whether the client was signed up, or opened, and not deleted since.
func (c *Client) Lives() bool { return c.ID != "" && !c.Deleted }

// Delete ends the client, of which a sandbox is none. Doing it twice adds nothing.
// Faults: client_unknown, not_in_sandbox.
func (c *Client) Delete() ([]event.Event, error) {
	if c.Deleted {
		return nil, nil
	}
	if err := c.exists(); err != nil {
		return nil, err
	}
	if err := c.hasMembers(); err != nil {
		return nil, err
	}
	return []event.Event{event.ClientDeleted{Client: c.ID}}, nil
}

// CheckName refuses a name in which nobody sees anything, or too much; pointer says where in
// the request it stood.
// Faults: invalid.
func CheckName(pointer, name string) error {
	if wrong := wrongName(name); wrong != "" {
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: wrong})
	}
	return nil
}

// blankBraille is a sign of Braille without a dot, which Unicode takes for a symbol.
const blankBraille = '\u2800'

// isSeen tells what leaves ink from spaces and from what shows nothing, such as U+200B.
func isSeen(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != blankBraille &&
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// wrongName says what is wrong with a name; empty: nothing.
func wrongName(name string) string {
	switch {
	case !strings.ContainsFunc(name, isSeen):
		return "must not be empty"
	case len([]rune(name)) > maxName:
		return fmt.Sprintf("must have at most %d characters", maxName)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "must not hold control characters"
	}
	return ""
}

// maxSlug bounds a slug, in bytes, before a number is added to it.
const maxSlug = 48

// Slug derives a slug from a company's name: lower-case letters, without their accents, and
// digits of ASCII with single hyphens between. A name without any gives "client".
func Slug(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range norm.NFD.String(strings.ToLower(name)) {
		if unicode.Is(unicode.Mn, r) {
			continue
		}
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('-')
			gap = false
		}
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "client"
	}
	return strings.TrimRight(b.String()[:min(b.Len(), maxSlug)], "-")
}
