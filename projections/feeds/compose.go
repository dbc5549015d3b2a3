package feeds

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/ranking"
	"kindred/projections"
	"kindred/projections/populations"
	"kindred/projections/readmodel"
)

// First ranks a feed and returns its first page. It fails with a fault of kind
// Missing where there is no such user.
// Faults: building, busy, consent_missing, overloaded, population_too_large, quarantined, stale,
// user_unknown.
func (f *Feeds) First(ctx context.Context, r Request) (Page, error) {
	var snapshot Snapshot
	if _, err := io.ReadFull(f.Entropy, snapshot[:]); err != nil {
		return Page{}, fmt.Errorf("name a feed: %w", err)
	}
	items, err := f.compose(ctx, r, snapshot)
	if err != nil {
		return Page{}, fmt.Errorf("compose a feed: %w", err)
	}
	if len(items) > r.Limit { // else nobody will come back to it
		// First: impressions that the page records stay, though nobody is shown a page that fails.
		if err := f.freeze(ctx, r.Client, snapshot, items); err != nil {
			return Page{}, err
		}
	}
	return f.page(ctx, r, Place{Snapshot: snapshot}, items)
}

// Next returns the page that begins at a place. It fails with the fault
// feed_expired once the feed is older than 30 minutes.
// Faults: building, consent_missing, feed_expired, overloaded, quarantined, stale, user_unknown.
func (f *Feeds) Next(ctx context.Context, r Request, at Place) (Page, error) {
	items, err := f.thaw(ctx, r.Client, at.Snapshot)
	if err != nil {
		return Page{}, err
	}
	return f.page(ctx, r, at, items)
}

// composition is a feed in the making.
type composition struct {
	input        ranking.Input
	matches      []item // as in the input
	fill         []item
	underexposed []item // who have seldom been shown
	campaigns    []item
	cold         bool
}

// there are the users who are in it.
func (c *composition) there() map[string]bool {
	there := make(map[string]bool, len(c.matches)+len(c.fill))
	for _, shown := range slices.Concat(c.matches, c.fill) {
		there[shown.id] = true
	}
	return there
}

// compose ranks all that a user could be shown.
func (f *Feeds) compose(ctx context.Context, r Request, snapshot Snapshot) ([]item, error) {
	user, err := f.Users.Get(ctx, r.Client, r.Eventual, r.User)
	if err != nil {
		return nil, err
	}
	if _, err := f.granted(ctx, r, []id.User{r.User}); err != nil {
		return nil, err
	}
	hidden, err := f.Interactions.Hidden(ctx, r.Client, r.Eventual, r.User, nil)
	if err != nil {
		return nil, err
	}
	now, err := f.Clock(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	var known map[string]json.RawMessage
	c := composition{cold: json.Unmarshal(user.Traits, &known) == nil && len(known) == 0}
	copy(c.input.Seed[:], snapshot[:])
	if !c.cold {
		if err := f.match(ctx, r, &c, now, hidden); err != nil {
			return nil, err
		}
	}
	if err := f.fill(ctx, r, &c, now); err != nil {
		return nil, err
	}
	if err := f.underexposed(ctx, r, &c, now); err != nil {
		return nil, err
	}
	if err := f.campaigns(ctx, r, &c, now, hidden); err != nil {
		return nil, err
	}
	return c.arrange(), nil
}

// match adds the users who are most alike.
func (f *Feeds) match(ctx context.Context, r Request, c *composition, now time.Time, hidden map[string]bool) error {
	found, err := f.neighbours(ctx, r, func(user string) bool { return !hidden[user] })
	if err != nil {
		return err
	}
	standings, err := f.Interactions.Standings(ctx, r.Client, r.Eventual, r.User, now, found.Users)
	if err != nil {
		return err
	}
	by := make(map[id.User]projections.Standing, len(standings))
	for _, s := range standings {
		by[s.User] = s
	}
	type match struct {
		companion int
		ranking.Candidate
	}
	matches := make([]match, 0, len(found.Users))
	for i, user := range found.Users {
		s, there := by[user]
		if !there {
			continue // erased or hidden just now
		}
		score := ranking.MatchScore(found.Score[i], s.Unanswered, now.Sub(s.UpdatedAt))
		matches = append(matches, match{i, ranking.Candidate{Score: score, Response: s.Response}})
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(b.Score, a.Score) })
	diverse := min(max(pagesDiverse*r.Limit, minDepth/2), len(matches))
	for i, m := range matches {
		shown := item{kind: Match, reason: ReasonSimilar, id: string(found.Users[m.companion]), score: m.Score}
		if i < diverse {
			c.matches, c.input.Matches = append(c.matches, shown), append(c.input.Matches, m.Candidate)
		} else {
			c.fill, c.input.Fill = append(c.fill, shown), append(c.input.Fill, m.Candidate)
		}
	}
	var others []int
	c.input.Alike = func(candidate int, of []int, similarity []float64) {
		others = others[:0]
		for _, o := range of {
			others = append(others, matches[o].companion)
		}
		found.Alike(matches[candidate].companion, others, similarity)
	}
	return nil
}

