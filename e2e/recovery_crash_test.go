package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kindred/app"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// impatient makes failed deliveries be tried again soon, and those that died
// with their process as soon as a lease allows.
func impatient(c *app.Config) {
	c.RetryDelays = []time.Duration{
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
	}
	c.WebhookTimeout = time.Second
}

func TestAServiceThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	p := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	f := openApp(t, p.Config)
	storm := newStorm(t, p.service, 4)
	storm.blow()
	for _, whileStarting := range []bool{false, true, false, false, true, false} {
		if !whileStarting {
			storm.acknowledged(20 + storm.random.IntN(80))
		}
		p.kill()
		callersGone(t, f)
		p.start()
		if whileStarting {
			<-time.After(time.Duration(storm.random.IntN(400)) * time.Millisecond) // how far it has come is the point
		} else {
			p.serving()
		}
	}
	p.serving()
	storm.acknowledged(20)
	storm.calm()
	storm.audit(f, p.service)
	caughtUp(t, f)
	p.stop()
	checkRebuilt(t, f)
	storm.checkSecond(p.Config)
}

// checkSecond checks that a kindred which is built from the log of a storm is
// equal to the one that went through it, serves the same and delivers nothing.
func (s *storm) checkSecond(c app.Config) {
	s.Helper()
	delivered := len(s.inbox.all())
	second := checkReplayed(s, c)
	t := startService(s, impatient, func(c *app.Config) {
		c.DatabaseURL, c.MasterKey, c.EpochDir = second.DatabaseURL, second.MasterKey, second.EpochKeys()
	})
	for _, c := range s.clients {
		c.account = c.logIn(t)
		c.read()
	}
	t.stop()
	if now := len(s.inbox.all()); now != delivered {
		s.Errorf("%d deliveries became %d", delivered, now)
	}
}

func TestAServiceOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	database := pgtest.Durable(t)
	s := startService(t, impatient, func(c *app.Config) { c.DatabaseURL = database.URL() })
	storm := newStorm(t, s, 4)
	storm.blow()
	for range 3 {
		storm.acknowledged(20 + storm.random.IntN(80))
		database.Kill()
		for _, path := range []string{"/readyz", "/api/v1/users", storm.clients[0].under("/webhooks")} {
			began := time.Now()
			a, err := storm.clients[0].try("GET", path, nil)
			if took := time.Since(began); err != nil || a.Status != http.StatusServiceUnavailable || took > 6*time.Second {
				t.Errorf("GET %s without a database: %v %d after %s: %s", path, err, a.Status, took, a.Body)
			}
		}
		if a := s.send("GET", "/healthz", nil); a.Status != http.StatusOK {
			t.Errorf("it is not alive: %d %s", a.Status, a.Body)
		}
		database.Restart()
		testkit.Eventually(t, "it is ready again", func() bool { return s.send("GET", "/readyz", nil).Status == http.StatusOK })
		callersGone(t, openApp(t, s.Config))
	}
	storm.acknowledged(20)
	storm.calm()
	f := openApp(t, s.Config)
	storm.audit(f, s)
	s.stop()
	checkRebuilt(t, f)
}

func TestAServiceEndsWithItsPrivateDatabaseAndTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	dir := pgtest.Dir(t)
	p := startProcess(t, impatient, func(c *app.Config) { c.DataDir = dir })
	storm := newStorm(t, p.service, 2)
	storm.blow()
	storm.acknowledged(60)
	note, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(note), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if state := p.wait(); state.Success() {
		t.Error("it ended as if all was well")
	}
	if said := p.said(); !strings.Contains(said, fmt.Sprintf("kindred: the local database has ended: the local PostgreSQL (pid %d) ended by itself", pid)) {
		t.Errorf("it does not say why it ended:\n%s", said)
	}

	p.start()
	p.serving()
	callersGone(t, openApp(t, p.Config))
	storm.acknowledged(20)
	p.kill() // and its database with it
	p.start()
	p.serving()
	f := openApp(t, p.Config)
	callersGone(t, f)
	storm.calm()
	storm.audit(f, p.service)
	checkRebuilt(t, f)
}

// An import that was accepted is applied to its end by whoever comes after.
func TestAnAcceptedImportOutlivesAKill(t *testing.T) {
	t.Parallel()
	p := startProcess(t, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	a := p.signUp()
	const users = 4_000
	var body strings.Builder
	for n := range users {
		fmt.Fprintf(&body, `{"external_id":"u%d","traits":{"about":"%s"}}`+"\n", n, strings.Repeat("x", 600))
	}
	accepted := want[httpapi.Import](t, http.StatusAccepted, a.send("POST", "/api/v1/users/import?async=true", body.String(), ndjson))
	testkit.Eventually(t, "a part of it is applied", func() bool {
		i := want[httpapi.Import](t, http.StatusOK, a.get("/api/v1/users/imports/"+string(accepted.ID)))
		return i.LinesDone > 0
	})
	p.kill()
	p.start()
	p.serving()
	done := a.imported(accepted.ID)
	if done.Status != httpapi.ImportCompleted || done.LinesDone != users || done.Created+done.Updated != users || done.Failed != 0 {
		t.Errorf("%+v", done)
	}
	if got := each[httpapi.User](t, a, "/api/v1/users", 200); len(got) != users {
		t.Errorf("%d users are there, want %d", len(got), users)
	}
}
