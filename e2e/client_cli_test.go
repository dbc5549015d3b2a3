package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kindred/cmd/kindred/cli"
	kindred "kindred/sdk/go"
)

// shell is where a client's commands are run: an environment with a home of its own.
type shell struct {
	testing.TB
	environment map[string]string
}

func newShell(t testing.TB, url, key string) shell {
	t.Helper()
	return shell{t, map[string]string{"KINDRED_URL": url, "KINDRED_API_KEY": key, "XDG_CONFIG_HOME": t.TempDir()}}
}

// begin runs a command until ctx ends, and writes what it prints to out.
func (s shell) begin(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error {
	root := cli.Command(func(name string) string { return s.environment[name] }, out, errs)
	root.SetArgs(args)
	root.SetIn(in)
	return root.ExecuteContext(ctx)
}

func (s shell) run(args ...string) (out, errs string, err error) {
	s.Helper()
	var o, e bytes.Buffer
	err = s.begin(s.Context(), strings.NewReader(""), &o, &e, args...)
	return o.String(), e.String(), err
}

// must is run for what has to succeed.
func (s shell) must(args ...string) string {
	s.Helper()
	out, errs, err := s.run(args...)
	if err != nil {
		s.Fatalf("kindred %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

func asJSON[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

type printedEvent struct {
	ID        string          `json:"id"`
	EventType string          `json:"event_type"`
	Data      json.RawMessage `json:"data"`
}

type printedDelivery struct {
	ID        string `json:"event_id"`
	EventType string `json:"event_type"`
	Status    int    `json:"status"`
	Error     string `json:"error"`
}

var allTypes = []string{"match.computed", "clustering.completed", "clustering.failed", "campaign.budget_exhausted", "cluster.drift_detected"}

func TestAClientListensWhileItTriggersAnEventOfEachType(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	a = a.inside(a.createSandbox("cli"))
	sh := newShell(t, s.URL, a.createAPIKey("admin").RawKey)

	subscribed := receive(t, 200)
	a.subscribe(subscribed.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==", allTypes...)
	listened := receive(t, http.StatusNoContent)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- sh.begin(ctx, strings.NewReader(""), write, io.Discard, "listen", "--forward-to", listened.URL, "--json")
	}()
	lines := bufio.NewScanner(read)
	next := func() string {
		if !lines.Scan() {
			t.Fatal("listen printed nothing more")
		}
		return lines.Text()
	}
	greeting := asJSON[map[string]string](t, next())
	verifier := kindred.Verifier{Secrets: []string{greeting["secret"]}, ClientID: string(a.Client.ID)}

	var told []string
	for _, kind := range allTypes {
		event := asJSON[printedEvent](t, sh.must("trigger", kind, "--json"))
		if event.EventType != kind {
			t.Errorf("%s: the event is %+v", kind, event)
		}
		told = append(told, event.ID)
	}
	all := asEvents(t, sh.must("events", "--json"))
	for _, id := range told {
		if !slices.Contains(all, id) {
			t.Errorf("%s was told of, and is not among %q", id, all)
		}
	}
	byID := map[string]delivery{}
	for len(byID) < len(all) {
		d := subscribed.next(t)
		byID[d.Header.Get("Webhook-Id")] = d
	}
	var here []string
	for range byID {
		line := asJSON[printedDelivery](t, next())
		d := listened.next(t)
		event, err := verifier.Verify(d.Header, d.Body)
		if err != nil || event.ID != line.ID || string(event.Type) != line.EventType || line.Status != http.StatusNoContent || line.Error != "" {
			t.Errorf("%+v: %v, %+v", line, err, event)
		}
		here = append(here, line.ID)
		there := byID[line.ID]
		if !bytes.Equal(d.Body, there.Body) {
			t.Errorf("the body is %s, a webhook's %s", d.Body, there.Body)
		}
		for name := range there.Header {
			if name != "Traceparent" && d.Header.Get(name) == "" {
				t.Errorf("a webhook has the header %s, and this has not", name)
			}
		}
	}
	if !slices.Equal(all, here) {
		t.Errorf("events are %q, listen delivered %q", all, here)
	}
	if last := asEvents(t, sh.must("events", "--follow", "--after", here[1], "--limit", "2", "--json")); !slices.Equal(last, here[2:4]) {
		t.Errorf("followed %q", last)
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-ended; err != nil {
		t.Errorf("an interrupted listen ends with %v", err)
	}
	if again := sh.environment["XDG_CONFIG_HOME"]; !strings.Contains(contentOf(t, filepath.Join(again, "kindred", "profiles.json")), greeting["secret"]) {
		t.Error("the secret is not kept")
	}
}

func contentOf(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has the mode %s", path, info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func asEvents(t testing.TB, text string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		ids = append(ids, asJSON[printedEvent](t, line).ID)
	}
	return ids
}

func TestATriggerIsRefusedWhereTheClientMayBeLive(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	for livemode, one := range map[string]struct {
		live, refused string
	}{
		"":      {"", "name it with --live"},
		" ":     {"cli_other", "the key is of " + string(a.Client.ID)},
		"true":  {"", "is live"},
		" true": {string(a.Client.ID), "is live"},
		"false": {"", ""},
	} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // says what a service says of a client
			if livemode := strings.TrimSpace(livemode); livemode != "" {
				w.Header().Set("X-Kindred-Livemode", livemode)
			}
			forwardTo(t, s.URL, w, r)
		}))
		t.Cleanup(proxy.Close)
		sh := newShell(t, proxy.URL, a.createAPIKey("admin").RawKey)
		args := []string{"trigger", "campaign.budget_exhausted"}
		if one.live != "" {
			args = append(args, "--live", one.live)
		}
		out, errs, err := sh.run(args...)
		if (one.refused == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), one.refused) {
			t.Errorf("%q, --live %q: %v\n%s%s", livemode, one.live, err, out, errs)
		}
		if one.refused != "" && out+errs != "" {
			t.Errorf("%q: something was done: %s%s", livemode, out, errs)
		}
	}
	if list := want[struct{ Data []any }](t, http.StatusOK, a.get("/api/v1/campaigns")); len(list.Data) != 1 {
		t.Errorf("there are %d campaigns", len(list.Data))
	}
}

