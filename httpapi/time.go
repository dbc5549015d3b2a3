package httpapi

import (
	"errors"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// Time is a moment as the contract writes it: RFC 3339 in UTC, always with six
// decimals and a Z.
type Time struct{ time.Time }

const timeLayout = `"2006-01-02T15:04:05.000000Z"`

// MarshalJSON cuts off what is finer than a microsecond.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, len(timeLayout))), nil
}

// append writes timeLayout by way of a layout that the library knows: 42 ns instead of 151,
// and a page of 50 users has 100 times.
func (t Time) append(b []byte) []byte {
	at := t.UTC()
	b = at.AppendFormat(append(b, '"'), time.RFC3339)
	b[len(b)-1] = '.' // the Z
	for micros, unit := at.Nanosecond()/1000, 100_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+micros/unit%10))
	}
	return append(b, 'Z', '"')
}

// plainTime holds the form to RFC 3339: package time also takes a comma, and +24:00 and +01:60.
var plainTime = openapi3.NewRegexpFormatValidator(`^[^,]+(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// checkTime refuses what is no time, such as the 30th of February, and one whose
// year has not four digits in UTC, so that no answer could tell it.
func checkTime(text string) error {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return err
	}
	if at.UTC().Year() < 0 || at.UTC().Year() > 9999 {
		return errors.New("the year is out of range")
	}
	return plainTime.Validate(text)
}

// TimeOrNull is a moment that may not be known.
func TimeOrNull(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	return &Time{*t}
}
