package feeds

import (
	"context"
	"encoding/hex"
	"fmt"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/ranking"
)

// Item is what a page shows.
type Item struct {
	Kind       Kind
	Reason     Reason
	User       id.User // whom it shows, or
	ExternalID string
	Campaign   id.Campaign   // which campaign
	Impression id.Impression // of a campaign: it is recorded; empty on a preview
	Score      float64
	Position   int // in the feed, from 1
}

// Page is a part of a feed.
type Page struct {
	Snapshot Snapshot
	Items    []Item
	Next     *Place // nil: there is no more
}

// Place is where a page begins.
type Place struct {
	Snapshot Snapshot
	rank     int // of the first item that it may show
	between  int // people shown since the last campaign, as far as it matters
}

// String writes a place down, for ParsePlace.
func (p Place) String() string {
	return fmt.Sprintf("%x.%d.%d", p.Snapshot[:], p.rank, p.between)
}

// ParsePlace reads what String wrote.
func ParsePlace(s string) (p Place, err error) {
	var snapshot string
	if _, err := fmt.Sscanf(s, "%28s.%d.%d", &snapshot, &p.rank, &p.between); err != nil {
		return p, fmt.Errorf("read the place %q: %w", s, err)
	}
	raw, err := hex.DecodeString(snapshot)
	if err != nil || len(raw) != len(p.Snapshot) || p.rank < 0 {
		return p, fmt.Errorf("read the place %q", s)
	}
	copy(p.Snapshot[:], raw)
	return p, nil
}

// fewestBetween is how many people stand between two campaigns, and before the
// first, also where some have gone since the feed was frozen.
const fewestBetween = ranking.CampaignEvery - 1

// page shows what may still be shown from a place on, until it is full.
func (f *Feeds) page(ctx context.Context, r Request, at Place, items []item) (Page, error) {
	page := Page{Snapshot: at.Snapshot, Items: make([]Item, 0, r.Limit)}
	for len(page.Items) < r.Limit && at.rank < len(items) {
		chunk := items[at.rank:min(len(items), at.rank+r.Limit-len(page.Items))]
		var check check
		err := fault.Await(ctx, func(ctx context.Context) (err error) { // here, since campaigns may have been shown
			check, err = f.check(ctx, r, chunk)
			return err
		})
		if err != nil {
			return Page{}, err
		}
		for _, candidate := range chunk {
			shown, ok, err := f.show(ctx, r, &at, candidate, check)
			if err != nil {
				return Page{}, err
			}
			if ok {
				page.Items = append(page.Items, shown)
			}
		}
	}
	if at.rank < len(items) {
		page.Next = &at
	}
	return page, nil
}

// show takes the next item, if it may be shown.
func (f *Feeds) show(ctx context.Context, r Request, at *Place, candidate item, check check) (Item, bool, error) {
	rank := at.rank
	at.rank++
	shown := Item{Kind: candidate.kind, Reason: candidate.reason, Score: candidate.score, Position: rank + 1}
	if candidate.kind != Campaign {
		shown.User = id.User(candidate.id)
		shown.ExternalID = check.names[shown.User]
		if !check.may(shown.User) {
			return Item{}, false, nil
		}
		at.between = min(at.between+1, fewestBetween)
		return shown, true, nil
	}
	shown.Campaign = id.Campaign(candidate.id)
	if f.Campaigns == nil || at.between < fewestBetween || check.hidden[candidate.id] {
		return Item{}, false, nil
	}
	if r.Preview {
		at.between = 0
		return shown, true, nil
	}
	// The showing is named by its place, so that a page that is read again
	// shows the same impression.
	showing := fmt.Sprintf("%x.%d", at.Snapshot[:], shown.Position)
	impression, ok, err := f.Campaigns.Impression(ctx, r.Client, r.User, shown.Campaign, showing)
	if err != nil || !ok {
		return Item{}, false, err
	}
	at.between, shown.Impression = 0, impression
	return shown, true, nil
}

// check is what decides about items at the moment that they are shown.
type check struct {
	names   map[id.User]string // of those who are there
	hidden  map[string]bool
	granted map[id.User]bool // nil: no consent is asked for
}

func (c check) may(user id.User) bool {
	_, there := c.names[user]
	return there && !c.hidden[string(user)] && (c.granted == nil || c.granted[user])
}

// check looks up what has become of items, and of the user whose feed it is.
func (f *Feeds) check(ctx context.Context, r Request, items []item) (c check, err error) {
	users, all := []id.User{r.User}, make([]string, 0, len(items))
	for _, candidate := range items {
		all = append(all, candidate.id)
		if candidate.kind != Campaign {
			users = append(users, id.User(candidate.id))
		}
	}
	if c.names, err = f.Users.ExternalIDs(ctx, r.Client, r.Eventual, users); err != nil {
		return c, err
	}
	if _, there := c.names[r.User]; !there {
		return c, fault.UnknownUser()
	}
	if c.hidden, err = f.Interactions.Hidden(ctx, r.Client, r.Eventual, r.User, all); err != nil {
		return c, err
	}
	c.granted, err = f.granted(ctx, r, users)
	return c, err
}

// granted says who of these users has granted the request's layer, among them
// the one whose feed it is; nil where it names none.
func (f *Feeds) granted(ctx context.Context, r Request, users []id.User) (map[id.User]bool, error) {
	if r.Within.Layer == "" {
		return nil, nil
	}
	granted, err := f.Consent.Granted(ctx, r.Client, r.Eventual, r.Within.Layer, users)
	if err == nil && !granted[r.User] {
		err = fault.New(fault.Conflict, "consent_missing", "This user has not granted the consent layer, or has withdrawn it.")
	}
	return granted, err
}
