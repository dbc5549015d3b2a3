package segments

import (
	"context"
	"slices"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
)

// Ready fails where a segment, named at a place of a request, is not there or is judging
// its first members. Under a consent layer its rule may read no more than the layer
// permits, and has to count already, unless the segment is of that layer.
// Faults: building, invalid, overloaded, quarantined, segment_building, segment_unknown, stale.
func (m Model) Ready(ctx context.Context, client id.Client, eventual bool, pointer string, segment id.Segment, within event.Within) error {
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
	return m.Judging.Do(ctx, client, func() error {
		parsed, err := rule.ParseAt(pointer, s.Rule, rule.Users)
		if err != nil {
			return err
		}
		return parsed.Permitted(pointer, within.TraitPaths)
	})
}

const standingOfUser = `
SELECT v.segment AS name, v.number = ANY(u.versions) AS of_it, false AS layer
FROM segment_users u JOIN segment_versions v ON v.client = u.client AND v.serves AND v.blocked IS NULL
WHERE u.client = $1 AND u.id = $2 AND v.segment = ANY($3)
UNION ALL
SELECT c.layer, true, true FROM segment_consents c WHERE c.client = $1 AND c.user_id = $2`

// Standing says which of some segments a user is in, and which it is surely not in, and
// what consent layers it grants. Of a segment that is not there, is judging its first
// members or is blocked, neither is known.
// Faults: building, overloaded, quarantined, stale.
func (m Model) Standing(ctx context.Context, client id.Client, eventual bool, user id.User, of []id.Segment) (in, out []id.Segment, granted []id.ConsentLayer, err error) {
	type row struct {
		name        string
		in, isLayer bool
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, standingOfUser, []any{string(user), readmodel.Texts(of)}, func(r *row) []any {
		return []any{&r.name, &r.in, &r.isLayer}
	})
	for _, r := range found {
		switch {
		case r.isLayer:
			granted = append(granted, id.ConsentLayer(r.name))
		case r.in:
			in = append(in, id.Segment(r.name))
		default:
			out = append(out, id.Segment(r.name))
		}
	}
	return in, out, granted, err
}

const amongUsers = `
SELECT u.id FROM segment_users u JOIN segment_versions v ON v.client = u.client AND v.serves AND v.blocked IS NULL AND v.number = ANY(u.versions)
WHERE u.client = $1 AND v.segment = $2 AND u.id = ANY($3) ORDER BY u.id`

// Among returns those of some users, which are in order of their ids, who are in a segment,
// as far as the model has come.
// Faults: building, overloaded, quarantined, segment_building, segment_unknown, stale.
func (m Model) Among(ctx context.Context, client id.Client, segment id.Segment, users []id.User) (in []id.User, err error) {
	if _, err := m.progress(ctx, client, true, segment); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(users, readmodel.UsersAtOnce) {
		found, err := readmodel.Query(ctx, m.Reader, m, client, true, amongUsers, []any{string(segment), readmodel.Texts(some)}, readmodel.OneText[id.User])
		if err != nil {
			return nil, err
		}
		in = append(in, found...)
	}
	return in, nil
}

// NamedAlone says whom of some users a filter that needs no viewer surely names. Users that
// are not in the result were not judged.
// Faults: building, overloaded, quarantined, stale.
func (m Model) NamedAlone(ctx context.Context, client id.Client, eventual bool, filter *rule.Filter, users []id.User) (map[id.User]bool, error) {
	named := make(map[id.User]bool, len(users))
	serving, err := m.serving(ctx, client, eventual)
	if err != nil {
		return nil, err
	}
	err = m.judged(ctx, client, true, serving, filter.Rule, judgedByID, readmodel.Texts(users), func(u *segmentUser, steps int) bool {
		u.facts.InCluster = u.known.inCluster(id.ConsentLayer(filter.Layer))
		named[u.id] = filter.Names(u.facts, steps)
		return !filter.Exhausted()
	})
	return named, err
}
