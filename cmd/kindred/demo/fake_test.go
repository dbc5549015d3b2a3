package demo

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"kindred/domain/rule"
	"kindred/testkit"
)

// fake is a service that keeps the contract as far as the demo can see, but
// for one fault.
type fake struct {
	t     *testing.T
	fault string
	url   string
	keys  jose.JSONWebKeySet // private

	mu      sync.Mutex
	client  map[string]any
	users   []user
	webhook map[string]any // nil: none
	matched map[string][]map[string]any
	asked   int      // lists of users
	events  [][]byte // that happened
	segment *rule.Rule
	inside  map[string]bool // the segment, when its members were asked for
	run     map[string]any
	spent   int
	engaged map[string]int // by type
	sending sync.WaitGroup
}

const (
	fakeClient = "cli_1"
	fakeOwner  = "mem_1"
	fakeKey    = "key_1"
)

func newFake(t *testing.T, fault string) *fake {
	t.Helper()
	ec := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, fault: fault, engaged: map[string]int{}, matched: map[string][]map[string]any{}, keys: jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: ec, KeyID: "exchange", Algorithm: "ES256", Use: "sig"},
		{Key: ed, KeyID: "login", Algorithm: "EdDSA", Use: "sig"},
	}}}
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /readyz":                                  f.ready,
		"GET /.well-known/jwks.json":                   f.jwks,
		"POST /auth/signup":                            f.signup,
		"POST /auth/exchange":                          f.exchange,
		"GET /api/v1/clients/{client}":                 f.authorized(f.getClient),
		"POST /api/v1/clients/{client}/api_keys":       f.authorized(f.createKey),
		"POST /api/v1/clients/{client}/webhooks":       f.authorized(f.createWebhook),
		"GET /api/v1/clients/{client}/webhooks":        f.authorized(f.listWebhooks),
		"PATCH /api/v1/clients/{client}/webhooks/{id}": f.authorized(f.changeWebhook),
		"DELETE /api/v1/clients/{client}/webhooks/{id}": f.authorized(func(w http.ResponseWriter, _ *http.Request) {
			f.webhook = nil
			w.WriteHeader(204)
		}),
		"POST /api/v1/users/import":       f.authorized(f.importUsers),
		"GET /api/v1/users":               f.authorized(f.listUsers),
		"GET /api/v1/users/{id}":          f.authorized(f.getUser),
		"PATCH /api/v1/users/{id}":        f.authorized(f.changeUser),
		"DELETE /api/v1/users/{id}":       f.authorized(f.eraseUser),
		"POST /api/v1/users/{id}/matches": f.authorized(f.computeMatches),
		"GET /api/v1/users/{id}/matches":  f.authorized(f.listMatches),

		"GET /api/v1/events":                      f.authorized(f.listEvents),
		"POST /api/v1/segments":                   f.authorized(f.defineSegment),
		"GET /api/v1/segments/{id}":               f.authorized(f.getSegment),
		"GET /api/v1/segments/{id}/members":       f.authorized(f.listMembers),
		"GET /api/v1/segments/{id}/changes":       f.authorized(f.listChanges),
		"GET /api/v1/users/{id}/segments":         f.authorized(f.listSegmentsOf),
		"POST /api/v1/consent_layers":             f.authorized(f.defineLayer),
		"POST /api/v1/consent_layers/{id}/grants": f.authorized(f.grant),
		"POST /api/v1/clustering_runs":            f.authorized(f.startRun),
		"GET /api/v1/clustering_runs/{id}":        f.authorized(f.getRun),
		"POST /api/v1/campaigns":                  f.authorized(f.draft),
		"PATCH /api/v1/campaigns/{id}":            f.authorized(f.startCampaign),
		"GET /api/v1/users/{id}/feed":             f.authorized(f.feed),
		"POST /api/v1/campaigns/{id}/spend":       f.authorized(f.spend),
		"POST /api/v1/campaigns/{id}/engagements": f.authorized(f.engage),
		"GET /api/v1/campaigns/{id}/analytics":    f.authorized(f.analytics),
	} {
		mux.HandleFunc(pattern, handle)
	}
	server := httptest.NewServer(mux)
	f.url = server.URL
	t.Cleanup(func() {
		f.sending.Wait()
		server.Close()
	})
	return f
}

