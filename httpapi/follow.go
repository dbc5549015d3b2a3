package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/semaphore"
)

const (
	// limit: requests | streams and waiting pulls of a client, on one process | {maxFollowsOf}; of all clients {maxFollows} | 429 `too_many_streams`
	// limit: classes | streams of events, and pulls that wait for one; they read over 4 connections of their own | {maxFollows} | {maxFollowsOf} | none: 429 `too_many_streams`
	maxFollows   = 2000 // streams, and requests that wait for events, of a process
	maxFollowsOf = 100  // of one client
	lookForEnded = 250 * time.Millisecond
	// limit: requests | a piece of a stream that is not taken | {eventDeadline} | it is cut
	eventDeadline = 10 * time.Second // for a reader to take what was written
)

// StreamGrace is how long an import or export may go on once the process is about to stop.
// limit: imports | once the process is told to stop | {StreamGrace} | 503 `not_ready`
const StreamGrace = 17 * time.Second

// ErrStopping ends what follows when the process does, which is not ready then.
var ErrStopping = errors.New("the process stops")

// Follows are the requests that last: streams of events, and lists that wait for
// one. They are a class of their own: one takes a place of no other request. Each
// ends with its token. So do imports and exports, but for one that only expires.
type Follows struct {
	// Ended says whether a principal has lost its token since it was verified.
	Ended func(context.Context, Principal) (bool, error)
	Now   func() time.Time

	places  semaphore.Semaphore
	mu      sync.Mutex
	open    map[*following]struct{}
	over    bool
	looking map[id.Client]bool // whose tokens are being looked at
}

type following struct {
	principal Principal
	end       func(why error) // may be called again, and once the request has ended
	goesOn    bool            // when the token expires, and a while once the process is about to stop
}

// NewFollows makes the class. Run, which needs ended, ends those whose tokens have.
func NewFollows(ended func(context.Context, Principal) (bool, error), now func() time.Time) *Follows {
	return &Follows{
		Ended: ended, Now: now, open: map[*following]struct{}{}, looking: map[id.Client]bool{},
		places: semaphore.Semaphore{Places: maxFollows, Each: maxFollowsOf},
	}
}

// during works while a place is held; the context it is given ends with the token
// of the principal. It fails with a fault of kind Limited where there is no place.
func (f *Follows) during(ctx context.Context, p Principal, work func(context.Context)) error {
	if !f.places.Try(p.Client.Owner()) {
		return fault.New(fault.Limited, "too_many_streams",
			"A client has at most %d streams and waiting requests at a time.", maxFollowsOf).After(time.Second)
	}
	defer f.places.Give(p.Client.Owner())
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	one := &following{principal: p, end: end}
	if !f.add(one) {
		return notReady()
	}
	defer f.remove(one)
	work(ctx)
	return nil
}

func notReady() error {
	return fault.New(fault.Unavailable, "not_ready", "The service is not ready.").After(time.Second)
}

// watch has a request that goes on by itself ended where its token is revoked, until the
// function that it returns is called.
func (f *Follows) watch(p Principal, end func(why error)) (done func()) {
	one := &following{p, end, true}
	f.add(one)
	return func() { f.remove(one) }
}

func (f *Follows) add(one *following) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over && !one.goesOn {
		return false
	}
	f.open[one] = struct{}{}
	return true
}

func (f *Follows) remove(one *following) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, one)
}

// Stop ends all, and lets no other begin; imports and exports after StreamGrace.
func (f *Follows) Stop() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.stop(false)
	time.AfterFunc(StreamGrace, func() { f.stop(true) })
}

func (f *Follows) stop(streams bool) {
	for _, one := range f.all() {
		switch {
		case !one.goesOn:
			one.end(ErrStopping)
		case streams:
			one.end(fault.New(fault.Unavailable, "not_ready", "This process stops. Repeat the request; lines that were taken stay.").After(time.Second))
		}
	}
}

// Run ends those whose tokens have ended, until ctx does.
func (f *Follows) Run(ctx context.Context) {
	var looks sync.WaitGroup
	defer looks.Wait()
	tick := time.NewTicker(lookForEnded)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.endEnded(ctx, &looks)
		}
	}
}

