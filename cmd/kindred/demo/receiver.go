package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxDelivery   = 1 << 20 // bytes
	maxDeliveries = 100_000
)

// receiver is a webhook endpoint as a careful company would write it: it
// checks the signature over the raw body before it believes anything, and
// takes a repeated delivery for what it is.
type receiver struct {
	url    string
	secret string
	server *http.Server
	done   chan struct{} // closed when the server has ended

	mu       sync.Mutex
	got      []delivery
	seen     map[string]bool // event, time and ids: what tells events apart
	wrong    error           // the first delivery that was not as it should be
	arriving chan struct{}   // closed, and made anew, at each delivery
}

// listen starts a receiver on a free port of 127.0.0.1. Close it.
func listen(ctx context.Context) (*receiver, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	path := "/hooks/" + rand.Text()
	r := &receiver{
		url: "http://" + l.Addr().String() + path, secret: rand.Text(),
		done: make(chan struct{}), seen: map[string]bool{}, arriving: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+path, r)
	r.server = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() {
		defer close(r.done)
		r.note(delivery{}, r.server.Serve(l))
	}()
	return r, nil
}

// ServeHTTP takes a delivery: 204 where it is genuine, 401 where it is not.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	received := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxDelivery))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d, err := readDelivery(r.secret, q.Header, body)
	d.received = received
	r.note(d, err)
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// note keeps a delivery, or why it was refused, and wakes whoever waits.
func (r *receiver) note(d delivery, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, http.ErrServerClosed):
	case err != nil && r.wrong == nil:
		r.wrong = err
	case err == nil && len(r.got) < maxDeliveries:
		event := d.occurred.String() + " " + d.String()
		d.repeated = r.seen[event]
		r.seen[event] = true
		r.got = append(r.got, d)
	}
	close(r.arriving)
	r.arriving = make(chan struct{})
}

// so returns what has arrived so far, what will tell of more, and what was
// wrong with a delivery, if anything.
func (r *receiver) so() ([]delivery, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		return nil, nil, fmt.Errorf("a delivery is not as it should be: %w", r.wrong)
	}
	return slices.Clip(r.got), r.arriving, nil
}

// await waits until the deliveries so far are enough, or wrong, or for its
// patience.
func (r *receiver) await(ctx context.Context, patience time.Duration, enough func([]delivery) (bool, error)) ([]delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		got, more, err := r.so()
		if err != nil {
			return nil, err
		}
		if done, err := enough(got); done || err != nil {
			return got, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

// close ends the receiver, and cuts off whoever still speaks to it.
func (r *receiver) close() error {
	err := r.server.Close()
	<-r.done
	return err
}
