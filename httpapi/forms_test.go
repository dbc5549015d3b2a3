package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi"
)

// sender sends a form whose end never comes, until it is cut off.
type sender struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (s sender) SetReadDeadline(time.Time) error { close(s.cut); return nil }

// forming is what is served of forms.
type forming struct {
	forms       *httpapi.Forms
	served, cut atomic.Int32
	waits       sync.WaitGroup
}

// send sends a form of so many bytes, which comes as slowly as is said.
func (f *forming) send(from string, size int, long time.Duration) error {
	r := httptest.NewRequest(http.MethodPost, "/console/users", strings.NewReader(strings.Repeat("a", size)))
	r.RemoteAddr = from + ":1"
	w := sender{httptest.NewRecorder(), make(chan struct{})}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // as net/http looks at it
			f.cut.Add(1)
		}
	}()
	return f.forms.During(w, r, func() {
		f.served.Add(1)
		select {
		case <-w.cut:
		case <-time.After(long):
		}
	})
}

func newForming(t *testing.T) *forming {
	t.Helper()
	f := &forming{forms: new(httpapi.Forms)}
	newEdge(t, func(o *httpapi.Options) { o.Forms = f.forms })
	return f
}

const largeForm = 1 << 20

// Anybody may send a form, which a page holds in memory: a network has four large ones at a time.
func TestLargeFormsOfANetworkAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForming(t)
		defer f.waits.Wait()
		for range 4 {
			f.waits.Go(func() { _ = f.send("192.0.2.1", largeForm, time.Minute) })
		}
		synctest.Wait()
		if err := f.send("192.0.2.1", largeForm, 0); !fault.Of(err, fault.Unavailable) || f.served.Load() != 4 {
			t.Errorf("a fifth: %v, of %d", err, f.served.Load())
		}
		if err := f.send("192.0.2.1", 4<<10, 0); err != nil {
			t.Errorf("a small one: %v", err)
		}
		if err := f.send("192.0.2.2", largeForm, 0); err != nil {
			t.Errorf("one of another network: %v", err)
		}
	})
}

func TestALargeFormThatLastsGivesWayToAnotherNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForming(t)
		defer f.waits.Wait()
		for n := range 16 {
			f.waits.Go(func() { _ = f.send("192.0.2."+strconv.Itoa(1+n%4), largeForm, time.Minute) })
		}
		time.Sleep(time.Second)
		if err := f.send("198.51.100.1", largeForm, 0); err != nil || f.served.Load() != 17 || f.cut.Load() != 1 {
			t.Errorf("%v, %d were served and %d cut off", err, f.served.Load(), f.cut.Load())
		}
	})
}
