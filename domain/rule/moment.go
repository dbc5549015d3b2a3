package rule

import "time"

// moment reads a time: RFC 3339, or a day, which begins at midnight UTC. A leap second is the next one.
// [time.Parse] takes several times as long, a microsecond where it fails, and other texts, too.
func moment(v any) (at time.Time, ok bool) {
	text, isText := v.(string)
	if !isText {
		at, ok = v.(time.Time)
		return at, ok
	}
	if len(text) < len(time.DateOnly) || text[4] != '-' || text[7] != '-' {
		return at, false
	}
	year, month, day := digits(text[:4], 9999), digits(text[5:7], 12), digits(text[8:10], 31)
	if year < 0 || month < 1 || day < 1 {
		return at, false
	}
	since, ok := sinceMidnight(text[len(time.DateOnly):])
	at = time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if !ok || day > 28 && at.Day() != day {
		return time.Time{}, false
	}
	return at.Add(since), true
}

// sinceMidnight reads what follows a day: nothing, or T12:00:00.5+01:00.
func sinceMidnight(text string) (since time.Duration, ok bool) {
	if text == "" {
		return 0, true
	}
	if len(text) < len("T12:00:00Z") || text[0] != 'T' && text[0] != 't' || text[3] != ':' || text[6] != ':' {
		return 0, false
	}
	hour, minute, second := digits(text[1:3], 23), digits(text[4:6], 59), digits(text[7:9], 60)
	if hour < 0 || minute < 0 || second < 0 {
		return 0, false
	}
	since = time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second
	zone := text[len("T12:00:00"):]
	if zone[0] == '.' {
		unit := time.Second
		for zone = zone[1:]; zone != "" && '0' <= zone[0] && zone[0] <= '9'; zone = zone[1:] {
			unit /= 10 // to nothing
			since += time.Duration(zone[0]-'0') * unit
		}
		if unit == time.Second {
			return 0, false
		}
	}
	if zone == "Z" || zone == "z" {
		return since, true
	}
	if len(zone) != len("+01:00") || zone[0] != '+' && zone[0] != '-' || zone[3] != ':' {
		return 0, false
	}
	hour, minute = digits(zone[1:3], 23), digits(zone[4:], 59)
	ahead := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	if zone[0] == '-' {
		ahead = -ahead
	}
	return since - ahead, hour >= 0 && minute >= 0
}

// digits is a number that is written in digits alone, and no greater than most; -1: it is none.
func digits(text string, most int) (n int) {
	for i := range len(text) {
		digit := text[i] - '0'
		if digit > 9 {
			return -1
		}
		n = n*10 + int(digit)
	}
	if n > most {
		return -1
	}
	return n
}
