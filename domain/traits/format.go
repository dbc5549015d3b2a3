package traits

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Format says how the values of a trait spell what it holds; the empty one is the
// type's own. Every format also reads what the type's own does.
type Format string

// The formats, as they are told.
const (
	FormatNumber      Format = "1,234.5" // a text; a currency, a per cent sign and brackets for a negative one are passed over
	FormatNumberComma Format = "1.234,5"
	FormatUnit        Format = "1.5 kg" // as FormatNumber, with one unit behind all, or k for a thousand and M for a million; "4.5/5" is one, too
	FormatUnitComma   Format = "1,5 kg"
	FormatClock       Format = "hh:mm"  // or hh:mm:ss, in hours: a time of day, or how long
	FormatDuration    Format = "1h 30m" // in hours
	FormatFeet        Format = "5'11\"" // in feet
	FormatCode        Format = "code"   // a number that is a name

	FormatDayTime  Format = "YYYY-MM-DD hh:mm"
	FormatYearDay  Format = "YYYY/MM/DD"
	FormatDots     Format = "DD.MM.YYYY"
	FormatDayMonth Format = "DD/MM/YYYY"
	FormatMonthDay Format = "MM/DD/YYYY"
	FormatNamed    Format = "DD Mon YYYY" // months have names, in seven languages; without a day, the first
	FormatMonth    Format = "YYYY-MM"
	FormatWeek     Format = "YYYY-Www"
	FormatDigits   Format = "YYYYMMDD" // a number or a text
	FormatUnix     Format = "unix seconds"
	FormatUnixMS   Format = "unix milliseconds"

	FormatCommas     Format = "a, b"
	FormatSemicolons Format = "a; b"
	FormatBars       Format = "a | b"
	FormatLines      Format = "a line each"

	FormatLatLon Format = "lat, lon" // a text, or an array of the two
	FormatPoint  Format = "POINT(lon lat)"
)

// numberFormats, quantityFormats, dateFormats, listFormats and placeFormats are tried in this order.
func numberFormats() []Format {
	return []Format{FormatNumber, FormatNumberComma, FormatUnit, FormatUnitComma}
}

func quantityFormats() []Format { return []Format{FormatClock, FormatDuration, FormatFeet} }

func dateFormats() []Format {
	return []Format{
		FormatDayTime, FormatYearDay, FormatDots, FormatDayMonth, FormatMonthDay, FormatNamed, FormatMonth, FormatWeek, FormatDigits, FormatUnix, FormatUnixMS,
	}
}

func listFormats() []Format {
	return []Format{FormatLines, FormatSemicolons, FormatBars, FormatCommas}
}

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
			x, ok := spelledNumber(number, f == FormatUnitComma)
			if x *= times(unit); ok && math.Abs(x) <= MaxMagnitude {
				return Value{Path: v.Path, Kind: Number, Number: x}
			}
		}
	case FormatClock, FormatDuration, FormatFeet:
		if v.Kind == Text {
			if x, ok := f.quantity(v.Text); ok {
				return Value{Path: v.Path, Kind: Number, Number: x}
			}
		}
	case FormatCode:
		if v.Kind == Number {
			return Value{Path: v.Path, Kind: Text, Text: numberText(v.Number)}
		}
	case FormatCommas, FormatSemicolons, FormatBars, FormatLines:
		switch v.Kind {
		case Text:
			return Value{Path: v.Path, Kind: Set, Set: f.members(v.Text)}
		case Number: // 7 beside "3, 8"
			return Value{Path: v.Path, Kind: Set, Set: []string{numberText(v.Number)}}
		}
	case FormatLatLon, FormatPoint:
		if _, ok := PlaceAt(v.Number, v.Lon); ok && v.Pair && f == FormatLatLon {
			return Value{Path: v.Path, Kind: Geo, Number: v.Number, Lon: v.Lon}
		}
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
	if unix := f == FormatUnix || f == FormatUnixMS; unix && v.Kind == Text {
		x, err := strconv.ParseFloat(v.Text, 64)
		if err != nil {
			return 0, false
		}
		v.Kind, v.Number = Number, x
	}
	switch {
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
	switch f {
	case FormatNamed:
		return named(text)
	case FormatWeek:
		return week(text)
	}
	if f == FormatDigits && len(text) != 8 || text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false // a failed parse is dear
	}
	for _, layout := range f.layouts() {
		if at, ok := parsedAs(layout, text); ok {
			return daysOf(at), true
		}
	}
	return 0, false
}

