package demo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"kindred/backoff"
)

const (
	requestTimeout = 40 * time.Second // more than the service takes to say that it has no time
	maxAnswer      = 16 << 20         // bytes
)

// api calls the service as a careful caller does: it renews its token before
// that expires, and comes back when it is asked to.
type api struct {
	base     string
	http     *http.Client
	patience time.Duration // for a busy service
	timeout  time.Duration // of a request

	rawKey  string // exchanged for tokens; empty before there is one
	token   string
	expires time.Time

	requests int
	again    int // times the service asked to come back
	slowest  time.Duration
	slowName string
}

func newAPI(base string, patience time.Duration) *api {
	return &api{base: base, patience: patience, timeout: requestTimeout, http: &http.Client{
		// A token goes nowhere but to the service.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// request is a call of the API.
type request struct {
	method, path string
	query        url.Values
	body         any    // sent as JSON, where there is one
	token        string // empty: the one of the API key, if there is a key
	open         bool   // sent without a token
	want         int    // the status that is expected
}

// refusal is an answer of the service with another status than the expected.
type refusal struct {
	method, path string
	status, want int
	code, detail string
	requestID    string
	fields       []fieldError
}

type fieldError struct{ Pointer, Detail string }

func (r *refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s was answered with %d, not %d", r.method, r.path, r.status, r.want)
	if r.code != "" {
		fmt.Fprintf(&b, " (%s: %s", r.code, r.detail)
		for _, f := range r.fields {
			fmt.Fprintf(&b, " %s: %s", f.Pointer, f.Detail)
		}
		b.WriteString(")")
	}
	if r.requestID != "" {
		fmt.Fprintf(&b, "; the service's log knows it as %s", r.requestID)
	}
	return b.String()
}

// do sends a request and decodes the answer into into, unless that is nil. An
// answer with another status than r.want is a *refusal. Where the service asks
// to come back later, it does, within its patience.
func (a *api) do(ctx context.Context, r request, into any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return err
		}
	}
	repeatable := http.Header{"Content-Type": {"application/json"}}
	if r.method == http.MethodPost && !r.open {
		repeatable.Set("Idempotency-Key", rand.Text())
	}
	deadline := time.Now().Add(a.patience)
	for {
		try, cancel := context.WithTimeout(ctx, a.timeout)
		answer, err := a.send(try, r, bytes.NewReader(body), repeatable)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("%s %s was not answered within %s", r.method, r.path, a.timeout)
		}
		if err != nil {
			return err
		}
		wait, later := comeBack(answer)
		if bytes.Contains(answer.body, []byte(`"not_finished"`)) {
			deadline = time.Now().Add(a.patience) // each time it gets further
		}
		if !later || r.want == answer.status || time.Now().Add(wait).After(deadline) {
			return answer.as(r, into)
		}
		a.again++
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// answer is what came back, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request once. Its time counts towards the slowest, unless it
// streams.
func (a *api) send(ctx context.Context, r request, body io.Reader, header http.Header) (answer, error) {
	token := r.token
	if token == "" && !r.open && a.rawKey != "" {
		var err error
		if token, err = a.fresh(ctx); err != nil {
			return answer{}, err
		}
	}
	target := a.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	q, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return answer{}, err
	}
	maps.Copy(q.Header, header)
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	start := time.Now()
	res, err := a.http.Do(q)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s did not reach the service: %w", r.method, r.path, innermost(err))
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("%s %s: read the answer: %w", r.method, r.path, err)
	case len(got) > maxAnswer:
		return answer{}, fmt.Errorf("%s %s: the answer is larger than %s bytes", r.method, r.path, count(maxAnswer))
	}
	a.requests++
	if took := time.Since(start); took > a.slowest && r.path != importPath {
		a.slowest, a.slowName = took, r.method+" "+r.path
	}
	return answer{res.StatusCode, res.Header, got}, nil
}

// innermost takes the URL out of a client's error: the caller names the path.
func innermost(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// as decodes an answer, or makes a refusal of it.
func (w answer) as(r request, into any) error {
	if w.status != r.want {
		refused := &refusal{
			method: r.method, path: r.path, status: w.status, want: r.want,
			requestID: w.header.Get("X-Request-Id"),
		}
		var problem struct {
			Code, Detail string
			RequestID    string `json:"request_id"`
			Errors       []fieldError
		}
		if json.Unmarshal(w.body, &problem) == nil {
			refused.code, refused.detail, refused.fields = problem.Code, problem.Detail, problem.Errors
			refused.requestID = cmp.Or(problem.RequestID, refused.requestID)
		}
		return refused
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(w.body, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not the JSON that was expected: %w", r.method, r.path, err)
	}
	return nil
}

// comeBack says whether, and when, the service wants to be asked again.
func comeBack(w answer) (time.Duration, bool) {
	if w.status != http.StatusTooManyRequests && w.status != http.StatusServiceUnavailable {
		return 0, false
	}
	seconds, err := strconv.Atoi(w.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0, false
	}
	return max(time.Duration(seconds)*time.Second, 100*time.Millisecond), true
}

// fresh is the API key's token, exchanged anew within a minute of its end.
func (a *api) fresh(ctx context.Context) (string, error) {
	if time.Until(a.expires) > time.Minute {
		return a.token, nil
	}
	var exchanged struct{ Data session }
	err := a.do(ctx, request{
		method: "POST", path: "/auth/exchange", open: true, want: 200,
		body: map[string]string{"api_key": a.rawKey},
	}, &exchanged)
	if err != nil {
		return "", err
	}
	a.token = exchanged.Data.Token
	a.expires = time.Now().Add(time.Duration(exchanged.Data.ExpiresIn) * time.Second)
	return a.token, nil
}