func (f *fake) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		f.t.Error(err)
	}
}

func (f *fake) refuse(w http.ResponseWriter, status int, code string) {
	f.answer(w, status, map[string]any{"code": code, "detail": "It cannot be.", "request_id": "req_1"})
}

func (f *fake) decode(q *http.Request, into any) {
	if err := json.NewDecoder(q.Body).Decode(into); err != nil {
		f.t.Errorf("%s %s: %v", q.Method, q.URL.Path, err)
	}
}

// authorized lets one request at a time through, with a token of the fake's.
func (f *fake) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		if _, _, err := verify(f.published(), token, time.Now()); err != nil && f.fault != "takes forged tokens" {
			f.refuse(w, 401, "token_invalid")
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		next(w, q)
	}
}

func (f *fake) ready(w http.ResponseWriter, _ *http.Request) {
	if f.fault == "not ready" {
		f.refuse(w, 503, "not_ready")
		return
	}
	f.answer(w, 200, map[string]string{"status": "ready"})
}

func (f *fake) published() (public jose.JSONWebKeySet) {
	for _, k := range f.keys.Keys {
		public.Keys = append(public.Keys, k.Public())
	}
	return public
}

func (f *fake) jwks(w http.ResponseWriter, _ *http.Request) {
	if f.fault == "publishes no keys" {
		f.answer(w, 200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}})
		return
	}
	f.answer(w, 200, f.published())
}

func (f *fake) session(key int, azp string, scopes ...string) map[string]any {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(f.keys.Keys[key].Algorithm), Key: f.keys.Keys[key]}, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims{
		Claims: jwt.Claims{
			Subject: fakeOwner, Audience: jwt.Audience{fakeClient},
			IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(15 * time.Minute)),
		},
		Key: azp, Scope: strings.Join(scopes, " "),
	}).Serialize()
	if err != nil {
		f.t.Fatal(err)
	}
	return map[string]any{"token": token, "expires_in": 900, "scopes": scopes}
}

func (f *fake) signup(w http.ResponseWriter, q *http.Request) {
	var in struct {
		Email, Password string
		Company         string `json:"company_name"`
	}
	f.decode(q, &in)
	f.client = map[string]any{"id": fakeClient, "slug": "acme", "name": in.Company, "status": "active", "tier": "graph"}
	body := f.session(1, "", "admin", "read", "write")
	body["client"] = f.client
	body["user"] = map[string]any{"id": fakeOwner, "email": in.Email, "role": "owner"}
	f.answer(w, 201, body)
}

func (f *fake) exchange(w http.ResponseWriter, _ *http.Request) {
	key := 0
	if f.fault == "signs with EdDSA" {
		key = 1
	}
	f.answer(w, 200, map[string]any{"data": f.session(key, fakeKey, "read", "write", "erase")})
}

func (f *fake) getClient(w http.ResponseWriter, _ *http.Request) { f.answer(w, 200, f.client) }

func (f *fake) createKey(w http.ResponseWriter, _ *http.Request) {
	f.answer(w, 201, map[string]any{"raw_key": "kin_live_secret", "record": map[string]any{
		"id": fakeKey, "client_id": fakeClient, "name": "demo server", "fingerprint": "kin_live_ab...yz", "revoked": false,
	}})
}

func (f *fake) createWebhook(w http.ResponseWriter, q *http.Request) {
	if f.fault == "may not reach this machine" {
		f.refuse(w, 422, "invalid")
		return
	}
	f.decode(q, &f.webhook)
	f.webhook["id"], f.webhook["status"] = "whk_1", "active"
	f.answer(w, 201, f.webhook)
}