// neighbours finds the users who are most alike, of those whom the filter names.
func (f *Feeds) neighbours(ctx context.Context, r Request, keep func(user string) bool) (*populations.Neighbours, error) {
	if r.Filter == nil {
		return f.Populations.Neighbours(ctx, r.Client, r.User, r.Within, keep, r.depth())
	}
	named, wanted, within := map[id.User]bool{}, 0, r.Within
	within.TraitParts = r.Filter.TraitParts()
	_, err := r.Filter.Widen(r.depth(), func(best int) (int, int, error) {
		found, err := f.Populations.Neighbours(ctx, r.Client, r.User, within, keep, best)
		if err != nil {
			return 0, 0, err
		}
		judged, err := f.Segments.Named(ctx, r.Client, r.Filter, r.User, slices.DeleteFunc(slices.Clone(found.Users), func(user id.User) bool {
			_, judged := named[user]
			return judged
		}))
		for user, is := range judged {
			if named[user] = is; is {
				wanted++
			}
		}
		return len(found.Users), wanted, err
	})
	if err != nil {
		return nil, err
	}
	return f.Populations.Neighbours(ctx, r.Client, r.User, within, func(user string) bool { return named[id.User(user)] }, r.depth())
}

// fill adds popular and new users where matches run out.
func (f *Feeds) fill(ctx context.Context, r Request, c *composition, now time.Time) error {
	left := r.depth() - len(c.matches) - len(c.fill)
	if left <= 0 {
		return nil
	}
	most := r.depth()
	if r.Filter != nil {
		most = maxDepth // of which it leaves some
	}
	there := c.there()
	for _, source := range []struct {
		kind   Kind
		reason Reason
		find   func(context.Context, id.Client, bool, id.User, time.Time, event.Within, int) ([]projections.Standing, error)
	}{
		{Popular, ReasonPopular, f.Interactions.Popular},
		{Newest, ReasonNewest, f.Interactions.Newest},
	} {
		found, err := source.find(ctx, r.Client, r.Eventual, r.User, now, r.Within, most)
		if err != nil {
			return err
		}
		if found, err = f.named(ctx, r, found); err != nil {
			return err
		}
		score := func(s projections.Standing) float64 {
			return ranking.ClickScore(s.Response, 1, s.Unanswered, now.Sub(s.UpdatedAt))
		}
		if source.kind == Popular {
			slices.SortStableFunc(found, func(a, b projections.Standing) int { return cmp.Compare(score(b), score(a)) })
		} else {
			slices.SortStableFunc(found, func(a, b projections.Standing) int { return cmp.Compare(a.Unanswered, b.Unanswered) })
		}
		if c.cold {
			source.reason = ReasonNewUser
		}
		for _, s := range found {
			if left > 0 && !there[string(s.User)] {
				left--
				there[string(s.User)] = true
				c.fill = append(c.fill, item{kind: source.kind, reason: source.reason, id: string(s.User), score: score(s)})
				c.input.Fill = append(c.input.Fill, ranking.Candidate{Score: score(s), Response: s.Response})
			}
		}
	}
	return nil
}

