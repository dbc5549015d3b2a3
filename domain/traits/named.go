package traits

import (
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// monthNames are those of English, German, French, Spanish, Portuguese, Italian and Dutch.
const monthNames = `january januar janvier enero janeiro gennaio januari
february februar février fevrier febrero fevereiro febbraio februari
march märz maerz mars marzo março marco maart mrt
april avril abril aprile
may mai mayo maio maggio mei
june juni juin junio junho giugno
july juli juillet julio julho luglio
august août aout agosto augustus
september septembre septiembre setembro settembre
october oktober octobre octubre outubro ottobre
november novembre noviembre novembro
december dezember décembre decembre diciembre dezembro dicembre`

// months are the names and what they begin with, from three letters on, where that is of one month.
var months = sync.OnceValue(func() map[string]time.Month {
	of := map[string]time.Month{}
	for i, names := range strings.Split(monthNames, "\n") {
		month := time.Month(i + 1)
		for name := range strings.FieldsSeq(names) {
			for at := range name + " " {
				short := name[:at]
				if utf8.RuneCountInString(short) < 3 {
					continue
				}
				if other, known := of[short]; known && other != month {
					of[short] = 0
				} else {
					of[short] = month
				}
			}
		}
	}
	return of
})

// clockLayouts are those of a time behind a date whose month has a name.
func clockLayouts() []string {
	return []string{"15:04", "15:04:05", "3:04 PM", "3:04:05 PM", "15:04:05 MST", "15:04:05 -0700", "15:04:05 GMT-0700"}
}

// named reads a date whose month has a name: 4. März 2021, March 4th, 2021 3:04 PM, Mar 2021.
func named(text string) (float64, bool) {
	text, _, _ = strings.Cut(text, "(") // the name of a zone behind its hours
	date, clock := text, "00:00"
	if colon := strings.IndexByte(text, ':'); colon > 0 {
		date = strings.TrimRight(text[:colon], "0123456789")
		clock = strings.ToUpper(strings.TrimSpace(text[len(date):]))
	}
	var month time.Month
	var numbers []string
	for word := range strings.FieldsFuncSeq(strings.ToLower(date), func(r rune) bool { return strings.ContainsRune(" ,-/\u00a0", r) }) {
		word = strings.TrimRight(word, ".")
		number := strings.TrimRight(word, "stndrhe\u00ba") // 4th, 1er, 1º
		switch m := months()[word]; {
		case m > 0 && month == 0:
			month = m
		case digits(number) && len(numbers) < 2:
			numbers = append(numbers, number)
		case month == 0 && len(numbers) == 0: // a day of the week
		case word != "de" && word != "del" && word != "of" && word != "at" && word != "um":
			return 0, false
		}
	}
	if month == 0 || len(numbers) == 0 {
		return 0, false
	}
	day, year := "1", numbers[len(numbers)-1]
	layout := "2 1 2006 "
	if len(numbers) == 2 {
		if day = numbers[0]; len(year) == 2 {
			layout = "2 1 06 "
		}
	}
	for _, of := range clockLayouts() {
		if at, ok := parsedAs(layout+of, day+" "+strconv.Itoa(int(month))+" "+year+" "+clock); ok {
			return daysOf(at), true
		}
	}
	return 0, false
}

// week reads the week of a year by ISO 8601, as its Monday.
func week(text string) (float64, bool) {
	year, number, found := strings.Cut(text, "W")
	year = strings.TrimSuffix(year, "-")
	y, errYear := strconv.Atoi(year)
	w, errWeek := strconv.Atoi(number)
	if !found || errYear != nil || errWeek != nil || len(year) != 4 || y < 1000 || w < 1 || w > 53 {
		return 0, false
	}
	fourth := time.Date(y, time.January, 4, 0, 0, 0, 0, time.UTC) // it is always in the first week
	return daysOf(fourth.AddDate(0, 0, 7*(w-1)-(int(fourth.Weekday())+6)%7)), true
}
