package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"kindred/domain/id"
)

// door turns requests away before net/http has read them, which costs a third
// of what it costs after, while their lane is full. It knows plain requests
// alone, that come as a whole and by themselves; any other goes in and meets
// admission as ever, so that nothing depends on how well the door reads.
type door struct {
	net.Listener
	admission *admission
}

// Door stands before a server of what Handler has returned.
func Door(l net.Listener, handler http.Handler) net.Listener {
	if a, ok := handler.(*admission); ok {
		return &door{l, a}
	}
	return l
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &doorConn{Conn: c, door: d}, nil
}

// doorConn is a connection that came through a door.
type doorConn struct {
	net.Conn
	door  *door
	fresh atomic.Bool // what is read next begins a request

	// The reader's alone.
	awake time.Time // when its deadlines were set since it was last let in
	said  []byte    // the last answer, to be written over
}

// CloseWrite lets net/http end what it says before it hangs up, so that nobody
// misses the answer who is still sending.
func (c *doorConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// between notes when connections are between two requests (http.Server.ConnState).
// One that is new is not: net/http counts the time of its first request from then on,
// and would take what is let in after some that are turned away for that one.
func between(c net.Conn, state http.ConnState) {
	if atDoor, ok := c.(*doorConn); ok {
		atDoor.fresh.Store(state == http.StateIdle)
		c = atDoor.Conn
	}
	if c, ok := c.(*boundedConn); ok {
		c.is(state)
	}
}

// wholeBuffer is how much net/http reads at once while nothing that it has read
// is left over.
const wholeBuffer = 4096

// Read implements [net.Conn].
func (c *doorConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || len(p) < wholeBuffer || !c.fresh.Load() {
			return n, err
		}
		if !c.turnAway(p[:n]) {
			c.fresh.Store(false)
			c.awake = time.Time{}
			return n, nil
		}
	}
}

// turnAway answers a request, or leaves it to net/http.
func (c *doorConn) turnAway(request []byte) bool {
	a := c.door.admission
	if !a.full() {
		return false
	}
	p, ok := plain(request)
	if !ok {
		return false
	}
	l := a.lane(p.method, p.path, nil)
	if l == nil || !l.Full() || !l.Refuses(a.edge.clientOf(p.authorization, c.RemoteAddr().String(), p.forwarded)) {
		return false
	}
	now := time.Now() //nolint:forbidigo // deadlines are the system's
	if now.Sub(c.awake) > time.Second {
		if c.SetWriteDeadline(now.Add(writeTimeout)) != nil || c.SetReadDeadline(now.Add(idleTimeout)) != nil {
			return false
		}
		c.awake = now
	}
	l.shed.Inc()
	c.said = a.answer(c.said[:0], p.id, now)
	if _, err := c.Write(c.said); err != nil {
		_ = c.Close() // the next read says so
	}
	a.tell(context.Background())
	return true
}

// unreadHead is how net/http goes on after the status where it refuses what it
// cannot read as a request, without a handler.
var unreadHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write implements [net.Conn]. What net/http says of a request that it could not
// read becomes a problem, as any other refusal.
func (c *doorConn) Write(p []byte) (int, error) {
	const version = "HTTP/1.1 "
	if !bytes.HasPrefix(p, []byte(version)) {
		return c.Conn.Write(p)
	}
	line, _, _ := bytes.Cut(p, crlf)
	if !bytes.HasPrefix(p[len(line):], unreadHead) || len(line) < len(version)+3 {
		return c.Conn.Write(p)
	}
	status, err := strconv.Atoi(string(line[len(version) : len(version)+3]))
	if err != nil {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(unread(status, c.door.admission.edge.ownID(""))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unread is the answer to a request that could not be read.
func unread(status int, request id.Request) []byte {
	detail := "The request is not HTTP as it should be: its first line, its path or a header cannot be read."
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		detail = "The header is larger than " + strconv.Itoa(maxHeader>>10) + " KiB."
	case http.StatusNotImplemented:
		detail = "The body has a Transfer-Encoding that is not known here. Send it as it is, or chunked."
	}
	body := append(must(json.Marshal(Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Code: "unreadable_request", RequestID: string(request),
	})), '\n')
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/problem+json\r\n%s: %s\r\n\r\n%s", status, http.StatusText(status), len(body), headerRequestID, request, body)
}

var headEnd, crlf = []byte("\r\n\r\n"), []byte("\r\n")

func has(line []byte, c byte) bool { return bytes.IndexByte(line, c) >= 0 }

// plainRequest is what the door must know of a request.
type plainRequest struct {
	method, path string
	id           string // its own

	authorization, forwarded []string // the lines of these headers
}

// plain reads bytes that are one whole request to the API, which asks for
// nothing but an answer.
func plain(request []byte) (p plainRequest, ok bool) {
	head, body, whole := bytes.Cut(request, headEnd)
	line, head, more := bytes.Cut(head, crlf)
	method, target, spaced := strings.Cut(string(line), " ")
	target, known := strings.CutSuffix(target, " HTTP/1.1")
	if !whole || !more || !spaced || !known || strings.ContainsAny(target, " \r\n") {
		return p, false
	}
	p.method = method
	if p.path, _, _ = strings.Cut(target, "?"); !ofAPI(p.path) || !slices.Contains(methods, method) {
		return p, false
	}
	length, hosts := "", 0
	for more {
		line, head, more = bytes.Cut(head, crlf)
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || has(line, '\r') || has(line, '\n') || has(name, ' ') || has(name, '\t') {
			return p, false
		}
		value = bytes.TrimSpace(value)
		switch string(bytes.ToLower(name)) {
		case "host":
			hosts++
		case "x-request-id":
			p.id = string(value)
		case "authorization":
			p.authorization = append(p.authorization, string(value))
		case "x-forwarded-for":
			p.forwarded = append(p.forwarded, string(value))
		case "content-length":
			if length != "" {
				return p, false
			}
			length = string(value)
		case "connection":
			if !bytes.EqualFold(value, []byte("keep-alive")) {
				return p, false
			}
		case "accept", "content-type": // a stream has a lane of its own
			if bytes.Contains(bytes.ToLower(value), []byte("ndjson")) {
				return p, false
			}
		case "transfer-encoding", "expect", "upgrade":
			return p, false
		}
	}
	if length == "" {
		length = "0"
	}
	return p, hosts == 1 && length == strconv.Itoa(len(body))
}
