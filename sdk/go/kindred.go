// Package kindred calls the API of kindred, verifies its webhooks and needs
// nothing but the standard library.
//
// A client exchanges an API key for tokens, renews them, repeats what may be
// repeated, and reads lists page by page:
//
//	k, err := kindred.New(kindred.Config{APIKey: key, BaseURL: "https://kindred.example.com"})
//	user, err := k.Users.Create(ctx, kindred.NewUser{ExternalID: "u1", Traits: map[string]any{"plan": "pro"}})
//	for user, err := range k.Users.List(ctx, kindred.ListUsersParams{}) { … }
//
// Refusals of the service are of the type *Error.
package kindred

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Version of this SDK.
const Version = "0.1.0"

// Config says how to reach the service. The zero value reads KINDRED_API_KEY
// and KINDRED_URL.
type Config struct {
	APIKey  string // KINDRED_API_KEY where it is empty
	Token   string // one of a login, instead of an API key; it is not renewed
	Session string // the secret of a session, instead of an API key; its tokens are renewed
	Sandbox string // with a session: the sandbox beside its client, cli_…, that its tokens are to be of
	Open    bool   // no credentials, nor those of the environment: for logging in and signing up
	BaseURL string // KINDRED_URL where it is empty; https, or http to this machine

	Timeout        time.Duration // of a call with all its repetitions; 60 s where it is 0, an hour for imports and exports
	AttemptTimeout time.Duration // of one attempt; 35 s where it is 0
	MaxRetries     int           // of a call; 4 where it is 0, none where it is negative
	HTTPClient     *http.Client  // one of our own where it is nil; its redirects are never followed
}

// Client calls the API. It may be used by many goroutines at once.
type Client struct {
	resources
	c *caller
}

// New returns a client. It does not connect yet.
func New(config Config) (*Client, error) {
	if config.Token == "" && config.Session == "" && !config.Open {
		config.APIKey = cmp.Or(config.APIKey, os.Getenv("KINDRED_API_KEY"))
	}
	base, err := baseURL(cmp.Or(config.BaseURL, os.Getenv("KINDRED_URL")))
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(config.APIKey+config.Token+config.Session, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errors.New("kindred: the API key, token or session has a space, a line break or a character that is not ASCII in it")
	}
	if config.Sandbox != "" && config.Session == "" {
		return nil, errors.New("kindred: Sandbox goes with a Session: a key or token is of one client")
	}
	own := http.Client{}
	if config.HTTPClient != nil {
		own = *config.HTTPClient
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 100
		own.Transport = transport
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &caller{
		base: base, http: &own,
		timeout:        config.Timeout,
		attemptTimeout: cmp.Or(config.AttemptTimeout, 35*time.Second),
		maxRetries:     max(0, cmp.Or(config.MaxRetries, 4)),
	}
	c.tokens = &tokens{key: config.APIKey, exchange: c.exchange}
	if config.Session != "" {
		c.tokens = &tokens{key: config.Session, exchange: func(ctx context.Context, secret string) (*token, error) {
			return c.renew(ctx, secret, config.Sandbox)
		}}
	}
	if config.Token != "" {
		c.tokens.current = &token{text: config.Token, client: audience(config.Token), fixed: true}
	}
	return &Client{resources: newResources(c), c: c}, nil
}

// ClientID is the id of the client that the key or token is of. It exchanges
// the key if that was not done yet.
func (k *Client) ClientID(ctx context.Context) (string, error) {
	t, err := k.c.tokens.get(ctx)
	if err != nil {
		return "", err
	}
	return t.client, nil
}

// BaseURL is where the service is.
func (k *Client) BaseURL() string { return k.c.base }

// String names the service and hides the key.
func (k *Client) String() string { return fmt.Sprintf("kindred.Client(%s)", k.c.base) }

// GoString is String.
func (k *Client) GoString() string { return k.String() }

// Format is String, whatever the verb, so that nothing prints the key.
func (k *Client) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.String())) }

// LogValue is String.
func (k *Client) LogValue() slog.Value { return slog.StringValue(k.String()) }

// String hides the key and the token.
func (c Config) String() string { return fmt.Sprintf("kindred.Config(%s)", c.BaseURL) }

// GoString is String.
func (c Config) GoString() string { return c.String() }

// Format is String, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// MarshalJSON is String.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func baseURL(text string) (string, error) {
	if text == "" {
		return "", errors.New("kindred: no BaseURL is given, nor KINDRED_URL")
	}
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return "", errors.New("kindred: the BaseURL, or KINDRED_URL, is not a URL, such as https://kindred.example.com")
	case u.Host == "" || u.User != nil || strings.ContainsAny(text, "?#"):
		return "", errors.New("kindred: the BaseURL, or KINDRED_URL, must be a scheme, a host and at most a path, such as https://kindred.example.com")
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return strings.TrimRight(u.String(), "/"), nil
	default:
		return "", errors.New("kindred: keys are sent over https, or over http to this machine alone")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Option changes one call.
type Option func(*call)

type call struct {
	header  http.Header
	timeout time.Duration
	answer  *Answer

	lines    string // the type of an import's lines
	opened   bool   // an export shows what is sealed
	persists bool   // it is repeated for as long as the timeout lets it
}

// WithIdempotencyKey names a POST by a key of the caller's, so that it takes
// effect once however often it is called. Without it the SDK makes one for each
// call, which all repetitions of that call carry.
func WithIdempotencyKey(key string) Option {
	return func(c *call) { c.header.Set("Idempotency-Key", key) }
}

// WithIfMatch refuses the change where the object is no longer what an ETag says.
func WithIfMatch(etag string) Option {
	return func(c *call) { c.header.Set("If-Match", etag) }
}

// WithIfNoneMatch refuses a PUT where the object is there already.
func WithIfNoneMatch() Option {
	return func(c *call) { c.header.Set("If-None-Match", "*") }
}

// WithEventual reads at once from what is there, without waiting for what was
// written.
func WithEventual() Option {
	return func(c *call) { c.header.Set("X-Kindred-Consistency", "eventual") }
}

// WithCSV says that the lines of an import are CSV, with the names of the traits
// in the first.
func WithCSV() Option { return func(c *call) { c.lines = "text/csv" } }

// WithPersonal has an export show what is sealed, opened; it takes the scope
// admin.
func WithPersonal() Option { return func(c *call) { c.opened = true } }

// WithTimeout bounds this call with all its repetitions. One of 0 or less lets it
// send nothing: it ends with ErrTimeout.
func WithTimeout(d time.Duration) Option { return func(c *call) { c.timeout = d } }

// WithAnswer fills in what was answered beside the body.
func WithAnswer(a *Answer) Option { return func(c *call) { c.answer = a } }

// Answer is what an answer tells beside its body.
type Answer struct {
	Status    int
	RequestID string
	ETag      string
	Attempts  int // how often the request was sent
	Header    http.Header
}
