package segments

import (
	"context"
	"time"

	"kindred/domain/id"
	"kindred/projections/readmodel"
)

// DaySize is how many members a segment had at the end of a day, or has.
type DaySize struct {
	Day     time.Time
	Members int
}

// segmentSizes are those of days up to one, and, on the last day that its client has come to, what it is now.
const segmentSizes = `
SELECT day, members FROM segment_sizes WHERE client = $1 AND segment = $2
UNION ALL
SELECT (c.now AT TIME ZONE 'UTC')::date, ` + membersOfOne + `
FROM segment_versions v JOIN segment_clients c ON c.client = v.client WHERE v.client = $1 AND v.segment = $2 AND v.serves
ORDER BY day`

// Sizes returns how many members a segment had on each day of some, in order; it was
// nothing before the first of them.
// Faults: building, overloaded, quarantined, segment_building, segment_unknown, stale.
func (m Model) Sizes(ctx context.Context, client id.Client, eventual bool, segment id.Segment, from, to time.Time) ([]DaySize, error) {
	if _, err := m.progress(ctx, client, eventual, segment); err != nil {
		return nil, err
	}
	noted, err := readmodel.Query(ctx, m.Reader, m, client, true, segmentSizes, []any{string(segment)}, func(s *DaySize) []any { return []any{&s.Day, &s.Members} })
	if err != nil || len(noted) == 0 {
		return nil, err
	}
	var sizes []DaySize
	for at := dayOf(from); !at.After(dayOf(to)); at = at.Add(day) {
		for len(noted) > 1 && !noted[1].Day.After(at) {
			noted = noted[1:]
		}
		if !noted[0].Day.After(at) {
			sizes = append(sizes, DaySize{at, noted[0].Members})
		}
	}
	return sizes, nil
}
