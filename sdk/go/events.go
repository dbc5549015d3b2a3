package kindred

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

const (
	silence    = 10 * time.Minute // that a follower bears
	remembered = 1024             // ids of events
	tooSoon    = time.Second      // for an empty page that was to be waited for
)

var errNoEvent = errors.New("an event cannot be read")

// place is where a follower is. It passes over events that come twice.
type place struct {
	seen  map[string]bool
	order [remembered]string // the ids in seen
	next  int
}

// take says whether an event is new.
func (p *place) take(id string) bool {
	if p.seen[id] {
		return false
	}
	if p.seen == nil {
		p.seen = make(map[string]bool, remembered)
	}
	delete(p.seen, p.order[p.next])
	p.order[p.next], p.seen[id] = id, true
	p.next = (p.next + 1) % remembered
	return true
}

type eventPage struct {
	Data    []json.RawMessage `json:"data"`
	HasMore bool              `json:"has_more"`
	LastID  string            `json:"last_id"` // empty for null
}

// pulled reads events page by page and goes on behind the last. Where pages are
// waited for it ends with an error alone.
func pulled(ctx context.Context, c *caller, r request, waits bool, opts []Option) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		var at place
		o := c.with(silence, opts)
		o.persists = true
		for next, soon := r, 0; ; {
			var page eventPage
			asked := time.Now()
			if err := c.answered(ctx, next, o, &page); err != nil {
				yield(nil, err)
				return
			}
			if page.Data == nil {
				yield(nil, errNoPage)
				return
			}
			fresh, err := page.each(&at, yield)
			switch {
			case err != nil:
				if !errors.Is(err, errStopped) {
					yield(nil, err)
				}
				return
			case len(page.Data) > 0 && !fresh:
				yield(nil, &fault{kind: ErrAnswer, cause: errors.New("its events are those of the page before")})
				return
			case !page.HasMore && !waits:
				return
			case page.LastID != "":
				next = r.behind(page.LastID)
			}
			if soon++; len(page.Data) > 0 || time.Since(asked) >= tooSoon {
				soon = 0
			} else if err := pause(ctx, pauseBefore(soon)); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// errStopped: nobody wants more.
var errStopped = errors.New("stopped")

func (p eventPage) each(at *place, yield func(*Event, error) bool) (fresh bool, err error) {
	for _, text := range p.Data {
		event, _, err := eventOf(text)
		if err != nil || event.ID == "" {
			return fresh, &fault{kind: ErrAnswer, cause: errNoEvent}
		}
		if !at.take(event.ID) {
			continue
		}
		fresh = true
		if !yield(event, nil) {
			return fresh, errStopped
		}
	}
	return fresh, nil
}

// behind asks for what comes after an event.
func (r request) behind(id string) request {
	var q query
	for _, one := range r.query {
		if one[0] != "after" {
			q = append(q, one)
		}
	}
	r.query = append(q, [2]string{"after", id})
	return r
}

// followed reads Server-Sent Events, and connects again behind the last. It ends
// with an error alone.
func followed(ctx context.Context, c *caller, r request, opts []Option) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		r.accept = "text/event-stream"
		o := c.with(silence, opts)
		o.persists = true
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		f := follower{o: o, quiet: time.AfterFunc(o.timeout, func() { cancel(ErrTimeout) })}
		defer f.quiet.Stop()
		if o.timeout <= 0 {
			cancel(ErrTimeout)
		}
		for {
			err := c.send(ctx, r, o, func(resp *http.Response) error { return f.read(resp, yield) })
			if f.stopped {
				return
			}
			if err == nil {
				err = pause(ctx, pauseBefore(0)) // or a stream that ends whenever it began would be asked for without end
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

type follower struct {
	place
	o       call
	quiet   *time.Timer // ends all where nothing comes
	stopped bool        // nobody wants more
}

// read reads a stream until it ends or breaks. It fails where nothing was heard.
func (f *follower) read(resp *http.Response, yield func(*Event, error) bool) error {
	if err := isOf(resp, "text/event-stream"); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for heard := false; ; heard = true {
		id, data, err := readEvent(lines)
		switch {
		case errors.Is(err, errLong):
			return &fault{kind: ErrAnswer, cause: err}
		case err != nil && heard:
			return nil
		case err != nil:
			return &fault{kind: ErrConnection, cause: err}
		}
		f.quiet.Reset(f.o.timeout)
		if data == nil {
			continue // a comment
		}
		event, _, err := eventOf(data)
		if err != nil || id == "" {
			return &fault{kind: ErrAnswer, cause: errNoEvent}
		}
		event.ID = id
		if !f.take(id) {
			continue
		}
		f.quiet.Stop() // whoever takes the event may take its time
		if !yield(event, nil) {
			f.stopped = true
			return nil
		}
		f.o.header.Set("Last-Event-ID", id) // for the next attempt
		f.quiet.Reset(f.o.timeout)
	}
}

// readEvent reads up to the next empty line (HTML standard, section 9.2). What
// is cut before that is no event.
func readEvent(lines *bufio.Reader) (id string, data []byte, err error) {
	for {
		line, err := readLine(lines)
		switch {
		case err != nil:
			return "", nil, fmt.Errorf("the stream ended: %w", err)
		case len(data)+len(line) > longestLine:
			return "", nil, errLong
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			return id, bytes.TrimSuffix(data, []byte("\n")), nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			if id == "" && data == nil {
				return "", nil, nil // a comment, which says that the stream lives
			}
		case "id":
			id = string(value)
		case "data":
			data = append(append(data, value...), '\n')
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ended(ctx, io.ErrUnexpectedEOF)
	case <-time.After(d):
		return nil
	}
}
