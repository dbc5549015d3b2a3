package httpapi

import (
	"net/http"
	"time"
)

// idleTimeout is how long a connection is kept on which nothing is asked.
const idleTimeout = time.Minute

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
