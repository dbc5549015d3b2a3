package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"kindred/domain/id"
)

// laneKind tells what has never failed from retries. Each has a budget of its
// own.
type laneKind int

const (
	firstLane laneKind = iota
	retryLane
	lanes
)

func (k laneKind) String() string { return [lanes]string{"first", "retry"}[k] }

// scheduler knows which endpoints may have work, and whose turn it is.
//
// Slots go round by client, and within a client by endpoint. No client takes
// more slots than it leaves free, so that a newcomer finds room however many
// endpoints hang. An endpoint that takes long to fail gets fewer slots, down to
// minCap, and more again, one for each success; one that fails at once is in
// nobody's way, and keeps what it has.
//
// The endpoints that it knows are bounded. Where more have work, what is due comes
// before what is not, and of what is due each client has its share. The caller holds a
// lock.
type scheduler struct {
	budget [lanes]int
	perEnd int

	used      [lanes]int
	endpoints map[id.Webhook]*endpointState
	byClient  map[id.Client][lanes]int // slots in use
	served    uint64                   // counts turns given
}

// endpointState is an endpoint as the scheduler knows it.
type endpointState struct {
	webhook id.Webhook
	client  id.Client
	ready   [lanes]time.Time // from when on it may have work; zero: none is known
	made    int64            // where a claim begins: what was made before is held
	used    [lanes]int
	cap     int
	served  uint64 // when it last had a turn

	failingSince time.Time // zero while it accepts
	warned       bool
}

// due is when it next wants a turn; now, where that is past.
func (e *endpointState) due(now time.Time) time.Time {
	var due time.Time
	for _, ready := range e.ready {
		if !ready.IsZero() && (due.IsZero() || ready.Before(due)) {
			due = ready
		}
	}
	if due.Before(now) {
		return now
	}
	return due
}

const (
	minCap       = 4
	failsLate    = 500 * time.Millisecond
	maxEndpoints = 10_000
)

func newScheduler(c Config) *scheduler {
	return &scheduler{
		budget:    [lanes]int{c.FirstAttempts, c.Retries},
		perEnd:    c.PerEndpoint,
		endpoints: map[id.Webhook]*endpointState{},
		byClient:  map[id.Client][lanes]int{},
	}
}

// expect notes that an endpoint may have work from a time on.
func (s *scheduler) expect(lane laneKind, w waiting, from time.Time) {
	e := s.endpoints[w.Webhook]
	if e == nil {
		if len(s.endpoints) >= maxEndpoints {
			return // a later look finds it again
		}
		e = &endpointState{webhook: w.Webhook, client: w.Client, cap: max(min(minCap, s.perEnd), s.perEnd/4)}
		s.endpoints[w.Webhook] = e
	}
	if e.ready[lane].IsZero() || from.Before(e.ready[lane]) {
		e.ready[lane] = from
	}
	if lane == firstLane {
		e.made = w.Made
	}
}

// arrive notes that something new is in the queue: it is behind what is known,
// if that is not held yet.
func (s *scheduler) arrive(w waiting, now time.Time) {
	e := s.endpoints[w.Webhook]
	switch {
	case e == nil && len(s.endpoints) >= maxEndpoints:
		s.forget(now)
	case e != nil && !e.ready[firstLane].IsZero():
		w.Made = min(w.Made, e.made)
	}
	s.expect(firstLane, w, now)
}

// clientTurn is a client in a round.
type clientTurn struct {
	served    uint64
	room      int
	endpoints []*endpointState
	next      int
}

// plan hands out the free slots of a lane among the endpoints that are ready.
func (s *scheduler) plan(lane laneKind, now time.Time, give func(*endpointState)) {
	free := s.budget[lane] - s.used[lane]
	if free <= 0 {
		return
	}
	clients := map[id.Client]*clientTurn{}
	for _, e := range s.endpoints {
		if ready := e.ready[lane]; ready.IsZero() || ready.After(now) || !s.may(lane, e) {
			continue
		}
		t := clients[e.client]
		if t == nil {
			t = &clientTurn{room: s.room(lane, e.client)}
			clients[e.client] = t
		}
		t.served = max(t.served, e.served)
		t.endpoints = append(t.endpoints, e)
	}
	round := make([]*clientTurn, 0, len(clients))
	for _, t := range clients {
		slices.SortFunc(t.endpoints, func(x, y *endpointState) int {
			return cmp.Or(cmp.Compare(x.served, y.served), cmp.Compare(x.webhook, y.webhook))
		})
		round = append(round, t)
	}
	slices.SortFunc(round, func(x, y *clientTurn) int {
		return cmp.Or(cmp.Compare(x.served, y.served), cmp.Compare(x.endpoints[0].webhook, y.endpoints[0].webhook))
	})
	for len(round) > 0 && free > 0 {
		still := round[:0]
		for _, t := range round {
			if free == 0 {
				break
			}
			e := t.endpoints[t.next]
			s.take(lane, e)
			give(e)
			free--
			t.room--
			if e.used[lane] >= e.cap {
				t.endpoints = slices.Delete(t.endpoints, t.next, t.next+1)
			} else {
				t.next++
			}
			if len(t.endpoints) > 0 && t.room > 0 {
				t.next %= len(t.endpoints)
				still = append(still, t)
			}
		}
		round = still
	}
}

