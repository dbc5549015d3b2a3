package domain

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// MaxSegments bounds the segments of a client.
// limit: client | segments | {MaxSegments} | 409 `too_many_segments`
const MaxSegments = 1000

// Segments is the fold of the stream of a client's segments: all of them stand in
// one, so that no append makes them refer to each other in a circle.
type Segments struct {
	segments map[id.Segment]*event.SegmentStanding
	length   int64
	ready    int64 // how many of its events count, in what they define
}

// Apply folds an event.
func (s *Segments) Apply(e event.Event) {
	if s.segments == nil {
		s.segments = map[id.Segment]*event.SegmentStanding{}
	}
	switch e := e.(type) {
	case event.SegmentDefined:
		s.segments[e.Segment] = &event.SegmentStanding{Segment: e.Segment, Name: e.Name, Refers: e.Refers, Changed: s.length, Ruled: s.length, Layer: e.Layer}
	case event.SegmentChanged:
		of := s.segments[e.Segment]
		of.Name, of.Changed = e.Name, s.length
		if e.Rule != nil {
			if of.Ruled < s.ready { // else the rule never counts any more, and what it names may go
				of.Held = of.Refers
			}
			of.Refers, of.Ruled = e.Refers, s.length
		}
	case event.SegmentRetired:
		delete(s.segments, e.Segment)
	case event.SegmentReady:
		s.ready = e.Revision + 1
		for _, of := range s.segments {
			if of.Ruled < s.ready {
				of.Held = nil
			}
		}
	case event.SegmentsSnapshotTaken:
		*s = Segments{segments: map[id.Segment]*event.SegmentStanding{}, length: e.Revision, ready: e.Ready + 1}
		for _, standing := range e.Segments {
			s.segments[standing.Segment] = &standing
		}
	}
	s.length++
}

// Snapshot is how the segments stand, for the end of their stream; nil where there
// is none.
func (s *Segments) Snapshot() event.Event {
	taken := event.SegmentsSnapshotTaken{Revision: s.length, Ready: s.ready - 1}
	for _, segment := range slices.Sorted(maps.Keys(s.segments)) {
		taken.Segments = append(taken.Segments, *s.segments[segment])
	}
	if taken.Segments == nil {
		return nil
	}
	return taken
}

// Get returns a segment that is there.
// Faults: segment_unknown.
func (s *Segments) Get(segment id.Segment) (event.SegmentStanding, error) {
	of := s.segments[segment]
	if of == nil {
		return event.SegmentStanding{}, fault.UnknownSegment()
	}
	return *of, nil
}

// Define makes a segment.
// Faults: invalid, too_many_segments.
func (s *Segments) Define(e event.SegmentDefined) ([]event.Event, error) {
	if len(s.segments) >= MaxSegments {
		return nil, fault.New(fault.Conflict, "too_many_segments", "A client has 1,000 segments at most. Retire one first.")
	}
	if err := cmp.Or(CheckName("/name", e.Name), s.checkReferences(e.Segment, e.Layer, e.Refers)); err != nil {
		return nil, err
	}
	return []event.Event{e}, nil
}

// Change renames a segment, or gives it another rule, which is nil where it stays.
// Faults: invalid, segment_unknown.
func (s *Segments) Change(segment id.Segment, name *string, rule *event.Personal, refers []id.Segment) ([]event.Event, error) {
	of, err := s.Get(segment)
	if err != nil {
		return nil, err
	}
	changed := event.SegmentChanged{Segment: segment, Name: of.Name, Rule: rule}
	if err := rename(&changed.Name, name); err != nil {
		return nil, err
	}
	if rule != nil {
		if err := s.checkReferences(segment, of.Layer, refers); err != nil {
			return nil, err
		}
		changed.Refers = refers
	} else if changed.Name == of.Name {
		return nil, nil
	}
	return []event.Event{changed}, nil
}

