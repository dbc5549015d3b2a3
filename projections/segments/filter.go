package segments

import (
	"context"
	"slices"
	"strings"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/projections/readmodel"
)

const (
	judgedUsers = `
SELECT ` + openableColumns + `, c.now
FROM segment_users u JOIN segment_clients c ON c.client = u.client`
	judgedByID      = ` WHERE u.client = $1 AND u.id = ANY((SELECT $2::text[])::text[])` // planned once for any number: else 0.7 ms each time
	judgedByNumber  = ` WHERE u.client = $1 AND u.number = ANY($2) ORDER BY u.number`
	servingVersions = `SELECT v.number, v.segment FROM segment_versions v WHERE v.client = $1 AND v.serves`
)

// served are the versions that serve, by segment.
type served map[string]int32

// names says whether a user is in a segment. A rule may ask that for each element of a list.
func (s served) names(u *segmentUser, segment string) bool {
	number, serves := s[segment]
	_, in := slices.BinarySearch(u.versions, number)
	return serves && in
}

// serving reads which versions serve, as of what the client was told.
func (m Model) serving(ctx context.Context, client id.Client, eventual bool) (served, error) {
	type row struct {
		number  int32
		segment string
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, servingVersions, nil, func(r *row) []any { return []any{&r.number, &r.segment} })
	serving := make(served, len(found))
	for _, r := range found {
		serving[r.segment] = r.number
	}
	return serving, err
}

// judged reads users and calls judge with each, as of the time of judgements. Users who
// cannot be opened are left out. The facts of a user are gone when the next is judged. What
// a rule asks beside traits is read for the rule by; nil: for any rule.
func (m Model) judged(ctx context.Context, client id.Client, eventual bool, serving served, by *rule.Rule, where string, arg any, judge func(u *segmentUser, steps int) (goOn bool)) error {
	return m.Judging.Do(ctx, client, func() error {
		type row struct {
			segmentUser
			now time.Time
		}
		found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, judgedUsers+readmodel.JoinKey(`$1`)+where, []any{arg}, func(r *row) []any {
			return append(r.openable(), &r.now)
		})
		if err != nil {
			return err
		}
		known, err := m.known(ctx, client, true, by, readmodel.Column(found, func(r row) id.User { return r.id }))
		if err != nil {
			return err
		}
		c := segmented{Model: m, client: client, spend: freely}
		for i := range found {
			if err := ctx.Err(); err != nil { // a hundred may take a second of a processor, which others wait for
				return err
			}
			u := &found[i].segmentUser
			if err := c.open(ctx, u); err != nil {
				return err
			}
			if u.facts == nil {
				continue
			}
			u.known = known[u.id]
			*u.facts = u.known.facts(*u.facts)
			u.facts.Now = found[i].now
			u.facts.InSegment = func(segment string) bool { return serving.names(u, segment) }
			goOn := judge(u, u.openSteps())
			if u.close(); !goOn {
				break
			}
		}
		return nil
	})
}

// known reads what a rule asks of users beside their traits; nil: what any may.
func (m Model) known(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, users []id.User) (map[id.User]knownOfUser, error) {
	a := asked{any: true}
	sql := selectKnown
	if r != nil {
		a = asked{}
		a.by(r)
	} else {
		sql = strings.Replace(selectKnown, ` AND what = ANY($3)`, ` AND $3::text[] IS NOT NULL`, 1)
	}
	if !a.any || len(users) == 0 {
		return nil, nil
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, sql, []any{readmodel.Texts(users), readmodel.Texts(a.acts)}, (*knownRow).columns)
	return knownOf(rows), err
}

// Known tells rules what a rule asks of users beside their traits, outside of any layer.
// Faults: building, overloaded, quarantined, stale.
func (m Model) Known(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, users []id.User) (func(id.User, rule.Facts) rule.Facts, error) {
	known, err := m.known(ctx, client, eventual, r, users)
	return func(user id.User, facts rule.Facts) rule.Facts { return known[user].facts(facts) }, err
}

const namedSegments = `
SELECT s.id, s.layer, coalesce(cardinality(v.blocked) > 0, false) AS blocked, coalesce(v.serves AND v.blocked IS NULL, false) AS counts
FROM segments s LEFT JOIN LATERAL (
	SELECT serves, blocked FROM segment_versions WHERE client = $1 AND segment = s.id ORDER BY serves DESC LIMIT 1) v ON true
WHERE s.client = $1 AND s.id = ANY($2)`

// CheckNamed refuses a rule at a place of a request that names a segment of another
// consent layer than its own, or one that is not there, is blocked or judges its first
// members: whom that names is not known.
// Faults: building, invalid, overloaded, quarantined, segment_building, stale.
func (m Model) CheckNamed(ctx context.Context, client id.Client, eventual bool, pointer string, r *rule.Rule, layer id.ConsentLayer) error {
	if len(r.Segments()) == 0 {
		return nil
	}
	type row struct {
		segment         id.Segment
		layer           id.ConsentLayer
		blocked, counts bool
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, namedSegments, []any{r.Segments()}, func(r *row) []any {
		return []any{readmodel.Text(&r.segment), readmodel.Text(&r.layer), &r.blocked, &r.counts}
	})
	if err != nil {
		return err
	}
	for _, named := range r.Segments() {
		if !slices.ContainsFunc(found, func(s row) bool { return string(s.segment) == named }) {
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + named + ", and there is no such segment"})
		}
	}
	for _, s := range found {
		switch {
		case s.layer != layer:
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + string(s.segment) + ", which is not of the same consent_layer_id"})
		case s.blocked:
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "in_segment names " + string(s.segment) + ", which is blocked: whom it names is not known"})
		case !s.counts:
			err = errSegmentBuilding() // unless another one is refused
		}
	}
	return err
}

// Named says whom of some users a filter of pairs surely names, for a viewer. Users that
// are not in the result were not judged.
// Faults: building, overloaded, quarantined, stale.
func (m Model) Named(ctx context.Context, client id.Client, filter *rule.Filter, viewer id.User, users []id.User) (map[id.User]bool, error) {
	named := make(map[id.User]bool, len(users))
	serving, err := m.serving(ctx, client, false) // which waits until the model has what was acknowledged
	if err != nil {
		return nil, err
	}
	var self *rule.Facts
	if err := m.judged(ctx, client, true, serving, filter.Rule, judgedByID, []string{string(viewer)}, func(u *segmentUser, _ int) bool {
		self = u.facts
		return true
	}); err != nil || self == nil {
		return named, err
	}
	for some := range slices.Chunk(users, usersRead) {
		if filter.Exhausted() {
			break
		}
		if err := m.judged(ctx, client, true, serving, filter.Rule, judgedByID, readmodel.Texts(some), func(u *segmentUser, steps int) bool {
			u.facts.Viewer, u.facts.InCluster = self, u.known.inCluster(id.ConsentLayer(filter.Layer))
			named[u.id] = filter.Names(u.facts, steps)
			return !filter.Exhausted()
		}); err != nil {
			return nil, err
		}
	}
	return named, nil
}
