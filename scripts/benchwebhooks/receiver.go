package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// kind is how a receiver behaves.
type kind int32

const (
	fast     kind = iota
	slow          // answers after 200 ms
	hanging       // never answers
	failing       // answers 500
	holding       // answers 503, and asks for a wait of an hour
	closing       // closes the connection
	garbage       // answers what is not HTTP
	huge          // answers without an end
	dripping      // answers one byte a second
	down          // refuses connections
)

// bad are the kinds that are in the way of others, if anything is.
func bad() []kind { return []kind{slow, hanging, failing, closing, garbage, huge, dripping} }

// arrival is one request that a receiver got.
type arrival struct {
	at   time.Time
	id   string // of the delivery
	pair string // the users of its match, which tell events apart
}

// receiver is somebody's web server, at a port of its own.
type receiver struct {
	url  string
	kind atomic.Int32

	address string
	server  *http.Server
	mu      sync.Mutex
	got     []arrival
	changed chan struct{} // closed when its behaviour changes
}

// receivers are all there are.
type receivers struct {
	mu  sync.Mutex
	all []*receiver
}

func (rs *receivers) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		_ = r.server.Close() // nobody waits for what it still has to say
	}
}

// receive starts a receiver.
func (rs *receivers) receive(ctx context.Context, k kind) (*receiver, error) {
	r := &receiver{changed: make(chan struct{})}
	r.kind.Store(int32(k))
	if err := r.listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = append(rs.all, r)
	return r, nil
}

func (r *receiver) listen(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	r.address = listener.Addr().String()
	r.url = "http://" + r.address + "/hook"
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // until it is closed
	return nil
}

// become changes how a receiver behaves, also towards those who wait.
func (r *receiver) become(ctx context.Context, k kind) error {
	was := kind(r.kind.Swap(int32(k)))
	r.mu.Lock()
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	switch {
	case k == down:
		return r.server.Close()
	case was == down:
		return r.listen(ctx, r.address)
	}
	return nil
}

// ServeHTTP notes the request, then answers as its kind does.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	a := arrival{at: at, id: q.Header.Get("X-Kindred-Delivery"), pair: pairOf(body)}
	r.mu.Lock()
	r.got = append(r.got, a)
	changed := r.changed
	r.mu.Unlock()
	r.answer(w, q, changed)
}

func (r *receiver) answer(w http.ResponseWriter, q *http.Request, changed <-chan struct{}) {
	wait := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-changed:
		case <-q.Context().Done():
		}
		return false
	}
	switch kind(r.kind.Load()) {
	case slow:
		wait(200 * time.Millisecond)
	case hanging:
		wait(time.Hour)
	case failing:
		w.WriteHeader(http.StatusInternalServerError)
	case holding:
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	case closing, down:
		panic(http.ErrAbortHandler)
	case garbage:
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write(bytes.Repeat([]byte("\x00\xffgarbage"), 100))
		_ = conn.Close() // rudely
	case huge:
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	case dripping:
		for {
			if _, err := w.Write([]byte{'.'}); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			if !wait(time.Second) {
				return
			}
		}
	}
}

// count is how many requests it got.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// take returns what it got, and forgets it.
func (r *receiver) take() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// pairOf reads the users of a match from the body of its delivery.
func pairOf(body []byte) string {
	return field(body, `"user_id":"`) + "+" + field(body, `"matched_user_id":"`)
}

func field(body []byte, key string) string {
	_, rest, found := bytes.Cut(body, []byte(key))
	if !found {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(value)
}
