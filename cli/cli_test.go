package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
	"kindred/testkit"
)

// root has the commands, in an environment.
func root(t *testing.T, environment map[string]string) (*cobra.Command, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	c := &cobra.Command{Use: "kindred", SilenceErrors: true, SilenceUsage: true}
	c.AddCommand(Commands(func(name string) string { return environment[name] })...)
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetIn(strings.NewReader(""))
	return c, &out
}

func TestEveryCommandHasExamplesAndPrintsJSON(t *testing.T) {
	c, _ := root(t, nil)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			if !strings.Contains(child.Example, "  kindred "+strings.Fields(child.Use)[0]) && !strings.Contains(child.Example, child.CommandPath()) {
				t.Errorf("%s has the examples %q", child.CommandPath(), child.Example)
			}
			if child.Runnable() && (child.Flags().Lookup("json") == nil || child.Flags().Lookup("profile") == nil || child.Flags().Lookup("url") == nil) {
				t.Errorf("%s lacks a flag that all have", child.CommandPath())
			}
			walk(child)
		}
	}
	walk(c)
}

func TestNoFlagTakesASecret(t *testing.T) {
	c, _ := root(t, nil)
	for _, child := range c.Commands() {
		for _, word := range []string{"key", "api-key", "password", "secret", "token"} {
			if child.Flags().Lookup(word) != nil {
				t.Errorf("%s takes --%s, which every process can read", child.Name(), word)
			}
		}
	}
}

func TestShellsCompleteTypesFormatsAndProfiles(t *testing.T) {
	home := t.TempDir()
	environment := map[string]string{"XDG_CONFIG_HOME": home}
	o := &options{environ: environ{func(name string) string { return environment[name] }}, profile: "sandbox"}
	if err := o.change(func(p *profile) { p.URL = "https://kindred.example.com" }); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"trigger ":                   strings.Join(typeNames(), "\n"),
		"events --types ":            strings.Join(typeNames(), "\n"),
		"listen --events ":           strings.Join(typeNames(), "\n"),
		"users import - --format ":   "csv\nndjson",
		"users import - --mode ":     "merge\nreplace",
		"whoami --profile ":          "sandbox",
		"events --follow --profile ": "sandbox",
	} {
		c, out := root(t, environment)
		c.SetArgs(append([]string{"__complete"}, strings.Split(line, " ")...))
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.SplitN(out.String(), "\n:", 2)[0], "\n")
		slices.Sort(got)
		sorted := strings.Split(want, "\n")
		slices.Sort(sorted)
		if !slices.Equal(got, sorted) {
			t.Errorf("%q is completed by %q, want %q", line, got, sorted)
		}
	}
}

