package segments

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
)

const segmentsOfUsers = `
SELECT u.id, v.segment FROM segment_users u JOIN segment_versions v ON v.client = $1 AND v.serves AND v.number = ANY(u.versions)
WHERE u.client = $1 AND u.id = ANY($2) ORDER BY u.id, v.segment`

// Of returns the segments that each of these users is in.
// Faults: building, overloaded, quarantined, stale.
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

// SegmentOfUser is what a segment makes of a user.
type SegmentOfUser struct {
	Segment
	Member  bool
	Granted bool              // the segment's consent layer, if it has one
	Why     []rule.Comparison // nil where nothing may be told, and where that took too long
}

var segmentsOfUser = `SELECT s.id, s.name, v.rule, v.rule_event, k.id AS key, k.client_key, k.wrapped, v.layer, v.blocked, coalesce(v.number = ANY($2), false) AS is_in
FROM segments s JOIN segment_versions v ON v.client = s.client AND v.segment = s.id AND v.serves` + readmodel.JoinKeyOf(`$1`, `s.id`) + `
WHERE s.client = $1 AND (v.number = ANY($2) OR s.id = $3) ORDER BY s.created_position`

// OfUser returns the segments that a user is in, in order of their creation, each with
// what the rule that counts makes of the user.
// Faults: building, overloaded, quarantined, stale.
func (m Model) OfUser(ctx context.Context, client id.Client, eventual bool, user id.User) ([]SegmentOfUser, error) {
	return m.ofUser(ctx, client, eventual, user, "")
}

// MemberOf says whether a user is in a segment, and what the rule that counts makes of the user.
// Faults: building, overloaded, quarantined, segment_building, segment_unknown, stale.
func (m Model) MemberOf(ctx context.Context, client id.Client, eventual bool, user id.User, segment id.Segment) (SegmentOfUser, error) {
	if _, err := m.progress(ctx, client, eventual, segment); err != nil {
		return SegmentOfUser{}, err
	}
	found, err := m.ofUser(ctx, client, true, user, segment)
	return readmodel.Only(found, err, fault.UnknownSegment())
}

// ofUser returns what one segment makes of a user, or with an empty id what all make that it is in.
func (m Model) ofUser(ctx context.Context, client id.Client, eventual bool, user id.User, one id.Segment) ([]SegmentOfUser, error) {
	var u segmentUser
	var facts rule.Facts
	if err := m.judged(ctx, client, eventual, nil, nil, judgedByID, []string{string(user)}, func(judged *segmentUser, _ int) bool {
		u, facts = *judged, *judged.facts
		return true
	}); err != nil || one == "" && len(u.versions) == 0 {
		return nil, err
	}
	type row struct {
		storedSegment
		in bool
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, segmentsOfUser, []any{u.versions, string(one)}, func(r *row) []any {
		return append(r.basics(), readmodel.Text(&r.Layer), &r.blocked, &r.in)
	})
	if err != nil {
		return nil, err
	}
	in := make(map[string]bool, len(rows))
	for _, r := range rows {
		in[string(r.ID)] = r.in
	}
	segments, err := m.opened(ctx, client, readmodel.Column(rows, func(r row) storedSegment { return r.storedSegment }))
	if err != nil {
		return nil, err
	}
	var found []SegmentOfUser
	for _, s := range readable(segments) {
		if one == "" || s.ID == one {
			found = append(found, SegmentOfUser{Segment: s, Member: in[string(s.ID)], Granted: u.known.granted[s.Layer]})
		}
	}
	if u.id == "" { // it is on its way here
		return found, nil
	}
	facts.InSegment = func(segment string) bool { return in[segment] }
	return found, m.explain(ctx, client, found, &facts, u.known, maxExplained)
}

const (
	// maxExplained is some 3 s, as that of filters is.
	// limit: requests | steps that explain to which segments a user belongs, six of them for each byte that a rule takes in memory | {maxExplained} | `why` is empty for the rest
	maxExplained = 300_000_000
	// limit: models | steps that explain to which segments a user belongs, at a time | {explainedAtOnce}
	explainedAtOnce = 20_000_000
)

// explain says what each of some segments makes of a user, until that took so many steps.
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

// explain says what the segment makes of a user, and what that took. A segment that names
// nobody, since it is or was blocked, tells nothing; under a layer nothing is told of who does not grant it.
func (s *SegmentOfUser) explain(facts *rule.Facts) (steps int) {
	if s.Blocked || s.Building || s.Layer != "" && !s.Granted {
		return 0
	}
	parsed, err := rule.Parse(s.Rule, rule.Users)
	if err != nil {
		return parseSteps * len(s.Rule)
	}
	s.Why, steps = parsed.Explain(facts)
	return steps + parseSteps*parsed.Size()
}
