package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

type webhook struct {
	ID, URL    string
	EventTypes []string `json:"event_types"`
	Status     string
}

func (s *story) webhooksPath() string { return s.clientPath() + "/webhooks" }
func (s *story) webhookPath() string  { return s.webhooksPath() + "/" + s.webhook.ID }

// subscribe starts the receiver and gives the service its address.
func (s *story) subscribe(ctx context.Context) error {
	var err error
	if s.receiver, err = listen(ctx); err != nil {
		return err
	}
	err = s.api.do(ctx, request{
		method: "POST", path: s.webhooksPath(), want: 201,
		body: map[string]any{
			"url": s.receiver.url, "event_types": slices.Sorted(maps.Keys(catalog)), "secret": s.receiver.secret,
		},
	}, &s.webhook)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.status == http.StatusUnprocessableEntity {
		return fmt.Errorf("the service may not deliver to this machine; start it with KINDRED_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8, as make run does: %w", err)
	}
	if err != nil {
		return err
	}
	if s.webhook.ID == "" || s.webhook.Status != "active" || s.webhook.URL != s.receiver.url {
		return fmt.Errorf("the subscription is %+v, not an active one to %s", s.webhook, s.receiver.url)
	}
	if !slices.Equal(slices.Sorted(slices.Values(s.webhook.EventTypes)), slices.Sorted(maps.Keys(catalog))) {
		return fmt.Errorf("the subscription is to %s, not to all five event types", strings.Join(s.webhook.EventTypes, ", "))
	}
	s.page.say("%s is %s and delivers", s.webhook.ID, s.webhook.Status)
	for _, kind := range s.webhook.EventTypes {
		s.page.say("  %s", kind)
	}
	s.page.say("to %s, signed with a secret that only the two share.", s.receiver.url[:strings.LastIndexByte(s.receiver.url, '/')])
	return nil
}

// collect waits for the delivery of each match that was returned.
func (s *story) collect(ctx context.Context) error {
	got, err := s.awaitExpected(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, d := range got {
		took = append(took, d.received.Sub(d.occurred))
	}
	slices.Sort(took)
	s.page.say("%d of %d events, each with a signature that holds, three fields, four of data.", len(s.expected), len(s.expected))
	s.page.say("From the event to its arrival: %s, the slowest %s.", brief(took[len(took)/2]), brief(took[len(took)-1]))
	last := got[len(got)-1]
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, last.body, "    ", "  "); err != nil {
		return err
	}
	s.page.say("The last one:")
	s.page.say("%s", pretty.String())
	forged := append(bytes.Clone(last.body), ' ')
	if signed(s.receiver.secret, forged, signature(s.receiver.secret, last.body)) {
		return errors.New("a signature holds for a body that was changed")
	}
	s.page.say("With one more space at its end, the signature no longer holds.")
	return nil
}

// awaitExpected waits for all matches that have to arrive, and compares them
// with what the API answered.
func (s *story) awaitExpected(ctx context.Context) ([]delivery, error) {
	open := len(s.expected)
	got, err := s.receiver.await(ctx, s.options.Patience, func(got []delivery) (bool, error) {
		arrived := map[subject]bool{}
		for _, d := range got {
			arrived[d.subject] = true
		}
		open = len(s.expected) - len(arrived)
		return open <= 0, s.onlyExpected(got)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%d of %d events did not arrive within %s; what became of them: GET %s/deliveries",
			open, len(s.expected), s.options.Patience, s.webhookPath())
	}
	return got, err
}

// onlyExpected fails for a delivery that should not be: of another client, of
// what did not happen or had another score, of a paused time, or of something
// that happened once and is told as if it had again.
func (s *story) onlyExpected(got []delivery) error {
	told := map[subject]bool{}
	for _, d := range got {
		score, ok := s.expected[d.subject]
		switch {
		case d.client != s.client.ID:
			return fmt.Errorf("a delivery is of the client %s, not %s", d.client, s.client.ID)
		case s.silent[d.subject]:
			return fmt.Errorf("%s was computed while the subscription was paused, but delivered", d.subject)
		case !ok:
			return fmt.Errorf("%s was delivered, but nobody asked for it", d.subject)
		case fixed(d.score, 4) != fixed(score, 4): // deliveries carry four decimals
			return fmt.Errorf("%s was delivered with the score %v, but answered with %v", d.subject, d.score, score)
		case !d.repeated && told[d.subject]:
			return fmt.Errorf("%s happened once, but was told as two events", d.subject)
		}
		told[d.subject] = true
	}
	return nil
}

// pauseAndResume computes matches while the subscription is paused, and others
// after. What is skipped was decided by the order of the log, so the arrival of
// the later ones is the time to look for the earlier; the last step looks again.
func (s *story) pauseAndResume(ctx context.Context) error {
	if err := s.setStatus(ctx, "paused"); err != nil {
		return err
	}
	quiet, err := s.compute(ctx, s.people[1], map[string]any{"limit": 3})
	if err != nil {
		return err
	}
	for _, m := range quiet {
		s.silent[subject{"match.computed", s.people[1].ID, m.MatchedUserID}] = true
	}
	s.page.say("Paused. %d matches of %s were computed, nobody was told.", len(quiet), s.people[1].ExternalID)
	if err := s.setStatus(ctx, "active"); err != nil {
		return err
	}
	loud, err := s.compute(ctx, s.people[2], map[string]any{"limit": 3})
	if err != nil {
		return err
	}
	s.expect(s.people[2], loud)
	if _, err := s.awaitExpected(ctx); err != nil {
		return err
	}
	s.page.say("Resumed. %d matches of %s were computed, and have arrived. Of those before, none did.", len(loud), s.people[2].ExternalID)
	return nil
}

func (s *story) setStatus(ctx context.Context, status string) error {
	var now webhook
	err := s.api.do(ctx, request{
		method: "PATCH", path: s.webhookPath(), want: 200, body: map[string]string{"status": status},
	}, &now)
	if err == nil && now.Status != status {
		return fmt.Errorf("the subscription was set to %s, but is %s", status, now.Status)
	}
	return err
}

// unsubscribe lists the subscriptions, checks once more what was delivered,
// and removes the one of the receiver, which ends with the demo.
func (s *story) unsubscribe(ctx context.Context) error {
	before, err := s.listWebhooks(ctx)
	if err != nil {
		return err
	}
	if len(before) != 1 || before[0].ID != s.webhook.ID || before[0].Status != "active" {
		return fmt.Errorf("the list of subscriptions is %+v, not the one active %s", before, s.webhook.ID)
	}
	s.page.table([]string{"subscription", "status", "event types"}, [][]string{
		{before[0].ID, before[0].Status, count(len(before[0].EventTypes))},
	})
	got, _, err := s.receiver.so()
	if err != nil {
		return err
	}
	if err := s.onlyExpected(got); err != nil {
		return err
	}
	if err := s.api.do(ctx, request{method: "DELETE", path: s.webhookPath(), want: 204}, nil); err != nil {
		return err
	}
	s.webhook.ID = ""
	after, err := s.listWebhooks(ctx)
	if err != nil {
		return err
	}
	if len(after) != 0 {
		return fmt.Errorf("the subscription was removed, but is still listed: %+v", after)
	}
	s.page.say("Removed, since the receiver ends here.")
	return nil
}

func (s *story) listWebhooks(ctx context.Context) ([]webhook, error) {
	var list struct{ Data []webhook }
	err := s.api.do(ctx, request{method: "GET", path: s.webhooksPath(), want: 200}, &list)
	return list.Data, err
}