// underexposed puts users who have seldom been shown in place of the last of a feed that is full:
// so those are seen, too, who are nobody's match, and not new any more.
func (f *Feeds) underexposed(ctx context.Context, r Request, c *composition, now time.Time) error {
	if len(c.matches)+len(c.fill) < r.depth() {
		return nil // everybody is there
	}
	found, err := f.Interactions.Underexposed(ctx, r.Client, r.Eventual, r.User, now, r.Within, id.From[id.User](c.input.Seed))
	if err != nil {
		return err
	}
	if found, err = f.named(ctx, r, found); err != nil {
		return err
	}
	there, reason := c.there(), ReasonExplore
	if c.cold {
		reason = ReasonNewUser
	}
	found = slices.DeleteFunc(found, func(s projections.Standing) bool { return there[string(s.User)] })
	for _, s := range found[:min(len(found), r.depth()/ranking.UnderexposedEvery)] {
		score := ranking.ClickScore(s.Response, 1, s.Unanswered, now.Sub(s.UpdatedAt))
		c.underexposed = append(c.underexposed, item{kind: Newest, reason: reason, id: string(s.User), score: score})
		c.input.Underexposed = append(c.input.Underexposed, ranking.Candidate{Score: score, Response: s.Response})
	}
	left := len(c.fill) - len(c.underexposed) // some are: matches are half of the depth at most
	c.fill, c.input.Fill = c.fill[:left], c.input.Fill[:left]
	return nil
}

// named keeps those whom the filter names.
func (f *Feeds) named(ctx context.Context, r Request, found []projections.Standing) ([]projections.Standing, error) {
	if r.Filter == nil {
		return found, nil
	}
	users := readmodel.Column(found, func(s projections.Standing) id.User { return s.User })
	named, err := f.Segments.Named(ctx, r.Client, r.Filter, r.User, users)
	return slices.DeleteFunc(found, func(s projections.Standing) bool { return !named[s.User] }), err
}

// campaigns adds what runs and is not hidden.
func (f *Feeds) campaigns(ctx context.Context, r Request, c *composition, now time.Time, hidden map[string]bool) error {
	if f.Campaigns == nil {
		return nil
	}
	running, err := f.Campaigns.Running(ctx, r.Client, r.User)
	if err != nil {
		return err
	}
	for _, campaign := range running {
		if hidden[string(campaign.Campaign)] {
			continue
		}
		score := ranking.ClickScore(campaign.Response, campaign.Pace, campaign.Unanswered, now.Sub(campaign.Since))
		c.campaigns = append(c.campaigns, item{kind: Campaign, reason: ReasonCampaign, id: string(campaign.Campaign), score: score})
		c.input.Campaigns = append(c.input.Campaigns, ranking.Candidate{Score: score, Response: campaign.Response, Share: campaign.Pace})
	}
	return nil
}

// arrange puts everything in its place.
func (c *composition) arrange() []item {
	order := ranking.Arrange(c.input)
	items := make([]item, len(order))
	for i, slot := range order {
		switch slot.Kind {
		case ranking.Match:
			items[i] = c.matches[slot.Index]
		case ranking.Fill:
			items[i] = c.fill[slot.Index]
		case ranking.Underexposed:
			items[i] = c.underexposed[slot.Index]
		case ranking.Campaign:
			items[i] = c.campaigns[slot.Index]
		}
		if slot.Explore && !c.cold {
			items[i].reason = ReasonExplore
		}
		items[i].score = float64(float32(items[i].score)) // as a snapshot keeps it
	}
	return items
}
