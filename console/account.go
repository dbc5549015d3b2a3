package console

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
)

func (p *page) account() error {
	return p.show("account", "Account", "Account", nil)
}

// live passes the client's events on as they come, for the page that shows them.
func (p *page) live() error {
	target := "/api/v1/events/stream"
	if after := cmp.Or(p.r.Header.Get("Last-Event-Id"), p.r.URL.Query().Get("after")); after != "" {
		target += "?after=" + url.QueryEscape(after)
	}
	r, err := http.NewRequestWithContext(p.r.Context(), http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := transport{p.API, p.r, p.calls}.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	p.w.Header().Set("X-Accel-Buffering", "no")
	p.w.WriteHeader(resp.StatusCode)
	conn, part := http.NewResponseController(p.w), make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(part)
		if n > 0 {
			if _, err := p.w.Write(part[:n]); err != nil {
				return nil // the reader has gone
			}
			if err := conn.Flush(); err != nil {
				return nil // the reader has gone
			}
		}
		if err != nil {
			if err != io.EOF {
				panic(http.ErrAbortHandler)
			}
			return nil
		}
	}
}
