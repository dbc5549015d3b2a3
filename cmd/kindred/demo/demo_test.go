package demo

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func play(t *testing.T, o Options) (string, error) {
	t.Helper()
	var out strings.Builder
	o.Out = &out
	if o.Users == 0 {
		o.Users, o.Seed = 60, 1
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	err := Run(t.Context(), o)
	return out.String(), err
}

func TestTheStoryIsToldToItsEnd(t *testing.T) {
	f := newFake(t, "")
	out, err := play(t, Options{URL: f.url + "/"})
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, out)
	}
	for _, want := range []string{
		"fingerprint kin_live_ab...yz", "60 people, made up with the seed 1.", "10 of 10 events",
		"Of those before, none did.", "in the list of users        no", "All as it should be",
		f.url + "/console/", "log in as ada-",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the story does not say %q:\n%s", want, out)
		}
	}
	for _, secret := range []string{"kin_live_secret", "eyJ", "\x1b["} {
		if strings.Contains(out, secret) {
			t.Errorf("the story tells %q, which is secret or for terminals:\n%s", secret, out)
		}
	}
	if f.webhook != nil {
		t.Error("the subscription was left behind")
	}
}

func TestTheStoryIsToldOfAFile(t *testing.T) {
	f := newFake(t, "")
	var rows strings.Builder
	for i := range 30 {
		rows.WriteString(strings.ReplaceAll("p#, 3#, \"bread, salt\", ?\n", "#", string(rune('A'+i))))
	}
	path := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := play(t, Options{URL: f.url, CSV: path, Header: []string{"name", "code", "likes", "left"}, ID: "name", Limit: 20})
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, out)
	}
	if !strings.Contains(out, "20 people, of people.csv.") || f.users[0].ExternalID != "pA" || f.users[0].Traits["likes"] != "bread, salt" {
		t.Errorf("the service got %+v, the story is:\n%s", f.users[0], out)
	}
}

func TestAServiceMayDeliverTwiceAndBeBusy(t *testing.T) {
	for fault, want := range map[string]string{
		"delivers twice": "  delivered twice             15",
		"is busy once":   "  asked to come back          1",
	} {
		out, err := play(t, Options{URL: newFake(t, fault).url})
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("a service that %s: %v, after:\n%s", fault, err, out)
		}
	}
}

func TestWhateverIsNotAsItShouldBeIsToldInASentence(t *testing.T) {
	for fault, want := range map[string]string{
		"not ready":                      "not as a kindred that is ready: GET /readyz was answered with 503, not 200 (not_ready: It cannot be.)",
		"takes forged tokens":            "a forged token was not refused",
		"publishes no keys":              `0 published keys have its kid "login"`,
		"signs with EdDSA":               "the server's token is signed with EdDSA, not ES256",
		"may not reach this machine":     "KINDRED_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8",
		"refuses imports at once":        "POST /api/v1/users/import was answered with 413",
		"loses a line":                   "60 people were sent, but 59 came in",
		"refuses a line":                 "1 of 60 people were refused",
		"explains wrongly":               "adds up to",
		"delivers nothing":               "10 of 10 events did not arrive within 200ms",
		"delivers another score":         "was delivered with the score 0.123",
		"delivers for another client":    "a delivery is of the client cli_2",
		"delivers a field too many":      "the data has the fields client_id, external_id,",
		"delivers what nobody asked for": "was delivered, but nobody asked for it",
		"delivers while paused":          "while the subscription was paused, but delivered",
		"hides what a pause hid":         "10 events were pulled, where 13 were delivered and 3 hidden by the pause",
		"pulls what was told twice":      "was pulled twice",
		"miscounts a segment":            "people are in the segment",
		"keeps who has left":             "lost its traits, but the segment tells",
		"signs with another secret":      "the signature is not that of the body",
		"forgets a change":               "but the user is now",
		"exhausts a budget twice":        "campaign.budget_exhausted of cam_1 happened once, but was told as two events",
		"gives another reason":           `clustering.failed says "Nobody."`,
		"feeds people themselves":        "whose it is or who has seen it",
		"feeds no campaign":              "does not show the campaign",
		"takes spend after the end":      "a campaign that has spent its budget",
		"miscounts engagement":           "the engagement rate of 2 in 5 is said to be 0.9",
		"still finds the erased":         "the user can still be found",
		"still lists the erased match":   "is still in the list of matches",
		"still matches the erased":       "the erased user was matched again",
	} {
		t.Run(fault, func(t *testing.T) {
			o := Options{URL: newFake(t, fault).url}
			if fault == "delivers nothing" {
				o.Patience = 200 * time.Millisecond
			}
			out, err := play(t, o)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a service that %s ends the demo with %v, which does not say %q; after:\n%s", fault, err, want, out)
			}
			if strings.Contains(out, "All as it should be") {
				t.Error("the story claims success")
			}
		})
	}
}

