package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/id"
	"kindred/httpapi"
)

// crowd is an edge that is called by many clients, in a bubble.
type crowd struct {
	*edge
	t *testing.T
}

func crowded(t *testing.T) crowd {
	t.Helper()
	e := newEdge(t, func(o *httpapi.Options) {
		o.Known = func(bearer string) id.Client { return id.Client(bearer) } // all but those that have no token
	})
	e.service.imports = func(_ context.Context, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	return crowd{e, t}
}

func client(n int) string { return "cli_" + strconv.Itoa(n) }

// begin sends a part of a request, whose answer comes when it comes.
func (c crowd) begin(from, method, path, headers, part string) (net.Conn, <-chan int) {
	c.t.Helper()
	conn, status := serveOne(c.t, c.edge), make(chan int, 1)
	go func() {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			status <- 0
			return
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		status <- answer.StatusCode
	}()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n%s", method, path, from, headers, part)
	synctest.Wait()
	return conn, status
}

// send sends a whole request.
func (c crowd) send(from, method, path, contentType, body string) int {
	c.t.Helper()
	_, status := c.begin(from, method, path, fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", contentType, len(body)), body)
	return <-status
}

// lasts takes its time, unless the caller goes away.
func lasts(ctx context.Context, long time.Duration) {
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
}

const (
	slowLines = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
	asLines   = "application/x-ndjson"
	asJSON    = "application/json"
)

func TestSlowImportsOfFewClientsLeaveRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		for n := range 7 {
			for range 32 {
				c.begin(client(n), "POST", users+"/import", slowLines, "1\r\n\n\r\n")
			}
		}
		if got := c.send(client(7), "POST", users+"/import", asLines, "{}\n"); got != http.StatusOK {
			t.Errorf("the import of another: %d", got)
		}
	})
}

// A client and its sandboxes have one share of what is shared fairly.
func TestSandboxesTakeNoMoreThanTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		source := id.Derived("owner")
		owner := id.Next[id.Client](source)
		statuses := make([]<-chan int, 24)
		for n := range statuses {
			from := owner
			if n%3 > 0 {
				from = id.NextSandbox(source, owner)
			}
			_, statuses[n] = c.begin(string(from), "POST", users+"/import", slowLines, "1\r\n\n\r\n")
		}
		let := 0 // which break off, since nothing more comes
		for _, status := range statuses {
			if <-status != http.StatusServiceUnavailable {
				let++
			}
		}
		if let > 8 {
			t.Errorf("%d imports of a client and its sandboxes go on", let)
		}
	})
}

func TestTheSlowestImportGivesWayWhereAllPlacesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		slow := make([]<-chan int, 64)
		for n := range slow {
			_, slow[n] = c.begin(client(n), "POST", users+"/import", slowLines, "1\r\n\n\r\n"+strings.Repeat("3\r\n\n\n\n\r\n", n%8))
		}
		time.Sleep(time.Second)
		if got := c.send(client(64), "POST", users+"/import", asLines, "{}\n"); got != http.StatusOK {
			t.Errorf("the import of another: %d", got)
		}
		ended := 0
		for n, status := range slow {
			select {
			case got := <-status:
				if ended++; got != http.StatusServiceUnavailable || n%8 != 0 {
					t.Errorf("import %d: %d", n, got)
				}
			default:
			}
		}
		if ended != 1 {
			t.Errorf("%d imports were ended", ended)
		}
	})
}

func TestImportsAndExportsEndWithTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Bool
		follows := httpapi.NewFollows(func(_ context.Context, p httpapi.Principal) (bool, error) {
			return revoked.Load() && p.Client == id.Client(client(0)), nil
		}, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go follows.Run(ctx)
		c := crowd{newEdge(t, func(o *httpapi.Options) {
			o.Known, o.Follows = func(bearer string) id.Client { return id.Client(bearer) }, follows
		}), t}
		var took [2]atomic.Int64 // bytes of the imports of two clients
		c.service.imports = func(ctx context.Context, body io.Reader) error {
			of, piece := 0, make([]byte, 100)
			if httpapi.PrincipalFrom(ctx).Client == id.Client(client(1)) {
				of = 1
			}
			for {
				n, err := body.Read(piece)
				took[of].Add(int64(n))
				switch {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil:
					return err
				}
			}
		}
		c.service.export = func(w io.Writer) error {
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<10)); err != nil {
					return err
				}
			}
		}
		import1, answer1 := c.begin(client(0), "POST", users+"/import", slowLines, "3\r\n{}\n\r\n")
		import2, answer2 := c.begin(client(1), "POST", users+"/import", slowLines, "3\r\n{}\n\r\n")
		export := serveOne(t, c.edge)
		fmt.Fprintf(export, "GET /api/v1/clients/%s/history HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %[1]s\r\nAccept: %s\r\n\r\n", client(0), asLines)
		answer, err := http.ReadResponse(bufio.NewReader(export), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		time.Sleep(20 * time.Second)
		revoked.Store(true)
		time.Sleep(time.Second)
		fmt.Fprint(import1, "3\r\n{}\n\r\n")
		fmt.Fprint(import2, "3\r\n{}\n\r\n0\r\n\r\n")
		if one, other := <-answer1, <-answer2; one != http.StatusUnauthorized || other != http.StatusOK {
			t.Errorf("the imports were answered %d and %d", one, other)
		}
		if one, other := took[0].Load(), took[1].Load(); one != 3 || other != 6 {
			t.Errorf("%d and %d bytes were taken", one, other)
		}
		if n, err := io.Copy(io.Discard, answer.Body); err == nil || n > 1<<20 {
			t.Errorf("%d bytes of the export came, %v", n, err)
		}
	})
}

