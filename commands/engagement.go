package commands

import (
	"context"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Impressions finds impressions that were acknowledged before.
type Impressions interface {
	// Find returns an impression, or fails with a fault of kind Missing. That of
	// a user who was erased may be nobody's: its id stays taken.
	Find(ctx context.Context, client id.Client, impression id.Impression) (eventstore.Recorded, error)
}

// Engage says that a user saw a campaign, or answered to that.
type Engage struct {
	Campaign   id.Campaign
	Kind       string
	Impression id.Impression // the one it is about; empty for a new one
	User       UserRef       // where no impression is named
	// Clusters are those that the user is in; nil: a new impression is of
	// anybody, whomever the campaign is for.
	Clusters func(context.Context) ([]id.Cluster, error)
}

// RecordEngagement records an impression of a user, or what came of one. A
// click names its impression; a conversion of a user belongs to the user's
// newest impression of the campaign, however often it is repeated. Impressions
// need a running campaign, and fail with the fault frequency_capped where the user
// has seen it often enough, and with not_in_audience where it is for clusters that
// the user is not in; what came of one is taken also after the campaign's end.
// Position is empty where nothing was recorded, because it had been.
func (c *Commands) RecordEngagement(ctx context.Context, call Call, in Engage) (eventstore.Recorded, error) {
	if (in.Impression == "") == (in.User == "") {
		return eventstore.Recorded{}, fault.NewInvalid(fault.Field{Pointer: "/user_id", Detail: "is needed where no impression_id is given, and only there"})
	}
	now := c.Log.Now()
	state, err := c.findCampaign(ctx, call, in.Campaign)
	if err != nil {
		return eventstore.Recorded{}, err
	}
	if in.Kind == domain.Impression && in.Impression == "" {
		user, err := c.FindUser(ctx, call.Client, in.User)
		if err != nil {
			return eventstore.Recorded{}, err
		}
		if err := in.meant(ctx, state.Campaign); err != nil {
			return eventstore.Recorded{}, err
		}
		return c.impress(ctx, call, state.Campaign, user, now)
	}
	impression, err := c.impression(ctx, call, in, now)
	if err != nil || in.Kind == domain.Impression {
		impression.Position = ""
		return impression, err
	}
	shown := impression.Event.(event.CampaignEngagementRecorded)
	outcome, err := execute[domain.ImpressionAnswers](ctx, c, call, eventstore.EngagementStream(call.Client, shown.Impression), false,
		func(a *domain.ImpressionAnswers, _ []eventstore.Recorded) ([]event.Event, error) {
			return a.Record(shown, in.Kind)
		})
	if err != nil {
		return eventstore.Recorded{}, err
	}
	last := outcome.Recorded[len(outcome.Recorded)-1]
	last.Position = outcome.Position
	return last, nil
}

// meant refuses a campaign that is for others.
func (in Engage) meant(ctx context.Context, campaign domain.Campaign) error {
	if in.Clusters == nil || campaign.Audience == domain.AudienceAll {
		return nil
	}
	clusters, err := in.Clusters(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(clusters, func(c id.Cluster) bool { return slices.Contains(campaign.Clusters, c) }) {
		return fault.New(fault.Conflict, "not_in_audience", "The campaign is for clusters that the user is not in.")
	}
	return nil
}

const (
	// keysKept is longer than a request may be repeated after its first try.
	keysKept = 48 * time.Hour
	// maxRepeated bounds the impressions that a repetition looks for its own in.
	maxRepeated = 100
)

// impression finds what an engagement is about.
func (c *Commands) impression(ctx context.Context, call Call, in Engage, now time.Time) (eventstore.Recorded, error) {
	client := call.Client
	if in.Impression != "" {
		found, err := c.Impressions.Find(ctx, client, in.Impression)
		if err != nil {
			return found, err
		}
		shown := found.Event.(event.CampaignEngagementRecorded)
		if shown.Campaign != in.Campaign || shown.User == "" {
			return found, domain.ErrImpressionUnknown()
		}
		_, err = c.FindUser(ctx, client, UserRef(shown.User)) // may have been erased since
		if fault.Is(err, "user_unknown") {
			err = domain.ErrImpressionUnknown()
		}
		return found, err
	}
	if in.Kind == domain.Click {
		return eventstore.Recorded{}, fault.NewInvalid(fault.Field{Pointer: "/impression_id", Detail: "is required for a click"})
	}
	user, err := c.FindUser(ctx, client, in.User)
	if err != nil {
		return eventstore.Recorded{}, err
	}
	return c.newestImpression(ctx, call, eventstore.ImpressionsStream(client, in.Campaign, user), now)
}

// newestImpression finds a user's newest impression of a campaign or, of a
// repeated request, the one that was the newest at its first try.
func (c *Commands) newestImpression(ctx context.Context, call Call, stream eventstore.Stream, now time.Time) (eventstore.Recorded, error) {
	limit := 1
	if call.Seed != nil {
		limit = maxRepeated
	}
	newest, err := c.Log.ReadBack(ctx, stream, eventstore.End, limit)
	if err == nil && len(newest) == 0 {
		err = domain.ErrImpressionUnknown()
	}
	if err != nil {
		return eventstore.Recorded{}, err
	}
	for i := 1; i < len(newest) && now.Sub(newest[i-1].RecordedAt) < keysKept; i++ {
		shown := newest[i].Event.(event.CampaignEngagementRecorded)
		history, _, err := c.Log.Load(ctx, eventstore.EngagementStream(call.Client, shown.Impression))
		if err != nil {
			return eventstore.Recorded{}, err
		}
		if _, repeated, err := c.repetition(ctx, call, history); repeated || err != nil {
			return newest[i], err
		}
	}
	return newest[0], nil
}

// impress records that a user sees a campaign. All impressions of both stand in
// one stream: the revision that they are appended at is what keeps a frequency
// cap, however many try at once.
func (c *Commands) impress(ctx context.Context, call Call, campaign domain.Campaign, user id.User, now time.Time) (eventstore.Recorded, error) {
	stream := eventstore.ImpressionsStream(call.Client, campaign.ID, user)
	shown := event.CampaignEngagementRecorded{
		Campaign: campaign.ID, User: user, Kind: domain.Impression,
		Impression: id.Next[id.Impression](c.ids(call, "impression")),
	}
	if call.Seed != nil {
		done, err := c.Impressions.Find(ctx, call.Client, shown.Impression)
		if !fault.Of(err, fault.Missing) {
			if err == nil {
				err = c.Log.NoteHead(ctx, call.Client, done.Position)
			}
			return sameImpression(done, shown, err)
		}
	}
	return retry("impressions of this user", func() (eventstore.Recorded, error) {
		newest, err := c.Log.ReadBack(ctx, stream, eventstore.End, max(campaign.FrequencyCap, 1))
		if err != nil {
			return eventstore.Recorded{}, err
		}
		tip, err := tipOf(stream, newest)
		if err != nil {
			return eventstore.Recorded{}, err
		}
		if i := slices.IndexFunc(newest, func(r eventstore.Recorded) bool { return r.Event == event.Event(shown) }); i >= 0 {
			return newest[i], c.Log.NoteHead(ctx, call.Client, newest[i].Position) // recorded, and never answered
		}
		if err := campaign.Runs(now); err != nil {
			return eventstore.Recorded{}, err
		}
		if campaign.Capped(times(newest), now) {
			return eventstore.Recorded{}, fault.New(fault.Conflict, "frequency_capped", "The user has seen this campaign as often as its frequency_cap allows.")
		}
		recorded, err := c.Log.Append(ctx, tip, call.origin(), c.ids(call, string(stream)), shown)
		if err != nil {
			return eventstore.Recorded{}, err
		}
		return recorded[0], nil
	})
}

// sameImpression refuses a request that came with the Idempotency-Key of
// another.
func sameImpression(done eventstore.Recorded, asked event.CampaignEngagementRecorded, err error) (eventstore.Recorded, error) {
	if err == nil && done.Event != event.Event(asked) {
		return eventstore.Recorded{}, errKeyReused()
	}
	return done, err
}

func times(recorded []eventstore.Recorded) []time.Time {
	at := make([]time.Time, len(recorded))
	for i, r := range recorded {
		at[i] = r.RecordedAt
	}
	return at
}
