package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/testkit"
)

// storm is a few clients that change things all the time, one change after
// the other each, and repeat what was not answered, as good callers do. Every
// now and then they read, and must find all that was acknowledged.
type storm struct {
	testing.TB
	random  *rand.Rand // for whoever stirs it
	inbox   *inbox
	clients []*stormClient
	acks    atomic.Int64
	over    atomic.Bool
	all     sync.WaitGroup
}

// stormSecret signs what goes to the subscriptions that have one.
const stormSecret = "a secret of the storm"

// newStorm makes clients with two subscriptions each: one stays active, the
// other is paused and resumed.
func newStorm(t testing.TB, s *service, clients int) *storm {
	t.Helper()
	out := &storm{TB: t, random: testkit.Random(t), inbox: openInbox(t)}
	t.Cleanup(func() {
		out.over.Store(true)
		out.all.Wait()
	})
	for n := range clients {
		c := &stormClient{
			storm: out, account: s.signUp(), random: rand.New(rand.NewPCG(out.random.Uint64(), uint64(n)+1)),
			users: map[string]stormUser{}, keys: map[id.Key]bool{}, positions: map[string]id.Client{},
		}
		c.steady = c.subscribe(out.inbox.URL+"/steady", stormSecret).ID
		c.fickle = c.subscribe(out.inbox.URL+"/fickle", "").ID
		out.clients = append(out.clients, c)
	}
	return out
}

// stormPace is how often a client changes something at most: what it waits for
// takes so much longer where the storm takes all processors.
const stormPace = 40 * time.Millisecond

// blow lets the clients begin.
func (s *storm) blow() {
	for _, c := range s.clients {
		s.all.Go(func() {
			pace := time.NewTicker(stormPace)
			defer pace.Stop()
			for !s.over.Load() && c.step() {
				<-pace.C
			}
		})
	}
}

// acknowledged waits for so many more acknowledged changes.
func (s *storm) acknowledged(n int) {
	s.Helper()
	until := s.acks.Load() + int64(n)
	testkit.Eventually(s, "so many changes are acknowledged", func() bool { return s.acks.Load() >= until || s.Failed() })
	if s.Failed() {
		s.FailNow()
	}
}

// calm waits until every client has heard how its last change went, and lets
// each read all that it has.
func (s *storm) calm() {
	s.Helper()
	s.over.Store(true)
	s.all.Wait()
	for _, c := range s.clients {
		c.read()
	}
	if s.Failed() {
		s.FailNow()
	}
	s.Logf("%d changes acknowledged", s.acks.Load())
}

// stormClient is one client of a storm, with all that it was told.
type stormClient struct {
	*storm
	account
	random         *rand.Rand
	steady, fickle id.Webhook
	paused         bool
	name           string // of the company, where it was changed
	users          map[string]stormUser
	erased         []string             // external ids
	keys           map[id.Key]bool      // and whether they were revoked
	signedUp       []map[string]any     // bodies, answered or not
	positions      map[string]id.Client // of acknowledged events, and whose they are
	serial         int
	campaign       id.Campaign // "": not drafted yet
	spent          int64
	layer          id.ConsentLayer
}

type stormUser struct {
	id id.User
	n  int // a trait
}

// change is a request that must take effect once, however often it is sent.
type change struct {
	method, path string
	body         any
	keyed        bool
	ok           int
	repeated     int // what a repetition may be told as well; 0: only ok
	then         func(answer)
}

// do sends a change until it is answered. It says whether it was as it must be.
func (c *stormClient) do(ch change) bool {
	c.serial++
	var options []option
	if ch.keyed {
		options = append(options, idempotent(fmt.Sprintf("storm-%d", c.serial)))
	}
	end := time.Now().Add(patience)
	for repeated := false; ; repeated = true {
		a, err := c.try(ch.method, ch.path, ch.body, options...)
		settled := err == nil && !passing(a)
		switch {
		case settled && (a.Status == ch.ok || repeated && a.Status == ch.repeated):
			if at := a.Header.Get("X-Kindred-Position"); at != "" {
				c.positions[at] = c.Client.ID
			}
			c.acks.Add(1)
			if ch.then != nil {
				ch.then(a)
			}
			return true
		case time.Now().After(end):
			c.Errorf("never answered: %s %s: %v %d %s", ch.method, ch.path, err, a.Status, a.Body)
			return false
		case settled:
			c.Errorf("%s %s: %d %s", ch.method, ch.path, a.Status, a.Body)
			return false
		}
		time.Sleep(20 * time.Millisecond) // as the Retry-After of a very patient service would say
	}
}

