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

// Interact is what a user did about an item of the feed.
type Interact struct {
	User       UserRef
	Item       string // a user (a UserRef) or a campaign
	Kind       string // domain.Impression, Click, Conversion or Dismiss
	Impression string // empty: not one of a feed that is known
	Position   int    // of that impression, from 1
}

// Interaction is an interaction that was recorded, now or before.
type Interaction struct {
	event.InteractionRecorded
	RecordedAt time.Time
	Position   eventstore.Position // empty: it had been recorded before
}

// Interact records an interaction. One that is known already adds nothing.
// Faults: building, busy, campaign_not_running, campaign_unknown, catching_up, frequency_capped,
// idempotency_key_reused, impression_unknown, invalid, item_unknown, not_in_audience, overloaded,
// quarantined, stale, too_many_engagements, user_unknown.
func (c *Commands) Interact(ctx context.Context, call Call, in Interact) (Interaction, error) {
	user, err := c.FindUser(ctx, call.Client, in.User)
	if err != nil {
		return Interaction{}, err
	}
	if impression, err := id.Parse[id.Impression](in.Impression); err == nil {
		return c.answerCampaign(ctx, call, user, impression, in.Kind)
	}
	item := in.Item
	if campaign, err := id.Parse[id.Campaign](item); err != nil {
		shown, err := c.FindUser(ctx, call.Client, UserRef(item))
		if err != nil {
			return Interaction{}, itemUnknown(err)
		}
		item = string(shown)
	} else if in.Kind != domain.Dismiss {
		return c.engage(ctx, call, Engage{Campaign: campaign, Kind: in.Kind, User: UserRef(user)})
	} else if _, err := c.findCampaign(ctx, call, campaign); err != nil {
		return Interaction{}, itemUnknown(err)
	}
	return c.recordInteraction(ctx, call, event.InteractionRecorded{
		User: user, Item: item, Kind: in.Kind, Impression: in.Impression, Position: in.Position,
	})
}

// answerCampaign records what came of a campaign's impression. It belongs to
// the campaign, which counts its own; only a dismissal is the user's.
func (c *Commands) answerCampaign(ctx context.Context, call Call, user id.User, impression id.Impression, kind string) (Interaction, error) {
	found, err := c.Impressions.Find(ctx, call.Client, impression)
	if err != nil {
		return Interaction{}, err
	}
	shown := found.Event.(event.CampaignEngagementRecorded)
	if shown.User != user {
		return Interaction{}, fault.UnknownImpression()
	}
	if kind != domain.Dismiss {
		return c.engage(ctx, call, Engage{Campaign: shown.Campaign, Kind: kind, Impression: impression, Once: true})
	}
	return c.recordInteraction(ctx, call, event.InteractionRecorded{
		User: user, Item: string(shown.Campaign), Kind: kind, Impression: string(impression),
	})
}

func (c *Commands) engage(ctx context.Context, call Call, in Engage) (Interaction, error) {
	recorded, err := c.RecordEngagement(ctx, call, in)
	if err != nil {
		return Interaction{}, err
	}
	e := recorded.Event.(event.CampaignEngagementRecorded)
	return Interaction{
		InteractionRecorded: event.InteractionRecorded{
			User: e.User, Item: string(e.Campaign), Kind: in.Kind, Impression: string(e.Impression),
		},
		RecordedAt: recorded.RecordedAt, Position: recorded.Position,
	}, nil
}

func (c *Commands) recordInteraction(ctx context.Context, call Call, done event.InteractionRecorded) (Interaction, error) {
	stream := eventstore.InteractionStream(call.Client, done.User, done.Item)
	return retry(ctx, "interactions with the same item", func() (Interaction, error) { return c.interact(ctx, call, stream, done) })
}

// interactionsSeen is how many of a stream's last interactions are looked through
// before one is asked for by its key.
const interactionsSeen = 50

func (c *Commands) interact(ctx context.Context, call Call, stream eventstore.Stream, done event.InteractionRecorded) (Interaction, error) {
	load := c.backTo(interactionsSeen, saysAll)
	l, err := load(ctx, stream, eventstore.End)
	if err != nil {
		return Interaction{}, err
	}
	outcome, repeated, err := c.repetition(ctx, call, l, load)
	if err != nil {
		return Interaction{}, err
	}
	if repeated {
		return interactionOf(outcome.Recorded[0], outcome.Position), nil
	}
	known, found := false, eventstore.Recorded{}
	if key, ok := done.Key(); ok {
		if found, known, err = c.find(ctx, call.Client, l.seen, key, hasKey(key)); err != nil {
			return Interaction{}, err
		}
	}
	outcome, err = attempt(ctx, c, call, l, func(*nothing, []eventstore.Recorded) ([]event.Event, error) {
		return domain.RecordInteraction(done, known)
	})
	if err != nil || len(outcome.Recorded) == 0 {
		return interactionOf(found, eventstore.Start), err
	}
	return interactionOf(outcome.Recorded[0], outcome.Position), nil
}

// interactionOf is an interaction that stands in the log; at is empty where it was
// recorded before.
func interactionOf(r eventstore.Recorded, at eventstore.Position) Interaction {
	e, _ := r.Event.(event.InteractionRecorded)
	return Interaction{InteractionRecorded: e, RecordedAt: r.RecordedAt, Position: at}
}

// itemUnknown says that it is the item that there is not, and not the user.
func itemUnknown(err error) error {
	if fault.Of(err, fault.Missing) {
		return fault.New(fault.Missing, "item_unknown", "There is no such item: it was never there, or was erased.")
	}
	return err
}
