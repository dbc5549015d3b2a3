package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// users is how many end users a client has: enough for pairs that differ.
const users = 400

// client is a customer of kindred's: users whose matches are the events, and
// webhooks.
type client struct {
	*stack
	token, id string
	ids       []string // of the users
	hooks     []string
}

// signUp makes a client with users, and a receiver of each kind with a webhook.
func (s *stack) signUp(ctx context.Context, kinds ...kind) (*client, []*receiver, error) {
	c := &client{stack: s}
	var signed struct {
		Token  string
		Client struct{ ID string }
	}
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	err := c.call(ctx, "POST", "/auth/signup", map[string]string{
		"email": name + "@example.com", "password": "a password of " + name, "company_name": name,
	}, &signed)
	if err != nil {
		return nil, nil, err
	}
	c.token, c.id = signed.Token, signed.Client.ID
	var lines bytes.Buffer
	for i := range users {
		fmt.Fprintf(&lines, `{"external_id":"u%d","traits":{"age":%d,"plan":"p%d","city":"c%d","likes":["l%d","l%d"]}}`+"\n",
			i, 18+i*7%60, i%4, i*3%11, i%9, i%7)
	}
	if _, err := c.request(ctx, "POST", "/api/v1/users/import", lines.Bytes(), "application/x-ndjson", ""); err != nil {
		return nil, nil, err
	}
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}
		if err := c.call(ctx, "GET", "/api/v1/users?limit=200"+cursor, nil, &page); err != nil {
			return nil, nil, err
		}
		for _, user := range page.Data {
			c.ids = append(c.ids, user.ID)
		}
		if page.NextCursor == "" {
			break
		}
		cursor = "&cursor=" + page.NextCursor
	}
	if len(c.ids) != users {
		return nil, nil, fmt.Errorf("%d users, not %d", len(c.ids), users)
	}
	to, err := c.subscribe(ctx, kinds...)
	return c, to, err
}

// subscribe adds receivers of a kind, each with a webhook.
func (c *client) subscribe(ctx context.Context, kinds ...kind) ([]*receiver, error) {
	return c.subscribeAs(ctx, nil, kinds...)
}

// subscribeAs is subscribe with more fields of the subscription.
func (c *client) subscribeAs(ctx context.Context, chosen map[string]any, kinds ...kind) ([]*receiver, error) {
	all := make([]*receiver, len(kinds))
	for i, k := range kinds {
		r, err := c.receive(ctx, k)
		if err != nil {
			return nil, err
		}
		var hook struct{ ID string }
		body := map[string]any{"url": r.url, "event_types": []string{"match.computed"}, "secret": "keep this"}
		maps.Copy(body, chosen)
		err = c.call(ctx, "POST", "/api/v1/clients/"+c.id+"/webhooks", body, &hook)
		if err != nil {
			return nil, err
		}
		c.hooks = append(c.hooks, hook.ID)
		all[i] = r
	}
	return all, nil
}

// leave removes the webhooks of a client, so that it is in nobody's way.
func (c *client) leave(ctx context.Context) error {
	for _, hook := range c.hooks {
		if err := c.call(ctx, "DELETE", "/api/v1/clients/"+c.id+"/webhooks/"+hook, nil, nil); err != nil {
			return err
		}
	}
	const left = `SELECT count(*) FROM dispatch_queue WHERE webhook = ANY($1)`
	return eventually(ctx, "what was pending is cancelled", func() (bool, error) {
		var n int
		err := c.pool.QueryRow(ctx, left, c.hooks).Scan(&n)
		return n == 0, err
	})
}

// call sends JSON and reads JSON; in and out may be nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	text, err := c.request(ctx, method, path, body, "application/json", "")
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// refused is an answer that is no success.
type refused struct {
	status int
	text   string
}

func (r refused) Error() string { return fmt.Sprintf("answered %d: %.300s", r.status, r.text) }

func (c *client) request(ctx context.Context, method, path string, body []byte, contentType, key string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.api.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		return nil, refused{resp.StatusCode, string(text)}
	}
	return text, err
}

// match publishes one event: the n-th pair of users, of which there are
// users * (users - 1). It returns the pair. Where kindred is behind (503), it
// insists.
func (c *client) match(ctx context.Context, n int) (pair string, err error) {
	user, other := c.pair(n)
	body, err := json.Marshal(map[string]string{"matched_user_id": other})
	if err != nil {
		return "", err
	}
	for end := time.Now().Add(patience); ; {
		_, err = c.request(ctx, "POST", "/api/v1/users/"+user+"/matches", body, "application/json", "")
		answer, ok := errors.AsType[refused](err)
		if !ok || answer.status != http.StatusServiceUnavailable || time.Now().After(end) {
			return user + "+" + other, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil { // it refused before it recorded anything
			return "", err
		}
	}
}

func (c *client) pair(n int) (user, other string) {
	i, j := n%users, n/users%(users-1)
	return c.ids[i], c.ids[(i+j+1)%users]
}

// batch is how many events one request publishes, at most.
const batch = 100

// matches publishes the best matches of a user, and returns their pairs. It
// insists until they are acknowledged.
func (c *client) matches(ctx context.Context, user, limit int, key string) (pairs []string, err error) {
	path := "/api/v1/users/" + c.ids[user%users] + "/matches"
	for end := time.Now().Add(patience); ; {
		text, err := c.request(ctx, "POST", path, fmt.Appendf(nil, `{"limit":%d}`, limit), "application/json", key)
		if err == nil {
			var answer struct {
				Data []struct {
					User string `json:"matched_user_id"`
				}
			}
			if err := json.Unmarshal(text, &answer); err != nil {
				return nil, err
			}
			for _, m := range answer.Data {
				pairs = append(pairs, c.ids[user%users]+"+"+m.User)
			}
			if len(pairs) != limit {
				return nil, fmt.Errorf("%d matches, not %d", len(pairs), limit)
			}
			return pairs, nil
		}
		if answer, ok := errors.AsType[refused](err); ok && answer.status < 500 && answer.status != http.StatusConflict ||
			key == "" || time.Now().After(end) {
			return nil, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

const publishers = 8 // at once, of a burst

// burst publishes n events, each request at most most of them, and returns
// their pairs. acked is told after each request.
func (c *client) burst(ctx context.Context, n, most, workers int, keyed string, acked func(events int)) ([]string, error) {
	var (
		mu    sync.Mutex
		pairs = make([]string, 0, n)
		next  atomic.Int64
		errs  = make([]error, workers)
		all   sync.WaitGroup
	)
	for w := range workers {
		all.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i*most >= n {
					return
				}
				var got []string
				if most == 1 {
					pair, err := c.match(ctx, i)
					got, errs[w] = []string{pair}, err
				} else {
					key := ""
					if keyed != "" {
						key = fmt.Sprintf("%s-%d", keyed, i)
					}
					got, errs[w] = c.matches(ctx, i, min(most, n-i*most), key)
				}
				mu.Lock()
				pairs = append(pairs, got...)
				mu.Unlock()
				if acked != nil {
					acked(len(got))
				}
			}
		})
	}
	all.Wait()
	return pairs, errors.Join(errs...)
}

// missing are the pairs that a receiver did not get.
func missing(pairs []string, got []arrival) (n int) {
	there := make(map[string]bool, len(got))
	for _, a := range got {
		there[a.pair] = true
	}
	for _, pair := range pairs {
		if !there[pair] {
			n++
		}
	}
	return n
}
