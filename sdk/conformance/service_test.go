package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kindred/postgres/pgtest"
	"kindred/testkit"
)

var buildKindred = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programs, "kindred")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "kindred/cmd/kindred").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// programs is the folder of those that tests build.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "kindred-sdk-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // of temporary files
	os.Exit(code)
}

// startKindred serves, as a process of its own on a database of its own, until
// the test ends.
func startKindred(t *testing.T) string {
	t.Helper()
	url, _ := startKindredAgain(t)
	return url
}

// startKindredAgain is startKindred that can be stopped and begun anew.
func startKindredAgain(t *testing.T) (url string, restart func()) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	environment := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KINDRED_") }),
		"KINDRED_LISTEN="+address, "KINDRED_DATABASE_URL="+pgtest.URL(t), "KINDRED_DATA_DIR="+t.TempDir(),
		"KINDRED_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8")
	stop := serve(t, address, environment)
	return "http://" + address, func() {
		stop()
		stop = serve(t, address, environment)
	}
}

func serve(t *testing.T, address string, environment []string) (stop func()) {
	t.Helper()
	program, err := buildKindred()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(program, "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, &log, &log
	end, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killing := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it was ended
		killing.Stop()
		_ = end.Close()
		if t.Failed() {
			t.Logf("kindred logged:\n%s", log.Bytes()[max(0, log.Len()-2000):])
		}
	})
	t.Cleanup(stop) // where it does not get ready
	testkit.Eventually(t, "kindred is ready", func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return stop
}

type received struct {
	Headers map[string]string
	Body    string
}

// receiver keeps what is delivered to it.
func receiver(t *testing.T) (string, <-chan received) {
	t.Helper()
	arrived := make(chan received, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // one that is cut is not verified
		headers := map[string]string{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		select {
		case arrived <- received{headers, string(body)}:
		default:
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s.URL, arrived
}

func field[T any](t testing.TB, value json.RawMessage, names ...string) T {
	t.Helper()
	var out T
	for _, name := range names {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			t.Fatalf("%v: %s", err, value)
		}
		value = object[name]
	}
	if err := json.Unmarshal(value, &out); err != nil {
		t.Fatalf("%v: %q", err, value)
	}
	return out
}

// signUp makes the client "c" with a key, and "login", its owner; it tells the
// client's id and the key's.
func signUp(t *testing.T, d *driver, url string) (client, key string) {
	t.Helper()
	d.client("nobody", url, command{"api_key": ""})
	up := d.must("nobody", "authentication.sign_up", command{"body": command{"email": "ada@example.com", "password": "correct horse battery", "company_name": "Acme"}})
	d.client("login", url, command{"token": field[string](t, up.Value, "token")})
	made := d.must("login", "api_keys.create", command{"body": command{"name": "backend", "scopes": []string{"admin"}}})
	d.client("c", url, command{"api_key": field[string](t, made.Value, "raw_key")})
	return field[string](t, up.Value, "client", "id"), field[string](t, made.Value, "record", "id")
}

func TestTheStoryOfAClientOnKindred(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		url := startKindred(t)
		client, key := signUp(t, d, url)
		if ok, failed := d.try(command{"do": "client_id", "client": "c"}); failed != nil || strings.Trim(string(ok), `"`) != client {
			t.Errorf("the client is %s (%v), want %s", ok, failed, client)
		}
		t.Run("users", func(t *testing.T) { usersOn(t, d) })
		t.Run("deliveries", func(t *testing.T) { deliveriesOn(t, d) })
		t.Run("deliveries without a shared secret", func(t *testing.T) { keysOn(t, d, client) })
		t.Run("segments", func(t *testing.T) { segmentsOn(t, d) })
		t.Run("a session", func(t *testing.T) { sessionOn(t, d, url, client) })
		t.Run("a sandbox", func(t *testing.T) { sandboxOn(t, d, url, client) })
		t.Run("history", func(t *testing.T) {
			ok, failed := d.try(command{"do": "export", "client": "c"})
			if failed != nil || !strings.HasPrefix(field[string](t, ok, "last"), `{"head":`) || field[int](t, ok, "count") < 4 {
				t.Errorf("exported %s (%v)", ok, failed)
			}
		})
		t.Run("a revoked key", func(t *testing.T) {
			d.must("login", "api_keys.revoke", command{"path": []string{key}})
			testkit.Eventually(t, "the key is refused", func() bool { // within a second
				_, failed := d.call("c", "users.list_page", command{})
				return failed != nil && failed.Status == 401 && failed.Code == "invalid_api_key"
			})
		})
	})
}

