package dispatcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/testkit"
)

// ready makes a scheduler on which endpoints "<client>/<n>" have endless work.
func ready(c Config, now time.Time, endpoints map[id.Client]int) *scheduler {
	s := newScheduler(c.withDefaults())
	for client, n := range endpoints {
		for i := range n {
			s.expect(firstAttempt, waiting{Webhook: id.Webhook(fmt.Sprintf("%s/%d", client, i)), Client: client}, now)
		}
	}
	return s
}

// handed counts the slots of a round by client.
func handed(s *scheduler, quotas []quota) map[id.Client]int {
	n := map[id.Client]int{}
	for _, t := range quotas {
		n[s.endpoints[t.webhook].client] += t.n[firstAttempt]
	}
	return n
}

func TestSlotsGoRoundByClientThenByEndpoint(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{FirstAttempts: 40}, now, map[id.Client]int{"many": 100, "one": 1})
	got := handed(s, s.quotas(now))
	if got["one"] != 16 || got["many"] != 20 {
		t.Errorf("a client with one endpoint got %d slots and one with a hundred %d", got["one"], got["many"])
	}
	for webhook, e := range s.endpoints {
		if e.client == "many" && e.used[firstAttempt] > 1 {
			t.Errorf("%s has %d slots before others had one", webhook, e.used[firstAttempt])
		}
	}
}

func TestEndpointsShareSlotsInRotation(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{FirstAttempts: 8}, now, map[id.Client]int{"many": 40})
	seen := map[id.Webhook]bool{}
	for range 10 {
		quotas := s.quotas(now)
		for _, quota := range quotas {
			seen[quota.webhook] = true
			s.release(firstAttempt, quota.webhook, quota.n[firstAttempt])
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d of 40 endpoints had a slot of 40", len(seen))
	}
}

func TestClientsShareSlotsInRotation(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := map[id.Client]int{}
	for i := range 40 {
		all[id.Client(fmt.Sprint("c", i))] = 1
	}
	s := ready(Config{FirstAttempts: 4}, now, all)
	for range 10 {
		for _, quota := range s.quotas(now) {
			delete(all, quota.client)
			s.release(firstAttempt, quota.webhook, quota.n[firstAttempt])
		}
	}
	if len(all) != 0 {
		t.Errorf("%d of 40 clients had no slot of 40", len(all))
	}
}

func TestHangingEndpointsLeaveRoomForANewcomer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{}, now, map[id.Client]int{"hanging": 1000})
	for range 1000 {
		s.quotas(now) // nothing is ever released
	}
	if wait := s.next(now, time.Minute); wait != time.Minute {
		t.Errorf("asks again after %s, although nobody may have a slot", wait)
	}
	s.expect(firstAttempt, waiting{Webhook: "newcomer", Client: "other"}, now)
	if got := handed(s, s.quotas(now))["other"]; got != 16 {
		t.Errorf("the newcomer got %d slots", got)
	}
}

func TestAnEndpointThatFailsGetsFewerSlotsAndRecovers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{}, now, map[id.Client]int{"c": 1})
	used := func() int {
		quotas := s.quotas(now)
		n := handed(s, quotas)["c"]
		for _, quota := range quotas {
			s.release(firstAttempt, quota.webhook, quota.n[firstAttempt])
		}
		return n
	}
	for range 200 {
		s.observe("c/0", true, time.Millisecond)
	}
	for range 10 {
		s.quotas(now)
	}
	if n := s.used[firstAttempt]; n != 64 {
		t.Errorf("%d slots for one that accepts, not 64", n)
	}
	s.release(firstAttempt, "c/0", 64)
	for range 10 {
		s.observe("c/0", false, time.Millisecond)
	}
	if n := s.endpoints["c/0"].cap; n != 64 {
		t.Errorf("%d slots for one that fails at once, not 64", n)
	}
	for range 10 {
		s.observe("c/0", false, failsLate)
	}
	if n := used(); n != minCap {
		t.Errorf("%d slots for one that fails late, not %d", n, minCap)
	}
	s.observe("c/0", true, time.Millisecond)
	if n := used(); n != minCap+1 {
		t.Errorf("%d slots after a success, not %d", n, minCap+1)
	}
}

