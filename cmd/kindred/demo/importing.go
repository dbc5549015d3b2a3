package demo

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	importPath    = "/api/v1/users/import"
	importTimeout = 15 * time.Minute
	redrawEvery   = 100 * time.Millisecond
)

type user struct {
	ID         string
	ExternalID string `json:"external_id"`
	Traits     map[string]any
}

type importStats struct {
	people int
	took   time.Duration
}

func (s importStats) perSecond() int {
	return int(float64(s.people) / max(s.took.Seconds(), 1e-3))
}

type importResult struct {
	Created, Updated, Failed int
	Errors                   []struct {
		Line         int
		Code, Detail string
	}
}

// crowd is who will be imported.
type crowd struct {
	people iter.Seq2[person, error]
	total  int
	paths  []string // the traits that clusters are told by; none: all
	from   string   // where they come from, for a person to read
}

// gather finds the people, and reads a file of them to its end: one that is not
// right is told before anything has happened.
func (o Options) gather() (crowd, error) {
	c := crowd{people: madeUp(o.Seed, o.Users), from: "made up with the seed " + strconv.FormatUint(o.Seed, 10), paths: madeUpPaths}
	if o.CSV != "" {
		file := table{path: o.CSV, header: o.Header, id: o.ID, ignore: o.Ignore, limit: o.Limit}
		c.people, c.from = file.people(), "of "+file.name()
		c.paths = nil
	}
	for _, err := range c.people {
		if err != nil {
			return crowd{}, err
		}
		c.total++
	}
	if c.total < minUsers {
		return crowd{}, fmt.Errorf("the demo needs at least %d people, but there are %d", minUsers, c.total)
	}
	return c, nil
}

// importPeople streams people into the service, a JSON line each.
func (s *story) importPeople(ctx context.Context) error {
	result, took, err := s.streamIn(ctx, s.crowd)
	if err != nil {
		return err
	}
	total := s.crowd.total
	if result.Failed > 0 {
		first := result.Errors[:min(3, len(result.Errors))]
		return fmt.Errorf("%s of %s people were refused, such as %+v", count(result.Failed), count(total), first)
	}
	if result.Created+result.Updated != total {
		return fmt.Errorf("%s people were sent, but %s came in", count(total), count(result.Created+result.Updated))
	}
	s.imported = importStats{result.Created, took}
	s.page.say("%s people, %s.", count(total), s.crowd.from)
	s.page.say("%s created, %s updated, in %s: %s a second.",
		count(result.Created), count(result.Updated), brief(took), count(s.imported.perSecond()))
	return nil
}

// streamIn sends the people while it encodes them.
func (s *story) streamIn(ctx context.Context, who crowd) (importResult, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	from, into := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := s.encode(into, who)
		into.CloseWithError(err)
		written <- err
	}()
	start := time.Now()
	r := request{method: "POST", path: importPath, want: 200}
	answer, err := s.api.send(ctx, r, from, http.Header{"Content-Type": {"application/x-ndjson"}})
	took := time.Since(start)
	_ = from.Close() // ends the writer where the service answered before the end
	if wrong := <-written; wrong != nil && !errors.Is(wrong, io.ErrClosedPipe) {
		err = wrong
	}
	s.page.endProgress()
	var result importResult
	if err == nil {
		err = answer.as(r, &result)
	}
	return result, took, err
}

func (s *story) encode(into io.Writer, who crowd) error {
	buffered := bufio.NewWriterSize(into, 64<<10)
	lines := json.NewEncoder(buffered)
	sent, drawn := 0, time.Time{}
	for p, err := range who.people {
		if err == nil {
			err = lines.Encode(p)
		}
		if err != nil {
			return err
		}
		if sent++; time.Since(drawn) >= redrawEvery {
			s.page.progress("%s of %s sent", count(sent), count(who.total))
			drawn = time.Now()
		}
	}
	s.page.progress("all %s sent, the service is at work", count(who.total))
	return buffered.Flush()
}

// listPeople reads the first page of the list, and shows its top.
func (s *story) listPeople(ctx context.Context) error {
	var page struct {
		Data []user
	}
	start := time.Now()
	err := s.api.do(ctx, request{method: "GET", path: "/api/v1/users", query: url.Values{"limit": {"200"}}, want: 200}, &page)
	if err != nil {
		return err
	}
	took := time.Since(start)
	if want := min(200, s.imported.people); len(page.Data) > want || len(page.Data) < minUsers {
		return fmt.Errorf("the first page has %d users, not %d", len(page.Data), want)
	}
	rows := make([][]string, 5)
	for i, u := range page.Data[:5] {
		rows[i] = []string{u.ExternalID, u.ID, cut(sketch(u.Traits), 60)}
	}
	s.page.table([]string{"external_id", "id", "traits"}, rows)
	s.page.say("Asked right after the import was acknowledged, answered in %s: a list has seen every write before it.", brief(took))
	s.people = page.Data // those of whom most is known have the most to tell
	slices.SortStableFunc(s.people, func(a, b user) int { return cmp.Compare(len(b.Traits), len(a.Traits)) })
	s.asker = s.people[0]
	return nil
}

// sketch writes traits in a line.
func sketch(traits map[string]any) string {
	var parts []string
	for _, name := range sortedKeys(traits) {
		parts = append(parts, name+" "+show(traits[name]))
	}
	return strings.Join(parts, ", ")
}