// checkReferences refuses a rule that names what is not there, or that would refer
// to its own segment by way of others. What was found under a consent layer stays there,
// and what was not does not come in: a segment refers to those of its own layer.
func (s *Segments) checkReferences(segment id.Segment, layer id.ConsentLayer, refers []id.Segment) error {
	wrong := func(detail string) error { return fault.NewInvalid(fault.Field{Pointer: "/rule", Detail: detail}) }
	seen := map[id.Segment]bool{}
	for next := slices.Clone(refers); len(next) > 0; {
		one := next[len(next)-1]
		next = next[:len(next)-1]
		if one == segment {
			return wrong("refers to the segment itself, directly or by way of another segment")
		}
		of := s.segments[one]
		if of == nil {
			return wrong("in_segment names " + string(one) + ", and there is no such segment")
		}
		if of.Layer != layer {
			return wrong("in_segment names " + string(one) + ", which is not of the same consent_layer_id")
		}
		if !seen[one] {
			seen[one] = true
			next = append(next, of.Refers...)
		}
	}
	return nil
}

// CheckAudience refuses an audience, which stands at /segments of a request, that names
// what is not there, or what is not of its consent layer.
// Faults: invalid.
func (s *Segments) CheckAudience(of event.SegmentAudience) error {
	var wrong []fault.Field
	for _, list := range []struct {
		pointer string
		named   []id.Segment
	}{{"/segments/any_of", of.AnyOf}, {"/segments/none_of", of.NoneOf}} {
		for i, one := range list.named {
			var detail string
			switch known := s.segments[one]; {
			case known == nil:
				detail = "is not a segment"
			case known.Layer != of.Layer:
				detail = "is not a segment of the same consent_layer_id"
			default:
				continue
			}
			wrong = append(wrong, fault.Field{Pointer: list.pointer + "/" + strconv.Itoa(i), Detail: detail})
		}
	}
	if len(wrong) > 0 {
		return fault.NewInvalid(wrong...)
	}
	return nil
}

// Name lets a campaign name segments.
// Faults: invalid.
func (s *Segments) Name(e event.SegmentsNamed) ([]event.Event, error) {
	return []event.Event{e}, s.CheckAudience(e.Segments)
}

// Retire ends a segment that no other one refers to.
// Faults: segment_in_use, segment_unknown.
func (s *Segments) Retire(segment id.Segment) ([]event.Event, error) {
	if _, err := s.Get(segment); err != nil {
		return nil, err
	}
	for _, by := range slices.Sorted(maps.Keys(s.segments)) {
		if slices.Contains(s.segments[by].Refers, segment) || slices.Contains(s.segments[by].Held, segment) {
			return nil, fault.New(fault.Conflict, "segment_in_use", "The rule of %s names this segment, or did until its new one counts. Change that first.", by)
		}
	}
	return []event.Event{event.SegmentRetired{Segment: segment}}, nil
}

// Ready makes count what was defined up to a revision. Where it does already, that adds
// nothing.
func (s *Segments) Ready(revision int64) []event.Event {
	if revision < s.ready || revision >= s.length {
		return nil
	}
	return []event.Event{event.SegmentReady{Revision: revision}}
}

// Clock is the fold of the stream that says how far time has come for the segments of
// a client. Its last event says all.
type Clock struct{ event.SegmentsTimePassed }

// Apply folds an event.
func (c *Clock) Apply(e event.Event) {
	if passed, ok := e.(event.SegmentsTimePassed); ok {
		c.SegmentsTimePassed = passed
	}
}

// Pass lets time come to a moment, in steps of a second at least.
func (c *Clock) Pass(e event.SegmentsTimePassed) []event.Event {
	if e.AsOf.Sub(c.AsOf) < timeStep {
		return nil
	}
	return []event.Event{e}
}

// timeStep is how far time passes at least, for the segments of a client.
// limit: client | how often users come into segments, or leave them, because time has passed | once a second | they do so with the next second
const timeStep = time.Second
