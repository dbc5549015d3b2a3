package domain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

const (
	acme  id.Client  = "cli_00000000000000000000000001"
	other id.Client  = "cli_00000000000000000000000002"
	ada   id.Member  = "mem_00000000000000000000000001"
	bob   id.Member  = "mem_00000000000000000000000002"
	eve   id.Member  = "mem_00000000000000000000000003"
	key   id.Key     = "key_00000000000000000000000001"
	user  id.User    = "usr_00000000000000000000000001"
	hook  id.Webhook = "whk_00000000000000000000000001"
)

type aggregate[T any] interface {
	*T
	Apply(event.Event)
}

// story is a sentence about one decision: given these facts, when this is
// asked for, then these facts follow, or the fault with this code.
type story[A any] struct {
	given []event.Event
	when  func(A) ([]event.Event, error)
	then  []event.Event
	fault string
	at    string // the pointer of what is invalid
}

func tell[T any, A aggregate[T]](t *testing.T, stories map[string]story[A]) {
	t.Helper()
	for sentence, s := range stories {
		t.Run(sentence, func(t *testing.T) {
			a := A(new(T))
			for _, e := range s.given {
				a.Apply(e)
			}
			got, err := s.when(a)
			if s.fault != "" {
				f := fault.As(err)
				if f == nil || f.Code != s.fault || s.at != "" && (len(f.Fields) == 0 || f.Fields[0].Pointer != s.at) {
					t.Errorf("got %v, %v; want the fault %s %s", got, err, s.fault, s.at)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.then, got, facts()...); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// facts compares events by what they say.
func facts() []cmp.Option {
	return []cmp.Option{
		cmpopts.EquateEmpty(),
		cmpopts.IgnoreUnexported(
			event.ClientSignedUp{}, event.ClientAbandoned{}, event.ClientRenamed{}, event.ClientSettingsChanged{},
			event.MemberAdded{}, event.MemberRemoved{}, event.MemberAbandoned{}, event.Personal{},
			event.Reserved{}, event.Confirmed{}, event.Released{}, event.APIKeyIssued{}, event.APIKeyRevoked{},
			event.EndUserCreated{}, event.EndUserTraitsChanged{}, event.EndUserErased{},
			event.WebhookSubscribed{}, event.WebhookChanged{}, event.WebhookPaused{}, event.WebhookResumed{},
			event.WebhookSecretRotated{}, event.WebhookRemoved{},
			event.WebhookHeadersSet{}, event.WebhookControlsSet{}, event.WebhookDisabled{}, event.WebhookSnapshotTaken{},
			event.SandboxAdded{}, event.SandboxRemoved{}, event.SandboxOpened{}, event.ClockMoved{}, event.ClientDeleted{},
		),
	}
}

func private(s string) *event.Personal { return event.Private([]byte(s)) }

func signedUp(more ...event.Event) []event.Event {
	return append([]event.Event{
		event.ClientSignedUp{Client: acme, Name: "Acme", Slug: "acme"},
		event.MemberAdded{Member: ada, Role: domain.RoleOwner},
	}, more...)
}

func TestClient(t *testing.T) {
	type decide = func(*domain.Client) ([]event.Event, error)
	signUp := func(c *domain.Client) ([]event.Event, error) {
		return c.SignUp(acme, "Acme", "acme", event.MemberAdded{Member: ada, Role: "viewer"})
	}
	abandon := func(c *domain.Client) ([]event.Event, error) { return c.Abandon(acme), nil }
	rename := func(name string) decide {
		return func(c *domain.Client) ([]event.Event, error) { return c.Change(&name, domain.SettingsChange{}) }
	}
	set := func(ids string) decide {
		return func(c *domain.Client) ([]event.Event, error) {
			return c.Change(nil, domain.SettingsChange{WebhookUserIDs: &ids})
		}
	}
	external := event.ClientSettingsChanged{Client: acme, Settings: event.Settings{WebhookUserIDs: "external_id", AutomaticMatching: event.DefaultAutomaticMatching()}}
	matching := func(k int, minScore float64) decide {
		return func(c *domain.Client) ([]event.Event, error) {
			return c.Change(nil, domain.SettingsChange{Automatic: new(true), K: &k, MinScore: &minScore})
		}
	}
	automatic := event.ClientSettingsChanged{Client: acme, Settings: event.Settings{WebhookUserIDs: "user_id", AutomaticMatching: event.AutomaticMatching{On: true, K: 3, MinScore: 0.5}}}
	require := func(c *domain.Client) ([]event.Event, error) {
		return c.Change(nil, domain.SettingsChange{RequiresLayer: new(true)})
	}
	required := event.ClientSettingsChanged{Client: acme, Settings: event.Settings{
		WebhookUserIDs: "user_id", MatchingRequiresLayer: true, AutomaticMatching: event.DefaultAutomaticMatching(),
	}}
	tell(t, map[string]story[*domain.Client]{
		"matching may require a layer":                      {given: signedUp(), when: require, then: []event.Event{required}},
		"automatic matching names no layer":                 {given: signedUp(required), when: matching(3, 0.5), fault: "invalid", at: "/settings/matching_requires_layer"},
		"a layer is not required beside automatic matching": {given: signedUp(automatic), when: require, fault: "invalid", at: "/settings/matching_requires_layer"},
		"automatic matching is off until it is wanted":      {given: signedUp(), when: matching(3, 0.5), then: []event.Event{automatic}},
		"what it is wanted for stays when it is off": {given: signedUp(automatic), when: func(c *domain.Client) ([]event.Event, error) {
			return c.Change(nil, domain.SettingsChange{Automatic: new(false)})
		}, then: []event.Event{event.ClientSettingsChanged{Client: acme, Settings: event.Settings{WebhookUserIDs: "user_id", AutomaticMatching: event.AutomaticMatching{K: 3, MinScore: 0.5}}}}},
		"nobody has 101 automatic matches":               {given: signedUp(), when: matching(101, 0.5), fault: "invalid", at: "/settings/automatic_matching/k"},
		"nobody has no automatic matches":                {given: signedUp(), when: matching(0, 0.5), fault: "invalid", at: "/settings/automatic_matching/k"},
		"no score is above 1":                            {given: signedUp(), when: matching(1, 1.01), fault: "invalid", at: "/settings/automatic_matching/min_score"},
		"signing up makes the first member the owner":    {when: signUp, then: signedUp()},
		"signing up twice is refused":                    {given: signedUp(), when: signUp, fault: "sign_up_again"},
		"an abandoned sign-up cannot be finished":        {given: []event.Event{event.ClientAbandoned{Client: acme}}, when: signUp, fault: "sign_up_again"},
		"what was not signed up can be abandoned":        {when: abandon, then: []event.Event{event.ClientAbandoned{Client: acme}}},
		"abandoning twice adds nothing":                  {given: []event.Event{event.ClientAbandoned{Client: acme}}, when: abandon},
		"a client that is there is not abandoned":        {given: signedUp(), when: abandon},
		"a new name is recorded":                         {given: signedUp(), when: rename("Acme & Sons"), then: []event.Event{event.ClientRenamed{Client: acme, Name: "Acme & Sons"}}},
		"the same name adds nothing":                     {given: signedUp(), when: rename("Acme")},
		"an empty name is refused":                       {given: signedUp(), when: rename(" \t"), fault: "invalid", at: "/name"},
		"a name of 201 characters is refused":            {given: signedUp(), when: rename(strings.Repeat("ü", 201)), fault: "invalid", at: "/name"},
		"a name with a line break is refused":            {given: signedUp(), when: rename("Ac\nme"), fault: "invalid", at: "/name"},
		"nobody renames a client that is not there":      {when: rename("Acme"), fault: "client_unknown"},
		"other settings are recorded as a whole":         {given: signedUp(), when: set("external_id"), then: []event.Event{external}},
		"the default settings add nothing":               {given: signedUp(), when: set("user_id")},
		"the same settings add nothing":                  {given: signedUp(external), when: set("external_id")},
		"settings that say nothing known are refused":    {given: signedUp(), when: set("email"), fault: "invalid", at: "/settings/webhook_user_ids"},
		"settings go back to what they were before":      {given: signedUp(external), when: set("user_id"), then: []event.Event{event.ClientSettingsChanged{Client: acme, Settings: domain.DefaultSettings()}}},
		"no settings are changed where there is no one":  {when: set("external_id"), fault: "client_unknown"},
		"nothing asked for is nothing done":              {given: signedUp(), when: func(c *domain.Client) ([]event.Event, error) { return c.Change(nil, domain.SettingsChange{}) }},
		"a name of 200 characters of two bytes is right": {given: signedUp(), when: rename(strings.Repeat("ü", 200)), then: []event.Event{event.ClientRenamed{Client: acme, Name: strings.Repeat("ü", 200)}}},
	})
}

func TestMembers(t *testing.T) {
	add := func(actor, member id.Member, role string) func(*domain.Client) ([]event.Event, error) {
		return func(c *domain.Client) ([]event.Event, error) {
			return c.AddMember(actor, event.MemberAdded{Member: member, Role: role, Email: private("b@example.com")})
		}
	}
	added := func(member id.Member, role string) event.Event {
		return event.MemberAdded{Member: member, Role: role, Email: private("b@example.com")}
	}
	remove := func(actor, member id.Member) func(*domain.Client) ([]event.Event, error) {
		return func(c *domain.Client) ([]event.Event, error) { return c.RemoveMember(actor, member) }
	}
	abandon := func(member id.Member) func(*domain.Client) ([]event.Event, error) {
		return func(c *domain.Client) ([]event.Event, error) { return c.AbandonMember(member), nil }
	}
	removed := func(member id.Member) event.Event { return event.MemberRemoved{Member: member, RevokesKeys: true} }
	removedAt := func(member id.Member, added int64) event.Event {
		return event.MemberRemoved{Member: member, RevokesKeys: true, Added: &added}
	}
	// What signedUp, admin and owners stand for, and nothing before it.
	snapshot := event.ClientSnapshotTaken{Client: acme, Revision: 120, Members: []event.MemberStanding{
		{Member: ada, Role: domain.RoleOwner, Added: 1}, {Member: bob, Role: domain.RoleViewer, Added: 77},
	}}
	admin := signedUp(event.MemberAdded{Member: bob, Role: domain.RoleAdmin})
	owners := signedUp(event.MemberAdded{Member: bob, Role: domain.RoleOwner})
	full := signedUp()
	for i := range 999 {
		full = append(full, event.MemberAdded{Member: id.Next[id.Member](id.Derived("m", string(rune(i)))), Role: domain.RoleViewer})
	}
	tell(t, map[string]story[*domain.Client]{
		"an owner adds an owner":                         {given: signedUp(), when: add(ada, bob, "owner"), then: []event.Event{added(bob, "owner")}},
		"an admin adds a viewer":                         {given: admin, when: add(bob, eve, "viewer"), then: []event.Event{added(eve, "viewer")}},
		"an admin adds no owner":                         {given: admin, when: add(bob, eve, "owner"), fault: "owner_only"},
		"a role that is none is refused":                 {given: signedUp(), when: add(ada, bob, "king"), fault: "invalid", at: "/role"},
		"nobody is added where there is no client":       {when: add(ada, bob, "viewer"), fault: "client_unknown"},
		"a removed member is not added again":            {given: signedUp(added(bob, "viewer"), removed(bob)), when: add(ada, bob, "viewer"), fault: "add_again"},
		"an abandoned member is not added any more":      {given: signedUp(event.MemberAbandoned{Member: bob}), when: add(ada, bob, "viewer"), fault: "add_again"},
		"the 1,001st member is refused":                  {given: full, when: add(ada, bob, "viewer"), fault: "too_many_members"},
		"a removal makes room":                           {given: append(slices.Clip(full), removed(full[5].(event.MemberAdded).Member)), when: add(ada, bob, "viewer"), then: []event.Event{added(bob, "viewer")}},
		"an admin removes itself":                        {given: admin, when: remove(bob, bob), then: []event.Event{removedAt(bob, 2)}},
		"an admin removes no owner":                      {given: admin, when: remove(bob, ada), fault: "owner_only"},
		"one of two owners can be removed":               {given: owners, when: remove(bob, ada), then: []event.Event{removedAt(ada, 1)}},
		"the last owner stays":                           {given: admin, when: remove(ada, ada), fault: "last_owner"},
		"the last owner stays once the other was gone":   {given: append(slices.Clip(owners), removed(ada)), when: remove(bob, bob), fault: "last_owner"},
		"a removed owner acts as one no more":            {given: append(slices.Clip(owners), removed(bob)), when: remove(bob, ada), fault: "owner_only"},
		"who is not there is not removed":                {given: signedUp(), when: remove(ada, bob), fault: "member_unknown"},
		"nobody is removed where there is no client":     {when: remove(ada, bob), fault: "member_unknown"},
		"who was removed is not removed again":           {given: signedUp(added(bob, "viewer"), removed(bob)), when: remove(ada, bob), fault: "member_unknown"},
		"who was never added can be abandoned":           {given: signedUp(), when: abandon(bob), then: []event.Event{event.MemberAbandoned{Member: bob}}},
		"who was added is not abandoned":                 {given: admin, when: abandon(bob)},
		"who was removed is not abandoned":               {given: signedUp(added(bob, "viewer"), removed(bob)), when: abandon(bob)},
		"abandoning twice adds nothing":                  {given: signedUp(event.MemberAbandoned{Member: bob}), when: abandon(bob)},
		"a snapshot says where who is removed was added": {given: []event.Event{snapshot}, when: remove(ada, bob), then: []event.Event{removedAt(bob, 77)}},
		"a stream is counted on from a snapshot": {
			given: []event.Event{snapshot, added(eve, "viewer")}, when: remove(ada, eve), then: []event.Event{removedAt(eve, 121)},
		},
		"the last owner of a snapshot stays":         {given: []event.Event{snapshot}, when: remove(ada, ada), fault: "last_owner"},
		"no member of an abandoned client is barred": {given: []event.Event{event.ClientAbandoned{Client: acme}}, when: abandon(bob)},
	})
}

func TestClaim(t *testing.T) {
	mine, theirs := domain.Holder{Client: acme, Member: ada}, domain.Holder{Client: acme, Member: bob}
	reserved := event.Reserved{Client: acme, Member: ada}
	confirmed := event.Confirmed{Client: acme, Member: ada}
	released := event.Released{Client: acme, Member: ada}
	reserve := func(h domain.Holder) func(*domain.Claim) ([]event.Event, error) {
		return func(c *domain.Claim) ([]event.Event, error) { return c.Reserve(h) }
	}
	confirm := func(h domain.Holder) func(*domain.Claim) ([]event.Event, error) {
		return func(c *domain.Claim) ([]event.Event, error) { return c.Confirm(h), nil }
	}
	release := func(h domain.Holder) func(*domain.Claim) ([]event.Event, error) {
		return func(c *domain.Claim) ([]event.Event, error) { return c.Release(h), nil }
	}
	tell(t, map[string]story[*domain.Claim]{
		"what is free can be reserved":                    {when: reserve(mine), then: []event.Event{reserved}},
		"reserving twice adds nothing":                    {given: []event.Event{reserved}, when: reserve(mine)},
		"what another reserved is taken":                  {given: []event.Event{reserved}, when: reserve(theirs), fault: "already_claimed"},
		"what another client's member holds is taken":     {given: []event.Event{reserved}, when: reserve(domain.Holder{Client: other, Member: ada}), fault: "already_claimed"},
		"what was released is free":                       {given: []event.Event{reserved, confirmed, released}, when: reserve(theirs), then: []event.Event{event.Reserved{Client: acme, Member: bob}}},
		"who released it can reserve it anew":             {given: []event.Event{reserved, released}, when: reserve(mine), then: []event.Event{reserved}},
		"a reservation is confirmed":                      {given: []event.Event{reserved}, when: confirm(mine), then: []event.Event{confirmed}},
		"confirming twice adds nothing":                   {given: []event.Event{reserved, confirmed}, when: confirm(mine)},
		"nobody confirms what another holds":              {given: []event.Event{reserved}, when: confirm(theirs)},
		"a reservation that was released stays so":        {given: []event.Event{reserved, released}, when: confirm(mine)},
		"what is reserved anew is not confirmed yet":      {given: []event.Event{reserved, confirmed, released, reserved}, when: confirm(mine), then: []event.Event{confirmed}},
		"a reservation is released":                       {given: []event.Event{reserved}, when: release(mine), then: []event.Event{released}},
		"what was confirmed can be released":              {given: []event.Event{reserved, confirmed}, when: release(mine), then: []event.Event{released}},
		"releasing twice adds nothing":                    {given: []event.Event{reserved, released}, when: release(mine)},
		"nobody releases what another holds":              {given: []event.Event{reserved, confirmed}, when: release(theirs)},
		"what nobody holds cannot be confirmed":           {when: confirm(domain.Holder{})},
		"what nobody holds cannot be released":            {when: release(domain.Holder{})},
		"a late release of mine leaves the next holder's": {given: []event.Event{reserved, released, event.Reserved{Client: acme, Member: bob}}, when: release(mine)},
	})
}

func TestAPIKey(t *testing.T) {
	issue := func(name string, scopes ...string) func(*domain.APIKey) ([]event.Event, error) {
		return func(k *domain.APIKey) ([]event.Event, error) {
			return k.Issue(event.APIKeyIssued{Key: key, Name: name, Scopes: scopes}, time.Time{})
		}
	}
	expiring := func(after time.Duration) func(*domain.APIKey) ([]event.Event, error) {
		return func(k *domain.APIKey) ([]event.Event, error) {
			return k.Issue(event.APIKeyIssued{Key: key, Name: "n", ExpiresAt: at(after)}, noon)
		}
	}
	revoke := func(k *domain.APIKey) ([]event.Event, error) { return k.Revoke() }
	issued, revoked := event.APIKeyIssued{Key: key, Name: "n", Scopes: []string{"read", "write"}, Implied: []string{"webhooks"}}, event.APIKeyRevoked{Key: key}
	brief := issued
	brief.ExpiresAt = at(time.Second)
	tell(t, map[string]story[*domain.APIKey]{
		"a key reads, writes and manages webhooks unless told otherwise": {when: issue("n"), then: []event.Event{issued}},
		"a key has the scopes that were asked for":                       {when: issue("n", "erase", "admin", "read:user"), then: []event.Event{event.APIKeyIssued{Key: key, Name: "n", Scopes: []string{"erase", "admin", "read:user"}}}},
		"who only writes manages no webhooks":                            {when: issue("n", "write"), then: []event.Event{event.APIKeyIssued{Key: key, Name: "n", Scopes: []string{"write"}}}},
		"a key expires when it was asked to":                             {when: expiring(time.Second), then: []event.Event{brief}},
		"a key that has expired is not issued":                           {when: expiring(0), fault: "invalid", at: "/expires_at"},
		"a scope that is none is named":                                  {when: issue("n", "read", "root"), fault: "invalid", at: "/scopes/1"},
		"a key without a name is refused":                                {when: issue(""), fault: "invalid", at: "/name"},
		"a name of 201 characters is refused":                            {when: issue(strings.Repeat("ü", 201)), fault: "invalid", at: "/name"},
		"a key is revoked":                                               {given: []event.Event{issued}, when: revoke, then: []event.Event{revoked}},
		"revoking twice adds nothing":                                    {given: []event.Event{issued, revoked}, when: revoke},
		"a key that is not there is not revoked":                         {when: revoke, fault: "api_key_unknown"},
	})
}

func TestEndUser(t *testing.T) {
	create := func(traits *event.Personal) func(*domain.EndUser) ([]event.Event, error) {
		return func(u *domain.EndUser) ([]event.Event, error) {
			return u.Create(event.EndUserCreated{User: user, ExternalID: private("u1"), Traits: traits})
		}
	}
	change := func(old, traits string) func(*domain.EndUser) ([]event.Event, error) {
		return func(u *domain.EndUser) ([]event.Event, error) { return u.ChangeTraits([]byte(old), []byte(traits)) }
	}
	erase := func(u *domain.EndUser) ([]event.Event, error) { return u.Erase() }
	created, erased := event.EndUserCreated{User: user, ExternalID: private("u1"), Traits: private("{}")}, event.EndUserErased{User: user}
	tell(t, map[string]story[*domain.EndUser]{
		"a user is created":                          {when: create(private("{}")), then: []event.Event{created}},
		"a user without traits has none":             {when: create(nil), then: []event.Event{created}},
		"a user is created once":                     {given: []event.Event{created}, when: create(private("{}")), fault: "user_exists"},
		"traits that are no object are refused":      {when: create(private("[]")), fault: "invalid", at: "/traits"},
		"traits that are too large are refused":      {when: create(private("{" + strings.Repeat(" ", domain.MaxTraits))), fault: "traits_too_large", at: "/traits"},
		"traits change":                              {given: []event.Event{created}, when: change(`{}`, `{"a":1}`), then: []event.Event{event.EndUserTraitsChanged{User: user, Traits: private(`{"a":1}`)}}},
		"the same traits add nothing":                {given: []event.Event{created}, when: change(`{"a":1}`, `{"a":1}`)},
		"traits do not become an array":              {given: []event.Event{created}, when: change(`{}`, `[]`), fault: "invalid", at: "/traits"},
		"traits do not become too large":             {given: []event.Event{created}, when: change(`{}`, "{"+strings.Repeat(" ", domain.MaxTraits)), fault: "traits_too_large", at: "/traits"},
		"nobody changes a user that is not there":    {when: change(`{}`, `{"a":1}`), fault: "user_unknown"},
		"nobody changes a user that was erased":      {given: []event.Event{created, erased}, when: change(`{}`, `{"a":1}`), fault: "user_unknown"},
		"a user is erased":                           {given: []event.Event{created}, when: erase, then: []event.Event{erased}},
		"a user is erased once":                      {given: []event.Event{created, erased}, when: erase, fault: "user_unknown"},
		"who is not there is not erased":             {when: erase, fault: "user_unknown"},
		"an erased user's stream takes no other one": {given: []event.Event{created, erased}, when: create(private("{}")), fault: "user_exists"},
	})
}

func TestWebhook(t *testing.T) {
	match, drift := []string{"match.computed"}, []string{"cluster.drift_detected", "match.computed"}
	subscribed := event.WebhookSubscribed{Webhook: hook, WebhookAddress: event.At("https://a.example"), EventTypes: match}
	paused, resumed := event.WebhookPaused{Webhook: hook}, event.WebhookResumed{Webhook: hook}
	rotated := event.WebhookSecretRotated{Webhook: hook, Secret: private("new")}
	removed := event.WebhookRemoved{Webhook: hook}
	subscribe := func(secret *event.Personal, types ...string) func(*domain.Webhook) ([]event.Event, error) {
		return func(w *domain.Webhook) ([]event.Event, error) {
			return w.Subscribe(event.WebhookSubscribed{Webhook: hook, WebhookAddress: event.At("https://a.example"), EventTypes: types, Secret: secret}, domain.ControlsChange{})
		}
	}
	change := func(c domain.WebhookChange) func(*domain.Webhook) ([]event.Event, error) {
		return func(w *domain.Webhook) ([]event.Event, error) { return w.Change(c) }
	}
	status := func(s string) func(*domain.Webhook) ([]event.Event, error) {
		return change(domain.WebhookChange{Status: &s})
	}
	remove := func(w *domain.Webhook) ([]event.Event, error) { return w.Remove() }
	given := func(e ...event.Event) []event.Event { return append([]event.Event{subscribed}, e...) }
	headers := func(h map[string]string) domain.WebhookChange {
		return domain.WebhookChange{ControlsChange: domain.ControlsChange{Headers: &h}}
	}
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	disable := func(w *domain.Webhook) ([]event.Event, error) { return w.Disable(since), nil }
	snapshot := func(w *domain.Webhook) ([]event.Event, error) { return []event.Event{w.Snapshot()}, nil }
	standing := func(disabled bool) event.Event {
		return event.WebhookSnapshotTaken{Webhook: hook, WebhookAddress: event.At("https://a.example"), EventTypes: match, Paused: disabled, Disabled: disabled}
	}
	bounded := event.WebhookControlsSet{Webhook: hook, EndpointControls: event.EndpointControls{DisableAfter: 60}}
	url, all := "https://b.example", domain.WebhookPaused
	tell(t, map[string]story[*domain.Webhook]{
		"a subscription is opened":                  {when: subscribe(nil, match...), then: given()},
		"all five public events can be subscribed":  {when: subscribe(nil, event.PublicTypes()...), then: []event.Event{event.WebhookSubscribed{Webhook: hook, WebhookAddress: event.At("https://a.example"), EventTypes: event.PublicTypes()}}},
		"an internal event cannot be subscribed":    {when: subscribe(nil, "match.computed", "end_user.created"), fault: "invalid", at: "/event_types/1"},
		"an event type is named once":               {when: subscribe(nil, "match.computed", "match.computed"), fault: "invalid", at: "/event_types/1"},
		"no event types are refused":                {when: subscribe(nil), fault: "invalid", at: "/event_types"},
		"an empty secret is refused":                {when: subscribe(&event.Personal{Plain: []byte{}}, match...), fault: "invalid", at: "/secret"},
		"a secret of 1,025 bytes is refused":        {when: subscribe(private(strings.Repeat("x", 1025)), match...), fault: "invalid", at: "/secret"},
		"another address is recorded":               {given: given(), when: change(domain.WebhookChange{URL: &url}), then: []event.Event{event.WebhookChanged{Webhook: hook, WebhookAddress: event.At(url), EventTypes: match}}},
		"other types keep the address":              {given: given(), when: change(domain.WebhookChange{EventTypes: &drift}), then: []event.Event{event.WebhookChanged{Webhook: hook, WebhookAddress: event.At("https://a.example"), EventTypes: drift}}},
		"a change that changes nothing":             {given: given(), when: change(domain.WebhookChange{EventTypes: &match})},
		"everything can change at once":             {given: given(), when: change(domain.WebhookChange{URL: &url, Secret: private("new"), Status: &all}), then: []event.Event{event.WebhookChanged{Webhook: hook, WebhookAddress: event.At(url), EventTypes: match}, rotated, paused}},
		"an active one is paused":                   {given: given(), when: status("paused"), then: []event.Event{paused}},
		"pausing twice adds nothing":                {given: given(paused), when: status("paused")},
		"a paused one is resumed":                   {given: given(paused), when: status("active"), then: []event.Event{resumed}},
		"an active one is not resumed":              {given: given(paused, resumed), when: status("active")},
		"a status that is none is refused":          {given: given(), when: status("deleted"), fault: "invalid", at: "/status"},
		"no types at all are refused":               {given: given(), when: change(domain.WebhookChange{EventTypes: &[]string{}}), fault: "invalid", at: "/event_types"},
		"what is not there is not changed":          {when: status("paused"), fault: "webhook_unknown"},
		"what was removed is not changed":           {given: given(removed), when: status("paused"), fault: "webhook_unknown"},
		"a subscription is removed":                 {given: given(), when: remove, then: []event.Event{removed}},
		"a subscription is removed once":            {given: given(removed), when: remove, fault: "webhook_unknown"},
		"what is not there is not removed":          {when: remove, fault: "webhook_unknown"},
		"headers are recorded by name, and sealed":  {given: given(), when: change(headers(map[string]string{"X-B": "b", "x-a": "a"})), then: []event.Event{event.WebhookHeadersSet{Webhook: hook, Names: []string{"X-B", "x-a"}, Headers: private(`{"X-B":"b","x-a":"a"}`)}}},
		"headers are taken away":                    {given: given(event.WebhookHeadersSet{Webhook: hook, Names: []string{"X-A"}}), when: change(headers(nil)), then: []event.Event{event.WebhookHeadersSet{Webhook: hook}}},
		"no headers in place of none add nothing":   {given: given(), when: change(headers(nil))},
		"a header is named once, whatever its case": {given: given(), when: change(headers(map[string]string{"X-A": "a", "x-a": "b"})), fault: "invalid", at: "/headers/x-a"},
		"a failing endpoint is disabled":            {given: given(bounded), when: disable, then: []event.Event{event.WebhookDisabled{Webhook: hook, FailingSince: since}}},
		"one without a bound is not disabled":       {given: given(), when: disable},
		"a paused one is not disabled":              {given: given(bounded, paused), when: disable},
		"a disabled one is resumed":                 {given: given(bounded, event.WebhookDisabled{Webhook: hook}), when: status("active"), then: []event.Event{resumed}},
		"a value may be any text that is printed":   {given: given(), when: change(headers(map[string]string{"Authorization": "Basic a~b="})), then: []event.Event{event.WebhookHeadersSet{Webhook: hook, Names: []string{"Authorization"}, Headers: private(`{"Authorization":"Basic a~b="}`)}}},
		"a disabled one says so":                    {given: given(event.WebhookDisabled{Webhook: hook}), when: snapshot, then: []event.Event{standing(true)}},
		"a resumed one is disabled no more":         {given: given(event.WebhookDisabled{Webhook: hook}, resumed), when: snapshot, then: []event.Event{standing(false)}},
		"controls that stay add nothing":            {given: given(bounded), when: change(domain.WebhookChange{ControlsChange: domain.ControlsChange{DisableAfter: new(60)}})},
		"59 seconds of failing are refused":         {given: given(), when: change(domain.WebhookChange{ControlsChange: domain.ControlsChange{DisableAfter: new(59)}}), fault: "invalid", at: "/disable_after_seconds"},
		"1,001 attempts a second are refused":       {given: given(), when: change(domain.WebhookChange{ControlsChange: domain.ControlsChange{MaxPerSecond: new(1_001)}}), fault: "invalid", at: "/max_per_second"},
		"a change of address is told from the last": {given: given(event.WebhookChanged{Webhook: hook, WebhookAddress: event.At(url), EventTypes: drift}), when: change(domain.WebhookChange{URL: &url, EventTypes: &drift})},
	})
}

func TestASecretIsAnyTextThatSigns(t *testing.T) {
	for secret, right := range map[string]bool{
		"keep this": true, "whsec_c2VjcmV0": true, "whsec_c2VjcmU=": true, "whsec_test_secret": true, "whsec_not base64!": true,
		"whsec_": false, "whsec_==": false, "": false, strings.Repeat("x", 1025): false,
	} {
		_, err := new(domain.Webhook).Subscribe(event.WebhookSubscribed{
			Webhook: "whk_1", WebhookAddress: event.At("https://example.com"), EventTypes: []string{"match.computed"}, Secret: event.Private([]byte(secret)),
		}, domain.ControlsChange{})
		if right != (err == nil) {
			t.Errorf("%.20q: %v", secret, err)
		}
	}
}

func TestHeadersOfTheConnectionTheBodyAndOfDeliveriesAreRefused(t *testing.T) {
	for name, value := range map[string]string{
		"Connection": "x", "Keep-Alive": "x", "TE": "x", "Trailer": "x", "Transfer-Encoding": "x", "Upgrade": "x", "Expect": "x",
		"Proxy-Authorization": "x", "Host": "x", "content-length": "1", "Content-Type": "x", "user-agent": "x", "X-Service-Event": "x",
		"X-Kindred-Test": "x", "Webhook-Id": "x", "webhook-signature": "x",
		"X A": "x", "X:A": "x", "X/A": "x", "": "x", strings.Repeat("x", 65): "x", "X-É": "x", "X-\u212aey": "x", "\u0130d": "x",
		"X-Empty": "", "X-Break": "a\r\nHost: b", "X-Nul": "a\x00", "X-Wide": "é", "X-Space": " spaced", "X-Long": strings.Repeat("x", 1025),
	} {
		change := domain.ControlsChange{Headers: &map[string]string{name: value}}
		_, err := new(domain.Webhook).Subscribe(event.WebhookSubscribed{Webhook: "whk_1", EventTypes: []string{"match.computed"}}, change)
		if err == nil || value != "x" && value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A name that nobody sees would be a link without a text.
func TestANameIsSeen(t *testing.T) {
	for name, ok := range map[string]bool{" Ada ": true, "é": true, "": false, "  ": false, "\u00a0": false, "\u200b\u2060": false, "\u3164\u115f\uffa0": false, "\u034f\ufe0f": false, "\u2800": false, "\u3164a": true, "a\nb": false, strings.Repeat("é", 200): true, strings.Repeat("é", 201): false} {
		_, key := (&domain.APIKey{}).Issue(event.APIKeyIssued{Name: name}, time.Now())
		_, layer := (&domain.ConsentLayer{}).Define(event.ConsentLayerDefined{Name: name})
		_, segment := (&domain.Segments{}).Define(event.SegmentDefined{Name: name})
		_, campaign := domain.DraftCampaign("cmp_1", event.CampaignTerms{
			Name: name, BudgetMinor: 1, Currency: "EUR", Audience: domain.AudienceAll,
		})
		there := &domain.ConsentLayer{}
		there.Apply(event.ConsentLayerDefined{Layer: "lay_1", Name: "a"})
		_, another := there.Change(&name, nil, nil)
		known := &domain.Segments{}
		known.Apply(event.SegmentDefined{Segment: "seg_1", Name: "a"})
		_, other := known.Change("seg_1", &name, nil, nil)
		for of, err := range map[string]error{
			"a key": key, "a layer": layer, "a segment": segment, "a campaign": campaign, "another layer": another, "another segment": other,
		} {
			if (err == nil) != ok {
				t.Errorf("%s that is called %.10q: %v", of, name, err)
			}
		}
	}
}