// TestEventsAreFollowedThroughARestartOfKindred makes events before and behind a
// restart, while one follows them, one waits for them and one has its key revoked.
func TestEventsAreFollowedThroughARestartOfKindred(t *testing.T) {
	const each = 6
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		url, restart := startKindredAgain(t)
		signUp(t, d, url)
		other := d.must("login", "api_keys.create", command{"body": command{"name": "other", "scopes": []string{"read"}}})
		d.client("other", url, command{"api_key": field[string](t, other.Value, "raw_key")})
		d.must("c", "users.import", command{"users": 2 * each})
		match := func(i int) {
			t.Helper()
			d.must("c", "matches.compute", command{"path": []string{fmt.Sprintf("ext:u%06d", i)}, "body": command{"limit": 1}})
		}
		begin := func(client, method string, params command) <-chan reply {
			_, answer := d.begin(command{"do": "events", "client": client, "method": method, "most": 2 * each, "params": params})
			return answer
		}
		followed, pulled, revoked := begin("c", "follow", command{}), begin("c", "pull", command{"wait": 30}), begin("other", "follow", command{})
		for i := range each {
			match(i)
		}
		d.must("login", "api_keys.revoke", command{"path": []string{field[string](t, other.Value, "record", "id")}})
		if _, failed := d.wait(revoked); failed == nil || failed.Code != "invalid_api_key" {
			t.Errorf("a revoked key ends it with %v", failed)
		}
		restart()
		for i := each; i < 2*each; i++ {
			match(i)
		}
		var all []string
		for what, answer := range map[string]<-chan reply{"followed": followed, "pulled": pulled} {
			ok, failed := d.wait(answer)
			if failed != nil {
				t.Fatalf("%s: %v", what, failed)
			}
			ids := field[[]string](t, ok, "ids")
			if all == nil {
				all = ids
			}
			if len(ids) != 2*each || !slices.Equal(ids, all) || field[string](t, ok, "last", "event_type") != "match.computed" {
				t.Errorf("%s: %s", what, ok)
			}
		}
		if rest, failed := d.events("c", "pull", command{"params": command{"after": all[each-1]}}); failed != nil || !slices.Equal(rest.IDs, all[each:]) {
			t.Errorf("behind the %d. are %q (%v)", each, rest.IDs, failed)
		}
	})
}

