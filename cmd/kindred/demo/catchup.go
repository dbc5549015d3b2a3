package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// catchUp pulls what the receiver was not told while its subscription was paused, as a
// server does that was down: from the last event that it knows. Of what it has from
// webhooks, under the same ids, nothing comes twice.
func (s *story) catchUp(ctx context.Context) error {
	got, err := s.awaitExpected(ctx)
	if err != nil {
		return err
	}
	pushed := map[string]delivery{}
	for _, d := range got {
		pushed[d.event] = d
	}
	all, err := s.pull(ctx, "")
	if err != nil {
		return err
	}
	known, missed := "", 0 // the last event before the pause, and what it hid
	for _, e := range all {
		d, arrived := pushed[e.ID]
		switch {
		case arrived && !bytes.Contains(e.raw, d.body[1:]):
			return fmt.Errorf("%s was delivered as %s, and pulled as %s", e.ID, d.body, e.raw)
		case arrived && missed == 0:
			known = e.ID
		case !arrived && !s.silent[e.subject()]:
			return fmt.Errorf("%s of %s was pulled, but neither delivered nor hidden by the pause", e.ID, e.subject())
		case !arrived:
			missed++
		}
	}
	if missed != len(s.silent) || len(all) != len(pushed)+missed {
		return fmt.Errorf("%d events were pulled, where %d were delivered and %d hidden by the pause", len(all), len(pushed), len(s.silent))
	}
	since, err := s.pull(ctx, known)
	if err != nil {
		return err
	}
	again := 0
	for i, e := range since {
		if e.ID != all[len(all)-len(since)+i].ID {
			return fmt.Errorf("behind %s comes %s, which is not what comes in the order of all events", known, e.ID)
		}
		if _, arrived := pushed[e.ID]; arrived {
			again++
		}
	}
	if len(since) != missed+again {
		return fmt.Errorf("behind %s come %d events, not the %d that were missed and %d that are known", known, len(since), missed, again)
	}
	s.page.say("%d events since %s, the last one that it had before the pause.", len(since), known)
	s.page.say("%d of them had arrived after it, under the same ids. The other %d are those that the pause hid: none is missing, none doubled.", again, missed)
	return nil
}

// pulled is an event as it is pulled.
type pulled struct {
	ID   string
	Kind string `json:"event_type"`
	Data struct {
		User    string `json:"user_id"`
		Matched string `json:"matched_user_id"`
	}
	raw []byte
}

func (e pulled) subject() subject { return subject{e.Kind, e.Data.User, e.Data.Matched} }

// pull returns all events behind one, in the order of the log. An id that comes twice is
// an error.
func (s *story) pull(ctx context.Context, after string) (all []pulled, err error) {
	seen := map[string]bool{}
	for more := true; more; {
		var page struct {
			Data []json.RawMessage
			More bool   `json:"has_more"`
			Last string `json:"last_id"`
		}
		query := url.Values{"limit": {"5"}}
		if after != "" {
			query.Set("after", after)
		}
		if err := s.api.do(ctx, request{method: "GET", path: "/api/v1/events", query: query, want: 200}, &page); err != nil {
			return nil, err
		}
		for _, raw := range page.Data {
			e := pulled{raw: raw}
			if err := json.Unmarshal(raw, &e); err != nil {
				return nil, fmt.Errorf("an event cannot be read: %w", err)
			}
			if seen[e.ID] {
				return nil, fmt.Errorf("%s was pulled twice", e.ID)
			}
			seen[e.ID] = true
			all = append(all, e)
		}
		after, more = page.Last, page.More && len(page.Data) > 0
	}
	return all, nil
}
