package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/semaphore"
)

const (
	// lookUpsPart: reads that share statements have one place for so many of writes. They
	// need fewer, since what they read is in memory.
	lookUpsPart = 4
	// bodiesParts, waitingParts and streamsParts: of the places of each of these classes a
	// client has at most one part in so many.
	bodiesParts, waitingParts, streamsParts = 4, 2, 8
	// streamsPart: imports and exports have one place for so many of writes.
	streamsPart = 4
	// limit: imports | imports and exports under way, all clients | {inFlight / streamsPart} | 503 `overloaded`
	// limit: imports | of these, one client's | {inFlight / streamsPart / streamsParts} | 503 `overloaded`
	// limit: classes | reads | {reads}, one for each connection to the database | as many as are free: {reads / 2} alone, {reads / 4} beside one such | {inFlight}
	// limit: classes | reads of one user, which share statements | {inFlight / lookUpsPart} | as many as are free | {inFlight}
	// limit: classes | writes | {inFlight} | {inFlight * 3 / 4} | {inFlight / 4}
	// limit: classes | bodies over {maxAuthBody B} that come slowly | {inFlight} | {inFlight / bodiesParts} | {inFlight / waitingPart}
	// limit: classes | requests that wait for what was written, for users that are read anew, or for a state of the past | {inFlight} | {inFlight / waitingParts} | {inFlight / waitingPart}
	// limit: classes | imports and exports | {inFlight / streamsPart} | {inFlight / streamsPart / streamsParts} | {inFlight / streamsPart / waitingPart}
	// readTolerated is how long a read may last before it can have to give way: less
	// than others wait.
	readTolerated = waitForPlace / 2
	// hashesWaiting is how many requests for each core may wait to hash a password, and
	// hashPatience how long: a sign-up, with all that it records, has its place for
	// some 100 ms.
	// limit: classes | passwords that are hashed, at logins, sessions, sign-ups, new members and changes | one a core | all | {hashesWaiting} a core, {hashPatience} at most
	hashesWaiting = 32
	hashPatience  = 5 * time.Second
	// retryAfter is what those who are turned away are told to wait, in seconds.
	retryAfter = "1"
	// tellEvery is how often the log says that requests are turned away.
	tellEvery = time.Second
)

// admission answers a bounded number of requests of each class at a time and lets a bounded
// number wait for a moment. It turns the others away at once, before anything is checked,
// so that the service keeps its full throughput under any load. Clients share the places
// fairly. The service's own pages need no place and are always answered.
type admission struct {
	edge    *edge
	next    http.Handler
	reads   *class
	lookUps *class // what shares statements with others of its kind
	writes  *class
	hashes  *class       // what hashes a password
	apart   []*operation // those that are no plain reads and writes
	problem [2][]byte    // the answer, around the request's id
}

// admission puts the bounds before a handler.
func (e *edge) admission(next http.Handler) *admission {
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kindred_http_requests_shed_total",
		Help: "Requests that were turned away because too many were being answered.",
	}, []string{"lane"})
	e.o.Metrics.MustRegister(shed)
	l := e.o.Limits
	n, each := l.InFlight, max(l.InFlight*3/4, 1)
	a := &admission{
		edge: e, next: next,
		// A read's place is a connection to the database. Half leaves some of them free for
		// others, however many one client would take.
		reads: &class{Semaphore: &semaphore.Semaphore{
			Places: l.Reads, Half: true, Waiting: n, Patience: waitForPlace,
		}, shed: shed.WithLabelValues("reads"), toleratedFor: readTolerated},
		// Lookups that come together share two statements at a time, so connections would
		// be too few places for them. Half bounds what one client has.
		lookUps: &class{Semaphore: &semaphore.Semaphore{
			Places: max(n/lookUpsPart, 1), Half: true, Waiting: n, Patience: waitForPlace,
		}, shed: shed.WithLabelValues("lookups")},
		// Writes are all let in at once, since those that come together share a commit.
		writes: &class{Semaphore: &semaphore.Semaphore{
			Places: n, Each: each, Waiting: n - each, Patience: waitForPlace,
		}, shed: shed.WithLabelValues("writes")},
		hashes: &class{Semaphore: &semaphore.Semaphore{
			Places: l.Hashes, Waiting: l.Hashes * hashesWaiting, Patience: hashPatience,
		}, shed: shed.WithLabelValues("hashes")},
	}
	e.bodies = long(n, bodiesParts, shed.WithLabelValues("bodies"))
	e.waiting = long(n, waitingParts, shed.WithLabelValues("waiting"))
	e.streams = long(max(n/streamsPart, 1), streamsParts, shed.WithLabelValues("streams"))
	if f := e.o.Forms; f != nil {
		f.class, f.proxies = long(forms, formsParts, shed.WithLabelValues("forms")), e.o.TrustedProxies
	}
	for _, op := range e.operations {
		if op.streams || op.exports != "" || op.live || op.waits || op.hashes || op.looksUp {
			a.apart = append(a.apart, op)
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
	if c := a.class(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Values("Accept")); c != nil {
		rec.place = place{class: c, client: a.edge.clientOf(r.Header["Authorization"], r.RemoteAddr, r.Header[headerForwardedFor])}
		if c.toleratedFor > 0 {
			ctx, end := context.WithCancel(r.Context())
			defer end()
			rec.end, r = end, r.WithContext(ctx)
		} else if !c.Refuses(rec.client) {
			bufferSmall(r)
		}
		if !rec.enter(r.Context()) {
			a.turnAway(w, r)
			return
		}
		defer rec.leave()
	}
	a.next.ServeHTTP(rec, r)
}

// class is what a request needs a place of, or nil for one of the service's own
// pages, for a stream and for a request that waits for events, which take their
// places once their tokens are known.
func (a *admission) class(method, path, query string, accept []string) *class {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op := &operation{}
	if at := slices.IndexFunc(a.apart, func(op *operation) bool { return op.method == method && fits(op.path, path) }); at >= 0 {
		op = a.apart[at]
	}
	switch {
	case !ofAPI(path), op.streams, op.wantsExport(accept), op.follows(query):
		return nil
	case op.looksUp:
		return a.lookUps
	case method == http.MethodGet:
		return a.reads
	case op.hashes:
		return a.hashes
	default:
		return a.writes
	}
}

func (a *admission) turnAway(w http.ResponseWriter, r *http.Request) {
	request := a.edge.requestID(r)
	header := w.Header()
	header.Set(headerRequestID, string(request))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/problem+json")
	header.Set("Link", helpLink("overloaded"))
	header.Set("Retry-After", retryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
	body := slices.Concat(a.problem[0], []byte(request), a.problem[1])
	_, _ = w.Write(body) // nobody there is no trouble
	a.edge.tellTurnedAway(r.Context())
}

// tellTurnedAway logs how many were turned away, now and then: a line for each would be
// a load of its own, and one client could fill the log.
func (e *edge) tellTurnedAway(ctx context.Context) {
	e.turnedAway.Add(1)
	now, last := e.o.Now().UnixNano(), e.told.Load()
	if now-last < int64(tellEvery) || !e.told.CompareAndSwap(last, now) {
		return
	}
	e.o.Logger.WarnContext(ctx, "overloaded: requests are turned away", slog.Int64("requests", e.turnedAway.Swap(0)))
}
