package kindred

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	clientInPath  = "{client_id}"
	largestAnswer = 64 << 20 // bytes; a page is about 8 MiB
	firstPause    = 250 * time.Millisecond
	longestPause  = 10 * time.Second
	streamTimeout = time.Hour
)

// caller sends requests.
type caller struct {
	base           string
	http           *http.Client
	timeout        time.Duration // 0: by the kind of call
	attemptTimeout time.Duration
	maxRetries     int
	tokens         *tokens
}

// request is one call of an operation.
type request struct {
	operation, method, path string
	query                   query
	body                    any
	lines                   io.Reader
	accept                  string // of an answer that is streamed
	takesKey, open          bool
}

func (r request) with(name, value string) request {
	r.query = append(slices.Clip(r.query), [2]string{name, value})
	return r
}

// repeatable says whether a lost answer may be asked for again: the request
// does the same however often it arrives. One with a condition is refused then,
// and so is one that names the password from before.
func (r request) repeatable(h http.Header) bool {
	if r.operation == "changePassword" || r.method == http.MethodPut && h.Get("If-Match")+h.Get("If-None-Match") != "" {
		return false
	}
	return r.method != http.MethodPatch && r.lines == nil && (r.method != http.MethodPost || r.takesKey || r.givesToken())
}

func (r request) givesToken() bool {
	return r.operation == "exchangeAPIKey" || r.operation == "getSessionToken"
}

type query [][2]string

func (q *query) add(name string, value any) {
	switch v := value.(type) {
	case string:
		if v != "" {
			*q = append(*q, [2]string{name, v})
		}
	case *int64:
		if v != nil {
			*q = append(*q, [2]string{name, strconv.FormatInt(*v, 10)})
		}
	case *float64:
		if v != nil {
			*q = append(*q, [2]string{name, strconv.FormatFloat(*v, 'g', -1, 64)})
		}
	case *bool:
		if v != nil {
			*q = append(*q, [2]string{name, strconv.FormatBool(*v)})
		}
	case time.Time:
		if !v.IsZero() {
			*q = append(*q, [2]string{name, v.UTC().Format(time.RFC3339Nano)})
		}
	default: // a list, or an enumeration
		list := reflect.ValueOf(value)
		if list.Kind() != reflect.Slice {
			q.add(name, fmt.Sprint(v))
			return
		}
		var texts []string
		for i := range list.Len() {
			texts = append(texts, fmt.Sprint(list.Index(i)))
		}
		q.add(name, strings.Join(texts, ","))
	}
}

func (q query) encode() string {
	values := url.Values{}
	for _, one := range q {
		values.Set(one[0], one[1])
	}
	return values.Encode()
}

// noSegment stands for an id that would change which path is meant.
const noSegment = "\x00"

// segment is an id as a part of a path.
func segment(id string) string {
	if id == "" || id == "." || id == ".." || !utf8.ValidString(id) {
		return noSegment
	}
	return url.PathEscape(id)
}

func answer[T any](ctx context.Context, c *caller, r request, opts []Option) (*T, error) {
	out := new(T)
	return out, c.into(ctx, r, opts, out)
}

func (c *caller) done(ctx context.Context, r request, opts []Option) error {
	return c.into(ctx, r, opts, nil)
}

func (c *caller) into(ctx context.Context, r request, opts []Option, out any) error {
	timeout := time.Minute
	if r.lines != nil {
		timeout = streamTimeout
	}
	if of, ok := r.lines.(*piped); ok {
		defer of.Close() // or what writes users to it waits for ever where it is not read to its end
	}
	return c.answered(ctx, r, c.with(timeout, opts), out)
}

// with is what changes a call, which takes so long at most where nothing else is
// said.
func (c *caller) with(timeout time.Duration, opts []Option) call {
	o := call{header: http.Header{}, timeout: cmp.Or(c.timeout, timeout)}
	for _, option := range opts {
		option(&o)
	}
	return o
}

func (c *caller) answered(ctx context.Context, r request, o call, out any) error {
	limited, cancel := context.WithTimeoutCause(ctx, o.timeout, ErrTimeout)
	defer cancel()
	return c.send(limited, r, o, func(resp *http.Response) error { return readInto(resp, out) })
}

func readInto(resp *http.Response, out any) error {
	body, err := readBounded(resp)
	if err != nil || out == nil && len(body) == 0 {
		return err
	}
	// Where nothing is wanted, too: a page of something on the way is no sign that kindred has done anything.
	if err := isOf(resp, "application/json"); err != nil || out == nil {
		return err
	}
	if !utf8.Valid(body) { // encoding/json would put U+FFFD in its place
		return &fault{kind: ErrAnswer, cause: errors.New("it is no UTF-8")}
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &fault{kind: ErrAnswer, cause: err}
	}
	if bytes.TrimSpace(body)[0] != '{' { // null, which leaves out as it was
		return &fault{kind: ErrAnswer, cause: errors.New("it is no object")}
	}
	return nil
}

