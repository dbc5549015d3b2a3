package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkAListOf100000Users reads a list through each SDK and, in turns, with
// the HTTP client of its language alone, which parses each page as well: make
// bench-sdk. The pages are there already, so that what is measured is the client.
func BenchmarkAListOf100000Users(b *testing.B) {
	const pages, each, turns = 500, 200, 7
	for _, name := range sdks() {
		b.Run(name, func(b *testing.B) {
			d := startDriver(b, name)
			page := pageOfUsers(each)
			measure := false
			var early, late int
			s := play(b, func(w http.ResponseWriter, r *http.Request, _ int) {
				at, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // the first has none
				switch {
				case measure && at == pages/10:
					early = d.memory()
				case measure && at == pages-10:
					late = d.memory()
				}
				next := "null"
				if at+1 < pages {
					next = strconv.Quote(strconv.Itoa(at + 1))
				}
				respond(w, 200, page+next+"}")
			})
			d.client("c", s.URL, command{"token": tokenOf(1)})
			raw := command{"do": "raw", "options": command{"base_url": s.URL, "token": tokenOf(1)}}
			sdk := calling("c", "users.list", command{"params": command{"limit": each}})
			timed := func(c command) time.Duration {
				began := time.Now()
				ok, failed := d.try(c)
				if failed != nil || field[int](b, ok, "count") != pages*each {
					b.Fatalf("%s: %.200s %v", name, ok, failed)
				}
				return time.Since(began)
			}
			timed(raw) // nothing is warm before
			timed(sdk)
			for b.Loop() {
				var ratios, rate []float64
				for range turns {
					alone, through := timed(raw), timed(sdk)
					ratios = append(ratios, alone.Seconds()/through.Seconds())
					rate = append(rate, pages*each/through.Seconds())
				}
				slices.Sort(ratios)
				slices.Sort(rate)
				b.ReportMetric(ratios[turns/2], "of-raw")
				b.ReportMetric(ratios[0], "of-raw-least")
				b.ReportMetric(rate[turns/2], "users/s")
			}
			measure = true
			timed(sdk)
			b.ReportMetric(float64(late-early)/(1<<20), "MiB-grown")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pageOfUsers is a page up to its cursor, of users like those of an export.
func pageOfUsers(n int) string {
	users := make([]json.RawMessage, n)
	for i := range users {
		users[i] = fmt.Appendf(nil, `{"id":"usr_%026d","external_id":"customer-%06d","traits":{"plan":"pro","age":%d,"city":"Zürich","country":"CH",`+
			`"likes":["jazz","go","hiking"],"last_seen":"2026-11-2%dT09:30:00Z","spend":%d.5,"newsletter":true,"company":{"size":%d,"sector":"retail"}},`+
			`"created_at":"2026-01-31T12:00:00.123456Z","updated_at":"2026-11-20T12:00:00.123456Z"}`, i, i, i%90, i%10, i*7, i%500)
	}
	text, err := json.Marshal(users)
	if err != nil {
		panic(err) // it was just written
	}
	return strings.Join([]string{`{"data":`, string(text), `,"next_cursor":`}, "")
}
