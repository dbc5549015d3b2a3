package projections

import (
	"context"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
)

// Ready fails where a segment, named at a place of a request, is not there or is judging
// its first members. Under a consent layer its rule may read no more than the layer
// permits, and has to count already, unless the segment is of that layer.
// Faults: building, invalid, quarantined, segment_building, segment_unknown, stale.
func (m Segments) Ready(ctx context.Context, client id.Client, eventual bool, pointer string, segment id.Segment, within event.Within) error {
	if _, err := m.progress(ctx, client, eventual, segment); err != nil {
		return err
	}
	s, err := m.Get(ctx, client, true, segment)
	switch {
	case err != nil || s.Layer == within.Layer:
		return err
	case s.Layer != "":
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "is a segment of another consent layer"})
	case s.Building:
		return errSegmentBuilding()
	}
	parsed, err := rule.ParseAt(pointer, s.Rule, rule.Users)
	if err != nil {
		return err
	}
	return parsed.Permitted(pointer, within.TraitPaths)
}

// NamedAlone says whom of some users a filter surely names that knows no viewer; of those
// that it leaves out it judged nobody.
// Faults: building, quarantined, stale.
func (m Segments) NamedAlone(ctx context.Context, client id.Client, eventual bool, filter *rule.Filter, users []id.User) (map[id.User]bool, error) {
	named := make(map[id.User]bool, len(users))
	serving, err := m.serving(ctx, client, eventual)
	if err != nil {
		return nil, err
	}
	err = m.judged(ctx, client, serving, filter.Rule, judgedByID, texts(users), func(u *segmentUser, steps int) bool {
		named[u.id] = filter.Names(u.facts, steps)
		return !filter.Exhausted()
	})
	return named, err
}
