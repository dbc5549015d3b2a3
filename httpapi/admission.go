package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/id"
	"kindred/httpapi/docsite"
)

const (
	// waitForTurn is how long a request may wait before it is turned away: a
	// stall passes unnoticed, a load that lasts does not pile up.
	waitForTurn = time.Second
	// Of the reads that are let in, one in readsAtOnce is answered at once:
	// more than the database works on would only be in each other's way. Writes
	// are all answered at once, since those that come together share a commit.
	readsAtOnce = 8
	// An answer leaves the lane when it is written, so that nobody waits for who
	// is slow to take it, or to send what is left of a body, while all of those
	// hold no more than maxUntaken bytes. Those beyond stay inside.
	maxUntaken = 64 << 20
	// retryAfter is what those who are turned away are told to wait, in seconds.
	retryAfter = "1"
	// tellEvery is how often the log says that requests are turned away.
	tellEvery = time.Second
)

// admission answers a bounded number of requests at a time, lets a bounded
// number wait for a moment, and turns the others away at once, before anything
// is read or checked, so that under any load the service does what it can do
// at its best. Clients share what there is fairly. Reads cannot keep writes out,
// nor long streams either, nor what waits outside (WaitOutside); the service's
// own pages are always answered.
type admission struct {
	edge          *edge
	next          http.Handler
	reads, writes *lane
	lines         []*operation // those that take or answer NDJSON
	problem       [2][]byte    // the answer, around the request's id
	turnedAway    atomic.Int64 // since the log told
	told          atomic.Int64 // when it did, in Unix nanoseconds
}

// admission puts the bounds before a handler.
func (e *edge) admission(next http.Handler) *admission {
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kindred_http_requests_shed_total",
		Help: "Requests that were turned away because too many were being answered.",
	}, []string{"lane"})
	e.o.Metrics.MustRegister(shed)
	n := e.o.Limits.InFlight
	a := &admission{
		edge: e, next: next,
		reads:  newLane(max(n/readsAtOnce, 1), n, shed.WithLabelValues("reads")),
		writes: newLane(n, n, shed.WithLabelValues("writes")),
	}
	e.bodies = long(n, 4, shed.WithLabelValues("bodies"))
	e.streams = long(max(n/4, 1), 8, shed.WithLabelValues("streams"))
	for _, op := range e.operations {
		if op.streams || op.exports {
			a.lines = append(a.lines, op)
		}
	}
	const mark = "id"
	body := must(json.Marshal(Problem{
		Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Detail: tooMuch, Code: "overloaded", RequestID: mark,
	}))
	before, after, _ := bytes.Cut(body, []byte(`"`+mark+`"`))
	a.problem = [2][]byte{append(before, '"'), append(append([]byte{'"'}, after...), '\n')}
	return a
}

func (a *admission) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	if l := a.lane(r.Method, r.URL.Path, r.Header.Values("Accept")); l != nil {
		client := a.edge.clientOf(r.Header["Authorization"], r.RemoteAddr, r.Header[headerForwardedFor])
		if l == a.writes && !l.Refuses(client) {
			takeSmall(r)
		}
		if !l.enter(r.Context(), client) {
			a.turnAway(w, r)
			return
		}
		rec.lane, rec.client = l, client
		defer rec.leave()
	}
	a.next.ServeHTTP(rec, r)
}

// lane is where a request belongs, or nil for one of the service's own pages and
// for a stream, which takes its place once its token is known.
func (a *admission) lane(method, path string, accept []string) *lane {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	switch {
	case !ofAPI(path), a.long(method, path, accept):
		return nil
	case method == http.MethodGet:
		return a.reads
	default:
		return a.writes
	}
}

// long tells a stream, whose operation has one, from what only says so.
func (a *admission) long(method, path string, accept []string) bool {
	for _, op := range a.lines {
		if op.method == method && fits(op.path, path) {
			return op.streams || acceptsLines(accept)
		}
	}
	return false
}

// ofAPI tells a path that costs something from one of the service's own pages,
// and from the keys of tokens, which are at hand.
func ofAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") ||
		path == "/.well-known/audit-jwks.json" || path == docsite.SearchPath
}

func (a *admission) turnAway(w http.ResponseWriter, r *http.Request) {
	request := a.edge.requestID(r)
	header := w.Header()
	header.Set(headerRequestID, string(request))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/problem+json")
	header.Set("Retry-After", retryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(a.body(nil, request)) // nobody there is no trouble
	a.tell(r.Context())
}

// body appends the problem with a request's id in it.
func (a *admission) body(b []byte, request id.Request) []byte {
	return append(append(append(b, a.problem[0]...), request...), a.problem[1]...)
}

// answer appends the whole answer, as turnAway gives it.
func (a *admission) answer(b []byte, own string, now time.Time) []byte {
	request := a.edge.ownID(own)
	b = append(b, "HTTP/1.1 503 Service Unavailable\r\nCache-Control: no-store\r\nContent-Type: application/problem+json\r\nRetry-After: "+
		retryAfter+"\r\nX-Content-Type-Options: nosniff\r\n"+headerRequestID+": "...)
	b = append(b, request...)
	b = now.UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat)
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(a.problem[0])+len(request)+len(a.problem[1])), 10)
	return a.body(append(b, "\r\n\r\n"...), request)
}

// full says whether there may be somebody to be turned away.
func (a *admission) full() bool { return a.reads.Full() || a.writes.Full() }

// tell logs how many were turned away, now and then: a line for each would be
// a load of its own.
func (a *admission) tell(ctx context.Context) {
	a.turnedAway.Add(1)
	now, last := a.edge.o.Now().UnixNano(), a.told.Load()
	if now-last < int64(tellEvery) || !a.told.CompareAndSwap(last, now) {
		return
	}
	a.edge.o.Logger.WarnContext(ctx, "overloaded: requests are turned away", slog.Int64("requests", a.turnedAway.Swap(0)))
}
