// Conformance drives the SDK for the suite in sdk/conformance, which says what
// is read and written.
package main

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
	"net/url"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kindred "kindred/sdk/go"
	"kindred/sdk/go/kindredtest"
)

type command struct {
	ID        int               `json:"id"`
	Do        string            `json:"do"`
	Client    string            `json:"client"`
	Options   options           `json:"options"`
	Resource  string            `json:"resource"`
	Method    string            `json:"method"`
	Path      []string          `json:"path"`
	Body      json.RawMessage   `json:"body"`
	Params    json.RawMessage   `json:"params"`
	Users     int               `json:"users"`
	Lines     string            `json:"lines"`
	Most      int               `json:"most"`
	Target    int               `json:"target"`
	Show      bool              `json:"show"`
	Scheme    string            `json:"scheme"`
	Secrets   []string          `json:"secrets"`
	Keys      []string          `json:"public_keys"`
	ClientID  string            `json:"client_id"`
	Now       int64             `json:"now"`
	Headers   map[string]string `json:"headers"`
	Delivered []byte            `json:"delivered"`
}

type options struct {
	BaseURL        string `json:"base_url"`
	APIKey         string `json:"api_key"`
	Token          string `json:"token"`
	Session        string `json:"session"`
	Sandbox        string `json:"sandbox"`
	Timeout        *int   `json:"timeout_ms"`
	AttemptTimeout int    `json:"attempt_timeout_ms"`
	MaxRetries     int    `json:"max_retries"`
	IdempotencyKey string `json:"idempotency_key"`
	IfMatch        string `json:"if_match"`
	IfNoneMatch    string `json:"if_none_match"`
	Eventual       bool   `json:"eventual"`
	CSV            bool   `json:"csv"`
}

type driver struct {
	mu      sync.Mutex
	out     *json.Encoder
	clients map[string]*kindred.Client
	running map[int]context.CancelFunc
	fake    *kindredtest.Server
}

// played is a test that never ends.
type played struct{ testing.TB }

func (played) Helper()        {}
func (played) Cleanup(func()) {}

func main() {
	d := &driver{out: json.NewEncoder(os.Stdout), clients: map[string]*kindred.Client{}, running: map[int]context.CancelFunc{}}
	in := bufio.NewReader(os.Stdin)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.running[c.ID] = cancel
		d.mu.Unlock()
		all.Go(func() {
			defer cancel()
			value, err := d.do(ctx, c)
			d.answer(c, value, err)
		})
	}
}

func (d *driver) answer(c command, value any, err error) {
	reply := map[string]any{"id": c.ID, "ok": value}
	if err != nil {
		failure := told(err)
		if c.Show {
			failure["shown"] = fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
		}
		reply = map[string]any{"id": c.ID, "error": failure}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.running, c.ID)
	if err := d.out.Encode(reply); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (d *driver) client(name string) *kindred.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients[name]
}

func (d *driver) do(ctx context.Context, c command) (any, error) {
	switch c.Do {
	case "new":
		k, err := kindred.New(kindred.Config{
			BaseURL: c.Options.BaseURL, APIKey: c.Options.APIKey, Token: c.Options.Token, Session: c.Options.Session, Sandbox: c.Options.Sandbox, MaxRetries: c.Options.MaxRetries,
			Timeout: timeoutOf(c.Options), AttemptTimeout: time.Duration(c.Options.AttemptTimeout) * time.Millisecond,
		})
		d.mu.Lock()
		defer d.mu.Unlock()
		d.clients[c.Client] = k
		return nil, err
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		if cancel := d.running[c.Target]; cancel != nil {
			cancel()
		}
		return nil, nil
	case "print":
		k := d.client(c.Client)
		config := kindred.Config{APIKey: "kin_secret_key", Token: "secret_key", Session: "secret_key"}
		written, err := json.Marshal(config)
		return fmt.Sprintf("%v %+v %#v %s %d %v %+v %#v %d %s", k, k, k, k, k, config, config, config, config, written), err
	case "memory":
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, nil
	case "client_id":
		return d.client(c.Client).ClientID(ctx)
	case "put_back":
		users := []*kindred.User{}
		for user, err := range d.client(c.Client).Users.List(ctx, kindred.ListUsersParams{}) {
			if err != nil {
				return nil, err
			}
			put, err := d.client(c.Client).Users.Put(ctx, user.ID, kindred.PutUser{Traits: user.Traits})
			if err != nil {
				return nil, err
			}
			users = append(users, put)
		}
		return users, nil
	case "import_back":
		users := []kindred.NewUser{}
		for user, err := range d.client(c.Client).Users.List(ctx, kindred.ListUsersParams{}) {
			if err != nil {
				return nil, err
			}
			users = append(users, kindred.NewUser{ExternalID: user.ExternalID, Traits: user.Traits})
		}
		return d.client(c.Client).Users.Import(ctx, kindred.Lines(slices.Values(users)), kindred.ImportUsersParams{})
	case "verify":
		return verify(c)
	case "sign":
		h, err := kindred.Sign(c.Secrets[0], c.Client, time.Unix(c.Now, 0), "match.computed", c.Delivered)
		flat := map[string]string{}
		for name := range h {
			flat[strings.ToLower(name)] = h.Get(name)
		}
		return flat, err
	case "signed":
		var data map[string]any
		if err := json.Unmarshal(c.Body, &data); err != nil {
			return nil, err
		}
		h, body, err := kindred.Signed(c.Secrets[0], kindred.Event{Type: "match.computed", Data: data, Timestamp: time.Unix(c.Now, 0)})
		flat := map[string]string{}
		for name := range h {
			flat[strings.ToLower(name)] = h.Get(name)
		}
		return map[string]any{"headers": flat, "body": string(body)}, err
	case "events":
		return d.events(ctx, c)
	case "fake":
		d.fake = kindredtest.New(played{})
		return map[string]any{"url": d.fake.URL, "api_key": d.fake.APIKey, "client_id": d.fake.ClientID}, nil
	case "fake_answer":
		d.fake.Answer(c.Method, c.Path[0], 200, c.Body)
		return nil, nil
	case "fake_refuse":
		d.fake.Refuse(c.Method, c.Path[0], 409, "a_code")
		return nil, nil
	case "fake_requests":
		paths := []string{}
		for _, r := range d.fake.Requests() {
			paths = append(paths, r.Method+" "+r.Path)
		}
		return paths, nil
	case "raw":
		return raw(ctx, c.Options)
	case "export":
		lines, last := 0, ""
		for line, err := range d.client(c.Client).History.Export(ctx) {
			if err != nil {
				return nil, err
			}
			lines, last = lines+1, string(line)
		}
		return map[string]any{"count": lines, "last": last}, nil
	default:
		return d.call(ctx, c)
	}
}