// Its body has come whole, so that net/http watches the connection.
func TestAnImportThatIsAppliedSaysThatItsTokenHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follows := httpapi.NewFollows(func(context.Context, httpapi.Principal) (bool, error) { return true, nil }, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := crowd{newEdge(t, func(o *httpapi.Options) {
			o.Known, o.Follows = func(bearer string) id.Client { return id.Client(bearer) }, follows
		}), t}
		c.service.imports = func(ctx context.Context, body io.Reader) error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("apply: %w", ctx.Err())
		}
		_, answer := c.begin(client(0), "POST", users+"/import", slowLines, "3\r\n{}\n\r\n0\r\n\r\n")
		synctest.Wait()
		go follows.Run(ctx)
		if status := <-answer; status != http.StatusUnauthorized {
			t.Errorf("answered %d", status)
		}
	})
}

// Where the tokens of one client take long to look up, those of another are ended all the same.
func TestOneClientsTokensKeepNobodyElsesFromEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follows := httpapi.NewFollows(func(ctx context.Context, p httpapi.Principal) (bool, error) {
			if p.Client != id.Client(client(0)) {
				return true, nil
			}
			<-ctx.Done()
			return false, nil
		}, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := crowd{newEdge(t, func(o *httpapi.Options) {
			o.Known, o.Follows = func(bearer string) id.Client { return id.Client(bearer) }, follows
		}), t}
		c.service.imports = func(_ context.Context, body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		}
		_, _ = c.begin(client(0), "POST", users+"/import", slowLines, "3\r\n{}\n\r\n")
		synctest.Wait()
		go follows.Run(ctx)
		time.Sleep(time.Second)
		_, answer := c.begin(client(1), "POST", users+"/import", slowLines, "3\r\n{}\n\r\n")
		select {
		case status := <-answer:
			if status != http.StatusUnauthorized {
				t.Errorf("the import of a token that has ended: %d", status)
			}
		case <-time.After(time.Second):
			t.Error("the import of a token that has ended goes on")
		}
	})
}

func TestASlowExportGivesWayToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		c.service.export = func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
			return err
		}
		conns := make([]net.Conn, 64)
		for n := range conns {
			conns[n] = serveOne(t, c.edge)
			fmt.Fprintf(conns[n], "GET /api/v1/clients/%s/history HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %[1]s\r\nAccept: %s\r\n\r\n", client(n), asLines)
		}
		time.Sleep(time.Second)
		if got := c.send(client(64), "POST", users+"/import", asLines, "{}\n"); got != http.StatusOK {
			t.Errorf("the import of another: %d", got)
		}
		cut := 0
		for _, conn := range conns {
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			if err != nil {
				cut++
			}
		}
		if cut != 1 {
			t.Errorf("%d exports were cut", cut)
		}
	})
}

func TestSlowBodiesOfFewClientsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		large := `{"external_id":"a","traits":{"much":"` + strings.Repeat("x", 8<<10) + `"}}`
		head := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(large))
		for n := range 9 {
			for range 128 {
				c.begin(client(n), "POST", users, head, large[:1])
			}
		}
		time.Sleep(time.Second)
		for range 8 {
			if got := c.send(client(9), "POST", users, asJSON, large); got != http.StatusCreated {
				t.Errorf("a large write of another: %d", got)
			}
			if got := c.send("", "POST", "/auth/token", asJSON, `{"email":"a@example.com","password":"12345678"}`); got != http.StatusUnauthorized {
				t.Errorf("a login: %d", got)
			}
		}
	})
}

func TestSlowReadsOfOneClientLeaveRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		c.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
			if from := httpapi.PrincipalFrom(ctx).Client; from == "cli_0" {
				lasts(ctx, 10*time.Second)
			}
			return nil
		}
		for range 300 {
			c.begin("cli_0", "GET", users, "", "")
		}
		for range 20 {
			if got := c.send("cli_1", "GET", users, asJSON, ""); got != http.StatusOK {
				t.Errorf("a read of another: %d", got)
			}
		}
	})
}

