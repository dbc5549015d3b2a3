package httpapi

import (
	"context"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"kindred/domain/id"
)

// Principal is who makes a request, as the token says.
type Principal struct {
	Client  id.Client
	Parent  id.Client // beside which the client stands, where a member logged in to a sandbox
	Member  id.Member // who logged in, or who made the key
	Key     id.Key    // the API key that the token was exchanged for; empty after signup and login
	Scopes  []string
	Session id.Session // that a member's token was got with; empty: with the password
	Logins  string     // all tokens of the member from before the password is changed; empty for an API key
	TokenID string     // the claim jti
	Expires time.Time
}

// Actor names the principal in the event log: the key where there is one, else
// the member.
func (p Principal) Actor() string {
	if p.Key != "" {
		return string(p.Key)
	}
	return string(p.Member)
}

// Subjects are what the principal's token goes with, when it is revoked: a token of an API
// key ends with the key, not with the member that made the key. All of a client end with it.
func (p Principal) Subjects() []string {
	subjects := append(make([]string, 0, 4), id.Everyone(p.Client))
	if p.Key != "" {
		return append(subjects, string(p.Key))
	}
	subjects = append(subjects, string(p.Member), p.Logins)
	if p.Session != "" {
		subjects = append(subjects, string(p.Session))
	}
	return subjects
}

// May says whether the principal has a scope; admin implies read, write and
// webhooks.
func (p Principal) May(scope string) bool {
	return slices.Contains(p.Scopes, scope) ||
		(scope == "read" || scope == "write" || scope == "webhooks") && slices.Contains(p.Scopes, "admin")
}

// Authenticator tells who holds a bearer token. It refuses with a fault of kind
// Unauthenticated, or Unavailable when it cannot know.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string) (Principal, error)
}

// Call is what a handler may want to know of the request beyond its input.
type Call struct {
	ID       id.Request // random, or the caller's own X-Request-Id
	Eventual bool       // the caller does not want to wait for its own writes
	Export   bool       // the caller accepts the whole as NDJSON or CSV, where the operation has that

	// IdempotencyKey is the caller's, empty without one. Seed then holds what
	// the identifiers of a repeatable command are derived from: client, route
	// and key. BodyMAC is a keyed hash of that key, method, path and body, in
	// hex.
	IdempotencyKey string
	Seed           []string
	BodyMAC        string

	// IfMatch is the revision that the object must have; nil: any. It is noRevision
	// for a tag that no object has. IfMatchUser is the user that the tag is of, or empty.
	IfMatch     *int64
	IfMatchUser id.User
	// IfExists and IfNoneMatch: the object must, or must not, be there.
	IfExists, IfNoneMatch bool

	RemoteAddr string // the caller's address, without a port; what trusted proxies say is believed
	Forwarded  bool   // a proxy has forwarded it
}

// noRevision is less than the -1 of what is there before anything was recorded of it, such as
// the traits of a client that has no users.
const noRevision = math.MinInt64

// exchange is one request on its way through the handler: the outer layers
// make it, the inner ones fill it in, the log, the metrics and its span read it.
type exchange struct {
	call      Call
	principal Principal
	op        *operation // nil until the route is known, and for the service's own pages
	service   string     // the path of a page of the service's own
	code      string     // of the problem that was answered
	rec       *recorder  // nil where there is no HTTP
	span      trace.Span // nil where it is not traced
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return new(exchange)
}

// CallFrom returns the call that a handler's context belongs to.
func CallFrom(ctx context.Context) Call { return exchangeFrom(ctx).call }

// PrincipalFrom returns who makes the request; the zero Principal where the
// contract asks for no token.
func PrincipalFrom(ctx context.Context) Principal { return exchangeFrom(ctx).principal }

// With returns a context as a handler gets it, for those who call handlers
// without HTTP.
func With(ctx context.Context, p Principal, c Call) context.Context {
	return context.WithValue(ctx, exchangeKey{}, &exchange{call: c, principal: p})
}

// client is who the exchange counts against: the owner of the principal's client, or what
// stands for it as long as nobody is known.
func (x *exchange) client() string {
	if x.principal.Client != "" {
		return x.principal.Client.Owner()
	}
	return x.rec.client
}