func forwardTo(t testing.TB, url string, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	on, err := http.NewRequestWithContext(r.Context(), r.Method, url+r.URL.RequestURI(), r.Body)
	if err != nil {
		t.Error(err)
		return
	}
	on.Header = r.Header
	answer, err := http.DefaultClient.Do(on)
	if err != nil {
		return // the command has ended
	}
	defer answer.Body.Close()
	for name := range answer.Header {
		if name != "X-Kindred-Livemode" {
			w.Header().Set(name, answer.Header.Get(name))
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

func TestUsersAreImportedFromAFileAndAPipe(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	sh := newShell(t, s.URL, a.createAPIKey("admin").RawKey)
	file := filepath.Join(t.TempDir(), "people.ndjson")
	var people strings.Builder
	for i := range 500 {
		fmt.Fprintf(&people, `{"external_id":"u%d","traits":{"age":%d}}`+"\n", i, i%90)
	}
	if err := os.WriteFile(file, []byte(people.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := sh.must("users", "import", file); out != "500 created, 0 updated, 0 refused\n" {
		t.Errorf("printed %q", out)
	}
	for name, content := range map[string]string{"people.CSV": "external_id,age\nu1,5\nnew,6\n", "people.tsv": "external_id\tage\nu1\t5\nother\t6\n"} {
		table := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(table, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := asJSON[kindred.ImportResult](t, sh.must("users", "import", table, "--json")); got.Created != 1 || got.Updated != 1 || got.Failed != 0 {
			t.Errorf("of %s: %+v", name, got)
		}
	}
	var out, errs bytes.Buffer
	wrong := strings.NewReader(`{"external_id":"u0","traits":{"age":3}}` + "\nnonsense\n" + `{"external_id":"","traits":{}}` + "\n")
	err := sh.begin(t.Context(), wrong, &out, &errs, "users", "import", "-", "--format", "ndjson")
	if err == nil || !strings.Contains(out.String(), "0 created, 1 updated, 2 refused\nline 2: invalid_json:") || !strings.Contains(out.String(), "line 3: invalid:") ||
		!strings.Contains(out.String(), "/external_id") {
		t.Errorf("%v: %s", err, &out)
	}
	for name, one := range map[string]struct{ content, why string }{"people.xlsx": {"PK\x03\x04", "Save the sheet as CSV UTF-8"}, "people.json": {`[{"external_id":"u1"}]`, "Write one object a line"}} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(one.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := sh.run("users", "import", file); err == nil || !strings.Contains(err.Error(), one.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandsTellWhoTheyAre(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	key := a.createAPIKey("admin").RawKey
	sh := newShell(t, s.URL, key)
	who := asJSON[map[string]any](t, sh.must("whoami", "--json"))
	if who["client_id"] != string(a.Client.ID) || who["name"] != a.Client.Name || who["credential"] != "api_key" || who["url"] != s.URL || who["livemode"] != true {
		t.Errorf("%v", who)
	}
	if out := sh.must("whoami"); !strings.Contains(out, string(a.Client.ID)) || strings.Contains(out, key) || strings.Contains(out, "\x1b") {
		t.Errorf("printed %s", out)
	}
	_, _, err := newShell(t, s.URL, "kin_live_nonsense").run("whoami")
	if err == nil || !strings.HasPrefix(err.Error(), "401 invalid_api_key") || strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a key that is none: %v", err)
	}
	_, _, err = newShell(t, s.URL, "").run("events")
	if err == nil || !strings.Contains(err.Error(), "KINDRED_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	_, _, err = sh.run("events", "--types", "user.created")
	if err == nil || !strings.Contains(err.Error(), "match.computed") {
		t.Errorf("a type that is none: %v", err)
	}
}
