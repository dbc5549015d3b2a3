package e2e

import (
	"os"
	"testing"
	"time"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// onEventStore keeps the log in an event store, and the rest in a fresh database.
func onEventStore(t *testing.T, server interface{ URL() string }) func(*app.Config) {
	t.Helper()
	url := pgtest.URL(t)
	return func(c *app.Config) {
		impatient(c)
		c.DatabaseURL, c.EventStoreURL = url, server.URL()
	}
}

func TestOnAnEventStoreTheServiceKeepsItsPromises(t *testing.T) {
	t.Parallel()
	s := startService(t, onEventStore(t, esdbtest.StartNode(t)))
	inbox := openInbox(t)
	a := s.signUp()
	a.subscribe(inbox.URL+"/steady", stormSecret)
	traits := map[string]any{"town": "Ghent"}
	one := a.createUser("one", traits)
	for n := range 50 { // each list is read right after the write that it must show
		user := a.createUser(string(rune('A'+n)), traits)
		listed := each[httpapi.User](t, a, "/api/v1/users", 20)
		if len(listed) != n+2 || listed[n+1].ID != user.ID {
			t.Fatalf("%d users are listed after %d were created", len(listed), n+2)
		}
	}
	found := want[httpapi.ComputedMatches](t, 200, a.send("POST", "/api/v1/users/"+string(one.ID)+"/matches", nil))
	if len(found.Data) != 20 {
		t.Fatalf("%d matches", len(found.Data))
	}
	testkit.Eventually(t, "all matches are delivered", func() bool { return len(inbox.all()) == len(found.Data) })

	s.stop()
	s = startService(t, replicaOf(s), impatient)
	testkit.Eventually(t, "it is ready", func() bool { return s.send("GET", "/readyz", nil).Status == 200 })
	if listed := each[httpapi.User](t, a.at(s), "/api/v1/users", 20); len(listed) != 51 {
		t.Errorf("%d users after the restart", len(listed))
	}
	if again := len(inbox.all()); again != len(found.Data) {
		t.Errorf("%d deliveries after the restart", again)
	}
}

// TestOnAnEventStoreNothingIsLost cuts connections, changes leaders, kills
// nodes and leaves appends without an answer, all in a storm.
func TestOnAnEventStoreNothingIsLost(t *testing.T) {
	t.Parallel()
	server, troubles := troubled(t)
	s := startService(t, onEventStore(t, server))
	storm := newStorm(t, s, 4)
	storm.blow()
	for _, trouble := range troubles {
		storm.acknowledged(10 + storm.random.IntN(30))
		trouble()
	}
	storm.acknowledged(20)
	storm.calm()
	f := openApp(t, s.Config)
	storm.audit(f, s)
	caughtUp(t, f)
	s.stop()
	checkRebuilt(t, f)
	storm.checkSecond(s.Config)
}

// troubled starts a cluster, or a real server of one node, and says what may
// befall it.
func troubled(t *testing.T) (server interface{ URL() string }, troubles []func()) {
	t.Helper()
	if os.Getenv(esdbtest.EnvServer) != "" {
		server := esdbtest.StartNode(t).(*esdbtest.Process)
		restart := func() { server.Restart(t) }
		silence := func(d time.Duration) { server.Pause(); time.Sleep(d); server.Resume() }
		return server, []func(){
			server.Cut,
			restart,
			func() { silence(2 * time.Second) },
			func() { server.Cut(); silence(100 * time.Millisecond); server.Cut() },
			func() { silence(8 * time.Second) },
			func() { server.Cut(); restart(); server.Cut() },
		}
	}
	cluster, leader := esdbtest.StartCluster(t, 3), 0
	return cluster, []func(){
		cluster.Cut,
		func() { leader = 1; cluster.Elect(leader) },
		cluster.DropSubscriptions,
		func() { cluster.Play(esdbtest.Refused, esdbtest.Lost, esdbtest.Lost, esdbtest.Refused) },
		func() { cluster.Kill(leader); leader = 2; cluster.Elect(leader) },
		func() { cluster.Return(t, 1); cluster.Cut() },
		func() { cluster.Play(esdbtest.Lost); cluster.Cut(); cluster.Elect(0) },
	}
}

func TestOnAnEventStoreAServiceThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	p := startProcess(t, onEventStore(t, esdbtest.StartNode(t)))
	f := openApp(t, p.Config)
	storm := newStorm(t, p.service, 3)
	storm.blow()
	for range 2 {
		storm.acknowledged(20 + storm.random.IntN(40))
		p.kill()
		callersGone(t, f)
		p.start()
		p.serving()
	}
	storm.acknowledged(20)
	storm.calm()
	storm.audit(f, p.service)
	checkRebuilt(t, f)
}

func TestOnAnEventStoreManyGoOutManyAtOnce(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	s := startService(t, onEventStore(t, server))
	a := s.signUp()
	layer := a.createLayer("age")
	server.Late(300*time.Millisecond, 10*time.Second) // many times what a loaded machine takes to make 64
	for _, step := range []struct {
		what string
		work func()
	}{
		{"import", func() { a.importUsers(500, func(int) string { return `{"age":1}` }) }},
		{"grants", func() { a.grantAll(layer) }},
	} {
		server.Calls()
		step.work()
		if peak, exhausted := server.Calls(); peak < 48 || exhausted > 0 {
			t.Errorf("%s: %d calls at once, %d were too many; want some 64, and none", step.what, peak, exhausted)
		}
	}
}