func TestRetriesHaveABudgetOfTheirOwn(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{FirstAttempts: 1000, Retries: 10, PerEndpoint: 1000}.withDefaults())
	s.expect(retryAttempt, waiting{Webhook: "w", Client: "c"}, now)
	for range 50 {
		s.quotas(now)
	}
	if s.used[retryAttempt] > 10 {
		t.Errorf("%d retries in flight, not 10", s.used[retryAttempt])
	}
	s.expect(firstAttempt, waiting{Webhook: "w", Client: "c"}, now)
	if quotas := s.quotas(now); len(quotas) != 1 || quotas[0].n[firstAttempt] == 0 {
		t.Error("retries keep first attempts from being made")
	}
}

func TestNothingIsClaimedBeforeItIsDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{}.withDefaults())
	s.expect(retryAttempt, waiting{Webhook: "w", Client: "c"}, now.Add(time.Minute))
	if quotas := s.quotas(now); len(quotas) != 0 {
		t.Error("a quota before its time")
	}
	if wait := s.next(now, time.Hour); wait != time.Minute {
		t.Errorf("the next is in %s, not in a minute", wait)
	}
	if quotas := s.quotas(now.Add(time.Minute)); len(quotas) != 1 {
		t.Error("no quota at its time")
	}
}

// crowded makes a scheduler that knows as many endpoints as it may, by clients of
// some endpoints each.
func crowded(perClient int, kind attemptKind, due time.Time) *scheduler {
	s := newScheduler(Config{}.withDefaults())
	for i := range maxEndpoints {
		s.expect(kind, waiting{Webhook: id.Webhook(fmt.Sprint(i)), Client: id.Client(fmt.Sprint(i / perClient))}, due)
	}
	return s
}

func TestACrowdLeavesRoomForWhatIsDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	newcomer := waiting{Webhook: "newcomer", Client: "other"}
	for how, comes := range map[string]func(*scheduler){
		"a notification": func(s *scheduler) { s.arrive(newcomer, now) },
		"a look":         func(s *scheduler) { s.evict(now); s.expect(firstAttempt, newcomer, now) },
	} {
		for who, s := range map[string]*scheduler{
			"the retries of one client":        crowded(maxEndpoints, retryAttempt, now.Add(8*time.Minute)),
			"the retries of ten thousand":      crowded(1, retryAttempt, now.Add(8*time.Minute)),
			"the work of one client":           crowded(maxEndpoints, firstAttempt, now),
			"the work of a hundred":            crowded(100, firstAttempt, now),
			"the work of a hundred since long": crowded(100, firstAttempt, now.Add(-time.Hour)),
		} {
			comes(s)
			s.evict(now)
			if n := len(s.endpoints); n > maxEndpoints/2 {
				t.Errorf("beside %s, %d endpoints are known after a look", who, n)
			}
			if got := handed(s, s.quotas(now))["other"]; got == 0 {
				t.Errorf("beside %s, what %s tells of gets no slot", who, how)
			}
		}
	}
}

func TestACrowdGivesUpWhatIsDueLast(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{}.withDefaults())
	for i := range maxEndpoints {
		s.expect(retryAttempt, waiting{Webhook: id.Webhook(fmt.Sprint(i)), Client: "c"}, now.Add(time.Duration(i+1)*time.Second))
	}
	s.evict(now)
	for i := range maxEndpoints {
		if kept := s.endpoints[id.Webhook(fmt.Sprint(i))] != nil; kept != (i < maxEndpoints/2) {
			t.Fatalf("whether %d of %d is kept: %t", i, maxEndpoints, kept)
		}
	}
}

// Ten thousand endpoints that failed at once wait for their retries.
func TestAFirstDeliveryIsFoundBesideTenThousandThatWait(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client, other := r.client(), r.client()
	r.exec(`
INSERT INTO dispatch_endpoints (webhook, client, url, event_types, state, changed_at)
SELECT 'whk_' || n, $1, 'http://s.example', '{match.computed}', 'active', now() FROM generate_series(1, $2::int) n`, client, maxEndpoints+300)
	r.exec(`
INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, failed, due_at)
SELECT 'dlv_' || webhook, client, webhook, 'evt', '1', 'match.computed', '{}', now(), 5, now() + interval '8 min' FROM dispatch_endpoints`)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	var after [attemptKinds]id.Webhook
	look := func() (more bool) {
		var err error
		if after, more, err = w.discover(t.Context(), after); err != nil {
			t.Fatal(err)
		}
		return more
	}
	for look() {
	}
	webhook, subscribed := r.subscribe(other, "http://b.example", "")
	r.apply(subscribed, r.match(other))
	look()
	if quotas := w.scheduler.quotas(w.Now()); len(quotas) != 1 || quotas[0].webhook != webhook {
		t.Errorf("%d quotas, %d endpoints", len(quotas), len(w.scheduler.endpoints))
	}
}

func TestARoundThatFindsLessGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{}, now, map[id.Client]int{"c": 2})
	quotas := s.quotas(now)
	s.claimed(quotas, []claim{{Webhook: "c/0", Client: "c"}})
	if s.used[firstAttempt] != 1 || s.byClient["c"][firstAttempt] != 1 {
		t.Errorf("%d slots in use, not 1", s.used[firstAttempt])
	}
	if more := s.quotas(now); len(more) != 0 {
		t.Error("asked again where there was nothing")
	}
	s.release(firstAttempt, "c/0", 1)
	s.evict(now)
	if len(s.endpoints) != 0 || len(s.byClient) != 0 {
		t.Error("idle endpoints are not forgotten")
	}
}

func TestWhatArrivesIsClaimedBehindWhatIsKnownAndNotHeldYet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{}.withDefaults())
	at := func() int64 { return s.endpoints["w"].made }
	for _, step := range []struct{ arrives, from int64 }{{7, 7}, {9, 7}, {5, 5}} {
		s.arrive(waiting{Webhook: "w", Client: "c", Made: step.arrives}, now)
		if at() != step.from {
			t.Errorf("%d has arrived, and claims begin at %d, not %d", step.arrives, at(), step.from)
		}
	}
	quotas := s.quotas(now)
	s.claimed(quotas, []claim{{Webhook: "w", Made: 5}, {Webhook: "w", Made: 9}}) // and no more
	s.arrive(waiting{Webhook: "w", Client: "c", Made: 12}, now)
	if at() != 12 || s.endpoints["w"].ready[firstAttempt] != now {
		t.Errorf("after all were held, claims begin at %d (%+v)", at(), s.endpoints["w"])
	}
}

func TestWhatArrivesDuringAClaimIsClaimedNext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	arrive := func(s *scheduler, made int64) { s.arrive(waiting{Webhook: "w", Client: "c", Made: made}, now) }
	for _, arrives := range [][]int64{{12}, {5, 12}, {12, 5}} {
		s := newScheduler(Config{}.withDefaults())
		arrive(s, 7)
		quotas := s.quotas(now)
		for _, made := range arrives {
			arrive(s, made)
		}
		s.claimed(quotas, []claim{{Webhook: "w", Made: 7}}) // whose statement saw no more
		next := s.quotas(now)
		if want := min(8, slices.Min(arrives)); len(next) != 1 || next[0].made > slices.Min(arrives) || next[0].made < want {
			t.Errorf("%d arrived meanwhile, and the next claim is %+v", arrives, next)
		}
		s.claimed(next, nil)
		if again := s.quotas(now); len(again) != 0 {
			t.Errorf("all is claimed, and the next claim is %+v", again)
		}
	}
}

func TestWhatArrivesDuringALookIsClaimedThough(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{}.withDefaults())
	of := func(made int64) waiting { return waiting{Webhook: "w", Client: "c", Made: made} }
	s.arrive(of(5), now)
	s.expect(firstAttempt, of(9), now) // by a look that began before
	if quotas := s.quotas(now); len(quotas) != 1 || quotas[0].made != 5 {
		t.Errorf("5 has arrived, and the claim is %+v", quotas)
	}
}

func TestANotificationTellsWhatIsNewOrToLook(t *testing.T) {
	t.Parallel()
	w := newWorker(&Dispatcher{Now: time.Now}, Config{}.withDefaults())
	if !w.arrived("cli_a whk_a 3,cli_a whk_b 4") || w.scheduler.endpoints["whk_b"].made != 4 || w.scheduler.endpoints["whk_a"].client != "cli_a" {
		t.Errorf("%+v", w.scheduler.endpoints)
	}
	for _, told := range []string{"", "cli_a whk_a", "cli_a whk_a x", "cli_c whk_c 3,"} {
		if w.arrived(told) || len(w.scheduler.endpoints) != 2 {
			t.Errorf("%q told of something", told)
		}
	}
}

