package event

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"kindred/domain/id"
)

// MatchComputed: two users were compared. It stands in the match stream of
// the user that was asked about.
type MatchComputed struct {
	fact
	User        id.User         `json:"user_id"`
	MatchedUser id.User         `json:"matched_user_id"`
	Score       float64         `json:"score"`      // 0.0 to 1.0
	Percentile  float64         `json:"percentile"` // of the score among random pairs, 0 to 100
	Coverage    float64         `json:"coverage"`   // share of the weight that both have, 0 to 1
	Explanation []Term          `json:"explanation"`
	Schema      int             `json:"schema_version,omitempty"`   // of the traits, as of then
	Layer       id.ConsentLayer `json:"consent_layer_id,omitempty"` // the comparison kept to
	Remaining   int             `json:"remaining,omitempty"`        // matches of the same answer that follow this one
}

// Term is what one trait adds to a score. The contributions add up to it.
type Term struct {
	Trait        string  `json:"trait"`
	Weight       float64 `json:"weight"`
	Similarity   float64 `json:"similarity"`
	Contribution float64 `json:"contribution"`
	Missing      bool    `json:"missing,omitempty"` // from one of the two, or both: the similarity is the expected one
}

// Rounded is the comparison as it is recorded, where it outlives those who
// were compared: with the score that is public, and with similarities too
// coarse to tell a number of the one from that of the other. The contributions
// still add up to the score.
func (e MatchComputed) Rounded() MatchComputed {
	e.Score = math.Round(e.Score*1e4) / 1e4
	explanation := make([]Term, len(e.Explanation))
	alike, sum := 0.0, 0.0
	for i, t := range e.Explanation {
		t.Similarity = math.Round(t.Similarity*100) / 100
		explanation[i] = t
		alike, sum = alike+t.Weight*t.Similarity, sum+t.Weight
	}
	for i, t := range explanation {
		switch {
		case alike > 0:
			explanation[i].Contribution = e.Score * t.Weight * t.Similarity / alike
		case sum > 0: // nothing is alike to two decimals
			explanation[i].Contribution = e.Score * t.Weight / sum
		}
	}
	slices.SortStableFunc(explanation, func(a, b Term) int {
		switch {
		case a.Missing == b.Missing:
			return cmp.Compare(b.Contribution, a.Contribution)
		case a.Missing:
			return 1
		}
		return -1
	})
	e.Explanation = explanation
	return e
}

// Within is the consent layer that a comparison keeps to; the zero value is
// none. Only users who granted it are compared, by its traits alone.
type Within struct {
	Layer      id.ConsentLayer
	TraitPaths []string
	MatchRule  string // of the layer, or without one the client's; "": none
	// TraitParts are rules of users' traits alone, by their texts: whom one of them leaves out need
	// not be found.
	TraitParts []string
}

// Data is the public form: exactly four fields, the score with four decimals at
// most and one at least. Readers that tell integers from floats by the point
// read a float always.
func (e MatchComputed) Data(client id.Client) any {
	score := strconv.FormatFloat(math.Round(e.Score*1e4)/1e4, 'f', -1, 64)
	if !strings.Contains(score, ".") {
		score += ".0"
	}
	return struct {
		Client      id.Client   `json:"client_id"`
		User        id.User     `json:"user_id"`
		MatchedUser id.User     `json:"matched_user_id"`
		Score       json.Number `json:"score"`
	}{client, e.User, e.MatchedUser, json.Number(score)}
}

// Example is a match of users who never were.
func (MatchComputed) Example(ids *id.Source) Public {
	return MatchComputed{User: id.Next[id.User](ids), MatchedUser: id.Next[id.User](ids), Score: 0.5}
}

var matchEvents = []definition{
	// Version 1 did not say which schema; to version 2 a trait that one of the two had
	// not said did not count.
	define[MatchComputed]("match.computed", 3),
}
