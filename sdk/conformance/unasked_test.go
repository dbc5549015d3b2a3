package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What is on the way may lose step: each answer would be that of the request before. So an SDK
// ends the connection. In Go, net/http does once the connection is idle, and a request that
// follows within microseconds may be sooner: the test waits for the end.
func TestAnAnswerThatNobodyAskedForAnswersNothing(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		ended := make(chan struct{}, 1)
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			conn, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer func() {
				_ = conn.Close()
				ended <- struct{}{}
			}()
			for { // as the server of a connection
				id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				for _, one := range []string{id, "usr_unasked"} {
					body := strings.Replace(user, "usr_1", one, 1)
					fmt.Fprintf(buffered, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				}
				if buffered.Flush() != nil {
					return
				}
				if r, err = http.ReadRequest(buffered.Reader); err != nil {
					return
				}
			}
		})
		d.client("c", s.URL, command{"token": tokenOf(1)})
		for i := range 5 {
			id := fmt.Sprintf("usr_%d", i)
			if out := d.must("c", "users.get", command{"path": []string{id}}); field[string](t, out.Value, "id") != id {
				t.Errorf("%s was asked for, %s came", id, out.Value)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the connection goes on")
			}
		}
	})
}
