package commands

import (
	"context"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Campaign is a campaign as it is after a command.
type Campaign struct {
	domain.Campaign
	Position eventstore.Position // of what the command recorded; empty where that was nothing
}

// DraftCampaign makes a campaign that does not run yet. One of whose segments another
// request retires meanwhile is refused, and stays as a campaign that was cancelled.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded, quarantined,
// segment_unknown, stale.
func (c *Commands) DraftCampaign(ctx context.Context, call Call, terms event.CampaignTerms) (Campaign, error) {
	campaign := id.Next[id.Campaign](c.ids(call, "campaign"))
	// All that a client may do to a campaign stands behind its first event: a
	// repetition answers with that one alone.
	outcome, err := execute[nothing](ctx, c, call, eventstore.CampaignStream(call.Client, campaign, 0), call.Seed == nil, c.ends,
		func(*nothing, []eventstore.Recorded) ([]event.Event, error) {
			events, err := domain.DraftCampaign(campaign, terms)
			if err == nil {
				err = c.checkAudience(ctx, call.Client, terms.Segments)
			}
			return events, err
		})
	if err != nil {
		return Campaign{}, err
	}
	first := outcome.Recorded[0]
	drafted := Campaign{Position: outcome.Position}
	drafted.Apply(first.Event, first.RecordedAt)
	return drafted, c.nameSegments(ctx, call, campaign, drafted.Segments, nil)
}

// ChangeCampaign is a partial update; what is nil stays, and so does the status
// where it is empty.
type ChangeCampaign struct {
	Terms    func(event.CampaignTerms) event.CampaignTerms
	Segments *event.SegmentAudience // that Terms sets; nil: they stay, or are taken away
	Status   string
}

// ChangeCampaign changes a campaign's terms, and starts, pauses, resumes or
// cancels it.
// Faults: busy, campaign_not_running, campaign_over, campaign_unknown, catching_up, consent_layer_unknown,
// idempotency_key_reused, invalid, overloaded, quarantined, segment_unknown, stale.
func (c *Commands) ChangeCampaign(ctx context.Context, call Call, campaign id.Campaign, in ChangeCampaign) (Campaign, error) {
	if err := c.checkAudience(ctx, call.Client, in.Segments); err != nil {
		return Campaign{}, err
	}
	var before event.CampaignTerms
	changed, err := c.campaign(ctx, call, campaign, func(state *domain.Campaign, now time.Time) ([]event.Event, error) {
		before = state.CampaignTerms
		if call.IfMatch != nil && state.ID != "" && eventstore.Revision(state.Changes) != *call.IfMatch {
			return nil, errStale()
		}
		return state.Change(in.Terms(state.CampaignTerms), in.Status, now)
	})
	if err != nil || changed.Position == "" {
		return changed, err
	}
	return changed, c.nameSegments(ctx, call.unconditional(), campaign, in.Segments, &before)
}

// AdvanceCampaign does what a campaign's time has come for: it starts or
// completes it. Doing it twice adds nothing.
// Faults: busy.
func (c *Commands) AdvanceCampaign(ctx context.Context, call Call, campaign id.Campaign) (Campaign, error) {
	return c.campaign(ctx, call, campaign, func(state *domain.Campaign, now time.Time) ([]event.Event, error) {
		return state.Advance(now), nil
	})
}

// findCampaign returns a campaign as it is now, or fails with a fault of kind
// Missing.
func (c *Commands) findCampaign(ctx context.Context, call Call, campaign id.Campaign) (Campaign, error) {
	return c.campaign(ctx, call, campaign, func(*domain.Campaign, time.Time) ([]event.Event, error) { return nil, nil })
}

// campaign lets a campaign decide, and returns it as it is then.
func (c *Commands) campaign(ctx context.Context, call Call, campaign id.Campaign,
	decide func(*domain.Campaign, time.Time) ([]event.Event, error),
) (Campaign, error) {
	e := &entry{call: call, decide: func(s *domain.Campaign, _ *event.CampaignSpendRecorded, now time.Time) ([]event.Event, error) {
		return decide(s, now)
	}}
	if err := c.ledgers.of(c, call.Client, campaign).do(ctx, e); err != nil {
		return Campaign{}, err // the entry may still be in a round
	}
	return Campaign{Campaign: e.after, Position: e.position}, nil
}

// Spend asks to record what was spent, under an id of the caller's.
type Spend struct {
	Campaign    id.Campaign
	ID          string
	AmountMinor int64
}

// SpendRecorded is a spend as it was counted.
type SpendRecorded struct {
	event.CampaignSpendRecorded
	At       time.Time
	Position eventstore.Position
}

// RecordSpend counts a spend, once for the life of its campaign: a repetition,
// however late, gets the first answer and adds nothing. It fails with the
// fault campaign_not_running, and with spend_id_reused where the id stands for
// another amount.
// Faults: busy, campaign_not_running, campaign_unknown, invalid, spend_id_reused.
func (c *Commands) RecordSpend(ctx context.Context, call Call, in Spend) (SpendRecorded, error) {
	e := &entry{
		call: call, spend: in.ID,
		decide: func(s *domain.Campaign, recorded *event.CampaignSpendRecorded, now time.Time) ([]event.Event, error) {
			return s.Spend(in.ID, in.AmountMinor, recorded, now)
		},
	}
	if err := c.ledgers.of(c, call.Client, in.Campaign).do(ctx, e); err != nil {
		return SpendRecorded{}, err
	}
	return SpendRecorded{
		CampaignSpendRecorded: e.recorded.Event.(event.CampaignSpendRecorded),
		At:                    e.recorded.RecordedAt, Position: e.recorded.Position,
	}, nil
}

func errStale() error {
	return fault.New(fault.Stale, "stale", "It has changed since you read it. Read it again and repeat the change.")
}
