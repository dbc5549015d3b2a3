package httpapi

import "time"

// Time is a moment as the contract writes it: RFC 3339 in UTC, always with six
// decimals and a Z.
type Time struct{ time.Time }

const timeLayout = `"2006-01-02T15:04:05.000000Z"`

// MarshalJSON cuts off what is finer than a microsecond.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, len(timeLayout))), nil
}

func (t Time) append(b []byte) []byte { return t.UTC().AppendFormat(b, timeLayout) }

// TimeOrNull is a moment that may not be known.
func TimeOrNull(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	return &Time{*t}
}
