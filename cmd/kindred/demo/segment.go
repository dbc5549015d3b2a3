package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"kindred/backoff"
)

type segment struct {
	ID, State string
	Members   int
}

// followSegment makes a segment of people who share a trait with one of them, counts who
// has to be in it, and follows that one out of it.
func (s *story) followSegment(ctx context.Context) error {
	one := s.people[len(s.people)-1]
	rule, means := s.meant(one)
	if rule == "" {
		s.page.say("%s has no trait that a rule could name.", one.ExternalID)
		return nil
	}
	var made segment
	if err := s.api.do(ctx, request{method: "POST", path: "/api/v1/segments", want: 201, body: map[string]string{"name": "Like " + one.ExternalID, "rule": rule}}, &made); err != nil {
		return err
	}
	at := "/api/v1/segments/" + made.ID
	for until := time.Now().Add(s.options.Patience); made.State != "ready"; {
		if time.Now().After(until) {
			return fmt.Errorf("%s is still %s after %s", made.ID, made.State, s.options.Patience)
		}
		if err := backoff.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if err := s.api.do(ctx, request{method: "GET", path: at, want: 200}, &made); err != nil {
			return err
		}
	}
	want := 0
	for p, err := range s.crowd.people {
		if err != nil {
			return err
		}
		traits := p.Traits
		if p.ExternalID == s.asker.ExternalID {
			traits = s.asker.Traits // it has changed
		}
		if means(traits) {
			want++
		}
	}
	if made.Members != want {
		return fmt.Errorf("%d people are in the segment %s, but the rule names %d", made.Members, rule, want)
	}
	s.page.say("%s names %s of %s people.", rule, count(want), count(s.crowd.total))
	return s.followOut(ctx, at, one)
}

// meant makes a rule of the first trait of a person that is a number or a text, and says of
// traits whether it names them.
func (s *story) meant(one user) (rule string, means func(map[string]any) bool) {
	for _, name := range sortedKeys(one.Traits) {
		of := "traits[" + strconv.Quote(name) + "]"
		switch value := one.Traits[name].(type) {
		case float64:
			return fmt.Sprintf("%s >= %s", of, strconv.FormatFloat(value, 'f', -1, 64)), func(traits map[string]any) bool {
				n, is := traits[name].(float64)
				return is && n >= value
			}
		case string:
			return fmt.Sprintf("%s == %s", of, strconv.Quote(value)), func(traits map[string]any) bool { return traits[name] == value }
		}
	}
	return "", nil
}

// followOut takes the traits from a member, and waits until the segment tells of it.
func (s *story) followOut(ctx context.Context, at string, one user) error {
	var members struct {
		Cursor string `json:"changes_cursor"`
	}
	if err := s.api.do(ctx, request{method: "GET", path: at + "/members", query: url.Values{"limit": {"1"}}, want: 200}, &members); err != nil {
		return err
	}
	in, err := s.segmentsOf(ctx, one)
	if err != nil {
		return err
	}
	if len(in) != 1 || len(in[0].Why) == 0 || in[0].Why[0].Truth != "true" {
		return fmt.Errorf("%s is in the segment, but its segments are %+v", one.ExternalID, in)
	}
	s.page.say("%s is in it, since %s is %s.", one.ExternalID, in[0].Why[0].Comparison, in[0].Why[0].Truth)
	none := map[string]any{}
	for name := range one.Traits {
		none[name] = nil
	}
	change := func(traits map[string]any) error {
		return s.api.do(ctx, request{method: "PATCH", path: "/api/v1/users/" + one.ID, want: 200, body: map[string]any{"traits": traits}}, nil)
	}
	if err := change(none); err != nil {
		return err
	}
	asked := time.Now()
	var told struct {
		Changes []struct {
			User   string `json:"user_id"`
			Change string
		}
	}
	query := url.Values{"after": {members.Cursor}, "wait": {"20"}}
	if err := s.api.do(ctx, request{method: "GET", path: at + "/changes", query: query, want: 200}, &told); err != nil {
		return err
	}
	took := time.Since(asked)
	if len(told.Changes) != 1 || told.Changes[0].User != one.ID || told.Changes[0].Change != "left" {
		return fmt.Errorf("%s lost its traits, but the segment tells %+v", one.ExternalID, told.Changes)
	}
	if in, err = s.segmentsOf(ctx, one); err == nil && len(in) > 0 {
		err = errors.New(one.ExternalID + " has left the segment, but is said to be in it")
	}
	if err != nil {
		return err
	}
	s.page.say("Without its traits it has left, which a follower was told %s later; then it gets them back.", brief(took))
	return change(one.Traits)
}

type segmentOfUser struct {
	Why []struct{ Comparison, Truth string }
}

func (s *story) segmentsOf(ctx context.Context, one user) ([]segmentOfUser, error) {
	var in struct{ Segments []segmentOfUser }
	err := s.api.do(ctx, request{method: "GET", path: "/api/v1/users/" + one.ID + "/segments", want: 200}, &in)
	return slices.Clip(in.Segments), err
}
