package httpapi

import (
	"net/http"
	"time"
)

// idleTimeout is how long a connection is kept on which nothing is asked: longer than
// callers keep theirs, mostly 60 to 90 s. Where both close at the same time a request is lost, and a
// POST is not repeated.
// limit: edge | a connection on which nothing is asked | {idleTimeout}, then it is closed
const idleTimeout = 2 * time.Minute

// NewServer returns a server whose every wait is bounded. Streaming requests
// move their deadlines themselves.
func NewServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           apart(handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ConnState:         notes,
		MaxHeaderBytes:    maxHeader - 4<<10, // net/http takes 4 KiB more than that
	}
}

// apart gives a handler a request of its own, whose body it may replace. By the body of its
// own request net/http tells whether that broke off: it would take the rest for another request.
//
// Nothing follows a chunked body, nor a request of HTTP/1.0, which has none. Beside a
// Content-Length, which net/http hides, a proxy might see another end of the body (RFC 9112, 6.1).
func apart(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if chunked := r.ContentLength < 0; chunked || !r.ProtoAtLeast(1, 1) {
			w.Header().Set("Connection", "close")
		}
		if r.ContentLength != 0 {
			own := *r
			r = &own
		}
		next.ServeHTTP(w, r)
	})
}