// passing says whether an answer asks to be asked again. What a dying service
// answers is a problem that says so.
func passing(a answer) bool {
	var p httpapi.Problem
	if err := json.Unmarshal(a.Body, &p); err != nil {
		return false
	}
	return a.Status == http.StatusServiceUnavailable || a.Status == http.StatusConflict && p.Code == "in_flight"
}

// insist asks until there is an answer that does not say to ask again.
func insist(t testing.TB, ask func() answer) answer {
	t.Helper()
	var a answer
	testkit.Eventually(t, "it answers", func() bool {
		a = ask()
		return !passing(a)
	})
	return a
}

// step changes something, or reads.
func (c *stormClient) step() bool {
	external, user, found := c.pick()
	switch n := c.random.IntN(100); {
	case n < 30 || !found:
		return c.create()
	case n < 50:
		next := user.n + 1
		return c.do(change{
			method: "PATCH", path: "/api/v1/users/" + string(user.id), ok: 200,
			body: map[string]any{"traits": map[string]any{"n": next}},
			then: func(answer) { c.users[external] = stormUser{user.id, next} },
		})
	case n < 57:
		return c.do(change{
			method: "DELETE", path: "/api/v1/users/" + string(user.id), ok: 204, repeated: 404,
			then: func(answer) {
				delete(c.users, external)
				c.erased = append(c.erased, external)
			},
		})
	case n < 75:
		return c.do(change{
			method: "POST", path: "/api/v1/users/" + string(user.id) + "/matches", ok: 200, keyed: true,
			body: map[string]any{"limit": 1 + c.random.IntN(5)},
		})
	case n < 81:
		return c.pause(!c.paused)
	case n < 84:
		name := fmt.Sprintf("Company %d", c.serial)
		return c.do(change{
			method: "PATCH", path: c.under(""), body: map[string]any{"name": name}, ok: 200,
			then: func(answer) { c.name = name },
		})
	case n < 88:
		return c.rotateKeys()
	case n < 90:
		return c.anotherSignUp()
	case n < 93:
		return c.spendSome()
	case n < 96 && found:
		return c.consent(user)
	default:
		return c.read()
	}
}

// pick returns one of the users.
func (c *stormClient) pick() (string, stormUser, bool) {
	if len(c.users) == 0 {
		return "", stormUser{}, false
	}
	externals := slices.Sorted(maps.Keys(c.users))
	external := externals[c.random.IntN(len(externals))]
	return external, c.users[external], true
}

// create makes a user; some are made anew after their erasure.
func (c *stormClient) create() bool {
	external := fmt.Sprintf("person %d", c.serial)
	if n := len(c.erased); n > 0 && c.random.IntN(3) == 0 {
		external, c.erased = c.erased[n-1], c.erased[:n-1]
	}
	return c.do(change{
		method: "POST", path: "/api/v1/users", ok: 201, keyed: true,
		body: map[string]any{"external_id": external, "traits": map[string]any{
			"n": 0, "age": 20 + c.random.IntN(50), "town": "town " + strconv.Itoa(c.random.IntN(4)),
		}},
		then: func(a answer) { c.users[external] = stormUser{id: decoded[httpapi.User](c, a).ID} },
	})
}

func (c *stormClient) pause(paused bool) bool {
	status := "active"
	if paused {
		status = "paused"
	}
	return c.do(change{
		method: "PATCH", path: c.under("/webhooks/" + string(c.fickle)), body: map[string]any{"status": status}, ok: 200,
		then: func(answer) { c.paused = paused },
	})
}

