package demo

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

type match struct {
	MatchedUserID string `json:"matched_user_id"`
	ExternalID    string `json:"external_id"`
	Score         float64
	Percentile    float64
	Explanation   []term
}

// term is what one trait adds to a score.
type term struct {
	Trait                            string
	Weight, Similarity, Contribution float64
	Missing                          bool // from one of the two: Similarity is what is expected of anybody
}

// computeMatches asks who is like the first person, and looks at why.
func (s *story) computeMatches(ctx context.Context) error {
	start := time.Now()
	matches, err := s.compute(ctx, s.asker, map[string]any{"limit": 10})
	if err != nil {
		return err
	}
	took := time.Since(start)
	s.matches = matches
	s.expect(s.asker, matches)
	s.page.say("The %d best of %s for %s, in %s:", len(matches), count(s.imported.people-1), s.asker.ExternalID, brief(took))
	rows := make([][]string, len(matches))
	for i, m := range matches {
		rows[i] = []string{strconv.Itoa(i + 1), m.ExternalID, fixed(m.Score, 4), fixed(m.Percentile, 1), alike(m.Explanation), unlike(m.Explanation)}
	}
	s.page.table([]string{"", "who", "score", "percentile", "alike in", "set apart by"}, rows)
	other, err := s.getUser(ctx, matches[0].MatchedUserID)
	if err != nil {
		return err
	}
	s.page.blank()
	s.page.say("Why %s? Each trait adds its part, and the parts add up to the score:", other.ExternalID)
	s.sideBySide(matches[0], other)
	return nil
}

func (s *story) matchesPath(of user) string { return "/api/v1/users/" + of.ID + "/matches" }

func (s *story) getUser(ctx context.Context, id string) (user, error) {
	var u user
	err := s.api.do(ctx, request{method: "GET", path: "/api/v1/users/" + id, want: 200}, &u)
	return u, err
}

// compute asks for matches, and checks that they are what a match is.
func (s *story) compute(ctx context.Context, of user, ask map[string]any) ([]match, error) {
	var answer struct{ Data []match }
	if err := s.api.do(ctx, request{method: "POST", path: s.matchesPath(of), body: ask, want: 200}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Data) == 0 {
		return nil, fmt.Errorf("nobody is like %s: do these people have a trait in common that varies?", of.ExternalID)
	}
	for i, m := range answer.Data {
		sum := 0.0
		for _, t := range m.Explanation {
			sum += t.Contribution
		}
		switch {
		case m.MatchedUserID == of.ID:
			return nil, fmt.Errorf("%s was matched with itself", of.ExternalID)
		case m.Score < 0 || m.Score > 1 || m.Percentile < 0 || m.Percentile > 100:
			return nil, fmt.Errorf("the score %v or the percentile %v of %s is out of range", m.Score, m.Percentile, m.ExternalID)
		case math.Abs(sum-m.Score) > 1e-4: // scores have four decimals
			return nil, fmt.Errorf("the explanation of %s adds up to %v, not to its score %v", m.ExternalID, sum, m.Score)
		case i > 0 && m.Score > answer.Data[i-1].Score:
			return nil, fmt.Errorf("%s is not in its place: the best match comes first", m.ExternalID)
		}
	}
	return answer.Data, nil
}

// expect notes that each of these matches has to be delivered.
func (s *story) expect(of user, matches []match) {
	for _, m := range matches {
		s.expected[subject{"match.computed", of.ID, m.MatchedUserID}] = m.Score
	}
}

// alike names the three traits of both that add most.
func alike(terms []term) string {
	adding := slices.DeleteFunc(most(terms), func(t term) bool { return t.Contribution == 0 || t.Missing })
	return cmp.Or(traitNames(adding[:min(3, len(adding))]), "nothing")
}

// unlike names the two traits of both that fall shortest of adding all they could.
func unlike(terms []term) string {
	apart := slices.DeleteFunc(slices.Clone(terms), func(t term) bool { return t.Similarity == 1 || t.Missing })
	slices.SortStableFunc(apart, func(a, b term) int {
		return cmp.Compare(b.Weight*(1-b.Similarity), a.Weight*(1-a.Similarity))
	})
	return cmp.Or(traitNames(apart[:min(2, len(apart))]), "nothing")
}

func similarity(t term) string {
	if t.Missing {
		return "missing, taken as " + fixed(t.Similarity, 2)
	}
	return fixed(t.Similarity, 2)
}

func traitNames(terms []term) string {
	names := make([]string, len(terms))
	for i, t := range terms {
		names[i] = t.Trait
	}
	return strings.Join(names, ", ")
}

// most returns the terms that add most first.
func most(terms []term) []term {
	sorted := slices.Clone(terms)
	slices.SortStableFunc(sorted, func(a, b term) int { return cmp.Compare(b.Contribution, a.Contribution) })
	return sorted
}

// sideBySide shows the asker and a match, trait by trait.
func (s *story) sideBySide(m match, other user) {
	const shown, width = 10, 28
	terms := most(m.Explanation)
	var rows [][]string
	for _, t := range terms[:min(shown, len(terms))] {
		rows = append(rows, []string{
			cut(t.Trait, width), cut(show(at(s.asker.Traits, t.Trait)), width), cut(show(at(other.Traits, t.Trait)), width),
			similarity(t), fixed(t.Contribution, 4),
		})
	}
	if rest := len(terms) - len(rows); rest > 0 {
		sum := 0.0
		for _, t := range terms[shown:] {
			sum += t.Contribution
		}
		rows = append(rows, []string{fmt.Sprintf("%d more", rest), "", "", "", fixed(sum, 4)})
	}
	rows = append(rows, []string{"score", "", "", "", fixed(m.Score, 4)})
	s.page.table([]string{"trait", s.asker.ExternalID, other.ExternalID, "alike", "adds"}, rows)
}