// parsedAs reads a time by a layout of package time. A year of two digits is one from 1950 to 2049, as
// spreadsheets take it: package time turns at 1969, and who was born in 1968 would be so in 2068. Nor does the
// zone of the machine say what CET is: two machines would read other times.
func parsedAs(layout, text string) (time.Time, bool) {
	at, err := time.ParseInLocation(layout, text, time.UTC)
	if err == nil && at.Year() >= 2050 && !strings.Contains(layout, "2006") {
		at = at.AddDate(-100, 0, 0)
	}
	return at, err == nil && at.Year() >= 1000
}

// layouts are those of package time.
func (f Format) layouts() []string { return layouts()[f] }

var layouts = sync.OnceValue(func() map[Format][]string {
	at := func(days ...string) (all []string) { // alone first, as most are
		for _, time := range []string{"", " 15:04", " 15:04:05", " 3:04 PM", " 3:04:05 PM"} {
			for _, day := range days {
				all = append(all, day+time)
			}
		}
		return all
	}
	return map[Format][]string{
		FormatDayTime: {
			"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST", "2006-01-02 15:04:05-07", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05-0700",
			"2006-01-02 15:04:05 -07:00", "2006-01-02 3:04 PM", "2006-01-02 3:04:05 PM",
		},
		FormatYearDay:  at("2006/1/2", "2006.1.2"),
		FormatDots:     at("2.1.2006", "2.1.06", "2. 1. 2006"),
		FormatDayMonth: at("2/1/2006", "2-1-2006", "2/1/06"),
		FormatMonthDay: at("1/2/2006", "1-2-2006", "1/2/06"),
		FormatMonth:    {"2006-01", "1/2006", "1-2006"},
		FormatDigits:   {"20060102"},
	}
})

// members splits a list; what stands for nothing is left out, as are the brackets around
// all and the quotes around each.
func (f Format) members(text string) []string {
	separator := map[Format]string{FormatCommas: ",", FormatSemicolons: ";", FormatBars: "|", FormatLines: "\n"}[f]
	text = within(within(text, "[", "]"), "{", "}")
	var members []string
	for part := range strings.SplitSeq(text, separator) {
		if part = within(within(part, "'", "'"), `"`, `"`); part != "" {
			members = append(members, part)
		}
	}
	return sortedSet(members)
}

// within is the text between two marks at its ends; all of it where they are not there.
func within(text, first, last string) string {
	text = strings.TrimSpace(text)
	if len(text) > 1 && strings.HasPrefix(text, first) && strings.HasSuffix(text, last) {
		return strings.TrimSpace(text[1 : len(text)-1])
	}
	return text
}

func (f Format) place(text string) (lat, lon float64, ok bool) {
	separator := ","
	if f == FormatPoint {
		const point = "POINT"
		if text = strings.TrimSpace(text); len(text) < len(point) || !strings.EqualFold(text[:len(point)], point) {
			return 0, 0, false
		}
		text, separator = text[len(point):], " "
	}
	text = strings.Trim(strings.TrimSpace(text), "()[]")
	first, second, found := strings.Cut(strings.TrimSpace(text), separator)
	for _, other := range []string{";", " "} { // lists and numbers have them, too
		if !found {
			first, second, found = strings.Cut(strings.TrimSpace(text), other)
			found = found && strings.Contains(first, ".") && strings.Contains(second, ".")
		}
	}
	if !found {
		return 0, 0, false
	}
	lat, isLat := degrees(first)
	lon, isLon := degrees(second)
	if f == FormatPoint {
		lat, lon = lon, lat
	}
	return lat, lon, isLat && isLon && math.Abs(lat) <= 90 && math.Abs(lon) <= 180
}

