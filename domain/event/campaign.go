package event

import (
	"time"

	"kindred/domain/id"
)

// CampaignTerms are what a client decides about a campaign.
type CampaignTerms struct {
	Name         string       `json:"name"`
	BudgetMinor  int64        `json:"budget_minor"` // minor units of Currency
	Currency     string       `json:"currency"`     // ISO 4217
	Audience     string       `json:"audience"`     // "all", "clusters" or "segments"
	Clusters     []id.Cluster `json:"cluster_ids,omitempty"`
	StartsAt     *time.Time   `json:"starts_at,omitempty"` // nil: when it is told to run
	EndsAt       *time.Time   `json:"ends_at,omitempty"`   // nil: when its budget is spent
	FrequencyCap int          `json:"frequency_cap,omitempty"`
	// FrequencyWindow is what the cap counts in, in seconds; 0: the
	// campaign's life.
	FrequencyWindow int `json:"frequency_window_seconds,omitempty"`
	// Segments say whom it is for, where that is the Audience.
	Segments *SegmentAudience `json:"segments,omitempty"`
}

// SegmentAudience names users by the segments that they are in.
type SegmentAudience struct {
	AnyOf []id.Segment `json:"any_of,omitempty"` // who is in one of these; empty: everybody
	// Layer is the consent layer that the segments are of, and that who is named grants.
	Layer  id.ConsentLayer `json:"consent_layer_id,omitempty"`
	NoneOf []id.Segment    `json:"none_of,omitempty"` // but for who is in one of these
}

// A campaign's stream ends with its start. What follows stands in its spending
// streams, numbered from 1: whatever decides on a spend must stand in one
// stream with it. Such a stream begins with CampaignSpendingOpened and, once it
// is long, ends with CampaignSpendingClosed; the next one goes on.
type (
	// CampaignDrafted: there is a campaign, and nobody sees it yet.
	CampaignDrafted struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
		CampaignTerms
	}
	// CampaignChanged carries all terms as they are from now on.
	CampaignChanged struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
		CampaignTerms
	}
	// CampaignScheduled: it starts by itself when its time comes.
	CampaignScheduled struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
	}
	// CampaignStarted: it runs. Nothing follows in this stream.
	CampaignStarted struct {
		fact
		Campaign  id.Campaign `json:"campaign_id"`
		StartedAt time.Time   `json:"started_at"`
	}
	// CampaignPaused: nothing can be spent.
	CampaignPaused struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
	}
	// CampaignResumed: it runs again.
	CampaignResumed struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
	}
	// CampaignCompleted: it is over, because its budget is spent or its time
	// has come.
	CampaignCompleted struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
		Reason   string      `json:"reason"` // "budget" or "time"
	}
	// CampaignCancelled: it is over, because the client said so.
	CampaignCancelled struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
	}
	// CampaignBudgetExhausted: the spend before it reached the budget.
	CampaignBudgetExhausted struct {
		fact
		Campaign    id.Campaign `json:"campaign_id"`
		BudgetMinor int64       `json:"budget_minor"`
		SpentMinor  int64       `json:"spent_minor"`
	}

	// CampaignSpendRecorded: money was spent. A spend id is recorded once in
	// a campaign's life.
	CampaignSpendRecorded struct {
		fact
		Campaign    id.Campaign `json:"campaign_id"`
		SpendID     string      `json:"spend_id"` // the caller's own
		AmountMinor int64       `json:"amount_minor"`
		Currency    string      `json:"currency"`
		SpentMinor  int64       `json:"spent_minor"`  // with this one
		BudgetMinor int64       `json:"budget_minor"` // as it was then
	}
	// CampaignSpendingOpened begins a spending stream with all that the
	// streams before say.
	CampaignSpendingOpened struct {
		fact
		Campaign id.Campaign `json:"campaign_id"`
		Part     int         `json:"part"` // from 1
		CampaignTerms
		Status     string    `json:"status"`
		SpentMinor int64     `json:"spent_minor"`
		Changes    int       `json:"changes"` // to anything but what was spent
		CreatedAt  time.Time `json:"created_at"`
		UpdatedAt  time.Time `json:"updated_at"`
		StartedAt  time.Time `json:"started_at"`
	}
	// CampaignSpendingClosed: nothing follows in this stream.
	CampaignSpendingClosed struct {
		fact
		Campaign   id.Campaign `json:"campaign_id"`
		Part       int         `json:"part"`
		SpentMinor int64       `json:"spent_minor"`
	}

	// CampaignEngagementRecorded: a user saw a campaign, or answered to that.
	// Impressions stand in a stream of the campaign and the user, clicks and
	// conversions in one of their impression.
	CampaignEngagementRecorded struct {
		fact
		Campaign   id.Campaign   `json:"campaign_id"`
		Impression id.Impression `json:"impression_id"`
		User       id.User       `json:"user_id"`
		Kind       string        `json:"type"` // "impression", "click" or "conversion"
	}
)

// Data is the public form: exactly two fields.
func (e CampaignBudgetExhausted) Data(client id.Client) any {
	return struct {
		Client   id.Client   `json:"client_id"`
		Campaign id.Campaign `json:"campaign_id"`
	}{client, e.Campaign}
}

// Example is a campaign that never was.
func (CampaignBudgetExhausted) Example(ids *id.Source) Public {
	return CampaignBudgetExhausted{Campaign: id.Next[id.Campaign](ids)}
}

// Key: an impression is shown once. Its id, where it is derived, follows from the
// request or the page of a feed that it was shown on.
func (e CampaignEngagementRecorded) Key() (key id.Event, ok bool) {
	raw, err := id.Bytes(e.Impression)
	return id.From[id.Event](raw), err == nil && e.Kind == "impression"
}

var campaignEvents = []definition{
	define[CampaignDrafted]("campaign.drafted", 2),
	define[CampaignChanged]("campaign.changed", 2),
	define[CampaignScheduled]("campaign.scheduled", 1),
	define[CampaignStarted]("campaign.started", 1),
	define[CampaignPaused]("campaign.paused", 1),
	define[CampaignResumed]("campaign.resumed", 1),
	define[CampaignCompleted]("campaign.completed", 1),
	define[CampaignCancelled]("campaign.cancelled", 1),
	define[CampaignBudgetExhausted]("campaign.budget_exhausted", 1),
	define[CampaignSpendRecorded]("campaign.spend_recorded", 1),
	define[CampaignSpendingOpened]("campaign.spending_opened", 2),
	define[CampaignSpendingClosed]("campaign.spending_closed", 1),
	define[CampaignEngagementRecorded]("campaign.engagement_recorded", 1),
}
