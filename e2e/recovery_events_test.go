package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/app"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// Pull, stream and webhooks tell the same events, under the same ids: none is
// missed, none comes twice over pull or a resumed stream, and none out of order,
// although services and the database are killed, the read model is built anew, and
// the keys that signed all tokens are taken back.
func TestPullAndStreamTellWhatWebhooksToldOverKillsAndARebuild(t *testing.T) {
	t.Parallel()
	database := pgtest.Durable(t)
	s := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL = database.URL() })
	second := startProcess(t, impatient, replicaOf(s.service))
	p := newPairs(s.service)
	r := receive(t, 200)
	p.subscribe(r.URL, "")

	const callers, each = 4, 40
	var done atomic.Int32
	session := &login{pairs: p, token: p.Token}
	stop, streamed := make(chan struct{}), make(chan []string, 1)
	go func() { streamed <- session.resumed([]*service{s.service, second.service}, callers*each, stop) }()
	disturbed := make(chan struct{})
	go func() {
		defer close(disturbed)
		reached := func(n int32) {
			for end := time.Now().Add(patience); done.Load() < n && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		reached(callers * each / 5)
		s.kill()
		s.start()
		s.serving()
		reached(callers * each * 2 / 5)
		database.Kill()
		database.Restart()
		s.serving()
		reached(callers * each / 2)
		if _, err := tool(t, s.Config, "keys", "rotate", "--leaked"); err != nil {
			t.Errorf("rotate: %v", err)
		}
		reached(callers * each * 3 / 5)
		second.kill()
		reached(callers * each * 4 / 5)
		if _, err := tool(t, s.Config, "projections", "rebuild", "public_events"); err != nil {
			t.Errorf("rebuild: %v", err)
		}
	}()
	together(callers, func(i int) struct{} {
		for n := range each {
			key := idempotent(fmt.Sprintf("match %d of %d", n, i))
			for end := time.Now().Add(patience); ; {
				got, err := session.try("POST", "/api/v1/users/ext:ann/matches", map[string]string{"matched_user_id": "ext:bob"}, key)
				if err == nil && got.Status == http.StatusOK {
					break
				}
				if time.Now().After(end) {
					t.Errorf("%v: %d %.200s", err, got.Status, got.Body)
					return struct{}{}
				}
				time.Sleep(5 * time.Millisecond) // leaves the others the machine
			}
			done.Add(1)
		}
		return struct{}{}
	})
	<-disturbed

	pushed := map[string]bool{}
	for len(pushed) < callers*each {
		pushed[r.next(t).Header.Get("Webhook-Id")] = true
	}
	var all []string
	for after := ""; ; {
		var page pulled
		testkit.Eventually(t, "a page can be read", func() bool {
			got, err := session.try("GET", "/api/v1/events?limit=7"+after, nil)
			if err != nil || got.Status != http.StatusOK {
				return false
			}
			page = want[pulled](t, http.StatusOK, got)
			return true
		})
		for _, e := range page.Data {
			all = append(all, idOf(t, e))
		}
		if !page.HasMore {
			break
		}
		after = "&after=" + *page.LastID
	}
	if len(all) != callers*each {
		t.Errorf("%d are pulled of %d", len(all), callers*each)
	}
	for _, one := range all {
		if !pushed[one] {
			t.Errorf("%s was pulled, and not pushed", one)
		}
	}
	var got []string
	select {
	case got = <-streamed:
	case <-time.After(patience):
		close(stop)
		got = <-streamed
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("pulled and streamed, in order (-+): %s", diff)
	}
}

// login logs in again where its token is refused.
type login struct {
	pairs

	mu    sync.Mutex
	token httpapi.Token
}

func (l *login) bearer() httpapi.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// renew logs in, unless another has since a token was refused.
func (l *login) renew(refused httpapi.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != refused {
		return
	}
	got, err := l.pairs.try("POST", "/auth/token", map[string]string{"email": l.Email, "password": l.Password})
	if err == nil && got.Status == http.StatusOK {
		l.token = decoded[httpapi.LoggedIn](l, got).Token
	}
}

func (l *login) try(method, path string, body any, options ...option) (answer, error) {
	token := l.bearer()
	got, err := l.pairs.try(method, path, body, append(options, bearer(token))...)
	if err == nil && got.Status == http.StatusUnauthorized {
		l.renew(token)
	}
	return got, err
}

// resumed follows a client at one service after the other, each time behind the
// last id, until it was told n events.
func (l *login) resumed(services []*service, n int, stop chan struct{}) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		select {
		case <-stop:
			return ids
		default:
		}
		token := l.bearer()
		options := []option{bearer(token)}
		if len(ids) > 0 {
			options = append(options, header("Last-Event-ID", ids[len(ids)-1]))
		}
		s, err := l.at(services[i%len(services)]).tryStream("", options...)
		if err == nil && s.Response.StatusCode == http.StatusUnauthorized {
			l.renew(token)
		}
		if err != nil {
			time.Sleep(5 * time.Millisecond) // leaves the others the machine
			continue
		}
		for open := true; open && len(ids) < n; {
			select {
			case one, ok := <-s.came:
				if open = ok; ok {
					ids = append(ids, one.id)
				}
			case <-stop:
				return ids
			}
		}
	}
	return slices.Clip(ids)
}
