package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"kindred/app"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// Whatever many callers do to users through two replicas that are killed and paused, there is
// one order in which each request took effect between its begin and its answer, and in which
// each condition was met and each read and list showed the state as it was then: histories of
// one external id are linearizable (Herlihy and Wing, 1990). A write without an answer may have
// taken effect at any time after, or never.
func TestHistoriesOfUsersAreLinearizable(t *testing.T) {
	t.Parallel()
	first := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	second := startProcess(t, impatient, replicaOf(first.service))
	replicas := []*process{first, second}
	owner := first.signUp()
	random := testkit.Random(t)

	const callers, names, each = 8, 6, 40 // requests of a caller for each name
	records := make([]record, names)
	var done atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		random := rand.New(rand.NewPCG(random.Uint64(), uint64(caller)))
		all.Go(func() {
			for i := range names * each {
				replica := replicas[random.IntN(len(replicas))]
				records[i/each].step(t, replica.service, owner.Token, random, caller, fmt.Sprintf("u%d", i/each))
				done.Add(1)
			}
		})
	}
	for fifth := range 4 {
		testkit.Eventually(t, "a fifth more is done", func() bool { return done.Load() >= int64((fifth+1)*callers*names*each/5) })
		p := replicas[fifth%2]
		if fifth < 2 {
			p.kill()
			p.start()
			p.serving()
			continue
		}
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond) // how much is done by the other meanwhile is the point
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	known, total := 0, 0
	for i := range records {
		r := &records[i]
		for _, o := range r.operations {
			if total++; o.Return != math.MaxInt64 {
				known++
			}
		}
		if result := porcupine.CheckOperationsTimeout(r.model(), r.operations, patience); result != porcupine.Ok {
			t.Errorf("u%d: %s:\n%s", i, result, r)
		}
	}
	t.Logf("%d requests, %d of them answered", total, known)
	if known < callers*names*each/2 {
		t.Errorf("%d of %d requests were answered", known, callers*names*each)
	}
}

// record is the history of one external id. A state is the number that its user has, which no
// other write has set, or 0 where there is no user.
type record struct {
	mu         sync.Mutex
	operations []porcupine.Operation
	last       string         // the newest ETag that was seen
	numbers    map[string]int // of each ETag
}

type operation struct {
	kind   string
	set    int // what a write sets
	tagged int // the number that If-Match names
	status int // 0: without an answer
	got    int // what a read has shown
}

var written atomic.Int64 // numbers, each once

// step sends a request, drawn at random, and notes it.
func (r *record) step(t *testing.T, s *service, token string, random *rand.Rand, caller int, name string) {
	t.Helper()
	r.mu.Lock()
	tag := r.last
	o := operation{set: int(written.Add(1)), tagged: r.numbers[tag]}
	r.mu.Unlock()
	path, method, options := "/api/v1/users/ext:"+name, "GET", []option{bearer(token)}
	var body any = map[string]any{"traits": map[string]any{"n": o.set, "name": name}}
	switch n := random.IntN(20); {
	case n < 3:
		o.kind, method = "put", "PUT"
	case n < 6 && tag != "":
		o.kind, method, options = "put if match", "PUT", append(options, header("If-Match", tag))
	case n < 8:
		o.kind, method, options = "put if none", "PUT", append(options, header("If-None-Match", "*"))
	case n < 10:
		o.kind, method = "patch", "PATCH"
	case n < 11:
		o.kind, method, body = "erase", "DELETE", nil
	case n < 14:
		o.kind, body = "get", nil
	case n < 17:
		o.kind, body, path = "list", nil, "/api/v1/users?external_id="+name
	default:
		o.kind, body, path = "list", nil, "/api/v1/users?filter="+url.QueryEscape(fmt.Sprintf("traits.name == %q", name))
	}
	began := time.Since(historiesBegan)
	a, err := s.try(method, path, body, options...)
	ended := time.Since(historiesBegan)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), method == "GET" && (err != nil || a.Status == http.StatusServiceUnavailable):
		return // nothing was done
	case err != nil || a.Status == http.StatusServiceUnavailable:
		ended = math.MaxInt64
	default:
		o.status = a.Status
		o.got = r.shown(t, o, a)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, porcupine.Operation{ClientId: caller, Input: o, Call: int64(began), Return: int64(ended)})
}

var historiesBegan = time.Now() // their times count from here

// shown is the number that an answer shows; its ETag is of that number alone.
func (r *record) shown(t *testing.T, o operation, a answer) int {
	t.Helper()
	if a.Status >= http.StatusMultipleChoices || a.Status == http.StatusNoContent {
		return 0
	}
	number := func(u httpapi.User) int {
		var traits struct{ N int }
		if err := json.Unmarshal(u.Traits, &traits); err != nil {
			t.Error(err)
		}
		return traits.N
	}
	if o.kind == "list" {
		var page httpapi.UserList
		if err := json.Unmarshal(a.Body, &page); err != nil || len(page.Data) > 1 {
			t.Errorf("%v: %s", err, a.Body)
		}
		if len(page.Data) == 0 {
			return 0
		}
		return number(page.Data[0])
	}
	var user httpapi.User
	if err := json.Unmarshal(a.Body, &user); err != nil {
		t.Errorf("%v: %s", err, a.Body)
	}
	n, tag := number(user), a.Header.Get("ETag")
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, seen := r.numbers[tag]; seen && before != n {
		t.Errorf("the ETag %s is of two states", tag)
	}
	if r.numbers == nil {
		r.numbers = map[string]int{}
	}
	r.numbers[tag], r.last = n, tag
	return n
}

// model says which answers a user may give, by its state.
func (r *record) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(before, input, _ any) (bool, any) {
			now, o := before.(int), input.(operation)
			there, status, next := now != 0, http.StatusOK, now
			switch o.kind {
			case "get":
				if !there {
					status = http.StatusNotFound
				}
				return o.status == status && o.got == now, now
			case "list":
				return o.status == status && o.got == now, now
			case "put", "put if none":
				if next = o.set; !there {
					status = http.StatusCreated
				}
				if there && o.kind == "put if none" {
					status, next = http.StatusPreconditionFailed, now
				}
			case "put if match":
				if next = o.set; !there || now != o.tagged {
					status, next = http.StatusPreconditionFailed, now
				}
			case "patch":
				if next = o.set; !there {
					status, next = http.StatusNotFound, now
				}
			case "erase":
				if status, next = http.StatusNoContent, 0; !there {
					status = http.StatusNotFound
				}
			}
			return o.status == 0 || o.status == status, next
		},
	}
}

// String is a line for each request, with the milliseconds between which it took effect.
func (r *record) String() string {
	var lines strings.Builder
	for _, o := range r.operations {
		fmt.Fprintf(&lines, "%.1f %.1f %+v\n", float64(o.Call)/1e6, float64(o.Return)/1e6, o.Input)
	}
	return lines.String()
}
