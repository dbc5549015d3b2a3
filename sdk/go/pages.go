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
	"mime"
	"net/http"
	"strings"
	"time"
)

const longestLine = 16 << 20 // bytes of an export

var errNoPage = &fault{kind: ErrAnswer, cause: errors.New("it is no page of a list")}

type listPage[T any] struct {
	Data       []T             `json:"data"`
	NextCursor json.RawMessage `json:"next_cursor"` // null behind the last page
}

// items reads a list page by page; no more than one page is held.
func items[T any](ctx context.Context, c *caller, r request, opts []Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		fail := func(err error) {
			var none T
			yield(none, err)
		}
		next := r
		for pages, kept := 1, ""; ; pages++ {
			page, err := answer[listPage[T]](ctx, c, next, opts)
			if err != nil {
				fail(err)
				return
			}
			var cursor *string
			if page.Data == nil || json.Unmarshal(page.NextCursor, &cursor) != nil { // one that is missing says nothing of an end
				fail(errNoPage)
				return
			}
			for _, one := range page.Data {
				if !yield(one, nil) {
					return
				}
			}
			if cursor == nil {
				return
			}
			switch *cursor {
			case "":
				fail(errNoPage)
				return
			case kept:
				fail(&fault{kind: ErrAnswer, cause: errors.New("its next_cursor is that of a page before")})
				return
			}
			if pages&(pages-1) == 0 { // pages that go round come to it again, however many those are
				kept = *cursor
			}
			next = r.with("cursor", *cursor)
		}
	}
}

// written streams an answer of CSV. What was written is not asked for again, so a
// connection that breaks ends it.
func written(ctx context.Context, c *caller, r request, to io.Writer, opts []Option) error {
	r.accept = "text/csv"
	o := c.with(streamTimeout, opts)
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, ErrTimeout)
	defer cancel()
	return c.send(ctx, r, o, func(resp *http.Response) error {
		if err := isOf(resp, r.accept); err != nil {
			return err
		}
		out := &counted{to: to}
		_, err := io.Copy(out, resp.Body)
		if err == nil && out.begun && out.last != '\n' {
			err = errCut
		}
		switch {
		case err == nil:
			return nil
		case out.failed != nil:
			return &final{fmt.Errorf("kindred: what was read cannot be written: %w", out.failed)}
		case out.begun:
			return &final{&fault{kind: ErrConnection, cause: err}}
		default:
			return &fault{kind: ErrConnection, cause: err}
		}
	})
}

// errCut: a connection that ends where the other end likes does not tell so itself.
var errCut = errors.New("the last line was cut")

// counted tells which end of a copy has failed, whether it had begun and what came
// last.
type counted struct {
	to     io.Writer
	begun  bool
	last   byte
	failed error
}

func (w *counted) Write(p []byte) (int, error) {
	w.begun, w.last = true, p[len(p)-1]
	n, err := w.to.Write(p)
	w.failed = err
	return n, err
}

// isOf refuses an answer of another type, such as a page of something on the way.
func isOf(resp *http.Response, want string) error {
	if mediaOf(resp) != want {
		return &fault{kind: ErrAnswer, cause: fmt.Errorf("its Content-Type is %.60q", contentType(resp))}
	}
	return nil
}

// mediaOf is empty where two types are told, or one that cannot be read.
func mediaOf(resp *http.Response) string {
	text := contentType(resp)
	if strings.Contains(text, ",") {
		return ""
	}
	media, _, _ := mime.ParseMediaType(text) // parameters that cannot be read change no type
	return media
}

func contentType(resp *http.Response) string {
	return strings.Join(resp.Header.Values("Content-Type"), ", ")
}

// exported streams lines. What was yielded is not asked for again, so a
// connection that breaks ends it.
func exported(ctx context.Context, c *caller, r request, opts []Option) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r.accept = "application/x-ndjson"
		o := c.with(streamTimeout, opts)
		if o.opened {
			r = r.with("personal", "open")
		}
		ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, ErrTimeout)
		defer cancel()
		begun, stopped := false, false
		err := c.send(ctx, r, o, func(resp *http.Response) error {
			if err := isOf(resp, r.accept); err != nil {
				return err
			}
			lines := bufio.NewReaderSize(resp.Body, 64<<10)
			for {
				line, err := readLine(lines)
				if len(line) > 0 && err == nil {
					begun = true
					if !yield(line, nil) {
						stopped = true
						return nil
					}
				}
				switch {
				case errors.Is(err, io.EOF) && len(line) == 0:
					return nil
				case err != nil:
					failed := &fault{kind: ErrConnection, cause: err}
					if begun {
						return &final{failed}
					}
					return failed
				}
			}
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

var errLong = errors.New("a line is longer than 16 MiB")

// readLine returns a line without its end. A last line that has none was cut.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case len(line) > longestLine:
			return nil, errLong
		}
	}
}

// piped is what Lines returns: an import closes it.
type piped struct{ *io.PipeReader }

// Lines writes users as an import takes them, while it is read. What it returns
// cannot be sent again; give Users.Import a file to have that. An import that ends
// before it has read all closes it, which ends the iteration.
func Lines(users iter.Seq[NewUser]) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends with the users, or when r is closed
		for user := range users {
			line, err := encoded(user)
			if err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			if err != nil {
				_ = w.CloseWithError(err) // it never fails
				return
			}
		}
		_ = w.Close() // it never fails
	}()
	return &piped{r}
}

// Wait waits for an import that Users.ImportLater began, asking every interval.
func (r *UsersAPI) Wait(ctx context.Context, id string, interval time.Duration, opts ...Option) (*Import, error) {
	for {
		one, err := r.GetImport(ctx, id, opts...)
		if err != nil {
			return nil, fmt.Errorf("wait for the import: %w", err)
		}
		if one.EndedAt != nil {
			return one, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interval):
		}
	}
}
