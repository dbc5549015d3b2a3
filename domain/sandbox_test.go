package domain_test

import (
	"slices"
	"testing"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
)

var (
	sandboxIDs = id.Derived("sandboxes")
	trial      = id.NextSandbox(sandboxIDs, acme)
	staging    = id.NextSandbox(sandboxIDs, acme)
)

func TestSandboxesBesideAClient(t *testing.T) {
	one := event.SandboxStanding{Sandbox: trial, Name: "trial"}
	two := event.SandboxStanding{Sandbox: staging, Name: "staging"}
	short := event.SandboxStanding{Sandbox: staging, Name: "staging", ExpiresAt: at(time.Minute)}
	added := func(one event.SandboxStanding, standing ...event.SandboxStanding) event.Event {
		return event.SandboxAdded{Sandbox: one.Sandbox, Name: one.Name, ExpiresAt: one.ExpiresAt, Standing: standing}
	}
	add := func(name string, life time.Duration) func(*domain.Sandboxes) ([]event.Event, error) {
		return func(s *domain.Sandboxes) ([]event.Event, error) {
			return s.Add(staging, name, life, noon.Add(time.Second-1))
		}
	}
	remove := func(sandbox id.Client) func(*domain.Sandboxes) ([]event.Event, error) {
		return func(s *domain.Sandboxes) ([]event.Event, error) { return s.Remove(sandbox), nil }
	}
	get := func(sandbox id.Client) func(*domain.Sandboxes) ([]event.Event, error) {
		return func(s *domain.Sandboxes) ([]event.Event, error) {
			found, err := s.Get(sandbox)
			return []event.Event{added(found)}, err
		}
	}
	removed := event.SandboxRemoved{Sandbox: trial, Standing: []event.SandboxStanding{two}}
	both := []event.Event{added(one, one), added(two, one, two)}
	tell(t, map[string]story[*domain.Sandboxes]{
		"a sandbox stands until it is deleted":   {given: both[:1], when: add("staging", 0), then: both[1:]},
		"one lives for a minute at least":        {when: add("staging", time.Minute), then: []event.Event{added(short, short)}},
		"one does not live for less":             {when: add("staging", time.Minute-1), fault: "invalid", at: "/expires_in"},
		"one does not live for more than a year": {when: add("staging", 365*24*time.Hour+1), fault: "invalid", at: "/expires_in"},
		"one has a name":                         {when: add("", 0), fault: "invalid", at: "/name"},
		"an eleventh is refused": {
			given: []event.Event{added(one, slices.Repeat([]event.SandboxStanding{one}, 10)...)}, when: add("staging", 0), fault: "too_many_sandboxes",
		},
		"one gives its place back, and no other":     {given: both, when: remove(trial), then: []event.Event{removed}},
		"one gives its place back once":              {given: append(slices.Clip(both), removed), when: remove(trial)},
		"one that stands is found":                   {given: both, when: get(staging), then: []event.Event{added(two)}},
		"one that stands is found by the first":      {given: both, when: get(trial), then: []event.Event{added(one)}},
		"one that was removed is not found":          {given: append(slices.Clip(both), removed), when: get(trial), fault: "sandbox_unknown"},
		"one that is left by another is found":       {given: append(slices.Clip(both), removed), when: get(staging), then: []event.Event{added(two)}},
		"one beside another client is not found":     {given: both, when: get(id.NextSandbox(id.Derived("else"), other)), fault: "sandbox_unknown"},
		"the client itself is none of its sandboxes": {given: both, when: get(acme), fault: "sandbox_unknown"},
	})
}

