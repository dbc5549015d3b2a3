package segments

import (
	"context"
	"slices"
	"strings"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Segment is a group of users by rule.
type Segment struct {
	ID              id.Segment
	Name            string
	Rule            string // the newest
	Ready           bool   // there are members: those by Rule, unless it is Building
	Building        bool   // users are being judged by Rule
	Layer           id.ConsentLayer
	Blocked         bool // Rule names nobody, since it reads what it may not
	BlockedBy       []BlockedBy
	Members         int
	Changed         eventstore.Revision // of the event that changed it last
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
}

// BlockedBy is why a segment names nobody.
type BlockedBy struct{ Cause, Name string }

const (
	servesSegment  = `EXISTS (SELECT FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND v.serves) AS ready`
	definedColumns = `s.id, s.name, s.rule, s.rule_event, k.id AS key, k.client_key, k.wrapped`
)

// segmentColumns selects the columns of segments; counted is SQL for how many members a
// version has.
func segmentColumns(counted string) string {
	return `
SELECT ` + definedColumns + `, s.changed, s.created_at, s.updated_at, s.created_position,
	coalesce((SELECT ` + counted + ` FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND v.serves), 0) AS members,
	` + servesSegment + `,
	EXISTS (SELECT FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id AND NOT v.serves) AS building,
	s.layer, (SELECT v.blocked FROM segment_versions v WHERE v.client = $1 AND v.segment = s.id ORDER BY v.serves LIMIT 1) AS blocked`
}

// Each statement also reads the keys of the segments that it finds.
var (
	fromSegments = ` FROM segments s` + readmodel.JoinKeyOf(`$1`, `s.id`) + ` WHERE s.client = $1`
	listSegments = unfolded + segmentColumns(membersOf) + fromSegments + ` AND s.created_position > $2 ORDER BY s.created_position LIMIT $3`
	getSegment   = segmentColumns(membersOfOne) + fromSegments + ` AND s.id = $2`
)

type storedSegment struct {
	Segment
	rule    readmodel.Sealed
	key     seal.WrappedKey
	blocked []string
}

// basics are what a segment is called and whom it names.
func (s *storedSegment) basics() []any {
	return []any{readmodel.Text(&s.ID), &s.Name, &s.rule.Box, readmodel.Text(&s.rule.Event), readmodel.Text(&s.key.ID), readmodel.Text(&s.key.Under), &s.key.Wrapped}
}

func (s *storedSegment) columns() []any {
	return append(s.basics(), &s.Changed, &s.CreatedAt, &s.UpdatedAt, readmodel.Text(&s.CreatedPosition), &s.Members, &s.Ready, &s.Building, readmodel.Text(&s.Layer), &s.blocked)
}

// opened opens the rules of segments. That of one that was retired just now is empty.
func (m Model) opened(ctx context.Context, client id.Client, stored []storedSegment) ([]Segment, error) {
	segments := make([]Segment, len(stored))
	for i, s := range stored {
		text, err := m.Open(ctx, s.key, string(s.ID), s.rule, client, eventstore.SegmentsStream(client), "rule")
		if err != nil {
			return nil, err
		}
		segments[i] = s.Segment
		segments[i].Rule = string(text)
		segments[i].Blocked = len(s.blocked) > 0
		segments[i].Building = s.Building || s.blocked != nil && !segments[i].Blocked // it is about to be
		for _, why := range s.blocked {
			cause, name, _ := strings.Cut(why, " ")
			segments[i].BlockedBy = append(segments[i].BlockedBy, BlockedBy{cause, name})
		}
	}
	return segments, nil
}

// List returns a page of segments, without those that were retired just now.
// Faults: building, overloaded, quarantined, stale.
func (m Model) List(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Segment, error) {
	return readmodel.Filled(page, nil, func(page readmodel.Page) (found []Segment, more bool, last eventstore.Position, err error) {
		if found, err = m.ListAll(ctx, client, eventual, page); err != nil || len(found) == 0 {
			return nil, false, "", err
		}
		more, last = len(found) == page.Limit, found[len(found)-1].CreatedPosition
		return readable(found), more, last, nil
	})
}

// readable leaves out segments whose key is destroyed already, and whose end is on its way here.
func readable(found []Segment) []Segment {
	return slices.DeleteFunc(found, func(s Segment) bool { return s.Rule == "" })
}

// ListAll is List of all, also of those whose key was destroyed since.
// Faults: building, overloaded, quarantined, stale.
func (m Model) ListAll(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Segment, error) {
	stored, err := readmodel.Query(ctx, m.Reader, m, client, eventual, listSegments, []any{string(page.After), page.Limit}, (*storedSegment).columns)
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, client, stored)
}

func errSegmentBuilding() error {
	return fault.New(fault.Unavailable, "segment_building", "The users are being judged by the segment's rule. Please try again soon.").After(time.Second)
}

// Get returns a segment, or fails with a fault of kind Missing.
// Faults: building, overloaded, quarantined, segment_unknown, stale.
func (m Model) Get(ctx context.Context, client id.Client, eventual bool, segment id.Segment) (Segment, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getSegment, []any{string(segment)}, (*storedSegment).columns)
	stored, err := readmodel.Only(found, err, fault.UnknownSegment())
	if err != nil {
		return Segment{}, err
	}
	opened, err := m.opened(ctx, client, []storedSegment{stored})
	if err != nil {
		return Segment{}, err
	}
	return readmodel.Only(readable(opened), nil, fault.UnknownSegment())
}

// segmentProgress is how far a segment has come, for a follower of it.
type segmentProgress struct {
	ready   bool
	from    eventstore.Position // changes are told from here on
	reached eventstore.Position // how far the client's part of the model has come
}

// A client that is applied in slices, or whose part is being replaced, is behind the model.
const segmentProgressed = `SELECT ` + servesSegment + `, s.changes_from, (SELECT reached FROM fresh) AS reached
FROM segments s WHERE s.client = $1 AND s.id = $2`

// progress returns how far a segment has come that has members.
func (m Model) progress(ctx context.Context, client id.Client, eventual bool, segment id.Segment) (segmentProgress, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, segmentProgressed, []any{string(segment)}, func(s *segmentProgress) []any {
		return []any{&s.ready, readmodel.Text(&s.from), readmodel.Text(&s.reached)}
	})
	s, err := readmodel.Only(found, err, fault.UnknownSegment())
	if err == nil && !s.ready {
		err = errSegmentBuilding()
	}
	return s, err
}