func usersOn(t *testing.T, d *driver) {
	t.Helper()
	one := d.must("c", "users.create", command{"body": command{"external_id": "a/b ü", "traits": command{"plan": "pro"}}})
	got := d.must("c", "users.get", command{"path": []string{"ext:a/b ü"}})
	if field[string](t, got.Value, "id") != field[string](t, one.Value, "id") || got.ETag == "" || got.RequestID == "" {
		t.Errorf("got %+v, made %+v", got, one)
	}
	change := command{"path": []string{"ext:a/b ü"}, "body": command{"traits": command{"plan": nil, "age": 3}}, "options": command{"if_match": got.ETag}}
	changed := d.must("c", "users.change", change)
	if traits := field[map[string]any](t, changed.Value, "traits"); traits["plan"] != nil || traits["age"] != 3.0 {
		t.Errorf("the traits are %v", traits)
	}
	if f := d.fails("refused", "c", "users.change", change); f.Status != 412 || f.Code != "stale" {
		t.Errorf("a stale change is refused with %+v", f)
	}
	wrong := command{"body": command{"external_id": "", "traits": command{}}}
	if f := d.fails("refused", "c", "users.create", wrong); f.Code != "invalid" || !slices.Contains(f.Pointers, "/external_id") || f.RequestID == "" {
		t.Errorf("refused with %+v", f)
	}
	again := command{"body": command{"external_id": "twice"}, "options": command{"idempotency_key": "one"}}
	if a, b := d.must("c", "users.create", again), d.must("c", "users.create", again); field[string](t, a.Value, "id") != field[string](t, b.Value, "id") {
		t.Error("a repeated POST has made two users")
	}
	result := d.must("c", "users.import", command{"users": 500})
	if field[int](t, result.Value, "created") != 500 {
		t.Errorf("imported %s", result.Value)
	}
	if out := d.must("c", "users.list", command{"params": command{"limit": 200}}); out.Count != 502 {
		t.Errorf("%d users are listed", out.Count)
	}
	later := d.must("c", "users.import_later", command{"lines": `{"external_id":"u000001","traits":{"x":1}}` + "\n", "params": command{"mode": "replace"}})
	id := field[string](t, later.Value, "id")
	testkit.Eventually(t, "the import ends", func() bool {
		one := d.must("c", "users.get_import", command{"path": []string{id}})
		return field[string](t, one.Value, "status") == "completed"
	})
	d.must("c", "users.erase", command{"path": []string{"ext:twice"}})
	if f := d.fails("refused", "c", "users.get", command{"path": []string{"ext:twice"}}); f.Code != "user_unknown" {
		t.Errorf("refused with %+v", f)
	}
}

// standardHeaders are those that Standard Webhooks signs, as Go spells them.
var standardHeaders = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}

// subscribed makes a subscription, and what has kindred send a test to it.
func subscribed(t *testing.T, d *driver, how command) (id string, next func() received) {
	t.Helper()
	url, arrived := receiver(t)
	how["url"], how["event_types"] = url, []string{"match.computed"}
	hook := d.must("c", "webhooks.create", command{"body": how})
	id = field[string](t, hook.Value, "id")
	return id, func() received {
		t.Helper()
		d.must("c", "webhooks.test", command{"path": []string{id}, "body": command{"event_type": "match.computed"}})
		select {
		case one := <-arrived:
			return one
		case <-time.After(patience):
			t.Fatal("no delivery came")
			return received{}
		}
	}
}

func deliveriesOn(t *testing.T, d *driver) {
	t.Helper()
	id, next := subscribed(t, d, command{"secret": oldSecret})
	check := func(what string, of received, scheme, reason string, secrets ...string) {
		t.Helper()
		c := command{"secrets": secrets, "scheme": scheme, "now": time.Now().Unix()}
		if ok, got := d.verify(delivery(of), c); got != reason || reason == "" && field[string](t, ok, "event_type") != "match.computed" {
			t.Errorf("%s: %s is refused as %q, want %q", what, ok, got, reason)
		}
	}
	before := next()
	check("before", before, "", "", oldSecret)
	check("before, the receiver knows both", before, "", "", newSecret, oldSecret)
	check("before, the contract's scheme", before, "contract", "", oldSecret)
	check("before, another secret", before, "", "signature_wrong", newSecret)
	d.must("c", "webhooks.rotate_secret", command{"path": []string{id}, "body": command{"secret": newSecret}})
	after := next()
	check("after, the receiver knows the old one", after, "", "", oldSecret)
	check("after, the receiver knows the new one", after, "", "", newSecret)
	check("after, the contract's scheme", after, "contract", "", newSecret, oldSecret)
	one, now := delivery(after), time.Now().Unix()
	d.refusesMutations("the contract's scheme", one, command{"secrets": []string{newSecret}, "scheme": "contract", "now": now}, []string{"X-Service-Signature"})
	one = one.with("Webhook-Signature", strings.Fields(one.Headers["Webhook-Signature"])[0])
	d.refusesMutations("v1", one, command{"secrets": []string{newSecret}, "now": now}, standardHeaders)
	testkit.Eventually(t, "both stand in the log", func() bool {
		return d.must("c", "webhooks.list_deliveries", command{"path": []string{id}, "params": command{"status": "delivered"}}).Count == 2
	})
}

