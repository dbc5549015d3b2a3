package commands

import (
	"cmp"
	"context"
	"errors"
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
	Once       bool          // the impression is answered in this way once: saying it again adds nothing
	// Standing is where the user stands, as far as some terms ask; nil: a new impression
	// is of anybody, whomever the campaign is for.
	Standing func(context.Context, event.CampaignTerms) (domain.Standing, error)
}

// RecordEngagement records an impression of a user, or what came of one. A click names its
// impression; a conversion of a user belongs to the user's newest impression of the campaign,
// however often it is repeated. An impression needs a running campaign. It fails with the
// fault frequency_capped where the user has seen the campaign often enough, and with
// not_in_audience where that is for others. What came of an impression is also taken after
// the campaign's end. Position is empty where the same was recorded before.
// Faults: building, busy, campaign_not_running, campaign_unknown, catching_up, frequency_capped,
// idempotency_key_reused, impression_unknown, invalid, not_in_audience, overloaded, quarantined, stale,
// too_many_engagements, user_unknown.
func (c *Commands) RecordEngagement(ctx context.Context, call Call, in Engage) (eventstore.Recorded, error) {
	if (in.Impression == "") == (in.User == "") {
		return eventstore.Recorded{}, fault.NewInvalid(fault.Field{Pointer: "/user_id", Detail: "is needed where no impression_id is given, and only there"})
	}
	now, err := c.Log.TimeOf(ctx, call.Client)
	if err != nil {
		return eventstore.Recorded{}, err
	}
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
	impression, err := c.impression(ctx, call, in)
	if err != nil || in.Kind == domain.Impression {
		impression.Position = ""
		return impression, err
	}
	shown := impression.Event.(event.CampaignEngagementRecorded)
	var earlier eventstore.Recorded
	outcome, err := execute(ctx, c, call, eventstore.EngagementStream(call.Client, shown.Impression), false, c.whole,
		func(a *domain.ImpressionAnswers, answers []eventstore.Recorded) ([]event.Event, error) {
			said := slices.IndexFunc(answers, func(r eventstore.Recorded) bool {
				answer, ok := r.Event.(event.CampaignEngagementRecorded)
				return in.Once && ok && answer.Kind == in.Kind
			})
			if said < 0 {
				return a.Record(shown, in.Kind)
			}
			earlier = answers[said]
			return nil, nil
		})
	if err != nil {
		return eventstore.Recorded{}, err
	}
	if len(outcome.Recorded) == 0 {
		earlier.Position = ""
		return earlier, nil
	}
	last := outcome.Recorded[len(outcome.Recorded)-1]
	last.Position = outcome.Position
	return last, nil
}

// meant refuses a campaign that is for others.
func (in Engage) meant(ctx context.Context, campaign domain.Campaign) error {
	if in.Standing == nil || campaign.Audience == domain.AudienceAll {
		return nil
	}
	standing, err := in.Standing(ctx, campaign.CampaignTerms)
	if err != nil || domain.Reaches(campaign.CampaignTerms, standing) {
		return err
	}
	return fault.New(fault.Conflict, "not_in_audience", "The campaign is for others than this user.")
}

const (
	// keysKept is longer than a request may be repeated after its first try.
	keysKept = 48 * time.Hour
	// maxAnswered bounds the impressions whose answers are read one by one.
	// limit: commands | impressions whose answers are read one by one | {maxAnswered}
	maxAnswered = 100
)