// raw reads the list of users without the SDK.
func raw(ctx context.Context, o options) (any, error) {
	count, query := 0, "?limit=200"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.BaseURL+"/api/v1/users"+query, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+o.Token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		if err != nil {
			return nil, err
		}
		var page kindred.UserList
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, err
		}
		for range page.Data {
			count++
		}
		if page.NextCursor == nil {
			return map[string]any{"count": count}, nil
		}
		query = "?limit=200&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

func (d *driver) events(ctx context.Context, c command) (any, error) {
	k, opts := d.client(c.Client).Events, optionsOf(c.Options, &kindred.Answer{})
	var sequence iter.Seq2[*kindred.Event, error]
	if c.Method == "pull" {
		params, err := decoded(reflect.TypeFor[kindred.ListEventsParams](), c.Params)
		if err != nil {
			return nil, err
		}
		sequence = k.Pull(ctx, params.Interface().(kindred.ListEventsParams), opts...)
	} else {
		params, err := decoded(reflect.TypeFor[kindred.FollowEventsParams](), c.Params)
		if err != nil {
			return nil, err
		}
		sequence = k.Follow(ctx, params.Interface().(kindred.FollowEventsParams), opts...)
	}
	ids, count, last := []string{}, 0, map[string]any{}
	for e, err := range sequence {
		if err != nil {
			return nil, err
		}
		if count++; count <= 1000 {
			ids = append(ids, e.ID)
		}
		last = map[string]any{"event_type": e.Type, "data": e.Raw, "timestamp": e.Timestamp}
		if count == c.Most {
			break
		}
	}
	return map[string]any{"ids": ids, "count": count, "last": last}, nil
}

func verify(c command) (any, error) {
	v := kindred.Verifier{Secrets: c.Secrets, PublicKeys: c.Keys, ClientID: c.ClientID, Now: func() time.Time { return time.Unix(c.Now, 0) }}
	h := http.Header{}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
	check := v.Verify
	if c.Scheme == "contract" {
		check = v.VerifyContract
	}
	event, err := check(h, c.Delivered)
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": event.ID, "event_type": event.Type}, nil
}

// call finds a method by its name and hands it what it takes: a context, the
// ids of its path, a body or lines, parameters, options.
func (d *driver) call(ctx context.Context, c command) (any, error) {
	resource := reflect.ValueOf(d.client(c.Client)).Elem().FieldByName(named(c.Resource))
	if !resource.IsValid() {
		return nil, fmt.Errorf("no resource %s", c.Resource)
	}
	method := resource.MethodByName(named(c.Method))
	if !method.IsValid() {
		return nil, fmt.Errorf("no method %s.%s", c.Resource, c.Method)
	}
	arguments := []reflect.Value{reflect.ValueOf(ctx)}
	path := c.Path
	var csv bytes.Buffer // what is written of an answer
	for i := 1; i < method.Type().NumIn()-1; i++ {
		switch t := method.Type().In(i); {
		case t.Kind() == reflect.String:
			arguments, path = append(arguments, reflect.ValueOf(path[0])), path[1:]
		case t == reflect.TypeFor[io.Writer]():
			arguments = append(arguments, reflect.ValueOf(&csv))
		case t.Kind() == reflect.Interface:
			arguments = append(arguments, reflect.ValueOf(lines(c)))
		case strings.HasSuffix(t.Name(), "Params"):
			v, err := decoded(t, c.Params)
			if err != nil {
				return nil, err
			}
			arguments = append(arguments, v)
		default:
			v, err := decoded(t, c.Body)
			if err != nil {
				return nil, err
			}
			arguments = append(arguments, v)
		}
	}
	var seen kindred.Answer
	for _, o := range optionsOf(c.Options, &seen) {
		arguments = append(arguments, reflect.ValueOf(o))
	}
	out := method.Call(arguments)
	if len(out) == 2 {
		if err, _ := reflect.TypeAssert[error](out[1]); err != nil {
			return nil, err
		}
		return map[string]any{"value": out[0].Interface(), "etag": seen.ETag, "request_id": seen.RequestID, "attempts": seen.Attempts}, nil
	}
	if out[0].Kind() != reflect.Func {
		err, _ := reflect.TypeAssert[error](out[0])
		if lines := strings.SplitAfter(csv.String(), "\n"); csv.Len() > 0 {
			return map[string]any{"count": len(lines) - 1, "first": lines[0], "last": lines[max(0, len(lines)-2)]}, err
		}
		return map[string]any{"attempts": seen.Attempts}, err
	}
	return iterated(out[0], c.Most)
}

