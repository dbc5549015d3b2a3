package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	kindred "kindred/sdk/go"
)

// served serves the pages of a world on connections whose time for a whole request, and for a whole answer, is over at once.
func served(t *testing.T, world http.Handler) net.Conn {
	t.Helper()
	server := httptest.NewUnstartedServer(pagesOf(t))
	server.Config.ReadHeaderTimeout, server.Config.ReadTimeout, server.Config.WriteTimeout = time.Minute, time.Nanosecond, time.Nanosecond
	server.Config.BaseContext = func(net.Listener) context.Context { return context.WithValue(t.Context(), madeKey{}, world) }
	server.Start()
	t.Cleanup(server.Close)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const asSignedIn = "Host: kindred.example\r\nCookie: __Host-kindred=secret\r\n"

// A file may take longer than the server gives a request: as on the API, the next piece has its time.
func TestAFileMayComeSlowly(t *testing.T) {
	t.Parallel()
	begun, got := make(chan struct{}), ""
	conn := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/users/import" {
			control := http.NewResponseController(w)
			if err := errors.Join(control.SetReadDeadline(time.Now().Add(time.Minute)), control.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
				t.Errorf("the deadlines of the browser's connection: %v", err)
			}
			first := make([]byte, 5)
			if _, err := io.ReadFull(r.Body, first); err != nil {
				t.Error(err)
			}
			close(begun)
			rest, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got = string(first) + string(rest)
		}
		base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/import": kindred.Import{ID: "imp_1"}}).ServeHTTP(w, r)
	}))
	head, tail := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"people.ndjson\"\r\n\r\nfirst", " and the rest\r\n--B--\r\n"
	if _, err := fmt.Fprintf(conn, "POST /console/users/import HTTP/1.1\r\n%sContent-Type: multipart/form-data; boundary=B\r\nContent-Length: %d\r\n\r\n%s",
		asSignedIn, len(head)+len(tail), head); err != nil {
		t.Fatal(err)
	}
	select {
	case <-begun:
	case <-t.Context().Done():
	}
	if _, err := io.WriteString(conn, tail); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got != "first and the rest" || resp.StatusCode != http.StatusSeeOther {
		t.Errorf("%d, and %q came", resp.StatusCode, got)
	}
}

// So may what is downloaded.
func TestADownloadMayTakeLong(t *testing.T) {
	t.Parallel()
	conn := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/members") {
			base(kindred.RoleOwner, "Acme", "admin").ServeHTTP(w, r)
			return
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("the deadline of the browser's connection: %v", err)
		}
		_, _ = io.WriteString(w, "user_id,external_id\n")
	}))
	if _, err := fmt.Fprintf(conn, "GET /console/segments/seg_1/members.csv HTTP/1.1\r\n%s\r\n", asSignedIn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "user_id,external_id\n" {
		t.Errorf("%q, %v", body, err)
	}
}