// A process stands still while attempts wait for their places in the rate: they are late, and do
// not begin together.
func TestLateAttemptsKeepToTheRate(t *testing.T) {
	t.Parallel()
	const most, still = 10, 650 * time.Millisecond
	now := time.Now()
	s := ready(Config{}, now, map[id.Client]int{"a": 1})
	c := claim{Webhook: "a/0", Most: most}
	var wakes []time.Time
	for range most {
		wait, soon := s.pace(c, now)
		if !soon {
			t.Fatal("one is to go back")
		}
		wakes = append(wakes, now.Add(max(wait, still)))
	}
	var last time.Time
	for len(wakes) > 0 {
		now := slices.MinFunc(wakes, time.Time.Compare)
		next := slices.Index(wakes, now)
		wait, goes := s.begin(c, now)
		if !goes {
			t.Fatal("one that is late is to go back")
		}
		if wait > 0 {
			wakes[next] = now.Add(wait)
			continue
		}
		if now.Sub(last) < time.Second/most {
			t.Errorf("one begins %v after the one before", now.Sub(last))
		}
		last, wakes = now, slices.Delete(wakes, next, next+1)
	}
}

// A lone slot is a slot, too: nobody is left out because half of it is none.
func TestTheLastFreeSlotGoesToWhoHasNone(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{FirstAttempts: 1, PerEndpoint: 1}, now, map[id.Client]int{"c": 1})
	if got := handed(s, s.quotas(now))["c"]; got != 1 {
		t.Errorf("%d slots of one", got)
	}
}

func TestAClientTakesNoMoreSlotsThanItLeavesFreeInHoweverManyRounds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{FirstAttempts: 40}, now, map[id.Client]int{"many": 1})
	for range 10 {
		quotas := s.quotas(now)
		s.claimed(quotas, everything(quotas))
		s.expect(firstAttempt, waiting{Webhook: id.Webhook(fmt.Sprint("later/", s.served)), Client: "many"}, now)
	}
	if used := s.used[firstAttempt]; used > 20 {
		t.Errorf("one client has %d slots of 40", used)
	}
}

// everything is what a claim returns that finds as much as it may take.
func everything(quotas []quota) (claims []claim) {
	for _, q := range quotas {
		for kind, n := range q.n {
			for range n {
				claims = append(claims, claim{Client: q.client, Webhook: q.webhook, Kind: attemptKind(kind)})
			}
		}
	}
	return claims
}

// What waits for eight minutes says nothing of what has failed just now.
func TestARetryThatIsDueSoonerIsKeptWaitingByNoOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newScheduler(Config{}.withDefaults())
	for _, due := range []time.Duration{8 * time.Minute, 30 * time.Second, 2 * time.Minute} {
		s.expect(retryAttempt, waiting{Webhook: "w", Client: "c"}, now.Add(due))
	}
	if wait := s.next(now, time.Hour); wait != 30*time.Second {
		t.Errorf("the next is in %s, not in half a minute", wait)
	}
}

func TestNoMoreEndpointsAreKnownThanMayBe(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := crowded(1, firstAttempt, now)
	s.expect(firstAttempt, waiting{Webhook: "newcomer", Client: "other"}, now)
	if n := len(s.endpoints); n > maxEndpoints {
		t.Errorf("%d endpoints are known", n)
	}
}

// That an endpoint is ordered, or has a rate, a claim tells: the first one asks for as much as any other.
func TestAnEndpointThatTurnsOutToBeOrderedHasOneSlot(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ready(Config{}, now, map[id.Client]int{"c": 1})
	s.expect(retryAttempt, waiting{Webhook: "c/0", Client: "c"}, now.Add(time.Minute))
	chain := slices.Repeat([]claim{{Client: "c", Webhook: "c/0", Ordered: true}}, maxChain)
	s.claimed(s.quotas(now), chain)
	if used := s.used[firstAttempt]; used != 1 || s.byClient["c"][firstAttempt] != 1 {
		t.Errorf("%d slots are in use", used)
	}
	if quotas := s.quotas(now.Add(time.Minute)); len(quotas) != 0 {
		t.Errorf("beside what is under way, it gets %+v", quotas)
	}
	s.release(firstAttempt, "c/0", 1)
	if quotas := s.quotas(now); len(quotas) != 1 || quotas[0].n[firstAttempt] != 1 {
		t.Errorf("behind the first chain, it gets %+v", quotas)
	}
}

// paced makes a scheduler that knows an endpoint with endless work to have a rate.
func paced(most int, now time.Time) *scheduler {
	s := ready(Config{}, now, map[id.Client]int{"c": 1})
	s.claimed(s.quotas(now), []claim{{Client: "c", Webhook: "c/0", Most: most}})
	s.release(firstAttempt, "c/0", 1)
	s.expect(firstAttempt, waiting{Webhook: "c/0", Client: "c"}, now)
	return s
}

