// Package feeds composes the ranked feed of a user and freezes it: for half an
// hour its pages show everything once, whatever is written meanwhile, except
// what must not be shown any more by the time that its page is read.
package feeds

import (
	"context"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/ranking"
	"kindred/domain/rule"
	"kindred/projections"
	"kindred/projections/populations"
	"kindred/projections/segments"
)

// Campaigns are what the feed must know of the campaigns of a client.
type Campaigns interface {
	// Running lists the campaigns that a user may be shown: their time has
	// come, their audience includes the user, and neither the budget nor the
	// user's frequency cap is used up.
	Running(ctx context.Context, client id.Client, user id.User) ([]Running, error)
	// Impression records that a user is about to be shown a campaign, and
	// names that. It says no, and records nothing, where that is not allowed
	// any more; of those who ask at once no more are told yes than the
	// frequency cap allows. The same showing is recorded once and told the
	// same each time, as long as the audience includes the user.
	Impression(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string) (impression id.Impression, ok bool, err error)
}

// Running is a campaign that may be shown.
type Running struct {
	Campaign   id.Campaign
	Response   ranking.Response // of all users
	Unanswered int              // impressions of this user without a click within ranking.FatigueWindow
	Pace       float64          // how likely it should be shown, 0..1
	Since      time.Time        // when it started
}

// Feeds makes feeds and reads them. It may be used by many goroutines.
type Feeds struct {
	Pool         *pgxpool.Pool
	Users        projections.Users
	Interactions projections.Interactions
	Consent      projections.Consent
	Populations  *populations.Populations
	Segments     segments.Model
	Campaigns    Campaigns // nil: there are none
	Now          func() time.Time
	// Clock is what a client's clock says.
	Clock   func(ctx context.Context, client id.Client) (time.Time, error)
	Entropy io.Reader
}

// Request asks for a page.
type Request struct {
	Client   id.Client
	User     id.User
	Within   event.Within // a consent layer that the user has granted, or none
	Filter   *rule.Filter // of pairs; nil: everybody
	Eventual bool
	Preview  bool // campaigns on it are not recorded as shown
	Limit    int  // 1 to 200
}

// Kind says what an item of a feed is.
type Kind byte

// The kinds of items.
const (
	Match Kind = iota + 1
	Campaign
	Popular
	Newest
)

// String is the name in the contract.
func (k Kind) String() string {
	return [...]string{"", "match", "campaign", "popular", "newest"}[k]
}

// Reason says why an item is there.
type Reason byte

// The reasons.
const (
	ReasonSimilar  Reason = iota + 1 // the two are alike
	ReasonExplore                    // to learn how it is received
	ReasonCampaign                   // a campaign for this user
	ReasonPopular                    // others clicked it
	ReasonNewest                     // it came lately
	ReasonNewUser                    // nothing is known of whose feed it is
)

// String is the name in the contract.
func (r Reason) String() string {
	return [...]string{"", "similar", "explore", "campaign", "popular", "newest", "new_user"}[r]
}

// A feed is as deep as ten pages, within bounds.
const (
	pagesDeep = 10
	minDepth  = 200
	// limit: client | items of a feed, over all its pages | {maxDepth} | it ends
	maxDepth = 1_000
	// pagesDiverse is how many pages' worth of the best matches are put in
	// order by diversity too; the others follow by score alone.
	pagesDiverse = 5
)

func (r Request) depth() int { return min(max(pagesDeep*r.Limit, minDepth), maxDepth) }