// impression finds what an engagement is about.
func (c *Commands) impression(ctx context.Context, call Call, in Engage) (eventstore.Recorded, error) {
	client := call.Client
	if in.Impression != "" {
		found, err := c.Impressions.Find(ctx, client, in.Impression)
		if err != nil {
			return found, err
		}
		shown := found.Event.(event.CampaignEngagementRecorded)
		if shown.Campaign != in.Campaign || shown.User == "" {
			return found, fault.UnknownImpression()
		}
		_, err = c.FindUser(ctx, client, UserRef(shown.User)) // may have been erased since
		if fault.Is(err, "user_unknown") {
			err = fault.UnknownImpression()
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
	return c.newestImpression(ctx, call, eventstore.ImpressionsStream(client, in.Campaign, user))
}

// newestImpression finds a user's newest impression of a campaign or, of a
// repeated request, the one that was the newest at its first try.
func (c *Commands) newestImpression(ctx context.Context, call Call, stream eventstore.Stream) (eventstore.Recorded, error) {
	newest, err := c.Log.ReadBack(ctx, stream, eventstore.End, 1)
	if err == nil && len(newest) == 0 {
		err = fault.UnknownImpression()
	}
	if err != nil {
		return eventstore.Recorded{}, err
	}
	if call.Seed != nil && newest[0].Revision > 0 {
		if answered, ok, err := c.answeredBefore(ctx, call, newest[0]); ok || err != nil {
			return answered, err
		}
	}
	return newest[0], nil
}

// answeredBefore finds the impression that an earlier run of the same request took
// for the newest, among those as old as a request may be. That goes by the machine's
// clock: a sandbox's is ahead of it, so what is told here as too old is.
func (c *Commands) answeredBefore(ctx context.Context, call Call, newest eventstore.Recorded) (eventstore.Recorded, bool, error) {
	now := c.Log.Now()
	var page []eventstore.Recorded // the newest first
	newer, following, read, answers := newest, newest, 0, 0
	look := func() (eventstore.Recorded, bool, error) {
		found, reached, err := c.answers(ctx, call, page)
		if err != nil {
			return eventstore.Recorded{}, false, err
		}
		for _, shown := range page {
			// An answer beyond reached is of one that was still the newest there.
			_, known := found[shown.ID]
			if known || following.Position > reached || shown.ID == newest.ID {
				if answers++; answers > maxAnswered {
					return shown, false, errCatchingUp()
				}
				if ok, err := c.hasAnswered(ctx, call, shown); ok || err != nil {
					return shown, ok, err
				}
			}
			following = shown
		}
		page = nil
		return eventstore.Recorded{}, false, nil
	}
	for shown, err := range c.Log.Backward(ctx, newest.Stream, newest.Revision, longPage) {
		if err != nil {
			return shown, false, err
		}
		if now.Sub(newer.RecordedAt) >= keysKept {
			break
		}
		newer = shown
		if read++; read > maxBehind {
			return shown, false, errCatchingUp()
		}
		if page = append(page, shown); len(page) == longPage {
			if shown, ok, err := look(); ok || err != nil {
				return shown, ok, err
			}
		}
	}
	return look()
}

// answers are those of some impressions, by the ids of their events, for which EventIDs
// know what this call has recorded.
func (c *Commands) answers(ctx context.Context, call Call, page []eventstore.Recorded) (known map[id.Event]bool, reached eventstore.Position, err error) {
	of := make(map[id.Event]id.Event, len(page))
	ids := make([]id.Event, len(page))
	for i, shown := range page {
		stream := eventstore.EngagementStream(call.Client, shown.Event.(event.CampaignEngagementRecorded).Impression)
		ids[i] = id.Next[id.Event](c.ids(call, string(stream)))
		of[ids[i]] = shown.ID
	}
	found, reached, err := c.EventIDs.Revisions(ctx, call.Client, ids)
	known = make(map[id.Event]bool, len(found))
	for answer := range found {
		known[of[answer]] = true
	}
	return known, reached, err
}

// hasAnswered says whether this call has answered to an impression.
func (c *Commands) hasAnswered(ctx context.Context, call Call, shown eventstore.Recorded) (bool, error) {
	l, err := c.whole(ctx, eventstore.EngagementStream(call.Client, shown.Event.(event.CampaignEngagementRecorded).Impression), eventstore.End)
	if err != nil {
		return false, err
	}
	_, repeated, err := c.repetition(ctx, call, l, c.whole)
	return repeated, err
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
	key, _ := shown.Key()
	load := c.backTo(max(campaign.FrequencyCap, repeatedPage), saysAll)
	return retry(ctx, "impressions of this user", func() (eventstore.Recorded, error) {
		l, err := load(ctx, stream, eventstore.End)
		if err != nil {
			return eventstore.Recorded{}, err
		}
		if call.Seed != nil {
			found, ok, err := c.shownBefore(ctx, call, l, key)
			if ok || err != nil {
				return found, err
			}
		}
		if err := campaign.Runs(now); err != nil {
			return eventstore.Recorded{}, err
		}
		if campaign.Capped(times(l.seen), now) {
			return eventstore.Recorded{}, fault.New(fault.Conflict, "frequency_capped", "The user has seen this campaign as often as its frequency_cap allows.")
		}
		recorded, err := c.Log.Append(ctx, l.version, call.origin(), c.ids(call, string(stream)), shown)
		if err != nil {
			return eventstore.Recorded{}, err
		}
		return recorded[0], sameRequest(call, recorded[0])
	})
}

// shownBefore finds the impression of an earlier run of the same request.
func (c *Commands) shownBefore(ctx context.Context, call Call, l loaded, key id.Event) (eventstore.Recorded, bool, error) {
	found, ok, err := c.find(ctx, call.Client, l.seen, key, hasKey(key))
	if err == nil && !ok && call.Request != "" && (len(l.seen) == 0 || l.seen[0].Revision == 0) { // find did not ask
		var known map[id.Event]eventstore.Revision
		if known, _, err = c.EventIDs.Revisions(ctx, call.Client, []id.Event{key}); len(known) > 0 {
			err = errElsewhere
		}
	}
	if errors.Is(err, errElsewhere) { // it was another user's, or of another campaign
		err = errKeyReused()
	}
	if err == nil && ok {
		err = cmp.Or(sameRequest(call, found), c.Log.NoteHead(ctx, call.Client, found.Position))
	}
	return found, ok, err
}

// times are those of recorded events, the last first.
func times(recorded []eventstore.Recorded) []time.Time {
	at := make([]time.Time, 0, len(recorded))
	for _, r := range slices.Backward(recorded) {
		at = append(at, r.RecordedAt)
	}
	return at
}