// rotateKeys makes an API key and revokes an older one.
func (c *stormClient) rotateKeys() bool {
	for key, revoked := range maps.Clone(c.keys) {
		if !revoked && !c.do(change{
			method: "DELETE", path: c.under("/api_keys/" + string(key)), ok: 204,
			then: func(answer) { c.keys[key] = true },
		}) {
			return false
		}
	}
	return c.do(change{
		method: "POST", path: c.under("/api_keys"), body: map[string]any{"name": "a key"}, keyed: true,
		ok: 201, repeated: 409, // the secret was shown to nobody
		then: func(a answer) {
			if a.Status == http.StatusCreated {
				c.keys[decoded[httpapi.APIKeyCreated](c, a).Record.ID] = false
			}
		},
	})
}

func (c *stormClient) anotherSignUp() bool {
	body := map[string]any{
		"email": fmt.Sprintf("storm-%s-%d@example.com", c.Client.ID, c.serial), "password": "correct horse battery",
		"company_name": fmt.Sprintf("Storm %s %d", c.Client.ID, c.serial),
	}
	return c.do(change{
		method: "POST", path: "/auth/signup", body: body, ok: 201, repeated: 409,
		then: func(a answer) {
			c.signedUp = append(c.signedUp, body)
			if a.Status == http.StatusCreated {
				c.positions[a.Header.Get("X-Kindred-Position")] = decoded[httpapi.SignedUp](c, a).Client.ID
			}
		},
	})
}

// spendSome spends from a campaign that is far from exhausted.
func (c *stormClient) spendSome() bool {
	if c.campaign == "" {
		return c.do(change{
			method: "POST", path: "/api/v1/campaigns", ok: 201, keyed: true,
			body: map[string]any{"name": "Storm", "budget_minor": 1_000_000, "currency": "EUR"},
			then: func(a answer) { c.campaign = decoded[httpapi.Campaign](c, a).ID },
		}) && c.do(change{
			method: "PATCH", path: "/api/v1/campaigns/" + string(c.campaign), body: map[string]any{"status": "running"}, ok: 200,
		})
	}
	amount := int64(1 + c.random.IntN(9))
	return c.do(change{
		method: "POST", path: "/api/v1/campaigns/" + string(c.campaign) + "/spend", ok: 201, repeated: 200,
		body: map[string]any{"amount_minor": amount, "spend_id": fmt.Sprint("spend ", c.serial)},
		then: func(answer) { c.spent += amount },
	})
}

// consent lets a user grant a layer, or withdraw.
func (c *stormClient) consent(user stormUser) bool {
	if c.layer == "" {
		return c.do(change{
			method: "POST", path: layersPath, ok: 201, keyed: true, body: map[string]any{"name": "Storm", "trait_paths": []string{"age"}},
			then: func(a answer) { c.layer = decoded[httpapi.ConsentLayer](c, a).ID },
		})
	}
	path := layersPath + "/" + string(c.layer) + "/users/" + string(user.id)
	if c.random.IntN(3) == 0 {
		return c.do(change{method: "DELETE", path: path, ok: 204})
	}
	return c.do(change{method: "PUT", path: path, ok: 204, body: map[string]any{}})
}

// read compares all that the client can list with what it was told.
func (c *stormClient) read() bool {
	return c.get("/api/v1/users?limit=200", c.readUsers) && c.get(c.under("/api_keys?limit=200"), c.readKeys) &&
		c.get(c.under("/webhooks"), c.readWebhooks) && c.get(c.under(""), c.readClient) &&
		(c.campaign == "" || c.get("/api/v1/campaigns/"+string(c.campaign), c.readCampaign))
}

