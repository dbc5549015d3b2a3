package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"kindred/domain/id"
)

// Problems has what net/http answers by itself, to what it cannot read as a
// request, be a problem as any other refusal. Its ids come from entropy, which
// must be safe for concurrent use.
func Problems(l net.Listener, entropy io.Reader) net.Listener { return problems{l, entropy} }

type problems struct {
	net.Listener
	entropy io.Reader
}

// Accept implements [net.Listener].
func (l problems) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &problemConn{c, l.entropy}, nil
}

type problemConn struct {
	net.Conn
	entropy io.Reader
}

// CloseWrite lets net/http end what it says before it hangs up, so that nobody
// misses the answer who is still sending.
func (c *problemConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// unreadHead is how net/http goes on after the status where it refuses what it
// cannot read as a request, without a handler. unmet is how it begins where a request expects
// what it does not know.
var (
	unreadHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	unmet      = []byte("HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\n")
)

// Write implements [net.Conn].
func (c *problemConn) Write(p []byte) (int, error) {
	const version = "HTTP/1.1 "
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	if !bytes.HasPrefix(line, []byte(version)) || len(line) < len(version)+3 || !bytes.HasPrefix(p[len(line):], unreadHead) && !bytes.HasPrefix(p, unmet) {
		return c.Conn.Write(p)
	}
	status, err := strconv.Atoi(string(line[len(version) : len(version)+3]))
	if err != nil {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(unread(status, id.Next[id.Request](id.Random(c.entropy)))); err != nil {
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
	case http.StatusExpectationFailed:
		detail = "The header Expect asks for what is not known here. Send 100-continue, or leave it out."
	case http.StatusNotImplemented:
		detail = "The body has a Transfer-Encoding that is not known here. Send it as it is, or chunked."
	case http.StatusHTTPVersionNotSupported:
		detail = "The request has a version of HTTP that is not known here. Send it as HTTP/1.1."
	}
	body := append(must(json.Marshal(Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Code: "unreadable_request", RequestID: string(request),
	})), '\n')
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/problem+json\r\nLink: %s\r\n%s: %s\r\n\r\n%s", status, http.StatusText(status), len(body), helpLink("unreadable_request"), headerRequestID, request, body)
}