// A read takes longer here than the others would wait in one line.
func TestReadsOfClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		c.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
			lasts(ctx, 100*time.Millisecond)
			return nil
		}
		for n := range 2 {
			for range 300 {
				c.begin(client(n), "GET", users, "", "")
			}
		}
		for n := 2; n < 12; n++ {
			if got := c.send(client(n), "GET", users, asJSON, ""); got != http.StatusOK {
				t.Errorf("a read of client %d: %d", n, got)
			}
		}
	})
}

func TestSlowWaitsOfFewClientsLeaveRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Bool
		c := crowded(t)
		c.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
			if httpapi.PrincipalFrom(ctx).Client == "cli_new" && asked.Swap(true) {
				return nil
			}
			return soon(func(ctx context.Context) error {
				if httpapi.PrincipalFrom(ctx).Client == "cli_new" {
					return nil
				}
				<-ctx.Done()
				return errors.New("it came to nothing")
			})
		}
		for n := range 9 {
			for range 128 {
				c.begin(client(n), "GET", users, "", "")
			}
		}
		time.Sleep(time.Second)
		if got := c.send("cli_new", "GET", users, asJSON, ""); got != http.StatusOK {
			t.Errorf("a read that waits: %d", got)
		}
	})
}

// Reads that hang on a lock, or on a slow statement, of one client and then of
// more: another's is answered without a wait as long as places are left, and within
// the time that anything is tolerated for where none is.
func TestHangingReadsOfClientsLeaveConnectionsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		var held, most atomic.Int32
		c.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
			most.Store(max(most.Load(), held.Add(1)))
			defer held.Add(-1)
			if httpapi.PrincipalFrom(ctx).Client != "cli_new" {
				lasts(ctx, time.Minute)
			}
			return ctx.Err()
		}
		for n, left := range []time.Duration{0, 0, 0, 750 * time.Millisecond} {
			for range 100 {
				c.begin(client(n), "GET", users, "", "")
			}
			began := time.Now()
			for range 20 {
				if got := c.send("cli_new", "GET", users, asJSON, ""); got != http.StatusOK {
					t.Errorf("beside %d clients: %d", n+1, got)
				}
			}
			if waited := time.Since(began); waited > left {
				t.Errorf("beside %d clients it waited for %s", n+1, waited)
			}
		}
		if most.Load() > 20 {
			t.Errorf("%d reads were under way, beyond the connections", most.Load())
		}
	})
}

// Whose place was given to another has not gone away, though its context has ended.
func TestAReadThatHadToGiveWayIsToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		c.service.listUsers = func(ctx context.Context, _ httpapi.ListUsersRequestObject) error {
			if httpapi.PrincipalFrom(ctx).Client != "cli_new" {
				lasts(ctx, 10*time.Second)
			}
			return ctx.Err()
		}
		var statuses []<-chan int
		for n := range 20 { // all places
			_, status := c.begin(client(n), "GET", users, "", "")
			statuses = append(statuses, status)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if got := c.send("cli_new", "GET", users, asJSON, ""); got != http.StatusOK {
			t.Errorf("a read of another: %d", got)
		}
		for n, status := range statuses {
			want := http.StatusOK
			if n == 0 { // the slowest
				want = http.StatusServiceUnavailable
			}
			if got := <-status; got != want {
				t.Errorf("the read of client %d: %d, want %d", n, got, want)
			}
		}
	})
}

// Logins that wait for a core hold nothing that anything else needs.
func TestLoginsKeepNobodyElseOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t)
		hashing := make(chan struct{})
		c.service.logIn = func(context.Context) { <-hashing }
		login := `{"email":"a@example.com","password":"12345678"}`
		head := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(login))
		var logins []<-chan int
		for range 40 {
			_, status := c.begin("", "POST", "/auth/token", head, login)
			logins = append(logins, status)
		}
		for path, want := range map[string]int{"/auth/exchange": http.StatusUnauthorized, users: http.StatusCreated} {
			body := map[string]string{"/auth/exchange": `{"api_key":"kin_live_x"}`, users: `{"external_id":"a"}`}[path]
			if got := c.send("cli_1", "POST", path, asJSON, body); got != want {
				t.Errorf("%s beside logins: %d", path, got)
			}
		}
		close(hashing)
		ended := map[int]int{}
		for _, status := range logins {
			ended[<-status]++
		}
		if ended[http.StatusUnauthorized] != 33 || ended[http.StatusServiceUnavailable] != 7 {
			t.Errorf("%v; want one that hashes and 32 that wait", ended)
		}
	})
}
