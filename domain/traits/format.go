package traits

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Format says how the values of a trait spell what it holds; the empty one is the
// type's own. Every format also reads what the type's own does.
type Format string

// The formats, as they are told.
const (
	FormatNumber      Format = "1,234.5" // a text; a currency, a per cent sign and brackets for a negative one are passed over
	FormatNumberComma Format = "1.234,5"
	FormatUnit        Format = "1.5 kg" // as FormatNumber, with one unit behind all, or k for a thousand and M for a million
	FormatUnitComma   Format = "1,5 kg"
	FormatCode        Format = "code" // a number that is a name

	FormatDayTime  Format = "YYYY-MM-DD hh:mm"
	FormatYearDay  Format = "YYYY/MM/DD"
	FormatDots     Format = "DD.MM.YYYY"
	FormatDayMonth Format = "DD/MM/YYYY"
	FormatMonthDay Format = "MM/DD/YYYY"
	FormatNamed    Format = "DD Mon YYYY"
	FormatMonth    Format = "YYYY-MM"
	FormatDigits   Format = "YYYYMMDD" // a number or a text
	FormatUnix     Format = "unix seconds"
	FormatUnixMS   Format = "unix milliseconds"

	FormatCommas     Format = "a, b"
	FormatSemicolons Format = "a; b"
	FormatBars       Format = "a | b"

	FormatLatLon Format = "lat, lon"
	FormatPoint  Format = "POINT(lon lat)"
)

// numberFormats, dateFormats, listFormats and placeFormats are tried in this order.
func numberFormats() []Format {
	return []Format{FormatNumber, FormatNumberComma, FormatUnit, FormatUnitComma}
}

func dateFormats() []Format {
	return []Format{
		FormatDayTime, FormatYearDay, FormatDots, FormatDayMonth, FormatMonthDay, FormatNamed, FormatMonth, FormatDigits, FormatUnix, FormatUnixMS,
	}
}

func listFormats() []Format  { return []Format{FormatSemicolons, FormatBars, FormatCommas} }
func placeFormats() []Format { return []Format{FormatLatLon, FormatPoint} }

// read turns a value that is spelled so into one of the type; others stay.
func (f Format) read(v Value) Value {
	switch f {
	case "":
	case FormatNumber, FormatNumberComma:
		if v.Kind == Text {
			if x, ok := spelledNumber(v.Text, f == FormatNumberComma); ok {
				return Value{Path: v.Path, Kind: Number, Number: x}
			}
		}
	case FormatUnit, FormatUnitComma:
		if v.Kind == Text {
			number, unit := unitOf(v.Text)
			if x, ok := spelledNumber(number, f == FormatUnitComma); ok {
				return Value{Path: v.Path, Kind: Number, Number: float64(x * times(unit))}
			}
		}
	case FormatCode:
		if v.Kind == Number {
			return Value{Path: v.Path, Kind: Text, Text: numberText(v.Number)}
		}
	case FormatCommas, FormatSemicolons, FormatBars:
		if v.Kind == Text {
			return Value{Path: v.Path, Kind: Set, Set: f.members(v.Text)}
		}
	case FormatLatLon, FormatPoint:
		if v.Kind == Text {
			if lat, lon, ok := f.place(v.Text); ok {
				return Value{Path: v.Path, Kind: Geo, Number: lat, Lon: lon}
			}
		}
	}
	return v
}

// days reads a date as days since 1970-01-01 UTC.
func (f Format) days(v Value) (float64, bool) {
	if days, ok := v.days(); ok {
		return days, true
	}
	switch {
	case v.Kind == Number && v.Number != math.Trunc(v.Number):
	case v.Kind == Number && f == FormatDigits:
		return f.parsed(strconv.FormatFloat(v.Number, 'f', -1, 64))
	case v.Kind == Number && f == FormatUnix && v.Number >= earliestUnix && v.Number <= latestUnix:
		return v.Number / secondsOfDay, true
	case v.Kind == Number && f == FormatUnixMS && v.Number >= 1000*earliestUnix && v.Number <= 1000*latestUnix:
		return v.Number / 1000 / secondsOfDay, true
	case v.Kind == Text && len(v.Text) >= 6 && len(v.Text) <= 40:
		return f.parsed(strings.TrimSpace(v.Text))
	}
	return 0, false
}

const (
	secondsOfDay = 24 * 60 * 60
	earliestUnix = 315_532_800   // 1980
	latestUnix   = 4_102_444_800 // 2100
	unixOf2000   = 946_684_800
)

func (f Format) parsed(text string) (float64, bool) {
	if f == FormatDigits && len(text) != 8 || f != FormatNamed && (text == "" || text[0] < '0' || text[0] > '9') {
		return 0, false // a failed parse is dear
	}
	for _, layout := range f.layouts() {
		if at, err := time.Parse(layout, text); err == nil && at.Year() >= 1000 {
			return daysOf(at), true
		}
	}
	return 0, false
}

