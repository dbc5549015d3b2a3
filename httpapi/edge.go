package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi/docsite"
)

// Options are what the edge needs of the rest of the service.
type Options struct {
	Authenticator Authenticator
	// Known returns the client of a bearer token that was verified lately, without
	// a look at whether it has ended since; "": none. It is quick, and nil where
	// nothing is known: then requests share the places by address.
	Known   func(bearer string) id.Client
	Follows *Follows
	Forms   *Forms  // nil: no pages are served beside the contract
	Reserve Reserve // nil: requests with the same Idempotency-Key may run side by side
	Secret  []byte  // 32 bytes that key the hashes of Idempotency-Keys; the same on every replica

	Limits         Limits
	Timeout        time.Duration  // for a request that does not stream; 30 s
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed

	// Classify makes a fault of an error that is none but should be shown, or
	// returns nil.
	Classify func(context.Context, error) *fault.Fault
	Ready    func(context.Context) error // nil: always
	// Answered is told of each request of a client that was answered, at once: it must
	// be quick. nil: nobody is.
	Answered func(Answered)

	Logger  *slog.Logger
	Metrics *prometheus.Registry
	Tracing trace.TracerProvider // nil: requests are not traced
	Now     func() time.Time
	// MetricsElsewhere leaves out /metrics, which is served on another address.
	MetricsElsewhere bool
	Entropy          io.Reader // for request ids; safe for concurrent use
}

// edge is the handler's state.
type edge struct {
	o          Options
	router     *mux.Router // of all routes
	routes     *routes
	site       func() *docsite.Site
	operations map[string]*operation
	tokens     *limiter
	clients    *limiter
	ratePolicy string
	bodies     *class // bodies that are not there at once, and must be waited for
	waiting    *class // requests that wait for what they ask for
	streams    *class // imports and exports
	metrics    metrics
	tracer     trace.Tracer // nil: requests are not traced
	turnedAway atomic.Int64 // since the log told
	told       atomic.Int64 // when it did, in Unix nanoseconds
}

// must is for what can only fail when the binary itself is broken.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Answered is a request of a client, as it may be kept: it names neither its path, nor its
// query, nor its body, which tell of people.
type Answered struct {
	Client   id.Client
	Key      id.Key // whose token came with it; "": a member's
	ID       id.Request
	Method   string
	Route    string // the path as the contract has it
	Status   int
	At       time.Time // it came
	Duration time.Duration
}

// Unlisted serves requests of which Answered is not told: those of the service's own pages.
func Unlisted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), unlistedKey{}, true)))
	})
}

type unlistedKey struct{}

// Repeat is a request that its caller may send again.
type Repeat struct {
	Client id.Client
	Route  string
	Key    []byte // a keyed hash of the caller's key
	Body   []byte // a keyed hash of method, path and body
}

// Complete tells what became of a reserved request: a success keeps its key, so
// that no other body can use it; after a refusal the key is free again.
type Complete func(ctx context.Context, succeeded bool) error

// Reserve takes a key before its request runs. It refuses, with a fault, a key
// that another body has used and one whose request is still under way.
type Reserve func(ctx context.Context, r Repeat) (Complete, error)

// writeTimeout bounds an answer, from the end of the request's header.
const writeTimeout = time.Minute

// maxHeader bounds a request's first line and headers, in bytes.
// limit: requests | first line and headers | {maxHeader B} | 431 `unreadable_request`
const maxHeader = 20 << 10