func (f *fake) listWebhooks(w http.ResponseWriter, _ *http.Request) {
	list := []any{}
	if f.webhook != nil {
		list = append(list, f.webhook)
	}
	f.answer(w, 200, map[string]any{"data": list, "next_cursor": nil})
}

func (f *fake) changeWebhook(w http.ResponseWriter, q *http.Request) {
	f.decode(q, &f.webhook)
	f.answer(w, 200, f.webhook)
}

func (f *fake) importUsers(w http.ResponseWriter, q *http.Request) {
	if f.fault == "refuses imports at once" {
		f.refuse(w, 413, "too_large")
		return
	}
	lines := json.NewDecoder(q.Body)
	for lines.More() {
		var p person
		if err := lines.Decode(&p); err != nil {
			f.t.Error(err)
			return
		}
		f.users = append(f.users, user{ID: fmt.Sprintf("usr_%d", len(f.users)), ExternalID: p.ExternalID, Traits: p.Traits})
	}
	result := map[string]any{"created": len(f.users), "updated": 0, "failed": 0, "errors": []any{}}
	switch f.fault {
	case "loses a line":
		result["created"] = len(f.users) - 1
	case "refuses a line":
		result["failed"], result["errors"] = 1, []any{map[string]any{"line": 7, "code": "invalid"}}
	}
	f.answer(w, 200, result)
}

func (f *fake) listUsers(w http.ResponseWriter, q *http.Request) {
	if f.asked++; f.asked == 1 && f.fault == "is busy once" {
		w.Header().Set("Retry-After", "0")
		f.refuse(w, 503, "stale")
		return
	}
	var list []map[string]any
	for _, u := range f.users {
		query := q.URL.Query()
		if ids, external := query.Get("ids"), query.Get("external_id"); (ids == "" || ids == u.ID) && (external == "" || external == u.ExternalID) && len(list) < 200 {
			list = append(list, userBody(u))
		}
	}
	f.answer(w, 200, map[string]any{"data": list, "next_cursor": nil})
}

func userBody(u user) map[string]any {
	return map[string]any{"id": u.ID, "external_id": u.ExternalID, "traits": u.Traits}
}

func (f *fake) find(q *http.Request) int {
	id := q.PathValue("id")
	return slices.IndexFunc(f.users, func(u user) bool { return u.ID == id || "ext:"+u.ExternalID == id })
}

func (f *fake) getUser(w http.ResponseWriter, q *http.Request) {
	at := f.find(q)
	if at < 0 {
		f.refuse(w, 404, "user_unknown")
		return
	}
	f.answer(w, 200, userBody(f.users[at]))
}

func (f *fake) changeUser(w http.ResponseWriter, q *http.Request) {
	var change struct{ Traits map[string]any }
	f.decode(q, &change)
	u := &f.users[f.find(q)]
	for name, value := range change.Traits {
		if f.fault != "forgets a change" {
			u.Traits[name] = value
		}
	}
	f.answer(w, 200, userBody(*u))
}

func (f *fake) eraseUser(w http.ResponseWriter, q *http.Request) {
	at := f.find(q)
	id := f.users[at].ID
	w.WriteHeader(204)
	switch f.fault {
	case "still finds the erased":
		return
	case "still matches the erased":
		f.users[at].ID, f.users[at].ExternalID = id+" erased", "erased"
	default:
		f.users = slices.Delete(f.users, at, at+1)
	}
	if f.fault != "still lists the erased match" {
		for of, list := range f.matched {
			f.matched[of] = slices.DeleteFunc(list, func(m map[string]any) bool { return m["matched_user_id"] == id })
		}
	}
}

func (f *fake) listMatches(w http.ResponseWriter, q *http.Request) {
	f.answer(w, 200, map[string]any{"data": f.matched[q.PathValue("id")], "next_cursor": nil})
}

