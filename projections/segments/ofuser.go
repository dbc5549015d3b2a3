package segments

import (
	"context"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
)

const segmentsOfUsers = `
SELECT u.id, v.segment FROM segment_users u JOIN segment_versions v ON v.client = $1 AND v.serves AND v.number = ANY(u.versions)
WHERE u.client = $1 AND u.id = ANY($2) ORDER BY u.id, v.segment`

// Of returns the segments that each of these users is in.
// Faults: building, quarantined, stale.
func (m Model) Of(ctx context.Context, client id.Client, eventual bool, users []id.User) (map[id.User]map[string]bool, error) {
	type row struct {
		user    id.User
		segment string
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, segmentsOfUsers, []any{readmodel.Texts(users)},
		func(r *row) []any { return []any{readmodel.Text(&r.user), &r.segment} })
	in := make(map[id.User]map[string]bool, len(users))
	for _, r := range found {
		if in[r.user] == nil {
			in[r.user] = map[string]bool{}
		}
		in[r.user][r.segment] = true
	}
	return in, err
}

// SegmentOfUser is a segment that a user is in, and why; nil where that took too long to tell.
type SegmentOfUser struct {
	Segment
	Why []rule.Comparison
}

var segmentsOfUser = `SELECT s.id, s.name, v.rule, v.rule_event, k.id AS key, k.client_key, k.wrapped, v.layer
FROM segments s JOIN segment_versions v ON v.client = s.client AND v.segment = s.id AND v.serves` + readmodel.JoinKeyOf(`$1`, `s.id`) + `
WHERE s.client = $1 AND v.number = ANY($2) ORDER BY s.created_position`

// OfUser returns the segments that a user is in, in order of their creation, each with
// what the rule that counts makes of the user.
// Faults: building, quarantined, stale.
func (m Model) OfUser(ctx context.Context, client id.Client, eventual bool, user id.User) ([]SegmentOfUser, error) {
	var facts rule.Facts
	var in []int32
	var of knownOfUser
	if err := m.judged(ctx, client, eventual, nil, nil, judgedByID, []string{string(user)}, func(u *segmentUser, _ int) bool {
		facts, in, of = *u.facts, u.versions, u.known
		return true
	}); err != nil || len(in) == 0 {
		return nil, err
	}
	stored, err := readmodel.Query(ctx, m.Reader, m, client, true, segmentsOfUser, []any{in}, func(s *storedSegment) []any {
		return append(s.basics(), readmodel.Text(&s.Layer))
	})
	if err != nil {
		return nil, err
	}
	segments, err := m.opened(ctx, client, stored)
	if err != nil {
		return nil, err
	}
	segments = readable(segments)
	found, ids := make([]SegmentOfUser, len(segments)), make(map[string]bool, len(segments))
	for i, s := range segments {
		found[i].Segment, ids[string(s.ID)] = s, true
	}
	facts.InSegment = func(segment string) bool { return ids[segment] }
	return found, m.explain(ctx, client, found, &facts, of, maxExplained)
}

const (
	// maxExplained is some 3 s, as that of filters is.
	// limit: requests | steps that explain to which segments a user belongs, six of them for each byte that a rule takes in memory | {maxExplained} | `why` is empty for the rest
	maxExplained = 300_000_000
	// limit: models | steps that explain to which segments a user belongs, at a time | {explainedAtOnce}
	explainedAtOnce = 20_000_000
)

// explain says why a user is in each of some segments, until that took so many steps.
func (m Model) explain(ctx context.Context, client id.Client, found []SegmentOfUser, facts *rule.Facts, of knownOfUser, most int) error {
	for steps := 0; len(found) > 0 && steps < most; {
		if err := m.Judging.Do(ctx, client, func() error {
			for upTo := min(most, steps+explainedAtOnce); len(found) > 0 && steps < upTo; found = found[1:] {
				if err := ctx.Err(); err != nil {
					return err
				}
				facts.InCluster = of.inCluster(found[0].Layer)
				steps += found[0].explain(facts)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// explain says why a user is in the segment, and what that took.
func (s *SegmentOfUser) explain(facts *rule.Facts) (steps int) {
	parsed, err := rule.Parse(s.Rule, rule.Users)
	if err != nil {
		return parseSteps * len(s.Rule)
	}
	s.Why, steps = parsed.Explain(facts)
	return steps + parseSteps*parsed.Size()
}
