package kindred

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	renewBefore     = 30 * time.Second
	exchangeTimeout = time.Minute
)

// token is one that the service gave.
type token struct {
	text   string
	client string
	until  time.Time // it is renewed then
	fixed  bool      // it cannot be renewed
}

// tokens holds the token in force. However many callers need a new one, the key
// is exchanged once.
type tokens struct {
	key      string
	exchange func(ctx context.Context, key string) (*token, error)

	mu      sync.Mutex
	current *token
	pending *exchanging
}

type exchanging struct {
	done  chan struct{}
	token *token
	err   error
}

// get returns a token that is valid for a while, and waits for one if need be.
func (t *tokens) get(ctx context.Context) (*token, error) {
	t.mu.Lock()
	if t.current != nil && (t.current.fixed || time.Now().Before(t.current.until)) {
		defer t.mu.Unlock()
		return t.current, nil
	}
	if t.key == "" {
		defer t.mu.Unlock()
		return nil, ErrNoCredentials
	}
	if t.pending == nil {
		t.pending = &exchanging{done: make(chan struct{})}
		go t.renew(context.WithoutCancel(ctx), t.pending) // a caller that gives up takes nobody's token away
	}
	p := t.pending
	t.mu.Unlock()
	select {
	case <-p.done:
		return p.token, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *tokens) renew(ctx context.Context, p *exchanging) {
	ctx, cancel := context.WithTimeoutCause(ctx, exchangeTimeout, ErrTimeout)
	defer cancel()
	p.token, p.err = t.exchange(ctx, t.key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.err == nil {
		t.current = p.token
	}
	t.pending = nil
	close(p.done)
}

// refuse drops a token that was answered with 401, unless another is there.
func (t *tokens) refuse(used *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == used {
		t.current = nil
	}
}

// exchange asks for a token.
func (c *caller) exchange(ctx context.Context, key string) (*token, error) {
	var out Exchanged
	r := request{operation: "exchangeAPIKey", method: http.MethodPost, path: "/auth/exchange", body: ExchangeRequest{APIKey: key}, open: true}
	asked := time.Now()
	err := c.send(ctx, r, call{header: http.Header{}}, func(resp *http.Response) error { return readInto(resp, &out) })
	if err != nil {
		return nil, err
	}
	return newToken(out.Data.Token, out.Data.ExpiresIn, asked)
}

// renew asks for a token with the secret of a session: of its client, or of a sandbox.
func (c *caller) renew(ctx context.Context, secret, sandbox string) (*token, error) {
	var out LoggedIn
	asking := SessionTokenRequest{Secret: secret}
	if sandbox != "" {
		asking.ClientID = &sandbox
	}
	r := request{operation: "getSessionToken", method: http.MethodPost, path: "/auth/sessions/token", body: asking, open: true}
	asked := time.Now()
	err := c.send(ctx, r, call{header: http.Header{}}, func(resp *http.Response) error { return readInto(resp, &out) })
	if err != nil {
		return nil, err
	}
	return newToken(out.Token, out.ExpiresIn, asked)
}

// newToken is one that was asked for at a time, and is renewed before it ends.
func newToken(text string, seconds int64, asked time.Time) (*token, error) {
	if text == "" {
		return nil, &fault{kind: ErrAnswer, cause: errors.New("it holds no token")}
	}
	life := time.Duration(min(seconds, math.MaxInt32)) * time.Second
	return &token{text: text, client: audience(text), until: asked.Add(life - min(renewBefore, life/2))}, nil
}

// audience is the client's id in a token. It is not verified: the service does
// that.
func audience(text string) string {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var one struct {
		Audience string `json:"aud"`
	}
	if json.Unmarshal(payload, &one) == nil {
		return one.Audience
	}
	var several struct {
		Audience []string `json:"aud"`
	}
	if json.Unmarshal(payload, &several) == nil && len(several.Audience) > 0 {
		return several.Audience[0]
	}
	return ""
}