func (f *fake) computeMatches(w http.ResponseWriter, q *http.Request) {
	ask := struct {
		Limit  int
		Other  string `json:"matched_user_id"`
		Record bool
	}{Limit: 10, Record: true}
	f.decode(q, &ask)
	me := f.users[f.find(q)]
	if ask.Other != "" && !slices.ContainsFunc(f.users, func(u user) bool { return u.ID == ask.Other }) && f.fault != "still matches the erased" {
		f.refuse(w, 404, "user_unknown")
		return
	}
	var found []map[string]any
	for _, u := range f.users {
		if u.ID != me.ID && (ask.Other == "" || ask.Other == u.ID) {
			found = append(found, f.match(me, u))
		}
	}
	slices.SortStableFunc(found, func(a, b map[string]any) int { return int(1e6 * (b["score"].(float64) - a["score"].(float64))) })
	found = found[:min(ask.Limit, len(found))]
	if ask.Record {
		f.matched[me.ID] = append(f.matched[me.ID], found...)
		f.deliver(me, found)
	}
	f.answer(w, 200, map[string]any{"data": found})
}

// match compares two users by the traits that both have: equal or not.
func (f *fake) match(me, other user) map[string]any {
	var terms []map[string]any
	score, shared := 0.0, 0
	for name := range me.Traits {
		if _, both := other.Traits[name]; both {
			shared++
		}
	}
	for _, name := range sortedKeys(me.Traits) {
		if _, both := other.Traits[name]; !both {
			continue
		}
		similarity := 0.0
		if show(me.Traits[name]) == show(other.Traits[name]) {
			similarity = 1
		}
		score += similarity / float64(shared)
		terms = append(terms, map[string]any{"trait": name, "weight": 1, "similarity": similarity, "contribution": similarity / float64(shared)})
	}
	if f.fault == "explains wrongly" {
		terms = terms[1:]
		score += 0.1
	}
	id := strings.TrimSuffix(other.ID, " erased")
	return map[string]any{"matched_user_id": id, "external_id": other.ExternalID, "score": score, "percentile": 50, "explanation": terms}
}

// deliver sends the matches of a user, in the background as a service would,
// but those that must not be at once.
func (f *fake) deliver(me user, found []map[string]any) {
	for _, m := range found {
		data := map[string]any{"client_id": fakeClient, "user_id": me.ID, "matched_user_id": m["matched_user_id"], "score": m["score"]}
		switch f.fault {
		case "delivers another score":
			data["score"] = 0.123
		case "delivers for another client":
			data["client_id"] = "cli_2"
		case "delivers a field too many":
			data["external_id"] = "x"
		case "delivers what nobody asked for":
			data["matched_user_id"] = "usr_none"
		}
		f.tell("match.computed", data)
	}
}

// tell delivers an event: at once where it must not be, else in the background.
func (f *fake) tell(kind string, data map[string]any) {
	body, err := json.Marshal(map[string]any{"event_type": kind, "data": data, "timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		f.t.Error(err)
	}
	f.events = append(f.events, fmt.Appendf(nil, `{"id":"evt_%d",%s`, len(f.events)+1, body[1:]))
	event := fmt.Sprintf("evt_%d", len(f.events))
	if f.webhook["status"] == "paused" && f.fault != "delivers while paused" || f.fault == "delivers nothing" {
		return
	}
	secret := f.webhook["secret"].(string)
	if f.fault == "signs with another secret" {
		secret += "x"
	}
	target, times := f.webhook["url"].(string), 1
	if f.fault == "delivers twice" {
		times = 2
	}
	send := func() {
		for range times {
			f.post(target, secret, event, kind, body)
		}
	}
	if f.webhook["status"] == "paused" {
		send()
	} else {
		f.sending.Go(send)
	}
}

func (f *fake) post(target, secret, event, kind string, body []byte) {
	q, err := http.NewRequest("POST", target, bytes.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Service-Event", kind)
	q.Header.Set("Webhook-Id", event)
	q.Header.Set("X-Service-Signature", signature(secret, body))
	res, err := http.DefaultClient.Do(q)
	if err == nil {
		res.Body.Close()
	}
}
