package httpapi

import (
	"errors"
	"net/http"
	"net/netip"
	"time"
)

const (
	// limit: classes | forms of the console over {maxAuthBody B}, which networks share | {forms} | {forms / formsParts} | {forms / waitingPart}
	forms      = 16
	formsParts = 4
)

// Forms are the requests of pages that send a large form. A page holds its form several times over, the last time in its
// answer, and anybody may send one. They are a class of their own, which networks share fairly. [Handler] makes its places.
type Forms struct {
	class   *class
	proxies []netip.Prefix
}

// During serves a request while it holds a place, or without one where its body is small. It fails with a fault of kind
// Unavailable where there is none.
// Faults: overloaded.
func (f *Forms) During(w http.ResponseWriter, r *http.Request, serve func()) error {
	if r.ContentLength >= 0 && r.ContentLength <= maxAuthBody {
		serve()
		return nil
	}
	conn := http.NewResponseController(w)
	cuts := cutter{deadline: func(to time.Time) error {
		return errors.Join(conn.SetReadDeadline(to), conn.SetWriteDeadline(to))
	}}
	from := network(caller(host(r.RemoteAddr), r.Header[headerForwardedFor], f.proxies))
	return f.class.during(r.Context(), from, waits(tolerated, cuts.cut), func() error {
		serve()
		if cuts.end() {
			panic(http.ErrAbortHandler) // its connection is of no more use
		}
		return nil
	})
}