func readBounded(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	switch {
	case err != nil:
		return nil, &fault{kind: ErrConnection, cause: err}
	case len(body) > largestAnswer:
		return nil, &fault{kind: ErrAnswer, cause: errors.New("it is larger than 64 MiB")}
	}
	return body, nil
}

// send sends a request until read has taken an answer of 2xx, and repeats it
// where it may.
func (c *caller) send(ctx context.Context, r request, o call, read func(*http.Response) error) error {
	var content []byte
	if strings.Contains(r.path, noSegment) {
		return fmt.Errorf("kindred: %s: an id is empty, made of dots or no UTF-8", r.operation)
	}
	for name, values := range o.header {
		if strings.ContainsFunc(values[0], func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("kindred: %s: %s takes printable ASCII", r.operation, name)
		}
	}
	if ctx.Err() != nil {
		return ended(ctx, nil)
	}
	if r.body != nil {
		var err error
		if content, err = encoded(r.body); err != nil {
			return fmt.Errorf("kindred: the body: %w", err)
		}
	}
	if r.takesKey && o.header.Get("Idempotency-Key") == "" {
		o.header.Set("Idempotency-Key", rand.Text())
	}
	rewind, renewed, retries := rewinder(&r), false, 0
	repeatable, lost := r.repeatable(o.header), false
	for attempts := 1; ; attempts++ {
		used, err := c.attempt(ctx, r, o, content, attempts, read)
		if err == nil || lost && r.method == http.MethodDelete && isGone(err) {
			return nil
		}
		doubt, over := isLost(err), ctx.Err() != nil
		lost = lost || doubt
		if over {
			err = ended(ctx, err)
		}
		if doubt && !repeatable {
			err = fmt.Errorf("%w; it may have taken effect", err)
		}
		if over {
			return err
		}
		var refused *Error
		if errors.As(err, &refused) {
			refused.Attempts = attempts
			if refused.Status == http.StatusUnauthorized && !r.open && !renewed && used != nil && !used.fixed {
				renewed = true
				c.tokens.refuse(used)
				if rewind() {
					continue
				}
			}
		}
		pause, again := again(err, retries, repeatable)
		deadline, limited := ctx.Deadline()
		if !again || retries >= c.maxRetries && !o.persists || !rewind() || limited && time.Until(deadline) < pause {
			return bare(err)
		}
		retries++
		select {
		case <-ctx.Done():
			return ended(ctx, err)
		case <-time.After(pause):
		}
	}
}

// encoded is a value as JSON. encoding/json writes U+FFFD, as an escape, for what is
// no UTF-8: two people whose ids differ there would be one.
func encoded(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err == nil && bytes.Contains(text, []byte(`\ufffd`)) && replaced.Match(text) {
		err = errors.New("a text is no UTF-8")
	}
	return text, err
}

var replaced = regexp.MustCompile(`[^\\](\\\\)*\\ufffd`) // an escape, and no backslash before "ufffd"

// rewinder makes the body ready to be sent again, if it can be.
func rewinder(r *request) func() bool {
	if r.lines == nil {
		return func() bool { return true }
	}
	seeker, ok := r.lines.(io.Seeker)
	if !ok {
		return func() bool { return false }
	}
	begin, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		r.lines = struct{ io.Reader }{r.lines} // a pipe, say, that has the method alone
		return func() bool { return false }
	}
	return func() bool {
		_, err := seeker.Seek(begin, io.SeekStart)
		return err == nil
	}
}

// lend passes on what a reader of the caller's gives, until an attempt ends. Go's
// transport waits for a read that has begun, be its context over, and may read on
// after it has returned an answer: what it reads then is missing where the reader
// is used again.
func lend(ctx context.Context, from io.Reader) (body io.Reader, end func()) {
	r, w := io.Pipe()
	over := make(chan struct{})
	go func() { // ends with the reader, or at its first read behind the attempt
		defer close(over)
		_, err := io.Copy(w, from)
		_ = w.CloseWithError(err) // it never fails
	}()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(errEnded) })
	return r, func() {
		stop()
		_ = r.CloseWithError(errEnded)
		if _, again := from.(io.Seeker); again { // others may wait for ever
			<-over
		}
	}
}

var errEnded = errors.New("the attempt has ended before the request was sent")