func TestASandboxIsAClientWithoutMembers(t *testing.T) {
	parent := new(domain.Client)
	for _, e := range signedUp() {
		parent.Apply(e)
	}
	opened := event.SandboxOpened{Client: trial, Parent: acme, Name: "trial", Slug: parent.Slug + "--" + string(trial)[len("cli_"):]}
	open := func(c *domain.Client) ([]event.Event, error) {
		return c.OpenSandbox(parent, event.SandboxStanding{Sandbox: trial, Name: "trial"}), nil
	}
	add := func(c *domain.Client) ([]event.Event, error) {
		return c.AddMember(ada, event.MemberAdded{Member: bob, Role: domain.RoleViewer})
	}
	rename := func(name string) func(*domain.Client) ([]event.Event, error) {
		return func(c *domain.Client) ([]event.Event, error) { return c.Change(&name, domain.SettingsChange{}) }
	}
	on := func(c *domain.Client) ([]event.Event, error) {
		return c.Change(nil, domain.SettingsChange{WebhookUserIDs: new("external_id")})
	}
	settings := domain.DefaultSettings()
	settings.WebhookUserIDs = "external_id"
	given := []event.Event{opened}
	tell(t, map[string]story[*domain.Client]{
		"it is opened":                 {when: open, then: given},
		"it is opened once":            {given: given, when: open},
		"nobody is added":              {given: given, when: add, fault: "not_in_sandbox"},
		"it is renamed":                {given: given, when: rename("other"), then: []event.Event{event.ClientRenamed{Client: trial, Name: "other"}}},
		"it has the name it was given": {given: given, when: rename("trial")},
		"it begins with the settings of any client": {
			given: given, when: on, then: []event.Event{event.ClientSettingsChanged{Client: trial, Settings: settings}},
		},
	})
}

func TestTheClockOfASandboxMovesForward(t *testing.T) {
	move := func(client id.Client, to time.Time) func(*domain.Sandbox) ([]event.Event, error) {
		return func(s *domain.Sandbox) ([]event.Event, error) { return s.Move(client, to, noon.Add(999)) } // below a microsecond
	}
	moved := func(to, by, ahead time.Duration) event.ClockMoved {
		return event.ClockMoved{Client: trial, To: noon.Add(to), MovedMicros: by.Microseconds(), AheadMicros: ahead.Microseconds()}
	}
	hour := []event.Event{moved(time.Hour, time.Hour, time.Hour)}
	early := []event.Event{moved(time.Minute, time.Hour, time.Hour)} // an hour ago by the machine's clock, less a minute
	decade := 10 * 365 * 24 * time.Hour
	remove := func(s *domain.Sandbox) ([]event.Event, error) { return s.Delete(trial, acme), nil }
	deleted := event.ClientDeleted{Client: trial, Parent: acme}
	tell(t, map[string]story[*domain.Sandbox]{
		"it is moved by an hour":                 {when: move(trial, noon.Add(time.Hour+1)), then: hour},
		"it is moved on":                         {given: hour, when: move(trial, noon.Add(3*time.Hour)), then: []event.Event{moved(3*time.Hour, 2*time.Hour, 3*time.Hour)}},
		"to where it stands adds nothing":        {when: move(trial, noon.Add(1))},
		"to where it was put adds nothing later": {given: early, when: move(trial, noon.Add(time.Minute))},
		"back is refused":                        {given: hour, when: move(trial, noon.Add(time.Hour-time.Microsecond)), fault: "clock_backward"},
		"ten years ahead are right":              {when: move(trial, noon.Add(decade)), then: []event.Event{moved(decade, decade, decade)}},
		"more are refused":                       {when: move(trial, noon.Add(decade+time.Microsecond)), fault: "invalid", at: "/to"},
		"more are refused in steps, too":         {given: hour, when: move(trial, noon.Add(decade+time.Microsecond)), fault: "invalid", at: "/to"},
		"that of a client that is none stays":    {when: move(acme, noon.Add(time.Hour)), fault: "sandbox_only"},
		"a sandbox is deleted":                   {given: hour, when: remove, then: []event.Event{deleted}},
		"a sandbox is deleted once":              {given: []event.Event{deleted}, when: remove},
	})
}