// get reads until there is an answer, and lets check say what is wrong with it.
func (c *stormClient) get(path string, check func(answer) string) bool {
	end := time.Now().Add(patience)
	for {
		a, err := c.try("GET", path, nil)
		switch {
		case err == nil && a.Status == http.StatusOK:
			diff := check(a)
			if diff != "" {
				c.Errorf("GET %s (-acknowledged +read):\n%s", path, diff)
			}
			return diff == ""
		case time.Now().After(end), err == nil && !passing(a):
			c.Errorf("GET %s: %v %d %s", path, err, a.Status, a.Body)
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *stormClient) readUsers(a answer) string {
	page := decoded[httpapi.UserList](c, a)
	listed := map[string]stormUser{}
	for _, u := range page.Data {
		var traits struct{ N int }
		if err := json.Unmarshal(u.Traits, &traits); err != nil {
			return err.Error()
		}
		listed[u.ExternalID] = stormUser{u.ID, traits.N}
	}
	acknowledged := c.users
	if page.NextCursor != nil { // more than a page: those on it must be right
		acknowledged = maps.Clone(c.users)
		maps.DeleteFunc(acknowledged, func(external string, _ stormUser) bool { _, on := listed[external]; return !on })
	}
	return cmp.Diff(acknowledged, listed, cmp.AllowUnexported(stormUser{}))
}

func (c *stormClient) readKeys(a answer) string {
	listed := map[id.Key]bool{}
	for _, k := range decoded[httpapi.APIKeyList](c, a).Data {
		if _, told := c.keys[k.ID]; told { // a secret that was lost on its way was told to nobody
			listed[k.ID] = k.Revoked
		}
	}
	return cmp.Diff(c.keys, listed)
}

func (c *stormClient) readWebhooks(a answer) string {
	told := map[id.Webhook]bool{c.steady: false, c.fickle: c.paused}
	listed := map[id.Webhook]bool{}
	for _, w := range decoded[httpapi.WebhookList](c, a).Data {
		listed[w.ID] = w.Status == httpapi.WebhookPaused
	}
	return cmp.Diff(told, listed)
}

func (c *stormClient) readCampaign(a answer) string {
	return cmp.Diff(c.spent, decoded[httpapi.Campaign](c, a).SpentMinor)
}

func (c *stormClient) readClient(a answer) string {
	if c.name == "" {
		return ""
	}
	return cmp.Diff(c.name, decoded[httpapi.ClientDetails](c, a).Name)
}

// decoded is what an answer holds. It may be called from any goroutine.
func decoded[T any](t testing.TB, a answer) (out T) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &out); err != nil {
		t.Errorf("%v: %s", err, a.Body)
	}
	return out
}

// inbox takes deliveries. It refuses some of them once, and keeps count.
type inbox struct {
	*httptest.Server
	mu      sync.Mutex
	taken   map[payload]int
	refused map[payload]bool
}

// payload names what was delivered by what its payload says.
type payload struct {
	path, client, user, matched, timestamp string
}

func openInbox(t testing.TB) *inbox {
	t.Helper()
	r := &inbox{taken: map[payload]int{}, refused: map[payload]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // the service has died in the middle
		}
		var envelope struct {
			EventType string `json:"event_type"`
			Data      struct {
				ClientID      string `json:"client_id"`
				UserID        string `json:"user_id"`
				MatchedUserID string `json:"matched_user_id"`
			} `json:"data"`
			Timestamp string `json:"timestamp"`
		}
		if err := json.Unmarshal(body, &envelope); err != nil || envelope.EventType != "match.computed" {
			t.Errorf("delivered: %v %s", err, body)
		}
		if q.URL.Path == "/steady" {
			mac := hmac.New(sha256.New, []byte(stormSecret))
			mac.Write(body)
			if got := q.Header.Get("X-Service-Signature"); got != hex.EncodeToString(mac.Sum(nil)) {
				t.Errorf("signed with %q", got)
			}
		}
		d := envelope.Data
		what := payload{q.URL.Path, d.ClientID, d.UserID, d.MatchedUserID, envelope.Timestamp}
		accepted, late := r.take(what)
		time.Sleep(late)
		if !accepted {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// take counts a delivery. One of eight is refused the first time, one of eight
// is answered late.
func (r *inbox) take(what payload) (accepted bool, late time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := fnv.New32()
	fmt.Fprint(sum, what)
	switch n := sum.Sum32() % 8; {
	case n == 0 && !r.refused[what]:
		r.refused[what] = true
		return false, 0
	case n == 1:
		late = 300 * time.Millisecond
	}
	r.taken[what]++
	return true, late
}

// all is what was taken so far, and how often.
func (r *inbox) all() map[payload]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.taken)
}