// keysOn has kindred sign with the client's key pair, and rotates that.
func keysOn(t *testing.T, d *driver, client string) {
	t.Helper()
	_, next := subscribed(t, d, command{"ed25519": true})
	keys := func() (list []string) {
		t.Helper()
		for _, one := range field[[]json.RawMessage](t, d.must("c", "webhooks.list_keys", command{}).Value, "data") {
			list = append(list, field[string](t, one, "public_key"))
		}
		return list
	}
	check := func(what string, of received, reason, client string, keys ...string) {
		t.Helper()
		c := command{"public_keys": keys, "client_id": client, "now": time.Now().Unix()}
		if ok, got := d.verify(delivery(of), c); got != reason || reason == "" && field[string](t, ok, "event_type") != "match.computed" {
			t.Errorf("%s: %s is refused as %q, want %q", what, ok, got, reason)
		}
	}
	before, first := next(), keys()[0]
	check("before", before, "", client, first)
	check("before, another client's", before, "other_client", "cli_2", first)
	newest := field[string](t, d.must("c", "webhooks.rotate_keys", command{}).Value, "public_key")
	if list := keys(); !slices.Equal(list, []string{newest, first}) {
		t.Errorf("the keys are %q, want %q and %q", list, newest, first)
	}
	after := next()
	check("after, the receiver knows the old one", after, "", client, first)
	check("after, the receiver knows the new one", after, "", client, newest)
	check("after, the receiver knows both", after, "", client, newest, first)
	check("before, the receiver knows the new one alone", before, "signature_wrong", client, newest)
	one := delivery(before).with("Webhook-Signature", strings.Fields(before.Headers["Webhook-Signature"])[0])
	d.refusesMutations("v1a", one, command{"public_keys": []string{first}, "client_id": client, "now": time.Now().Unix()}, standardHeaders)
}

func segmentsOn(t *testing.T, d *driver) {
	t.Helper()
	result := d.must("c", "users.import", command{"lines": "external_id,fruit\n\"an \"\"apple\"\"\",apple\nü,apple\n", "options": command{"csv": true}})
	if field[int](t, result.Value, "created") != 2 {
		t.Errorf("imported %s", result.Value)
	}
	made := d.must("c", "segments.create", command{"body": command{"name": "Apples", "rule": `traits.fruit == "apple"`}})
	id := field[string](t, made.Value, "id")
	testkit.Eventually(t, "the segment is ready", func() bool {
		return field[string](t, d.must("c", "segments.get", command{"path": []string{id}}).Value, "state") == "ready"
	})
	out := d.must("c", "segments.list_members_csv", command{"path": []string{id}})
	if first := text(t, out.First); out.Count != 3 || first != "user_id,external_id\n" {
		t.Errorf("%d lines, the first is %q", out.Count, first)
	}
	if last := text(t, out.Last); !strings.HasSuffix(last, ",ü\n") {
		t.Errorf("the last line is %q", last)
	}
	users := d.must("c", "users.list_csv", command{"params": command{"segment_id": id}})
	if first, last := text(t, users.First), text(t, users.Last); users.Count != 3 || first != "external_id,fruit\n" || last != "ü,apple\n" {
		t.Errorf("%d lines, %q to %q", users.Count, first, last)
	}
}

func text(t *testing.T, value json.RawMessage) (out string) {
	t.Helper()
	if err := json.Unmarshal(value, &out); err != nil {
		t.Errorf("%s: %v", value, err)
	}
	return out
}

