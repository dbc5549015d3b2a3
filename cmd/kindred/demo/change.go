package demo

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
)

// changeTraits makes the asker less like the best match, and looks at their
// match again. It is computed without being recorded.
func (s *story) changeTraits(ctx context.Context) error {
	before := s.matches[0]
	other, err := s.getUser(ctx, before.MatchedUserID)
	if err != nil {
		return err
	}
	trait, value := s.difference(before, other)
	if trait == "" {
		s.page.say("%s and %s have no trait that could set them apart.", s.asker.ExternalID, other.ExternalID)
		return nil
	}
	was := s.asker.Traits[trait]
	var changed user
	err = s.api.do(ctx, request{
		method: "PATCH", path: "/api/v1/users/" + s.asker.ID, want: 200,
		body: map[string]any{"traits": map[string]any{trait: value}},
	}, &changed)
	if err != nil {
		return err
	}
	if changed.Traits[trait] != value || len(changed.Traits) != len(s.asker.Traits) {
		return fmt.Errorf("%s was set to %s, but the user is now %s", trait, show(value), sketch(changed.Traits))
	}
	s.asker = changed
	again, err := s.compute(ctx, s.asker, map[string]any{"matched_user_id": other.ID, "record": false})
	if err != nil {
		return err
	}
	if after := again[0]; len(again) != 1 || after.MatchedUserID != other.ID || after.Score >= before.Score {
		return fmt.Errorf("%s differs now, but the score went from %v to %v", trait, before.Score, after.Score)
	}
	s.page.say("%s of %s: %s becomes %s. The match with %s goes from %s to %s:",
		trait, s.asker.ExternalID, show(was), show(value), other.ExternalID, fixed(before.Score, 4), fixed(again[0].Score, 4))
	s.sideBySide(again[0], other)
	return nil
}

// difference finds a trait of the asker, and a value of it among the people,
// which sets the asker further apart from a match. It returns "" where none
// does.
func (s *story) difference(m match, other user) (trait string, value any) {
	for _, t := range most(m.Explanation) {
		if t.Similarity <= 0.5 || t.Missing {
			continue // there is little left to lose, or nothing to change
		}
		mine, theirs := s.asker.Traits[t.Trait], other.Traits[t.Trait]
		best := apart(mine, theirs)
		for _, u := range s.people {
			v := u.Traits[t.Trait]
			if d := apart(v, theirs); d > best {
				trait, value, best = t.Trait, v, d
			}
		}
		if trait != "" {
			return trait, value
		}
	}
	return "", nil
}

// apart says how far two values are from each other: numbers by what lies
// between, words and answers all or nothing, and the rest cannot be told.
func apart(a, b any) float64 {
	switch a := a.(type) {
	case float64:
		if b, ok := b.(float64); ok {
			return math.Abs(a - b)
		}
	case string, bool:
		if reflect.TypeOf(a) == reflect.TypeOf(b) && a != b {
			return 1
		}
	}
	return 0
}

// erase forgets the best match, and looks for it wherever it could still be.
func (s *story) erase(ctx context.Context) error {
	gone := s.matches[0]
	path := "/api/v1/users/" + gone.MatchedUserID
	if err := s.api.do(ctx, request{method: "DELETE", path: path, want: 204}, nil); err != nil {
		return err
	}
	rows := [][]string{{"erased", gone.ExternalID + ", " + gone.MatchedUserID}}
	for _, by := range []string{gone.MatchedUserID, "ext:" + gone.ExternalID} {
		err := s.api.do(ctx, request{method: "GET", path: "/api/v1/users/" + url.PathEscape(by), want: http.StatusNotFound}, nil)
		if err != nil {
			return fmt.Errorf("the user can still be found: %w", err)
		}
	}
	rows = append(rows, []string{"by id or external_id", "404"})
	for _, filter := range []url.Values{{}, {"ids": {gone.MatchedUserID}}, {"external_id": {gone.ExternalID}}} {
		listed, err := s.listed(ctx, "/api/v1/users", filter, gone.MatchedUserID)
		if err != nil {
			return err
		}
		if listed {
			return fmt.Errorf("%s is still in the list of users (%s)", gone.MatchedUserID, filter.Encode())
		}
	}
	rows = append(rows, []string{"in the list of users", "no"})
	listed, err := s.listed(ctx, s.matchesPath(s.asker), url.Values{}, gone.MatchedUserID)
	if err != nil {
		return err
	}
	if listed {
		return fmt.Errorf("%s is still in the list of matches", gone.MatchedUserID)
	}
	rows = append(rows, []string{"among the recorded matches", "no"})
	err = s.api.do(ctx, request{
		method: "POST", path: s.matchesPath(s.asker), want: http.StatusNotFound,
		body: map[string]any{"matched_user_id": gone.MatchedUserID, "record": false},
	}, nil)
	if err != nil {
		return fmt.Errorf("the erased user was matched again: %w", err)
	}
	again, err := s.compute(ctx, s.asker, map[string]any{"limit": 10, "record": false})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(again, func(m match) bool { return m.MatchedUserID == gone.MatchedUserID }) {
		return fmt.Errorf("the erased user is still among the matches of %s", s.asker.ExternalID)
	}
	rows = append(rows, []string{"among new matches", "no; the best is now " + again[0].ExternalID + " with " + fixed(again[0].Score, 4)})
	s.page.table(nil, rows)
	return nil
}

// listed says whether a user is on the first page of a list of users or
// matches.
func (s *story) listed(ctx context.Context, path string, query url.Values, id string) (bool, error) {
	query.Set("limit", "200")
	var page struct {
		Data []struct {
			ID            string
			MatchedUserID string `json:"matched_user_id"`
		}
	}
	if err := s.api.do(ctx, request{method: "GET", path: path, query: query, want: 200}, &page); err != nil {
		return false, err
	}
	for _, item := range page.Data {
		if item.ID == id || item.MatchedUserID == id {
			return true, nil
		}
	}
	return false, nil
}
