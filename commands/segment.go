package commands

import (
	"cmp"
	"context"
	"errors"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// Segment is a segment as it is after a command.
type Segment struct {
	ID      id.Segment
	Changed eventstore.Revision // of the event that changed it last, for If-Match
	Outcome Outcome
}

// DefineSegment makes a segment of the users whom a rule names; under a consent layer, of
// those who grant it.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded, quarantined,
// segment_unknown, stale, too_many_segments.
func (c *Commands) DefineSegment(ctx context.Context, call Call, name, text string, layer id.ConsentLayer) (Segment, error) {
	segment := id.Next[id.Segment](c.ids(call, "segment"))
	return c.decideSegment(ctx, call, segment, func(s *domain.Segments) ([]event.Event, error) {
		refers, err := c.refersOf(ctx, call.Client, text, layer) // of a repetition, nothing is asked
		if err != nil {
			return nil, err
		}
		return s.Define(event.SegmentDefined{Segment: segment, Name: name, Rule: event.Private([]byte(text)), Refers: refers, Layer: layer})
	})
}

// ChangeSegment renames a segment or gives it another rule; what is nil stays. The same
// rule once more changes nothing.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded, quarantined,
// segment_unknown, stale.
func (c *Commands) ChangeSegment(ctx context.Context, call Call, segment id.Segment, name, text *string) (Segment, error) {
	changed, err := c.decideSegment(ctx, call, segment, func(s *domain.Segments) ([]event.Event, error) {
		if text == nil {
			return s.Change(segment, name, nil, nil)
		}
		of, err := s.Get(segment)
		if err != nil {
			return nil, err
		}
		rule, err := c.ruleOf(ctx, call.Client, of)
		if err != nil {
			return nil, err
		}
		if string(rule) == *text { // it stands, whatever it may read by now
			return s.Change(segment, name, nil, nil)
		}
		refers, err := c.refersOf(ctx, call.Client, *text, of.Layer)
		if err != nil {
			return nil, err
		}
		return s.Change(segment, name, event.Private([]byte(*text)), refers)
	})
	if errors.Is(err, seal.ErrErased) { // it was retired meanwhile, and with it went the key of its rule
		err = fault.UnknownSegment()
	}
	return changed, err
}

// RestoreSegment gives a segment that is not blocked any more its rule again, by which everybody
// is judged anew. The rule stands: it is not refused for a layer that was retired meanwhile.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, segment_unknown,
// stale.
func (c *Commands) RestoreSegment(ctx context.Context, call Call, segment id.Segment, text string) (Segment, error) {
	return c.decideSegment(ctx, call, segment, func(s *domain.Segments) ([]event.Event, error) {
		of, err := s.Get(segment)
		if err != nil {
			return nil, err
		}
		return s.Change(segment, nil, event.Private([]byte(text)), of.Refers)
	})
}

// Audiences finds campaigns by whom they are for. It has seen every write that was
// acknowledged before it is asked.
type Audiences interface {
	// Naming returns a campaign, of those that have not ended, whose audience names a
	// segment; "" where there is none.
	Naming(ctx context.Context, client id.Client, segment id.Segment) (id.Campaign, error)
}

// RetireSegment ends a segment that neither another segment nor a campaign names: the fact
// is recorded, then the key that sealed its rule is destroyed. A campaign that is recorded
// after Audiences was asked also writes into the segments' stream (nameSegments). Where
// that comes first, the retirement conflicts and asks Audiences again; where it comes
// second, it is refused.
// Faults: building, busy, catching_up, idempotency_key_reused, overloaded, quarantined, segment_in_use,
// segment_unknown, stale.
func (c *Commands) RetireSegment(ctx context.Context, call Call, segment id.Segment) (Outcome, error) {
	retired, err := c.decideSegment(ctx, call, segment, func(s *domain.Segments) ([]event.Event, error) {
		events, err := s.Retire(segment)
		if err != nil {
			return nil, err
		}
		by, err := c.Audiences.Naming(ctx, call.Client, segment)
		if err == nil && by != "" {
			err = fault.New(fault.Conflict, "segment_in_use", "The audience of the campaign %s names this segment. Change that, or end the campaign, first.", by)
		}
		return events, err
	})
	if err != nil {
		return Outcome{}, err
	}
	return retired.Outcome, c.DestroyKey(ctx, call.Client, string(segment))
}

// decideSegment decides about one of a client's segments. If-Match is about that one,
// not about all.
func (c *Commands) decideSegment(ctx context.Context, call Call, segment id.Segment,
	decide func(*domain.Segments) ([]event.Event, error),
) (Segment, error) {
	want := call.IfMatch
	call.IfMatch = nil
	var known domain.Segments
	outcome, err := execute(ctx, c, call, eventstore.SegmentsStream(call.Client), false, c.backTo(statePage, isSnapshot),
		func(s *domain.Segments, _ []eventstore.Recorded) ([]event.Event, error) {
			known = *s
			if want != nil {
				of, err := s.Get(segment)
				if err != nil {
					return nil, err
				}
				if eventstore.Revision(of.Changed) != *want {
					return nil, errStale()
				}
			}
			return decide(s)
		})
	if err != nil {
		return Segment{}, err
	}
	after := Segment{ID: segment, Outcome: outcome}
	if n := len(outcome.Recorded); n > 0 {
		after.Changed = outcome.Recorded[n-1].Revision
	} else if of, err := known.Get(segment); err == nil {
		after.Changed = eventstore.Revision(of.Changed)
	}
	return after, nil
}

// checkAudience refuses an audience that names segments which are not there, or not of its
// consent layer; nil: it names none.
func (c *Commands) checkAudience(ctx context.Context, client id.Client, of *event.SegmentAudience) error {
	if of == nil {
		return nil
	}
	if of.Layer != "" {
		layer, err := id.Parse[id.ConsentLayer](string(of.Layer))
		if err != nil {
			return new(domain.ConsentLayer).Exists()
		}
		if err := c.CheckConsentLayer(ctx, client, layer); err != nil {
			return err
		}
	}
	segments, err := c.segments(ctx, client)
	if err != nil {
		return err
	}
	return segments.CheckAudience(*of)
}

// nameSegments records in the segments' stream that a campaign names an audience, once the
// campaign has recorded that; nil: it names none. Where one of the segments was retired
// meanwhile, it is refused as by checkAudience, and the campaign gets its terms of before
// back; a new campaign is cancelled.
func (c *Commands) nameSegments(ctx context.Context, call Call, campaign id.Campaign, of *event.SegmentAudience, before *event.CampaignTerms) error {
	if of == nil {
		return nil
	}
	_, refused := c.decideSegment(ctx, call, "", func(s *domain.Segments) ([]event.Event, error) {
		return s.Name(event.SegmentsNamed{Campaign: campaign, Segments: *of})
	})
	if !fault.Is(refused, "invalid") {
		return refused
	}
	call = call.unconditional()
	_, err := c.campaign(ctx, call, campaign, func(state *domain.Campaign, _ time.Time) ([]event.Event, error) {
		return state.TakeBack(of, before), nil
	})
	if err == nil && before != nil {
		err = c.nameSegments(ctx, call, campaign, before.Segments, nil)
	}
	return cmp.Or(err, refused)
}

// segments are how a client's segments stand.
func (c *Commands) segments(ctx context.Context, client id.Client) (*domain.Segments, error) {
	l, err := c.backTo(statePage, isSnapshot)(ctx, eventstore.SegmentsStream(client), eventstore.End)
	return fold[domain.Segments](l.history), err
}

// ruleOf reads the rule of a segment.
func (c *Commands) ruleOf(ctx context.Context, client id.Client, of event.SegmentStanding) ([]byte, error) {
	ruled, err := c.Log.ReadBack(ctx, eventstore.SegmentsStream(client), eventstore.Revision(of.Ruled), 1)
	if err != nil || len(ruled) == 0 {
		return nil, err
	}
	return c.open(ctx, ruled[0], "rule")
}

// refersOf checks the rule of a segment, under a consent layer or none, and returns the
// segments that it names.
func (c *Commands) refersOf(ctx context.Context, client id.Client, text string, layer id.ConsentLayer) (refers []id.Segment, err error) {
	bounds, err := c.bounds(ctx, client, layer)
	if err != nil {
		return nil, err
	}
	parsed, err := c.parse(ctx, client, "/rule", text, rule.Users, bounds)
	if err != nil {
		return nil, err
	}
	for _, segment := range parsed.Segments() {
		refers = append(refers, id.Segment(segment))
	}
	return refers, nil
}

// parse reads a rule at a place of a request, which reads nothing beyond some bounds, and asks
// for consent layers that are there.
func (c *Commands) parse(ctx context.Context, client id.Client, pointer, text string, scope rule.Scope, bounds rule.Bounds) (*rule.Rule, error) {
	parsed, err := c.readRule(ctx, client, pointer, text, scope)
	if err == nil {
		err = parsed.CheckAt(pointer, bounds)
	}
	if err != nil {
		return nil, err
	}
	return parsed, parsed.CheckLayers(pointer, func(layer string) error {
		return c.CheckConsentLayer(ctx, client, id.ConsentLayer(layer))
	})
}

// readRule reads a rule at a place of a request.
func (c *Commands) readRule(ctx context.Context, client id.Client, pointer, text string, scope rule.Scope) (parsed *rule.Rule, err error) {
	err = c.judging(ctx, client, func() (err error) {
		parsed, err = rule.ParseAt(pointer, text, scope)
		return err
	})
	return parsed, err
}

func (c *Commands) judging(ctx context.Context, client id.Client, judge func() error) error {
	if c.Judging == nil {
		return judge()
	}
	return c.Judging(ctx, client, judge)
}

// bounds are what a rule may read of a client's users, under a consent layer or none.
func (c *Commands) bounds(ctx context.Context, client id.Client, layer id.ConsentLayer) (rule.Bounds, error) {
	if layer == "" {
		return c.boundsOf(ctx, client, false, nil)
	}
	of, err := c.consentLayer(ctx, client, layer)
	if err != nil {
		return rule.Bounds{}, err
	}
	return c.boundsOf(ctx, client, true, of.TraitPaths)
}

// boundsOf are bounds where the paths of the layer are known.
func (c *Commands) boundsOf(ctx context.Context, client id.Client, layered bool, paths []string) (rule.Bounds, error) {
	decided, err := c.decisions(client)(ctx, eventstore.TraitSchemaStream(client), eventstore.End)
	if err != nil {
		return rule.Bounds{}, err
	}
	return rule.Bounds{Layered: layered, Paths: paths, Decided: fold[domain.TraitSchema](decided.history).Sensitive()}, nil
}

// MakeSegmentsReady records that all users were judged by what was defined up to a
// revision.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, segment_unknown, stale.
func (c *Commands) MakeSegmentsReady(ctx context.Context, call Call, revision int64) error {
	_, err := c.decideSegment(ctx, call, "", func(s *domain.Segments) ([]event.Event, error) { return s.Ready(revision), nil })
	return err
}

// PassTime lets the segments of a client judge users as of a moment, up to the one of a number who is due then.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) PassTime(ctx context.Context, call Call, asOf, due time.Time, number int64) error {
	_, err := execute(ctx, c, call, eventstore.SegmentTimeStream(call.Client), false, c.last(call),
		func(clock *domain.Clock, _ []eventstore.Recorded) ([]event.Event, error) {
			return clock.Pass(event.SegmentsTimePassed{AsOf: asOf.UTC().Truncate(time.Microsecond), Due: due.UTC(), Number: number}), nil
		})
	return err
}