// room is how many more slots a client may take: up to as many as it leaves
// free, and one if it has none.
func (s *scheduler) room(lane laneKind, c id.Client) int {
	free, mine := s.budget[lane]-s.used[lane], s.byClient[c][lane]
	if free > 0 && mine == 0 {
		return max(1, free/2)
	}
	return max(0, (free-mine)/2)
}

// may says whether an endpoint can have a slot just now.
func (s *scheduler) may(lane laneKind, e *endpointState) bool {
	return e.used[lane] < e.cap && s.room(lane, e.client) > 0
}

func (s *scheduler) take(lane laneKind, e *endpointState) {
	s.served++
	e.served = s.served
	e.used[lane]++
	s.used[lane]++
	used := s.byClient[e.client]
	used[lane]++
	s.byClient[e.client] = used
}

// release gives slots back.
func (s *scheduler) release(lane laneKind, webhook id.Webhook, n int) {
	e := s.endpoints[webhook]
	e.used[lane] -= n
	s.used[lane] -= n
	used := s.byClient[e.client]
	used[lane] -= n
	s.byClient[e.client] = used
	if used == [lanes]int{} {
		delete(s.byClient, e.client)
	}
}

// turns plans both lanes.
func (s *scheduler) turns(now time.Time) []turn {
	index := map[id.Webhook]int{}
	var turns []turn
	for lane := range lanes {
		s.plan(lane, now, func(e *endpointState) {
			i, found := index[e.webhook]
			if !found {
				i = len(turns)
				index[e.webhook] = i
				turns = append(turns, turn{webhook: e.webhook, made: e.made})
			}
			turns[i].n[lane]++
		})
	}
	return turns
}

// claimed settles a round: slots that found nothing are given back, and an
// endpoint that had less than it was offered is known to have no more.
func (s *scheduler) claimed(turns []turn, jobs []job) {
	got := map[id.Webhook]*[lanes]int{}
	for _, j := range jobs {
		if got[j.Webhook] == nil {
			got[j.Webhook] = new([lanes]int)
		}
		got[j.Webhook][j.Lane]++
		if e := s.endpoints[j.Webhook]; j.Lane == firstLane {
			e.made = max(e.made, j.Made+1)
		}
	}
	for _, t := range turns {
		for lane, n := range t.n {
			if have := got[t.webhook]; have != nil {
				n -= have[lane]
			}
			if n > 0 {
				s.release(laneKind(lane), t.webhook, n)
				s.endpoints[t.webhook].ready[lane] = time.Time{}
			}
		}
	}
}

// learn adjusts the slots of an endpoint to how an attempt ended, and after how
// long. It says, once, that the endpoint has failed for long.
func (s *scheduler) learn(webhook id.Webhook, accepted bool, took time.Duration, now time.Time) bool {
	e := s.endpoints[webhook]
	if accepted {
		e.cap = min(e.cap+1, s.perEnd)
		e.failingSince, e.warned = time.Time{}, false
		return false
	}
	if took >= failsLate {
		e.cap = max(e.cap/2, min(minCap, s.perEnd))
	}
	if e.failingSince.IsZero() {
		e.failingSince = now
	}
	warn := !e.warned && now.Sub(e.failingSince) >= failingLong
	e.warned = e.warned || warn
	return warn
}

// next says how long until an endpoint is ready; at most limit.
func (s *scheduler) next(now time.Time, limit time.Duration) time.Duration {
	for _, e := range s.endpoints {
		for lane, ready := range e.ready {
			if !ready.IsZero() && s.may(laneKind(lane), e) {
				limit = min(limit, ready.Sub(now))
			}
		}
	}
	return max(limit, 0)
}

// forget drops endpoints that have nothing to do and accept. Where more than half
// of maxEndpoints are known, those above that are dropped, so that there is room for
// what a look finds, up to maxDiscovered of each lane. A later look finds them again.
func (s *scheduler) forget(now time.Time) {
	var waiting []*endpointState
	for webhook, e := range s.endpoints {
		switch {
		case e.used != [lanes]int{}:
		case e.ready != [lanes]time.Time{}:
			waiting = append(waiting, e)
		case e.failingSince.IsZero() || len(s.endpoints) > maxEndpoints/2:
			delete(s.endpoints, webhook)
		}
	}
	if most := len(s.endpoints) - maxEndpoints/2; most > 0 {
		inTurn(waiting, now)
		for _, e := range waiting[max(0, len(waiting)-most):] {
			delete(s.endpoints, e.webhook)
		}
	}
}

// inTurn sorts endpoints by when they are due. Those that are due go round by
// client, and within a client by when they last had a turn.
func inTurn(endpoints []*endpointState, now time.Time) {
	slices.SortFunc(endpoints, func(x, y *endpointState) int {
		return cmp.Or(x.due(now).Compare(y.due(now)), cmp.Compare(x.served, y.served))
	})
	rank, of := make(map[*endpointState]int, len(endpoints)), map[id.Client]int{}
	for _, e := range endpoints {
		rank[e] = of[e.client]
		of[e.client]++
	}
	slices.SortStableFunc(endpoints, func(x, y *endpointState) int {
		return cmp.Or(x.due(now).Compare(y.due(now)), cmp.Compare(rank[x], rank[y]))
	})
}