func TestTheConsoleIsOpenedOrItsAddressPrinted(t *testing.T) {
	dir := t.TempDir()
	browser, broken, taken := filepath.Join(dir, "browser"), filepath.Join(dir, "broken"), filepath.Join(dir, "taken")
	for path, text := range map[string]string{browser: "#!/bin/sh\necho \"$1\" >" + taken + "\n", broken: "#!/bin/sh\nexit 3\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const address = "https://kindred.example.com/console/"
	for _, tt := range []struct {
		browser, flag, says string
	}{
		{browser, "", "Opened " + address},
		{broken, "", address},
		{filepath.Join(dir, "nowhere"), "", address},
		{"", "", address}, // neither is there a screen
		{browser, "--json", `{"opened":true,"url":"` + address + `"}`},
		{broken, "--json", `{"opened":false,"url":"` + address + `"}`},
	} {
		c, out := root(t, map[string]string{"XDG_CONFIG_HOME": dir, "KINDRED_URL": "https://kindred.example.com/", "BROWSER": tt.browser})
		c.SetArgs(strings.Fields("open " + tt.flag))
		if err := c.Execute(); err != nil || strings.TrimSpace(out.String()) != tt.says {
			t.Errorf("%s %s: says %q (%v), want %q", tt.browser, tt.flag, out, err, tt.says)
		}
	}
	if text, err := os.ReadFile(taken); err != nil || strings.TrimSpace(string(text)) != address {
		t.Errorf("the browser got %q (%v)", text, err)
	}
}

func TestLoginsAreForTheirUserAlone(t *testing.T) {
	home := t.TempDir()
	environment := map[string]string{"XDG_CONFIG_HOME": home, "KINDRED_PROFILE": "two"}
	getenv := func(name string) string { return environment[name] }
	one, two := &options{environ: environ{getenv}, profile: "one"}, &options{environ: environ{getenv}}
	for _, o := range []*options{one, two} {
		if err := o.change(func(p *profile) { p.URL, p.Session = "https://"+o.name()+".example.com", "ses_secret" }); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(home, "kindred", "profiles.json")
	for file, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want %v", file, info.Mode(), err, mode)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("there are %v (%v)", left, err)
	}
	stored, err := environ{getenv}.profiles()
	if err != nil || !slices.Equal(stored.names(), []string{"one", "two"}) || stored.Profiles["two"].URL != "https://two.example.com" {
		t.Errorf("%+v (%v)", stored.names(), err)
	}
	if err := one.change(func(p *profile) { *p = profile{} }); err != nil {
		t.Fatal(err)
	}
	if stored, err = (environ{getenv}).profiles(); err != nil || !slices.Equal(stored.names(), []string{"two"}) {
		t.Errorf("%+v (%v)", stored.names(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := (environ{getenv}).profiles(); err == nil || !strings.Contains(err.Error(), "others may read") || strings.Contains(err.Error(), "ses_secret") {
		t.Errorf("a file that others may read: %v", err)
	}
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	null, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for want, c := range map[string]*call{
		"\x1b[32m204\x1b[0m": {out: null, options: &options{environ: environ{func(string) string { return "" }}}},
		"204":                {out: null, options: &options{environ: environ{func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }}}},
		"204 ":               {out: &bytes.Buffer{}, options: &options{environ: environ{func(string) string { return "" }}}},
	} {
		if got := c.coloured(green, "204"); got != strings.TrimSpace(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEveryTypeOfEventHasAStory(t *testing.T) {
	for _, of := range kindred.EventTypes() {
		if stories[of] == nil {
			t.Errorf("%s has no story in cli/trigger.go", of)
		}
	}
	if _, err := typesOf([]string{string(kindred.EventTypeMatchComputed), "user.created"}); err == nil || !strings.Contains(err.Error(), "user.created") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsInterruptedHasNotDoneItsWork(t *testing.T) {
	asked, over := make(chan struct{}, 10), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-over
	}))
	defer service.Close()
	defer close(over)
	people := filepath.Join(t.TempDir(), "people.ndjson")
	if err := os.WriteFile(people, []byte(`{"external_id":"u1"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, fails := range map[string]bool{"users import " + people: true, "sandboxes list": true, "events": true, "events --follow": false} {
		c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "KINDRED_URL": service.URL, "KINDRED_API_KEY": "kin_test_key"})
		c.SetArgs(strings.Fields(line))
		ctx, interrupt := context.WithCancel(t.Context())
		go func() { <-asked; interrupt() }()
		if err := c.ExecuteContext(ctx); (err != nil) != fails {
			t.Errorf("%s, interrupted, ends with %v", line, err)
		}
		interrupt()
	}
}

func TestALoginIsInterruptedWhileItAsks(t *testing.T) {
	in, typing := io.Pipe() // where nobody types
	defer typing.Close()
	for _, line := range []string{"login", "login --email ada@example.com"} {
		c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
		c.SetIn(in)
		c.SetArgs(strings.Fields(line))
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		if err := c.ExecuteContext(ctx); !errors.Is(err, errInterrupted) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAPasswordAloneIsNoLogin(t *testing.T) {
	for line, typed := range map[string]string{"login": "correct horse\n", "login --email ada@example.com": ""} {
		c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
		c.SetIn(strings.NewReader(typed))
		c.SetArgs(strings.Fields(line))
		err := c.Execute()
		if err == nil || strings.Contains(err.Error(), "without --email") != (typed != "") || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s ends with %v", line, err)
		}
	}
}

func TestAReceiverThatSwitchesProtocolsHoldsUpNothing(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: nothing\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the other end closes it
	}))
	defer receiver.Close()
	status, err := newForwarder(receiver.URL, "secret", "").deliver(t.Context(), &kindred.Event{ID: "evt_1", Type: kindred.EventTypeMatchComputed, Body: []byte("{}")})
	if status != http.StatusSwitchingProtocols || err != nil {
		t.Errorf("%d %v", status, err)
	}
}

func TestAServiceThatIsNotThereIsToldOfAtOnce(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.NotFoundHandler())
	service.Close()
	for _, line := range []string{"whoami", "events", "events --follow", "listen --forward-to http://127.0.0.1:9/"} {
		c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "KINDRED_URL": service.URL, "KINDRED_API_KEY": "kin_test_key"})
		c.SetArgs(strings.Fields(line))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := c.ExecuteContext(ctx); !errors.Is(err, kindred.ErrConnection) || ctx.Err() != nil || !strings.Contains(err.Error(), "no service answers: dial tcp") || !strings.Contains(err.Error(), "KINDRED_URL") {
			t.Errorf("%s ends with %v, %v", line, err, ctx.Err())
		}
		cancel()
	}
}

func TestAFileIsWhatItBeginsWith(t *testing.T) {
	const csv, object = "external_id,age\nu1,31\n", "\ufeff\n " + `{"external_id":"u1"}` + "\n"
	for _, test := range []struct{ name, text, format string }{
		{"people.csv", csv, "csv"},
		{"people.TXT", csv, "csv"},
		{"people", strings.Repeat(csv, 1000), "csv"},
		{"-", csv, "csv"},
		{"-", object, "ndjson"},
		{"-", "", "csv"},
		{"people.csv", object, "ndjson"},
		{"people.ndjson", object, "ndjson"},
		{"people.json", strings.Repeat(object, 1000), "ndjson"},
		{"people.ndjson", "", "ndjson"},
		{"people.json", `[{"external_id":"u1"}]`, "csv"},
		{"people.xlsx", "PK\x03\x04", "csv"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		file := testkit.Must(os.Open(path))(t)
		defer file.Close()
		for what, lines := range map[string]io.Reader{"a file": file, "a pipe": strings.NewReader(test.text)} {
			if what == "a pipe" {
				lines = io.MultiReader(lines)
			}
			format, whole, err := formatOf(t.Context(), test.name, lines)
			if format != test.format || err != nil {
				t.Errorf("%s, %s, is %q, %v", what, test.name, format, err)
			}
			if text := testkit.Must(io.ReadAll(whole))(t); string(text) != test.text {
				t.Errorf("of %s, %s, %d of %d bytes are left to send", what, test.name, len(text), len(test.text))
			}
			if _, again := whole.(io.Seeker); again != (what == "a file") {
				t.Errorf("%s, %s, can be sent again: %t", what, test.name, again)
			}
		}
	}
}

func TestALimitBelowNoughtIsRefused(t *testing.T) {
	c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	c.SetArgs([]string{"events", "--limit", "-1"})
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "--limit") {
		t.Errorf("refused with %v", err)
	}
}

func TestATypeThatIsNoneIsToldWithThoseThatAre(t *testing.T) {
	c, _ := root(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	c.SetArgs([]string{"trigger", "nope"})
	if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "clustering.completed") {
		t.Errorf("refused with %v", err)
	}
}

func TestWhatOthersChoseIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Café": "Café", "a\x1b]0;owned\a": `a\x1b]0;owned\a`, "two\nlines": `two\nlines`, "back\u202ewards": `back\u202ewards`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