// isLost says whether nobody knows what became of a request.
func isLost(err error) bool {
	var last *final
	var refused *Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &last) || errors.As(err, &untrusted) || isUnmade(err):
		return false // nothing was sent, or what was answered is known
	case errors.As(err, &refused):
		return refused.Status == http.StatusBadGateway || refused.Status == http.StatusGatewayTimeout
	default:
		return errors.Is(err, ErrConnection) || errors.Is(err, ErrTimeout) // the latter of an exchange
	}
}

// isUnmade says whether there was no connection that anything could be sent on.
func isUnmade(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && (failed.Op == "dial" || failed.Op == "proxyconnect")
}

// isGone says whether kindred, and nothing on the way to it, has not found what
// was asked for.
func isGone(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code != ""
}

// again says whether a fault may pass, and how long to wait for that.
func again(err error, retries int, repeatable bool) (time.Duration, bool) {
	pause := pauseBefore(retries)
	var last *final
	var refused *Error
	switch {
	case errors.As(err, &last):
		return 0, false
	case !errors.As(err, &refused):
		return pause, isUnmade(err) || repeatable && isLost(err)
	}
	pause = max(pause, refused.RetryAfter)
	switch refused.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return pause, true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return pause, repeatable
	case http.StatusConflict:
		return pause, refused.Code == CodeInFlight
	default:
		return 0, false
	}
}

// pauseBefore a retry is any up to twice what the one before had at most.
func pauseBefore(retries int) time.Duration {
	return mathrand.N(min(longestPause, firstPause<<min(retries, 10)) + 1) //nolint:gosec // jitter need not be unguessable
}

// attempt sends a request once. The token that it used is returned with a fault.
func (c *caller) attempt(ctx context.Context, r request, o call, content []byte, attempts int, read func(*http.Response) error) (*token, error) {
	var used *token
	path := r.path
	if !r.open {
		var err error
		if used, err = c.tokens.get(ctx); err != nil && o.persists {
			return nil, err
		} else if err != nil {
			return nil, &final{err}
		}
		path = strings.Replace(path, clientInPath, segment(used.client), 1)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(c.attemptTimeout, func() { cancel(errSlow) })
	defer slow.Stop()
	if r.lines != nil { // an import takes as long as it takes to send
		slow.Stop()
	}
	var body io.Reader
	switch {
	case r.lines != nil:
		var end func()
		body, end = lend(ctx, r.lines)
		defer end()
	case r.body != nil:
		body = bytes.NewReader(content)
	}
	target := c.base + path
	if q := r.query.encode(); q != "" {
		target += "?" + q
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return used, &final{fmt.Errorf("kindred: %s: the request cannot be made", r.operation)}
	}
	req.Header = o.header.Clone()
	req.Header.Set("User-Agent", "kindred-go/"+Version)
	req.Header.Set("Accept", "application/json")
	switch {
	case r.accept != "":
		req.Header.Set("Accept", r.accept)
	case r.lines != nil:
		req.Header.Set("Content-Type", cmp.Or(o.lines, "application/x-ndjson"))
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if used != nil {
		req.Header.Set("Authorization", "Bearer "+used.text)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return used, &fault{kind: ErrConnection, cause: plain(ctx, err)}
	}
	defer resp.Body.Close()
	if o.answer != nil {
		*o.answer = Answer{resp.StatusCode, resp.Header.Get("X-Request-Id"), resp.Header.Get("ETag"), attempts, resp.Header}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // whose connection no context ends any more
		return used, &fault{kind: ErrConnection, cause: errSwitched}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		said, err := readBounded(resp)
		if err != nil {
			return used, err
		}
		return used, refusal(resp, said)
	}
	if r.accept != "" { // takes as long as it moves
		slow.Stop()
		resp.Body = &moving{resp.Body, slow, c.attemptTimeout}
	}
	return used, read(resp)
}

// moving bounds each read of a body, and not what is done with it in between.
type moving struct {
	io.ReadCloser
	slow *time.Timer
	most time.Duration
}

func (m *moving) Read(p []byte) (int, error) {
	m.slow.Reset(m.most)
	defer m.slow.Stop()
	return m.ReadCloser.Read(p)
}

// errSlow ends an attempt, not the call.
var errSlow = errors.New("no answer came in time")

var errSwitched = errors.New("another protocol was answered with")

// plain is the cause of a failed request without its URL, which may hold ids of
// users.
func plain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// final is a fault that no repetition mends.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }

// bare is a fault without its mark.
func bare(err error) error {
	var last *final
	if errors.As(err, &last) {
		return last.error
	}
	return err
}

// ended says why a call ended before its answer.
func ended(ctx context.Context, last error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrTimeout) {
		return &fault{kind: ErrTimeout, cause: bare(last)}
	}
	return ctx.Err()
}

// retryAfter reads digits, which are seconds, or a date of HTTP (RFC 9110, section
// 10.2.3), and nothing else.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the largest
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
