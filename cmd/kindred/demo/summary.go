package demo

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// summarize ends the story with its figures, and with what to try next.
func (s *story) summarize() {
	var slowest time.Duration
	repeated := 0
	got, _, _ := s.receiver.so()
	kinds := map[string]int{}
	for _, d := range got {
		kinds[d.kind]++
		slowest = max(slowest, d.received.Sub(d.occurred))
		if d.repeated {
			repeated++
		}
	}
	fmt.Fprintf(s.page.to, "\n%s\n", s.page.styled(strong, "    All as it should be"))
	figures := [][]string{
		{"requests", count(s.api.requests)},
		{"  asked to come back", count(s.api.again)},
		{"  the slowest", brief(s.api.slowest) + ", " + s.api.slowName},
		{"people imported", fmt.Sprintf("%s, %s a second", count(s.imported.people), count(s.imported.perSecond()))},
		{"events delivered", count(len(got))},
		{"  signatures verified", count(len(got))},
	}
	for _, kind := range slices.Sorted(maps.Keys(catalog)) {
		figures = append(figures, []string{"  " + kind, count(kinds[kind])})
	}
	figures = append(figures, [][]string{
		{"  delivered twice", count(repeated)},
		{"  silent while paused", count(len(s.silent))},
		{"  slowest publish -> receive", brief(slowest)},
	}...)
	s.page.table(nil, figures)
	fmt.Fprintf(s.page.to, "\n%s\n", s.page.styled(strong, "    To try next"))
	next := [][]string{
		{s.options.URL + "/docs", "the documentation"},
		{s.options.URL + "/metrics", "what the service counts"},
	}
	if s.options.CSV == "" {
		next = append(next,
			[]string{s.options.URL + "/console/", "these people; log in as " + s.email + ", " + s.password},
			[]string{"kindred demo --users 20000 --seed 7", "more people, and others"},
			[]string{"kindred demo --csv people.csv --id email", "your own; see kindred demo --help"})
	} else {
		next = append(next, []string{"kindred demo", "people who are made up"})
	}
	s.page.table(nil, next)
}