func sessionOn(t *testing.T, d *driver, url, client string) {
	t.Helper()
	opened := d.must("nobody", "authentication.create_session", command{"body": command{"email": "ada@example.com", "password": "correct horse battery"}})
	d.client("session", url, command{"api_key": "", "session": field[string](t, opened.Value, "secret")})
	if ok, failed := d.try(command{"do": "client_id", "client": "session"}); failed != nil || text(t, ok) != client {
		t.Errorf("the session is of %s (%v), want %s", ok, failed, client)
	}
	d.must("session", "members.revoke_session", command{"path": []string{field[string](t, opened.Value, "session", "id")}})
	testkit.Eventually(t, "the session is refused", func() bool {
		_, failed := d.call("session", "users.list_page", command{})
		return failed != nil && failed.Status == 401 && failed.Code == "invalid_session"
	})
}

// sandboxOn makes a sandbox, works in it by a session of the client beside it, moves
// its clock and deletes it.
func sandboxOn(t *testing.T, d *driver, url, client string) {
	t.Helper()
	made := d.must("login", "sandboxes.create", command{"body": command{"name": "ci", "expires_in": 3600}})
	sandbox := field[string](t, made.Value, "id")
	if field[string](t, made.Value, "parent_id") != client || field[bool](t, made.Value, "livemode") {
		t.Errorf("made %s", made.Value)
	}
	if list := d.must("login", "sandboxes.list", command{}); list.Count != 1 || field[string](t, list.First, "name") != "ci" {
		t.Errorf("listed is %+v", list)
	}
	opened := d.must("nobody", "authentication.create_session", command{"body": command{"email": "ada@example.com", "password": "correct horse battery"}})
	d.client("inside", url, command{"api_key": "", "session": field[string](t, opened.Value, "secret"), "sandbox": sandbox})
	if ok, failed := d.try(command{"do": "client_id", "client": "inside"}); failed != nil || text(t, ok) != sandbox {
		t.Errorf("the session is of %s (%v), want %s", ok, failed, sandbox)
	}
	key := field[string](t, d.must("inside", "api_keys.create", command{"body": command{"name": "tests", "scopes": []string{"read", "write"}}}).Value, "raw_key")
	if !strings.HasPrefix(key, "kin_test_") {
		t.Errorf("a key of the sandbox begins with %.9s", key)
	}
	d.client("test", url, command{"api_key": key})
	before := field[time.Time](t, d.must("test", "sandboxes.get_clock", command{}).Value, "now")
	to := before.Add(40 * 24 * time.Hour)
	moved := d.must("test", "sandboxes.move_clock", command{"body": command{"to": to}})
	if now := field[time.Time](t, moved.Value, "now"); now.Before(to.Truncate(time.Second)) {
		t.Errorf("moved to %s, it says %s", to, now)
	}
	user := d.must("test", "users.create", command{"body": command{"external_id": "there"}})
	if at := field[time.Time](t, user.Value, "created_at"); at.Before(to.Truncate(time.Second)) {
		t.Errorf("made at %s, want %s", at, to)
	}
	if f := d.fails("refused", "c", "users.get", command{"path": []string{"ext:there"}}); f.Code != "user_unknown" {
		t.Errorf("beside the sandbox its user is refused as %+v", f)
	}
	if f := d.fails("refused", "c", "sandboxes.move_clock", command{"body": command{"to": to}}); f.Code != "sandbox_only" {
		t.Errorf("a live clock is refused as %+v", f)
	}
	d.must("login", "sandboxes.delete", command{"path": []string{sandbox}})
	testkit.Eventually(t, "the sandbox is gone", func() bool {
		_, failed := d.call("test", "users.list_page", command{})
		return failed != nil && failed.Status == 401
	})
	if f := d.fails("refused", "login", "sandboxes.get", command{"path": []string{sandbox}}); f.Code != "sandbox_unknown" {
		t.Errorf("it is refused as %+v", f)
	}
}