// endEnded looks at the tokens of all clients at once: where one's take long to look up, the
// others' are ended all the same.
func (f *Follows) endEnded(ctx context.Context, looks *sync.WaitGroup) {
	of := map[id.Client][]*following{}
	for _, one := range f.all() {
		of[one.principal.Client] = append(of[one.principal.Client], one)
	}
	for client, all := range of {
		if f.look(client) {
			looks.Go(func() {
				defer f.looked(client)
				f.endEndedOf(ctx, all)
			})
		}
	}
}

// look says whether nobody looks at a client's tokens, until looked is called.
func (f *Follows) look(client id.Client) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looking[client] {
		return false
	}
	f.looking[client] = true
	return true
}

func (f *Follows) looked(client id.Client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.looking, client)
}

// endEndedOf asks once for each holder of tokens of a client, and each of its sessions,
// however many follow.
func (f *Follows) endEndedOf(ctx context.Context, all []*following) {
	known := map[string]error{}
	for _, one := range all {
		p := one.principal
		if !one.goesOn && !f.Now().Before(p.Expires) {
			one.end(fault.New(fault.Unauthenticated, "expired_token", "The access token has expired. Get a new one from /auth/exchange or /auth/token."))
			continue
		}
		holder := strings.Join(p.Subjects(), " ")
		why, asked := known[holder]
		if !asked {
			ended, err := f.Ended(ctx, p)
			if why = err; err == nil && ended {
				why = fault.New(fault.Unauthenticated, "invalid_token", "The access token is not valid any more.")
			}
			known[holder] = why
		}
		if why != nil {
			one.end(why)
		}
	}
}

// count is how many streams and waiting requests there are.
func (f *Follows) count() (n int) {
	for _, one := range f.all() {
		if !one.goesOn {
			n++
		}
	}
	return n
}

func (f *Follows) all() []*following {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*following, 0, len(f.open))
	for one := range f.open {
		all = append(all, one)
	}
	return all
}

// EventStream answers with Server-Sent Events (the HTML standard, section 9.2),
// which Write writes until it fails; there is nothing to say then but the end.
// Each piece must be taken within 10 s.
type EventStream struct {
	Context context.Context //nolint:containedctx // of the one request; a writer that waits ends with it
	Write   func(io.Writer) error
}

// VisitFollowEventsResponse answers a request for a stream.
func (s EventStream) VisitFollowEventsResponse(w http.ResponseWriter) error {
	conn := http.NewResponseController(w)
	waits := cutter{deadline: conn.SetWriteDeadline}
	defer func() {
		if waits.end() { // what ends the answer is to be written still
			_ = conn.SetWriteDeadline(time.Now().Add(eventDeadline)) //nolint:forbidigo // of the connection's clock
		}
	}()
	defer context.AfterFunc(s.Context, waits.cut)()
	w.Header().Set("Content-Type", mediaEvents)
	w.Header().Set("X-Accel-Buffering", "no")
	to := &pieces{to: w, conn: conn}
	if err := s.Write(to); err != nil && !to.begun {
		w.Header().Del("X-Accel-Buffering")
		return err
	}
	return nil
}

// pieces writes each piece at once.
type pieces struct {
	to    io.Writer
	conn  *http.ResponseController
	begun bool
}

func (p *pieces) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.conn.SetWriteDeadline(time.Now().Add(eventDeadline)); err != nil && !errors.Is(err, http.ErrNotSupported) { //nolint:forbidigo // of the connection's clock
		return 0, err
	}
	n, err := p.to.Write(b)
	if err == nil {
		err = p.conn.Flush()
	}
	return n, err
}

// EventList answers with a page of events, which are written already: a place has
// the id, and the body as webhooks send it.
type EventList struct {
	Events  [][]byte
	HasMore bool
	LastID  []byte // JSON: a text, or null
}

// VisitListEventsResponse answers a request for a page.
func (p EventList) VisitListEventsResponse(w http.ResponseWriter) error {
	size := 64
	for _, e := range p.Events {
		size += len(e) + 1
	}
	body := append(make([]byte, 0, size), `{"data":[`...)
	for i, e := range p.Events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, e...)
	}
	body = append(body, `],"has_more":`...)
	if p.HasMore {
		body = append(body, "true"...)
	} else {
		body = append(body, "false"...)
	}
	body = append(append(append(body, `,"last_id":`...), p.LastID...), "}\n"...)
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(body)
	return err
}
