package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kindred/app"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

func TestAReplicaTakesOverFromOneThatIsKilled(t *testing.T) {
	t.Parallel()
	first := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	f := openApp(t, first.Config)
	followers := waitForLeaders(t, f, first)
	second := startProcess(t, impatient, replicaOf(first.service))

	storm := newStorm(t, second.service, 2)
	reader := second.signUp()
	storm.blow()
	storm.acknowledged(20)
	first.kill()
	killed := time.Now()
	user := want[httpapi.User](t, 201, insist(t, func() answer {
		return reader.send("POST", "/api/v1/users", map[string]any{"external_id": "late"}, idempotent("late"))
	}))
	listed := want[httpapi.UserList](t, 200, insist(t, func() answer { return reader.get("/api/v1/users") }))
	if len(listed.Data) != 1 || listed.Data[0].ID != user.ID {
		t.Errorf("a list without what was acknowledged before: %+v", listed)
	}
	fresh := time.Since(killed)
	if n := waitForLeaders(t, f, second); n != followers {
		t.Errorf("%d are led, %d were before", n, followers)
	}
	if took := time.Since(killed); took > 8*time.Second {
		t.Errorf("the other replica led everything after %s only", took)
	} else {
		t.Logf("lists were fresh %s after the kill, everything was led after %s", fresh.Round(time.Millisecond), took.Round(time.Millisecond))
	}
	storm.acknowledged(20)
	storm.calm()
	storm.audit(f, second.service)
}

// waitForLeaders waits until a process leads whatever can be led, and says how
// much that is.
func waitForLeaders(t testing.TB, f *app.App, p *process) (n int) {
	t.Helper()
	pid := fmt.Sprintf("/%d", p.cmd.Process.Pid)
	testkit.Eventually(t, "process "+pid+" leads everything", func() bool {
		statuses, err := projector.List(t.Context(), f.Pool)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statuses {
			if !strings.HasSuffix(s.Leader, pid) {
				return false
			}
		}
		n = len(statuses)
		return n > len(projections.All())
	})
	return n
}