func TestAFailedStoryLeavesNoSubscriptionBehind(t *testing.T) {
	f := newFake(t, "explains wrongly")
	if _, err := play(t, Options{URL: f.url}); err == nil {
		t.Fatal("the demo did not fail")
	}
	if f.webhook != nil {
		t.Error("the subscription was left behind")
	}
}

func TestAnAbsentServiceIsToldFromAnother(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	_, err := play(t, Options{URL: server.URL})
	if err == nil || !strings.Contains(err.Error(), "something answers at "+server.URL) {
		t.Errorf("another service: %v", err)
	}
	server.Close()
	_, err = play(t, Options{URL: server.URL})
	if err == nil || !strings.Contains(err.Error(), "is it running? Start it with: make run") {
		t.Errorf("no service: %v", err)
	}
}

func TestAnAnswerThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer server.Close()
	defer close(end)
	a := newAPI(server.URL, time.Second)
	a.timeout = 20 * time.Millisecond
	err := a.do(t.Context(), request{method: "GET", path: "/slow", want: 200}, nil)
	if err == nil || err.Error() != "GET /slow was not answered within 20ms" {
		t.Errorf("got %v", err)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"is not an http or https URL":   {URL: "localhost:8080"},
		"needs from 10 to 100,000":      {URL: "http://127.0.0.1:1", Users: 9},
		"speak of a file":               {URL: "http://127.0.0.1:1", Users: 20, ID: "name"},
		"no such file":                  {URL: "http://127.0.0.1:1", CSV: "/nowhere/people.csv"},
		"names the column \"surname\",": {URL: "http://127.0.0.1:1", CSV: write(t, "name,age\n"), ID: "surname"},
		"but there are 1":               {URL: "http://127.0.0.1:1", CSV: write(t, "name,age\nada,36\n")},
	} {
		if _, err := play(t, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, which does not say %q", o, err, want)
		}
	}
}

func TestAnInterruptEndsTheWait(t *testing.T) {
	f := newFake(t, "delivers nothing")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Run(ctx, Options{URL: f.url, Users: 60, Out: interrupter{"What the receiver got", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the demo ended with %v, not as it was interrupted", err)
	}
}

// interrupter interrupts when it is written a text.
type interrupter struct {
	at        string
	interrupt func()
}

func (i interrupter) Write(text []byte) (int, error) {
	if strings.Contains(string(text), i.at) {
		i.interrupt()
	}
	return len(text), nil
}

func TestTheCommandPlaysTheStory(t *testing.T) {
	var out strings.Builder
	environment := map[string]string{}
	run := func(args ...string) error {
		c := Command(func(name string) string { return environment[name] })
		c.SetArgs(args)
		c.SetOut(&out)
		c.SetErr(&out)
		return c.ExecuteContext(t.Context())
	}
	path := write(t, "name, age, plan\n"+strings.Repeat("ada, 36, pro\nbob, 25, free\n", 6))
	if err := run("--url", newFake(t, "").url, "--csv", path, "--ignore", "name,plan", "--limit", "11"); err != nil {
		t.Fatalf("%v, after:\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "11 people, of people.csv.") {
		t.Errorf("not the people of the file:\n%s", &out)
	}
	environment["KINDRED_URL"] = newFake(t, "").url
	out.Reset()
	if err := run("--users", "20"); err != nil || !strings.Contains(out.String(), environment["KINDRED_URL"]) {
		t.Errorf("at the KINDRED_URL: %v, after:\n%s", err, &out)
	}
	delete(environment, "KINDRED_URL")
	if err := run("--csv", path, "--users", "20"); err == nil || !strings.Contains(err.Error(), "csv users") {
		t.Errorf("people of a file and made-up ones at once: %v", err)
	}
}
