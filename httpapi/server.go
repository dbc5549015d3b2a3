package httpapi

import (
	"net/http"
	"time"
)

// writeTimeout bounds an answer, from the end of the request's header.
const writeTimeout = time.Minute

// idleTimeout is how long a connection is kept on which nothing is asked.
const idleTimeout = time.Minute

// maxHeader bounds a request's first line and headers, in bytes.
const maxHeader = 16 << 10

// NewServer returns a server whose every wait is bounded. Streaming requests
// move their deadlines themselves.
func NewServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ConnState:         notes,
		MaxHeaderBytes:    maxHeader,
	}
}
