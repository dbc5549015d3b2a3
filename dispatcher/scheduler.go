package dispatcher

import (
	"cmp"
	"slices"
	"time"

	"kindred/domain/id"
)

// scheduler knows which endpoints may have work, and which gets the next slot.
//
// Slots go round by client, and within a client by endpoint. No client takes
// more slots than it leaves free, so that a newcomer finds room however many
// endpoints hang. An endpoint that takes long to fail gets fewer slots, down to
// minCap, and more again, one for each success; one that fails at once holds up no
// other, and keeps what it has.
//
// The endpoints that it knows are bounded. Where more have work, what is due comes
// before what is not, and of what is due each client has its share. The caller holds a
// lock.
type scheduler struct {
	budget      [attemptKinds]int
	perEndpoint int

	used      [attemptKinds]int
	endpoints map[id.Webhook]*endpointState
	byClient  map[string][attemptKinds]int // slots in use, by owner
	served    uint64                       // counts slots given
}

// endpointState is an endpoint as the scheduler knows it.
type endpointState struct {
	webhook id.Webhook
	client  id.Client
	ready   [attemptKinds]time.Time // from when on it may have work; zero: none is known
	made    int64                   // where a claim begins: what was made before is held
	came    int64                   // the least that arrived during a claim, which may not have seen it; 0: none
	used    [attemptKinds]int
	cap     int
	served  uint64 // when it last had a slot

	ordered bool      // one slot at a time
	most    int       // attempts a second; 0: no bound
	paced   time.Time // when the next place in the rate is
	begun   time.Time // when the last attempt began; not known without a rate
	held    time.Time // when it was last noted that its receiver asks for a wait
	offered int       // slots of this round

	failing bool // it did not accept the last attempt
}

// due is when it next has work; now, where that is past.
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
	minCap    = 4
	failsLate = 500 * time.Millisecond
	// limit: deliveries | endpoints that the scheduler of a process knows | {maxEndpoints}
	maxEndpoints = 10_000
)

func newScheduler(c Config) *scheduler {
	return &scheduler{
		budget:      [attemptKinds]int{c.FirstAttempts, c.Retries},
		perEndpoint: c.PerEndpoint,
		endpoints:   map[id.Webhook]*endpointState{},
		byClient:    map[string][attemptKinds]int{},
	}
}

// expect notes that an endpoint may have work from a time on.
func (s *scheduler) expect(kind attemptKind, w waiting, from time.Time) {
	e := s.endpoints[w.Webhook]
	if e == nil {
		if len(s.endpoints) >= maxEndpoints {
			return // a later look finds it again
		}
		e = &endpointState{webhook: w.Webhook, client: w.Client, cap: max(min(minCap, s.perEndpoint), s.perEndpoint/4)}
		s.endpoints[w.Webhook] = e
	}
	known := !e.ready[kind].IsZero()
	if !known || from.Before(e.ready[kind]) {
		e.ready[kind] = from
	}
	if kind == firstAttempt {
		if known { // what is known may be before what came, or what a look has found
			w.Made = min(w.Made, e.made)
		}
		e.made = w.Made
	}
}

// arrive notes that something new is in the queue.
func (s *scheduler) arrive(w waiting, now time.Time) {
	e := s.endpoints[w.Webhook]
	switch {
	case e == nil && len(s.endpoints) >= maxEndpoints:
		s.evict(now)
	case e != nil && e.offered > 0:
		e.came = min(w.Made, cmp.Or(e.came, w.Made))
	}
	s.expect(firstAttempt, w, now)
}

// clientShare is a client in a round.
type clientShare struct {
	served    uint64
	room      int
	endpoints []*endpointState
	next      int
}

