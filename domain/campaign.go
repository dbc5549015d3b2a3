package domain

import (
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Status values of a campaign: draft -> scheduled -> running <-> paused ->
// completed or cancelled.
const (
	CampaignDraft     = "draft"
	CampaignScheduled = "scheduled"
	CampaignRunning   = "running"
	CampaignPaused    = "paused"
	CampaignCompleted = "completed"
	CampaignCancelled = "cancelled"
)

// Why a campaign was completed.
const (
	completedByBudget = "budget"
	completedByTime   = "time"
)

// Campaign is the fold of a campaign's streams, one after the other.
type Campaign struct {
	ID id.Campaign
	event.CampaignTerms
	Status     string
	SpentMinor int64
	StartedAt  time.Time // zero: it never ran
	Changes    int       // to anything but what was spent; the first is 0
	CreatedAt  time.Time
	UpdatedAt  time.Time // of the last change

	Part   int  // which stream this is: 0 until the start, then counted from 1
	Closed bool // nothing follows in this stream, only in the next
	Length int  // of this stream, in events
}

// Apply folds an event that was recorded at a time.
func (c *Campaign) Apply(e event.Event, at time.Time) {
	c.Length++
	switch e := e.(type) {
	case event.CampaignDrafted:
		*c = Campaign{ID: e.Campaign, CampaignTerms: e.CampaignTerms, Status: CampaignDraft, CreatedAt: at, UpdatedAt: at, Length: 1}
		return
	case event.CampaignSpendingOpened:
		*c = Campaign{
			ID: e.Campaign, CampaignTerms: e.CampaignTerms, Status: e.Status, SpentMinor: e.SpentMinor,
			StartedAt: e.StartedAt, Changes: e.Changes, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, Part: e.Part, Length: 1,
		}
		return
	case event.CampaignSpendingClosed:
		c.Closed = true
		return
	case event.CampaignSpendRecorded:
		c.SpentMinor = e.SpentMinor
		return
	case event.CampaignBudgetExhausted:
		return // the completion beside it is the change
	case event.CampaignChanged:
		c.CampaignTerms = e.CampaignTerms
	case event.CampaignScheduled:
		c.Status = CampaignScheduled
	case event.CampaignStarted:
		c.Status, c.StartedAt, c.Closed = CampaignRunning, e.StartedAt, true
	case event.CampaignPaused:
		c.Status = CampaignPaused
	case event.CampaignResumed:
		c.Status = CampaignRunning
	case event.CampaignCompleted:
		c.Status = CampaignCompleted
	case event.CampaignCancelled:
		c.Status = CampaignCancelled
	}
	c.Changes++
	c.UpdatedAt = at
}

// Open is the event that the campaign's next stream begins with.
func (c *Campaign) Open() event.CampaignSpendingOpened {
	return event.CampaignSpendingOpened{
		Campaign: c.ID, Part: c.Part + 1, CampaignTerms: c.CampaignTerms, Status: c.Status, SpentMinor: c.SpentMinor,
		Changes: c.Changes, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt, StartedAt: c.StartedAt,
	}
}

// Close is the event that the campaign's stream ends with.
func (c *Campaign) Close() event.CampaignSpendingClosed {
	return event.CampaignSpendingClosed{Campaign: c.ID, Part: c.Part, SpentMinor: c.SpentMinor}
}

// DraftCampaign makes a campaign that does not run yet.
// Faults: invalid.
func DraftCampaign(campaign id.Campaign, terms event.CampaignTerms) ([]event.Event, error) {
	if wrong := checkTerms(terms, event.CampaignTerms{}); len(wrong) > 0 {
		return nil, fault.NewInvalid(wrong...)
	}
	return []event.Event{event.CampaignDrafted{Campaign: campaign, CampaignTerms: terms}}, nil
}

// Change sets the terms, and then the status where one is given: "running"
// starts a draft, at its time where that is to come, or resumes; "paused" and
// "cancelled" say what they do. What is so already adds nothing.
// Faults: campaign_not_running, campaign_over, campaign_unknown, invalid.
func (c *Campaign) Change(terms event.CampaignTerms, status string, now time.Time) ([]event.Event, error) {
	if err := c.exists(); err != nil {
		return nil, err
	}
	var events []event.Event
	if !sameTerms(terms, c.CampaignTerms) {
		if err := c.checkChange(terms, now); err != nil {
			return nil, err
		}
		events = append(events, event.CampaignChanged{Campaign: c.ID, CampaignTerms: terms})
	}
	if status == "" || status == c.Status {
		return events, nil
	}
	next := *c
	next.CampaignTerms = terms
	moved, err := next.move(status, now)
	return append(events, moved...), err
}

// TakeBack takes back that the campaign is for an audience, where it still is: it is for
// whom other terms say, or, where there are none (nil), over.
func (c *Campaign) TakeBack(of *event.SegmentAudience, before *event.CampaignTerms) []event.Event {
	switch {
	case c.Over() || !sameSegments(c.Segments, of):
		return nil
	case before == nil:
		return []event.Event{event.CampaignCancelled{Campaign: c.ID}}
	}
	terms := c.CampaignTerms
	terms.Audience, terms.Clusters, terms.Segments = before.Audience, before.Clusters, before.Segments
	return []event.Event{event.CampaignChanged{Campaign: c.ID, CampaignTerms: terms}}
}

// move changes the status because the client says so.
func (c *Campaign) move(status string, now time.Time) ([]event.Event, error) {
	switch {
	case status != CampaignRunning && status != CampaignPaused && status != CampaignCancelled:
		return nil, fault.NewInvalid(fault.Field{Pointer: "/status", Detail: "must be running, paused or cancelled"})
	case c.Over():
		return nil, errCampaignOver(c.Status)
	case status == CampaignCancelled:
		return []event.Event{event.CampaignCancelled{Campaign: c.ID}}, nil
	case status == CampaignPaused && c.Status != CampaignRunning:
		return nil, errNotRunning(c.Status)
	case status == CampaignPaused:
		return []event.Event{event.CampaignPaused{Campaign: c.ID}}, nil
	case c.ended(now):
		return nil, fault.NewInvalid(fault.Field{Pointer: "/ends_at", Detail: "has passed; a campaign cannot run after it"})
	case c.Status == CampaignPaused:
		return []event.Event{event.CampaignResumed{Campaign: c.ID}}, nil
	case c.StartsAt != nil && c.StartsAt.After(now) && c.Status == CampaignScheduled:
		return nil, nil
	case c.StartsAt != nil && c.StartsAt.After(now):
		return []event.Event{event.CampaignScheduled{Campaign: c.ID}}, nil
	}
	return []event.Event{event.CampaignStarted{Campaign: c.ID, StartedAt: now}}, nil
}

// Advance does what the time has come for: it completes a campaign whose end
// has passed, and starts one that was scheduled.
func (c *Campaign) Advance(now time.Time) []event.Event {
	switch {
	case c.exists() != nil, c.Over(), c.Status == CampaignDraft:
		return nil
	case c.ended(now):
		return []event.Event{event.CampaignCompleted{Campaign: c.ID, Reason: completedByTime}}
	case c.Status == CampaignScheduled && (c.StartsAt == nil || !c.StartsAt.After(now)):
		return []event.Event{event.CampaignStarted{Campaign: c.ID, StartedAt: now}}
	}
	return nil
}

// Spend records what was spent. recorded is what was recorded under the same
// spend id before, or nil: then that stands, and nothing is added. The spend
// that reaches the budget is taken in full; the campaign is completed and its
// exhaustion told with it.
// Faults: campaign_not_running, campaign_unknown, invalid, spend_id_reused.
func (c *Campaign) Spend(spend string, amountMinor int64, recorded *event.CampaignSpendRecorded, now time.Time) ([]event.Event, error) {
	if err := c.exists(); err != nil {
		return nil, err
	}
	if recorded != nil {
		if recorded.AmountMinor != amountMinor {
			return nil, fault.New(fault.Invalid, "spend_id_reused",
				"This spend was recorded before, with another amount. A spend is counted once; use a new spend_id for a new one.")
		}
		return nil, nil
	}
	if amountMinor < 1 || amountMinor > maxMinor {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/amount_minor", Detail: "must be from 1 to 9007199254740991"})
	}
	if err := c.Runs(now); err != nil {
		return nil, err
	}
	if amountMinor > maxMinor-c.SpentMinor { // the sum is told in JSON, too
		return nil, fault.NewInvalid(fault.Field{Pointer: "/amount_minor", Detail: "must not take what the campaign has spent beyond 9007199254740991"})
	}
	spent := c.SpentMinor + amountMinor
	events := []event.Event{event.CampaignSpendRecorded{
		Campaign: c.ID, SpendID: spend, AmountMinor: amountMinor, Currency: c.Currency, SpentMinor: spent, BudgetMinor: c.BudgetMinor,
	}}
	if spent < c.BudgetMinor {
		return events, nil
	}
	return append(events,
		event.CampaignBudgetExhausted{Campaign: c.ID, BudgetMinor: c.BudgetMinor, SpentMinor: spent},
		event.CampaignCompleted{Campaign: c.ID, Reason: completedByBudget},
	), nil
}

// Runs refuses what only a running campaign allows. One whose end has passed
// does not run, whether that was recorded yet or not.
// Faults: campaign_not_running, campaign_unknown.
func (c *Campaign) Runs(now time.Time) error {
	switch {
	case c.exists() != nil:
		return c.exists()
	case c.Status != CampaignRunning:
		return errNotRunning(c.Status)
	case c.ended(now):
		return errNotRunning(CampaignCompleted)
	}
	return nil
}

// Over says whether the campaign has ended.
func (c *Campaign) Over() bool {
	return c.Status == CampaignCompleted || c.Status == CampaignCancelled
}

func (c *Campaign) ended(now time.Time) bool { return c.EndsAt != nil && !c.EndsAt.After(now) }

func (c *Campaign) exists() error {
	if c.ID == "" {
		return fault.UnknownCampaign()
	}
	return nil
}

func errNotRunning(status string) error {
	return fault.New(fault.Conflict, "campaign_not_running", "The campaign is not running; its status is %s.", status)
}

func errCampaignOver(status string) error {
	return fault.New(fault.Conflict, "campaign_over", "The campaign is %s and cannot be changed any more.", status)
}