func TestARateBoundsHowManySlotsItsEndpointIsGiven(t *testing.T) {
	t.Parallel()
	const most = 5
	now := time.Now()
	s := paced(most, now)
	quotas := s.quotas(now)
	if got := handed(s, quotas)["c"]; got != most {
		t.Errorf("%d slots for a second, not %d", got, most)
	}
	s.claimed(quotas, everything(quotas))
	for i := range most {
		if wait, soon := s.pace(claim{Webhook: "c/0", Most: most}, now); !soon || wait != time.Duration(i)*time.Second/most {
			t.Errorf("place %d is in %s (%t)", i, wait, soon)
		}
	}
	if _, soon := s.pace(claim{Webhook: "c/0", Most: most}, now); soon {
		t.Error("a place is held that is further ahead than a second")
	}
	if quotas := s.quotas(now); len(quotas) != 0 {
		t.Errorf("beside a second's work, it gets %+v", quotas)
	}
	if wait := s.next(now, time.Hour); wait != time.Second/most {
		t.Errorf("it is looked at again in %s", wait)
	}
}

// Else what comes a moment later would begin at once.
func TestTheRateOfAnEndpointThatHasNothingToDoIsNotForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := paced(1, now)
	c := claim{Client: "c", Webhook: "c/0", Most: 1}
	quotas := s.quotas(now)
	s.claimed(quotas, []claim{c})
	s.pace(c, now)
	s.release(firstAttempt, "c/0", 1)
	s.claimed(s.quotas(now.Add(time.Second)), nil)
	s.evict(now.Add(time.Second - 1))
	if s.endpoints["c/0"] == nil {
		t.Error("it is forgotten within the second")
	}
	if s.evict(now.Add(time.Second)); s.endpoints["c/0"] != nil {
		t.Error("it is never forgotten")
	}
}

// Whatever is ready, found, accepted and refused, no more is under way than a process and each of its
// endpoints may have, and what has ended makes room for something.
func TestNoMoreIsUnderWayThanMayBe(t *testing.T) {
	t.Parallel()
	random, now := testkit.Random(t), time.Now()
	for range 200 {
		budget := [attemptKinds]int{1 + random.IntN(20), 1 + random.IntN(20)}
		most := 1 + random.IntN(8)
		s := newScheduler(Config{FirstAttempts: budget[firstAttempt], Retries: budget[retryAttempt], PerEndpoint: most}.withDefaults())
		var all []waiting
		for client := range 1 + random.IntN(30) {
			for n := range 1 + random.IntN(4) {
				all = append(all, waiting{Webhook: id.Webhook(fmt.Sprintf("%d/%d", client, n)), Client: id.Client(fmt.Sprint(client))})
			}
		}
		var underWay []claim
		holds := func() {
			t.Helper()
			var used [attemptKinds]int
			of := map[waiting]*[attemptKinds]int{}
			for _, c := range underWay {
				w := waiting{Webhook: c.Webhook, Client: c.Client}
				if of[w] == nil {
					of[w] = new([attemptKinds]int)
				}
				used[c.Kind]++
				if of[w][c.Kind]++; of[w][c.Kind] > most {
					t.Fatalf("%d attempts at one endpoint, not %d", of[w][c.Kind], most)
				}
			}
			if used != s.used || used[firstAttempt] > budget[firstAttempt] || used[retryAttempt] > budget[retryAttempt] {
				t.Fatalf("%v attempts are under way, the scheduler counts %v, and %v are the most", used, s.used, budget)
			}
		}
		for range 30 {
			for _, w := range all {
				if random.IntN(2) == 0 {
					s.expect(attemptKind(random.IntN(int(attemptKinds))), w, now)
				}
			}
			quotas := s.quotas(now)
			offered := everything(quotas)
			before := underWay
			underWay = append(slices.Clone(before), offered...)
			holds()
			found := slices.DeleteFunc(offered, func(claim) bool { return random.IntN(4) == 0 })
			s.claimed(quotas, found)
			underWay = append(slices.Clone(before), found...)
			holds()
			underWay = slices.DeleteFunc(underWay, func(c claim) bool {
				ends := random.IntN(2) == 0
				if ends {
					s.observe(c.Webhook, random.IntN(3) == 0, time.Duration(random.IntN(2))*failsLate)
					s.release(c.Kind, c.Webhook, 1)
				}
				return ends
			})
			holds()
		}
		for _, c := range underWay {
			s.release(c.Kind, c.Webhook, 1)
		}
		underWay = nil
		holds()
		s.expect(firstAttempt, all[0], now)
		if quotas := s.quotas(now); len(quotas) == 0 {
			t.Fatal("nobody has a slot, though all are free")
		}
	}
}