func iterated(sequence reflect.Value, most int) (any, error) {
	var err error
	count, firstOne, lastOne := 0, any(nil), any(nil)
	for one, failed := range sequence.Seq2() {
		if err, _ = reflect.TypeAssert[error](failed); err != nil {
			return nil, err
		}
		count++
		if count == 1 {
			firstOne = one.Interface()
		}
		lastOne = one.Interface()
		if count == most {
			break
		}
	}
	return map[string]any{"count": count, "first": firstOne, "last": lastOne}, nil
}

func lines(c command) io.Reader {
	if c.Users == 0 {
		return strings.NewReader(c.Lines)
	}
	return kindred.Lines(made(c.Users))
}

func made(n int) iter.Seq[kindred.NewUser] {
	return func(yield func(kindred.NewUser) bool) {
		for i := range n {
			if !yield(kindred.NewUser{ExternalID: fmt.Sprintf("u%06d", i), Traits: map[string]any{"age": i % 90, "plan": "pro"}}) {
				return
			}
		}
	}
}

func decoded(t reflect.Type, text json.RawMessage) (reflect.Value, error) {
	v := reflect.New(t)
	if len(text) > 0 {
		in := json.NewDecoder(bytes.NewReader(text))
		in.DisallowUnknownFields()
		if err := in.Decode(v.Interface()); err != nil {
			return v, fmt.Errorf("%s: %w", t, err)
		}
	}
	return v.Elem(), nil
}

// timeoutOf is 0 where none is given.
func timeoutOf(o options) time.Duration {
	if o.Timeout == nil {
		return 0
	}
	return time.Duration(*o.Timeout) * time.Millisecond
}

func optionsOf(o options, seen *kindred.Answer) []kindred.Option {
	list := []kindred.Option{kindred.WithAnswer(seen)}
	if o.IdempotencyKey != "" {
		list = append(list, kindred.WithIdempotencyKey(o.IdempotencyKey))
	}
	if o.IfMatch != "" {
		list = append(list, kindred.WithIfMatch(o.IfMatch))
	}
	if o.IfNoneMatch != "" {
		list = append(list, kindred.WithIfNoneMatch())
	}
	if o.CSV {
		list = append(list, kindred.WithCSV())
	}
	if o.Eventual {
		list = append(list, kindred.WithEventual())
	}
	if o.Timeout != nil {
		list = append(list, kindred.WithTimeout(timeoutOf(o)))
	}
	return list
}

func named(snake string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(snake, "_") {
		switch word {
		case "api", "jwks", "csv":
			b.WriteString(strings.ToUpper(word))
		default:
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

func told(err error) map[string]any {
	out := map[string]any{"kind": "usage", "message": err.Error()}
	var refused *kindred.Error
	switch {
	case errors.As(err, &refused):
		pointers := []string{}
		for _, e := range refused.Errors {
			pointers = append(pointers, e.Pointer)
		}
		out["kind"], out["status"], out["code"], out["request_id"] = "refused", refused.Status, refused.Code, refused.RequestID
		out["pointers"], out["attempts"] = pointers, refused.Attempts
	case errors.Is(err, kindred.ErrTimeout):
		out["kind"] = "timeout"
	case errors.Is(err, kindred.ErrAnswer):
		out["kind"] = "answer"
	case errors.Is(err, kindred.ErrConnection):
		out["kind"] = "connection"
	case errors.Is(err, context.Canceled):
		out["kind"] = "cancelled"
	}
	for reason, one := range map[string]error{
		"signature_missing": kindred.ErrSignatureMissing, "signature_wrong": kindred.ErrSignatureWrong,
		"timestamp": kindred.ErrTimestamp, "event": kindred.ErrEvent, "other_client": kindred.ErrOtherClient,
	} {
		if errors.Is(err, one) {
			out["kind"], out["reason"] = "webhook", reason
		}
	}
	return out
}
