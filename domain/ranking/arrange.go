package ranking

import (
	"cmp"
	"slices"
)

const (
	// CampaignEvery is the slots from one campaign to the next; the first is
	// the last of the first so many.
	CampaignEvery = 5
	// exploreEvery is the slots of which one explores: 5 %.
	exploreEvery = 20
	// UnderexposedEvery is the slots of which one holds somebody who has seldom been shown.
	UnderexposedEvery = 20
)

// Candidate is somebody or something that could be shown.
type Candidate struct {
	Score    float64 // of [MatchScore] or [ClickScore]
	Response Response
	// Share is how likely a campaign takes part at all, in 0..1: its pace.
	Share float64
}

// Input is what an order is made of.
type Input struct {
	Matches      []Candidate // users who are alike
	Alike        Alike       // of two matches
	Fill         []Candidate // what comes after them, in its order
	Underexposed []Candidate // who have seldom been shown, in their order
	Campaigns    []Candidate
	Seed         Seed
}

// Kind says which list of the input a slot was filled from.
type Kind int

// The lists of an input.
const (
	Match Kind = iota
	Fill
	Underexposed
	Campaign
)

// Slot is one place of the order.
type Slot struct {
	Kind    Kind
	Index   int  // in its list
	Explore bool // it stands here to be learned about
}

// Arrange orders everything in the input: matches by score and diversity, then
// the fill. Every fifth slot holds a campaign, ranked among campaigns alone,
// while there are any; each is shown once. One slot in twenty, never the first
// of them, explores: what stands there is drawn by how well it might be
// received (Thompson, 1933). Another one holds somebody who has seldom been shown,
// while there are any.
func Arrange(in Input) []Slot {
	chance := newChance(in.Seed)
	people := make([]Slot, 0, len(in.Matches)+len(in.Fill))
	for _, i := range diversify(scores(in.Matches), in.Alike) {
		people = append(people, Slot{Kind: Match, Index: i})
	}
	for i := range in.Fill {
		people = append(people, Slot{Kind: Fill, Index: i})
	}
	campaigns := takingPart(in.Campaigns, chance)

	order := make([]Slot, 0, len(people)+len(in.Underexposed)+len(campaigns))
	explore, underexposed, due := 0, 0, 0
	for {
		at := len(order)
		campaign := at%CampaignEvery == CampaignEvery-1 && len(campaigns) > 0
		if len(people) == 0 && !campaign {
			return order
		}
		if at%exploreEvery == 0 {
			explore = at + 1 + chance.below(exploreEvery-1)
		}
		if at%UnderexposedEvery == 0 {
			due = at + 1 + chance.below(UnderexposedEvery-2) // the next one, where a campaign stands there
		}
		if due > 0 && at >= due && at != explore && !campaign && underexposed < len(in.Underexposed) {
			order = append(order, Slot{Kind: Underexposed, Index: underexposed})
			underexposed, due = underexposed+1, 0
			continue
		}
		from := &people
		if campaign {
			from = &campaigns
		}
		next := 0
		if at == explore {
			next = in.draw(*from, chance)
		}
		slot := (*from)[next]
		slot.Explore = at == explore
		order = append(order, slot)
		*from = slices.Delete(*from, next, next+1)
	}
}

// draw is the place of the one whose drawn click rate is the highest.
func (in Input) draw(slots []Slot, chance *chance) (next int) {
	best := -1.0
	for i, s := range slots {
		if rate := chance.clickRate(in.candidate(s).Response); rate > best {
			next, best = i, rate
		}
	}
	return next
}

func (in Input) candidate(s Slot) Candidate {
	switch s.Kind {
	case Campaign:
		return in.Campaigns[s.Index]
	case Fill:
		return in.Fill[s.Index]
	case Underexposed:
		return in.Underexposed[s.Index]
	default:
		return in.Matches[s.Index]
	}
}

// takingPart draws the campaigns that take part, the best first.
func takingPart(campaigns []Candidate, chance *chance) []Slot {
	var part []Slot
	for i, c := range campaigns {
		if chance.uniform() < c.Share {
			part = append(part, Slot{Kind: Campaign, Index: i})
		}
	}
	slices.SortStableFunc(part, func(a, b Slot) int {
		return cmp.Compare(campaigns[b.Index].Score, campaigns[a.Index].Score)
	})
	return part
}

func scores(candidates []Candidate) []float64 {
	out := make([]float64, len(candidates))
	for i, c := range candidates {
		out[i] = c.Score
	}
	return out
}
