package domain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// segments is a client's segments, folded as they are decided about.
type segments struct {
	testing.TB
	domain.Segments
	length int64
}

func (s *segments) decided(code string, events []event.Event, err error) {
	s.Helper()
	if code == "" && err != nil || code != "" && !fault.Is(err, code) {
		s.Errorf("%v, not %q", err, code)
	}
	for _, e := range events {
		s.Apply(e)
		s.length++
	}
}

func (s *segments) define(code string, segment id.Segment, refers ...id.Segment) {
	s.Helper()
	events, err := s.Define(event.SegmentDefined{Segment: segment, Name: "a", Rule: event.Private([]byte("x")), Refers: refers})
	s.decided(code, events, err)
}

func (s *segments) change(code string, segment id.Segment, refers ...id.Segment) {
	s.Helper()
	events, err := s.Change(segment, nil, event.Private([]byte("x")), refers)
	s.decided(code, events, err)
}

func (s *segments) retire(code string, segment id.Segment) {
	s.Helper()
	events, err := s.Retire(segment)
	s.decided(code, events, err)
}

// No rule refers to its own segment by way of others, or to what is not there; what is
// referred to, or may still be by a rule that counts, stays.
func TestSegmentsReferToEachOtherWithoutACircle(t *testing.T) {
	s := &segments{TB: t}
	s.define("invalid", "a", "a")
	s.define("invalid", "a", "b")
	s.define("", "a")
	s.define("", "b", "a")
	s.define("", "c", "b")
	s.change("invalid", "a", "c")
	s.change("segment_unknown", "d")
	s.retire("segment_in_use", "a")
	s.decided("", s.Ready(s.length-1), nil)
	s.change("", "b") // which names a no more, once that counts
	s.retire("segment_in_use", "a")
	standing := s.Snapshot()
	again := &segments{TB: t, length: s.length}
	again.Apply(standing)
	again.length++
	for _, one := range []*segments{s, again} {
		one.retire("segment_in_use", "a")
		one.decided("", one.Ready(one.length-1), nil)
		if more := one.Ready(one.length - 2); more != nil {
			t.Errorf("what counts is made to count again: %v", more)
		}
		if more := one.Ready(one.length); more != nil {
			t.Errorf("what was never defined counts: %v", more)
		}
		one.retire("", "a")
		one.retire("segment_unknown", "a")
		one.retire("segment_in_use", "b")
	}
}

// Of the rules of a segment the one that counts and the last one may come to count: what the others
// named may go, however often the rule was changed meanwhile.
func TestARuleThatNeverCountsHoldsNothing(t *testing.T) {
	s := &segments{TB: t}
	for _, segment := range []id.Segment{"a", "b", "c", "d"} {
		s.define("", segment)
	}
	s.define("", "e", "a")
	s.change("", "e", "b") // none of them counts yet
	s.retire("", "a")
	s.decided("", s.Ready(s.length-1), nil)
	for range 3 {
		s.change("", "e", "c", "d")
	}
	s.change("", "e", "d")
	for _, standing := range s.Snapshot().(event.SegmentsSnapshotTaken).Segments {
		if standing.Segment == "e" && !slices.Equal(standing.Held, []id.Segment{"b"}) {
			t.Errorf("held are %q", standing.Held)
		}
	}
	s.retire("", "c")
	s.retire("segment_in_use", "b")
	s.retire("segment_in_use", "d")
	s.decided("", s.Ready(s.length-1), nil)
	s.retire("", "b")
	s.retire("segment_in_use", "d")
}

// Rules count up to a revision, which others may have followed by then: those count later, and
// until then the rules before them do.
func TestARuleThatCountsHoldsWhatItNamesUntilTheNextCounts(t *testing.T) {
	s := &segments{TB: t}
	for _, segment := range []id.Segment{"a", "b", "c"} {
		s.define("", segment)
	}
	s.define("", "d", "a")
	s.decided("", s.Ready(s.length-1), nil)
	s.define("", "e")
	before := s.length
	s.change("", "d", "b")
	s.decided("", s.Ready(before-1), nil)
	s.change("", "d", "c") // the rule before never counts
	s.retire("", "b")
	again := &segments{TB: t, length: s.length}
	again.Apply(s.Snapshot())
	again.length++
	for _, one := range []*segments{s, again} {
		one.retire("segment_in_use", "a")
		one.retire("segment_in_use", "c")
		if more := one.Ready(before - 1); more != nil {
			t.Errorf("what counts is made to count again: %v", more)
		}
		if more := one.Ready(before); len(more) != 1 {
			t.Errorf("what does not count yet is made to count by %v", more)
		}
		one.decided("", one.Ready(one.length-1), nil)
		one.retire("", "a")
	}
}

// A client could else make a request last for ever.
func TestReferencesThatBranchAreFollowedOnce(t *testing.T) {
	s := &segments{TB: t}
	s.define("", "a 0")
	s.define("", "b 0")
	for n := range 100 {
		for _, segment := range []string{"a", "b"} {
			s.define("", id.Segment(fmt.Sprint(segment, " ", n+1)), id.Segment(fmt.Sprint("a ", n)), id.Segment(fmt.Sprint("b ", n)))
		}
	}
}

func TestAClientHasAThousandSegments(t *testing.T) {
	s := &segments{TB: t}
	for n := range domain.MaxSegments {
		s.define("", id.Segment(fmt.Sprint(n)))
	}
	s.define("too_many_segments", "one more")
	s.retire("", "0")
	s.define("", "one more")
}

func TestTimePassesInSteps(t *testing.T) {
	var clock domain.Clock
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after  time.Duration
		passes bool
	}{{0, true}, {0, false}, {time.Second - 1, false}, {time.Second, true}, {500 * time.Millisecond, false}, {-time.Hour, false}} {
		events := clock.Pass(event.SegmentsTimePassed{AsOf: at.Add(step.after)})
		if (events != nil) != step.passes {
			t.Errorf("%s after that: %v", step.after, events)
		}
		for _, e := range events {
			clock.Apply(e)
		}
	}
}