// degrees reads a number. Words are not parsed: to fail takes ten times as long, and rules ask it of many texts.
func degrees(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if text == "" || !strings.Contains("+-.0123456789", text[:1]) {
		return 0, false
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil
}

// spelledNumber reads a number as people write it; comma says that a comma stands
// before the decimals. Digits that begin with a 0 are a code, and many behind a + a phone number.
func spelledNumber(text string, comma bool) (float64, bool) {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\u2212", "-")
	negative := strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")")
	if negative {
		text = text[1 : len(text)-1]
	}
	text = bare(text)
	rest, plus := strings.CutPrefix(text, "+")
	minus := false
	if !plus {
		if rest, minus = strings.CutPrefix(text, "-"); !minus {
			rest, minus = strings.CutSuffix(text, "-") // as accountants do
		}
	}
	if plus || minus {
		negative, text = negative || minus, bare(rest)
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
	if len(parts) > 1 && !grouped(parts) {
		return 0, false
	}
	joined := strings.Join(parts, "")
	if hasPoint {
		joined += "." + decimals
	}
	x, err := strconv.ParseFloat(joined, 64)
	if err != nil || math.Abs(x) > MaxMagnitude || plus && x >= longIdentifier {
		return 0, false
	}
	if negative {
		x = -x
	}
	return x + 0, true
}

// grouped: digits stand in threes, or in twos before the last three, as in India.
func grouped(parts []string) bool {
	first, last := parts[0], len(parts)-1
	each := len(parts[1])
	for _, part := range parts[1:last] {
		if len(part) != each {
			return false
		}
	}
	return len(parts[last]) == 3 && (each == 3 || each == 2) && len(first) <= each
}

// unitOf takes from behind a number its unit, or the most that it can be: "/5".
func unitOf(text string) (number, unit string) {
	text = strings.TrimSpace(text)
	number = strings.TrimRightFunc(text, func(r rune) bool { return unicode.IsLetter(r) || strings.ContainsRune("°²³/\"", r) })
	if before, most, found := strings.Cut(number, "/"); found && digits(strings.TrimSpace(most)) {
		number = before
	}
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
	sign := func(r rune) bool { return strings.ContainsRune(" \u00a0\u202f%", r) || unicode.Is(unicode.Sc, r) }
	if text = strings.TrimFunc(text, sign); len(text) < 2 || digit(text[0]) && digit(text[len(text)-1]) {
		return text
	}
	for _, code := range currencies() {
		text = strings.TrimPrefix(strings.TrimSuffix(text, code), code)
	}
	return strings.TrimFunc(text, sign)
}

// currencies are spelled so beside a number; some have letters before a sign.
func currencies() []string {
	return []string{
		"USD", "EUR", "GBP", "CHF", "JPY", "CNY", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "RON", "BGN", "CAD", "AUD", "NZD", "INR", "BRL", "MXN", "ZAR", "TRY",
		"SGD", "HKD", "KRW", "ILS", "AED", "kr", "zł", "Kč", "Ft", "lei", "Fr.", "R$", "US$", "CA$", "C$", "A$", "NZ$", "HK$", "S$", "MX$",
	}
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// quantity reads what is told in several units, in the first of them.
func (f Format) quantity(text string) (float64, bool) {
	switch f {
	case FormatClock:
		return clock(text)
	case FormatDuration:
		return amounts(text, hours)
	}
	return amounts(strings.NewReplacer("\u2032", "'", "\u2019", "'", "\u2033", `"`, "\u201d", `"`).Replace(text), feet)
}

// clock reads 9:30, 09:30:15 and 9:30 PM, in hours.
func clock(text string) (hours float64, ok bool) {
	text = strings.ToUpper(strings.TrimSpace(text))
	morning, am := strings.CutSuffix(text, "AM")
	evening, pm := strings.CutSuffix(morning, "PM")
	parts := strings.Split(strings.TrimSpace(evening), ":")
	if len(parts) < 2 || len(parts) > 3 || len(parts[0]) > 3 {
		return 0, false
	}
	for i, unit := range []float64{1, 60, 3600}[:len(parts)] {
		x, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil || i > 0 && (len(parts[i]) != 2 || x > 59) || (am || pm) && i == 0 && (x < 1 || x > 12) {
			return 0, false
		}
		if (am || pm) && x == 12 && i == 0 {
			x = 0
		}
		hours += float64(x) / unit
	}
	if pm {
		hours += 12
	}
	return hours, true
}

// amounts adds up numbers with units, such as 1h 30m; ISO 8601's PT1H30M is one.
func amounts(text string, unit func(name string) float64) (sum float64, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if iso, found := strings.CutPrefix(text, "p"); found {
		days, times, _ := strings.Cut(iso, "t")
		if text = days + times; strings.ContainsAny(days, "ym") {
			return 0, false // years and months are not always as long
		}
	}
	for text != "" {
		name := strings.TrimLeft(text, "0123456789.")
		x, err := strconv.ParseFloat(text[:len(text)-len(name)], 64)
		text = strings.TrimLeftFunc(name, func(r rune) bool { return r < '0' || r > '9' })
		of := unit(strings.Trim(name[:len(name)-len(text)], " ,"))
		if err != nil || of == 0 {
			return 0, false
		}
		sum += float64(x * of)
		ok = true
	}
	return sum, ok && sum <= MaxMagnitude
}

// hours and feet have the units, 0 of what is none.
func hours(name string) float64 {
	switch name {
	case "w", "week", "weeks":
		return 7 * 24
	case "d", "day", "days":
		return 24
	case "h", "hr", "hrs", "hour", "hours", "std", "std.":
		return 1
	case "m", "min", "min.", "mins", "minute", "minutes":
		return 1.0 / 60
	case "s", "sec", "sec.", "secs", "second", "seconds":
		return 1.0 / 3600
	}
	return 0
}

func feet(name string) float64 {
	switch name {
	case "'", "ft", "ft.", "foot", "feet":
		return 1
	case `"`, "''", "in", "in.", "inch", "inches":
		return 1.0 / 12
	}
	return 0
}

// standsForNothing tells texts that say that there is no value. NA is the code of a
// country too: where all are such codes, country keeps it.
func standsForNothing(text string, country bool, rules int) bool {
	if len(text) > 24 {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "n/a", "#n/a", "n.a.", "<na>", "nan", "null", "nil", "nul", "\\n", "?", "??", "-", "--", "---", ".", "not available", "undefined", "unknown", "missing", "(null)", "(blank)":
		return true
	case "not set", "(not set)", "(none)", "no data", "not applicable", "not specified", "not provided", "0000-00-00", "0000-00-00 00:00:00",
		"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!",
		"k.a.", "k. a.", "keine angabe", "nicht angegeben", "unbekannt", "n/d", "n.d.", "s/d", "inconnu", "inconnue", "non renseigné", "non précisé",
		"desconocido", "desconocida", "sin datos", "no disponible", "desconhecido", "não informado", "sconosciuto", "non disponibile", "onbekend", "niet bekend":
		return rules >= wordsSince
	case "9999-12-31", "9999-12-31 00:00:00", "9999-12-31t00:00:00z", "9999-12-31 23:59:59", "9999-12-31t23:59:59z", "31.12.9999", "31/12/9999", "12/31/9999",
		"0001-01-01", "0001-01-01 00:00:00", "0001-01-01t00:00:00z", "01.01.0001", "01/01/0001",
		":", "..", "suppressed", "privacysuppressed", "not reported", "not known", "not stated":
		return rules >= pairsSince
	case "na":
		return !country
	}
	return false
}