// allocate hands out the free slots of a kind among the endpoints that are ready.
func (s *scheduler) allocate(kind attemptKind, now time.Time, give func(*endpointState)) {
	free := s.budget[kind] - s.used[kind]
	if free <= 0 {
		return
	}
	clients := map[string]*clientShare{}
	for _, e := range s.endpoints {
		if ready := e.ready[kind]; ready.IsZero() || ready.After(now) || !s.may(kind, e) || e.wait(now) > 0 {
			continue
		}
		t := clients[e.client.Owner()]
		if t == nil {
			t = &clientShare{room: s.room(kind, e.client)}
			clients[e.client.Owner()] = t
		}
		t.served = max(t.served, e.served)
		t.endpoints = append(t.endpoints, e)
	}
	round := make([]*clientShare, 0, len(clients))
	for _, t := range clients {
		slices.SortFunc(t.endpoints, func(x, y *endpointState) int {
			return cmp.Or(cmp.Compare(x.served, y.served), cmp.Compare(x.webhook, y.webhook))
		})
		round = append(round, t)
	}
	slices.SortFunc(round, func(x, y *clientShare) int {
		return cmp.Or(cmp.Compare(x.served, y.served), cmp.Compare(x.endpoints[0].webhook, y.endpoints[0].webhook))
	})
	for len(round) > 0 {
		still := round[:0]
		for _, t := range round {
			if free == 0 {
				break
			}
			e := t.endpoints[t.next]
			s.take(kind, e)
			give(e)
			free--
			t.room--
			if e.full(kind) || e.wait(now) > 0 {
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
func (s *scheduler) room(kind attemptKind, c id.Client) int {
	free, mine := s.budget[kind]-s.used[kind], s.byClient[c.Owner()][kind]
	if free > 0 && mine == 0 {
		return max(1, free/2)
	}
	return max(0, (free-mine)/2)
}

// may says whether an endpoint can have a slot just now.
func (s *scheduler) may(kind attemptKind, e *endpointState) bool {
	return !e.full(kind) && s.room(kind, e.client) > 0
}

// full says whether an endpoint has all the slots that it may have.
func (e *endpointState) full(kind attemptKind) bool {
	if e.ordered {
		return e.used != [attemptKinds]int{}
	}
	return e.used[kind] >= e.cap
}

// paceAhead is how long before its time an attempt has its slot, and then waits for it.
const paceAhead = time.Second

// wait is how long the endpoint's rate lets no more slots be given.
func (e *endpointState) wait(now time.Time) time.Duration {
	if e.most == 0 {
		return 0
	}
	from := max(0, e.paced.Sub(now))
	return max(0, from+time.Duration(e.offered+1)*e.interval()-paceAhead)
}

func (e *endpointState) interval() time.Duration { return time.Second / time.Duration(e.most) }

// pace takes the next place in the rate of a claim's endpoint, and says in how long that
// is. False: in paceAhead or more, so that the claim is to go back meanwhile.
func (s *scheduler) pace(c claim, now time.Time) (time.Duration, bool) {
	e := s.endpoints[c.Webhook]
	if e.most = c.Most; c.Most == 0 {
		return 0, true
	}
	wait := max(0, e.paced.Sub(now))
	if wait >= paceAhead {
		return 0, false
	}
	e.paced = now.Add(wait + e.interval())
	return wait, true
}

// begin begins an attempt at its place in the rate, or says in how long it may: where some were
// late, as in a process that stood still, they do not begin together. False: its receiver asks
// for a wait that was not noted yet when the delivery was claimed, so that it is to go back.
func (s *scheduler) begin(c claim, now time.Time) (wait time.Duration, goes bool) {
	e := s.endpoints[c.Webhook]
	if c.read.Before(e.held) {
		return 0, false
	}
	if c.Most == 0 {
		return 0, true
	}
	next := e.begun.Add(time.Second / time.Duration(c.Most))
	if next.After(now) {
		return next.Sub(now), true
	}
	e.begun = now
	return 0, true
}

// hold notes that a receiver's wish for a wait was noted by now: later claims see it.
func (s *scheduler) hold(webhook id.Webhook, now time.Time) {
	if e := s.endpoints[webhook]; e != nil { // one that nothing is claimed of may be forgotten
		e.held = now
	}
}

func (s *scheduler) take(kind attemptKind, e *endpointState) {
	s.served++
	e.served = s.served
	e.offered++
	e.used[kind]++
	s.used[kind]++
	used := s.byClient[e.client.Owner()]
	used[kind]++
	s.byClient[e.client.Owner()] = used
}

// release gives slots back.
func (s *scheduler) release(kind attemptKind, webhook id.Webhook, n int) {
	e := s.endpoints[webhook]
	e.used[kind] -= n
	s.used[kind] -= n
	used := s.byClient[e.client.Owner()]
	used[kind] -= n
	s.byClient[e.client.Owner()] = used
	if used == [attemptKinds]int{} {
		delete(s.byClient, e.client.Owner())
	}
}

// quotas hands out the free slots of both kinds.
func (s *scheduler) quotas(now time.Time) []quota {
	index := map[id.Webhook]int{}
	var quotas []quota
	for kind := range attemptKinds {
		s.allocate(kind, now, func(e *endpointState) {
			i, found := index[e.webhook]
			if !found {
				i = len(quotas)
				index[e.webhook] = i
				quotas = append(quotas, quota{client: e.client, webhook: e.webhook, made: e.made})
			}
			quotas[i].n[kind]++
		})
	}
	return quotas
}

// claimed ends a round: slots that found nothing are given back, and an
// endpoint that had less than it was offered is known to have no more, but for
// what arrived meanwhile.
func (s *scheduler) claimed(quotas []quota, claims []claim) {
	got := map[id.Webhook]*[attemptKinds]int{}
	for _, c := range claims {
		if got[c.Webhook] == nil {
			got[c.Webhook] = new([attemptKinds]int)
		}
		got[c.Webhook][c.Kind]++
		e := s.endpoints[c.Webhook]
		e.ordered, e.most = c.Ordered, c.Most
		if c.Kind == firstAttempt && !c.Ordered {
			e.made = max(e.made, c.Made+1)
		}
	}
	for _, t := range quotas {
		e := s.endpoints[t.webhook]
		e.offered = 0
		for kind, n := range t.n {
			have := 0
			if got[t.webhook] != nil {
				have = got[t.webhook][kind]
			}
			if e.ordered { // all that is claimed goes by one slot, and there may be more
				have = min(have, 1)
			}
			if n > have {
				s.release(attemptKind(kind), t.webhook, n-have)
			}
			if came := attemptKind(kind) == firstAttempt && e.came > 0; n > have && !came && (!e.ordered || have == 0) {
				e.ready[kind] = time.Time{}
			}
		}
		if e.came > 0 {
			e.made, e.came = min(e.made, e.came), 0
		}
	}
}

// observe adjusts the slots of an endpoint to how an attempt ended, and after how long.
func (s *scheduler) observe(webhook id.Webhook, accepted bool, took time.Duration) {
	e := s.endpoints[webhook]
	if accepted {
		e.cap = min(e.cap+1, s.perEndpoint)
		e.failing = false
		return
	}
	if took >= failsLate {
		e.cap = max(e.cap/2, min(minCap, s.perEndpoint))
	}
	e.failing = true
}

// next says how long until an endpoint is ready; at most limit.
func (s *scheduler) next(now time.Time, limit time.Duration) time.Duration {
	for _, e := range s.endpoints {
		for kind, ready := range e.ready {
			if !ready.IsZero() && s.may(attemptKind(kind), e) {
				limit = min(limit, max(ready.Sub(now), e.wait(now)))
			}
		}
	}
	return max(limit, 0)
}

// evict drops endpoints that have nothing to do and accept. Where more than half
// of maxEndpoints are known, those above that are dropped, so that there is room for
// what a look finds, up to maxDiscovered of each kind. A later look finds them again.
func (s *scheduler) evict(now time.Time) {
	var waiting []*endpointState
	for webhook, e := range s.endpoints {
		switch {
		case e.used != [attemptKinds]int{} || e.paced.After(now):
		case e.ready != [attemptKinds]time.Time{}:
			waiting = append(waiting, e)
		case !e.failing || len(s.endpoints) > maxEndpoints/2:
			delete(s.endpoints, webhook)
		}
	}
	if most := len(s.endpoints) - maxEndpoints/2; most > 0 {
		sortByDue(waiting, now)
		for _, e := range waiting[max(0, len(waiting)-most):] {
			delete(s.endpoints, e.webhook)
		}
	}
}

// sortByDue sorts endpoints by when they are due. Those that are due go round by
// client, and within a client by when they last had a slot.
func sortByDue(endpoints []*endpointState, now time.Time) {
	slices.SortFunc(endpoints, func(x, y *endpointState) int {
		return cmp.Or(x.due(now).Compare(y.due(now)), cmp.Compare(x.served, y.served))
	})
	rank, of := make(map[*endpointState]int, len(endpoints)), map[string]int{}
	for _, e := range endpoints {
		rank[e] = of[e.client.Owner()]
		of[e.client.Owner()]++
	}
	slices.SortStableFunc(endpoints, func(x, y *endpointState) int {
		return cmp.Or(x.due(now).Compare(y.due(now)), cmp.Compare(rank[x], rank[y]))
	})
}