// layouts are those of package time.
func (f Format) layouts() []string {
	switch f {
	case FormatDayTime:
		return []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST"}
	case FormatYearDay:
		return []string{"2006/1/2", "2006/1/2 15:04", "2006/1/2 15:04:05", "2006.1.2"}
	case FormatDots:
		return []string{"2.1.2006", "2.1.2006 15:04", "2.1.2006 15:04:05", "2.1.06"}
	case FormatDayMonth:
		return []string{"2/1/2006", "2/1/2006 15:04", "2/1/2006 15:04:05", "2-1-2006", "2/1/06"}
	case FormatMonthDay:
		return []string{"1/2/2006", "1/2/2006 15:04", "1/2/2006 15:04:05", "1/2/2006 3:04 PM", "1/2/2006 3:04:05 PM", "1-2-2006", "1/2/06"}
	case FormatNamed:
		return []string{"2 Jan 2006", "2 January 2006", "2-Jan-2006", "2-Jan-06", "Jan 2, 2006", "January 2, 2006", "Jan 2 2006", "Mon, 02 Jan 2006 15:04:05 MST"}
	case FormatMonth:
		return []string{"2006-01"}
	case FormatDigits:
		return []string{"20060102"}
	}
	return nil
}

// members splits a list; what stands for nothing is left out.
func (f Format) members(text string) []string {
	separator := map[Format]string{FormatCommas: ",", FormatSemicolons: ";", FormatBars: "|"}[f]
	var members []string
	for part := range strings.SplitSeq(text, separator) {
		if part = strings.TrimSpace(part); part != "" {
			members = append(members, part)
		}
	}
	return sortedSet(members)
}

func (f Format) place(text string) (lat, lon float64, ok bool) {
	separator := ","
	if f == FormatPoint {
		inside, found := strings.CutPrefix(strings.ToUpper(strings.TrimSpace(text)), "POINT")
		if !found {
			return 0, 0, false
		}
		text, separator = inside, " "
	}
	text = strings.Trim(strings.TrimSpace(text), "()[]")
	first, second, found := strings.Cut(strings.TrimSpace(text), separator)
	if !found {
		return 0, 0, false
	}
	lat, errLat := strconv.ParseFloat(strings.TrimSpace(first), 64)
	lon, errLon := strconv.ParseFloat(strings.TrimSpace(second), 64)
	if f == FormatPoint {
		lat, lon = lon, lat
	}
	return lat, lon, errLat == nil && errLon == nil && math.Abs(lat) <= 90 && math.Abs(lon) <= 180
}

// spelledNumber reads a number as people write it; comma says that a comma stands
// before the decimals. Digits that begin with a 0 are a code.
func spelledNumber(text string, comma bool) (float64, bool) {
	text = strings.TrimSpace(text)
	negative := strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")")
	if negative {
		text = text[1 : len(text)-1]
	}
	text = bare(text)
	if rest, found := strings.CutPrefix(text, "-"); found {
		negative, text = true, bare(rest)
	}
	if text == "" || len(text) > 40 || text[0] < '0' || text[0] > '9' || len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' {
		return 0, false
	}
	point, groups := ".", ",'\u00a0\u202f "
	if comma {
		point, groups = ",", ".'\u00a0\u202f "
	}
	whole, decimals, hasPoint := strings.Cut(text, point)
	parts := strings.FieldsFunc(whole, func(r rune) bool { return strings.ContainsRune(groups, r) })
	for i, part := range parts {
		if len(parts) > 1 && (i == 0 && len(part) > 3 || i > 0 && len(part) != 3) {
			return 0, false
		}
	}
	joined := strings.Join(parts, "")
	if hasPoint {
		joined += "." + decimals
	}
	x, err := strconv.ParseFloat(joined, 64)
	if err != nil || math.Abs(x) > MaxMagnitude {
		return 0, false
	}
	if negative {
		x = -x
	}
	return x + 0, true
}

// unitOf takes the letters from behind a number.
func unitOf(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	number = strings.TrimRightFunc(text, func(r rune) bool { return unicode.IsLetter(r) || strings.ContainsRune("°²³", r) })
	return number, text[len(number):]
}

// times is by how much a letter behind a number multiplies it; 1 of a unit.
func times(unit string) float64 {
	switch unit {
	case "k", "K":
		return 1e3
	case "M":
		return 1e6
	}
	return 1
}

// bare takes the signs of currencies and of per cent from the ends of a number.
func bare(text string) string {
	text = strings.Trim(text, " \u00a0$€£¥₹%")
	if n := len(text); n > 3 {
		for _, code := range []string{"USD", "EUR", "GBP", "CHF", "JPY", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "RON", "BGN", "CAD", "AUD", "INR", "kr", "zł"} {
			if rest, found := strings.CutSuffix(text, code); found {
				text = rest
			}
			text = strings.TrimPrefix(text, code)
		}
	}
	return strings.Trim(text, " \u00a0$€£¥₹%")
}

// standsForNothing tells texts that say that there is no value. NA is the code of a
// country too: where all are such codes, country keeps it.
func standsForNothing(text string, country bool) bool {
	if len(text) > 13 || utf8.RuneCountInString(text) > 13 {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "n/a", "#n/a", "n.a.", "<na>", "nan", "null", "nil", "nul", "\\n", "?", "??", "-", "--", "---", ".", "not available", "undefined", "unknown", "missing", "(null)", "(blank)":
		return true
	case "na":
		return !country
	}
	return false
}
