package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kindred/app"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestReadsNeverGoToAStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Durable(t)
	standby := primary.Standby("recovery_min_apply_delay = '1h'") // what it shows is old
	s := startService(t, func(c *app.Config) { c.DatabaseURL = standby.Behind(primary.URL()) })
	a := s.signUp()
	made := 0
	// create creates a user, and reads it back where that was acknowledged.
	create := func() (wrote, read int) {
		made++
		name := fmt.Sprintf("user-%d", made)
		answered, err := a.try("POST", "/api/v1/users", map[string]any{"external_id": name})
		if err != nil || answered.Status != http.StatusCreated {
			return answered.Status, 0
		}
		found, err := a.try("GET", "/api/v1/users/ext:"+name, nil)
		if err != nil || found.Status == http.StatusNotFound {
			t.Fatalf("what was just created is not there: %v %s", err, found.Body)
		}
		return answered.Status, found.Status
	}
	if wrote, read := create(); wrote != http.StatusCreated || read != http.StatusOK {
		t.Fatalf("at first: %d, %d", wrote, read)
	}
	primary.Kill()
	for range 4 { // meanwhile the connections of before are found broken
		together(20, func(int) any {
			if read, err := a.try("GET", "/api/v1/users/ext:user-1", nil); err != nil || read.Status != http.StatusServiceUnavailable {
				t.Errorf("while the primary is away: %v, %d %s", err, read.Status, read.Body)
			}
			return nil
		})
	}
	primary.Restart()
	streak := 0
	testkit.Eventually(t, "it writes and reads as before", func() bool {
		wrote, read := create()
		if streak++; wrote != http.StatusCreated || read != http.StatusOK {
			streak = 0
		}
		return streak == 50
	})
}

func TestASpendIsNotAcknowledgedThatTheStandbyLacks(t *testing.T) {
	t.Parallel()
	primary := pgtest.Durable(t)
	standby := primary.Standby()
	s := startService(t, func(c *app.Config) { c.DatabaseURL = primary.URL() })
	replicas := []*service{s, startService(t, replicaOf(s))} // the second knows of it from the log alone
	a := s.signUp()
	c := a.run(map[string]any{"budget_minor": 1000})
	spend := func(at *service) chan int {
		answered := make(chan int, 1)
		go func() {
			answer, _ := a.at(at).try("POST", "/api/v1/campaigns/"+string(c.ID)+"/spend", map[string]any{"spend_id": "s", "amount_minor": 1})
			answered <- answer.Status
		}()
		return answered
	}
	standby.Await(primary)
	standby.Stop()
	database := s.database()
	const breakOff = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	for i := range 3 {
		answered := spend(replicas[i%2])
		for answer := 0; answer == 0; {
			if _, err := database.Exec(t.Context(), breakOff); err != nil {
				t.Fatal(err)
			}
			select {
			case answer = <-answered:
				if answer != http.StatusServiceUnavailable {
					t.Fatalf("try %d, without the standby: %d", i, answer)
				}
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	standby.Start()
	testkit.Eventually(t, "the spend is acknowledged with the standby back", func() bool { return <-spend(s) == http.StatusCreated })
}

func TestNothingIsDerivedUnderAKeyThatWasLost(t *testing.T) {
	t.Parallel()
	primary := pgtest.Durable(t)
	standby := primary.Standby()
	s := startService(t, func(c *app.Config) { c.DatabaseURL = standby.Behind(primary.URL()) })
	a := s.signUp()
	standby.CatchUp(primary)
	standby.Stop()
	a.createUser("lost", nil) // and with it the client's pepper
	primary.Kill()
	standby.Start()
	standby.Promote()
	testkit.Eventually(t, "users are created on the promoted standby", func() bool {
		answer, err := a.try("POST", "/api/v1/users", map[string]any{"external_id": "kept"})
		return err == nil && answer.Status == http.StatusCreated
	})
	if !strings.Contains(s.Logs.String(), "the database is on another server") {
		t.Error("the log does not tell of it")
	}
	replica := startService(t, replicaOf(s))
	if found := a.at(replica).get("/api/v1/users/ext:kept"); found.Status != http.StatusOK {
		t.Errorf("another process finds %d %s", found.Status, found.Body)
	}
}
