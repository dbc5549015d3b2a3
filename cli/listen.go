package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

const (
	deliveryTimeout = 10 * time.Second
	largestReply    = 1 << 20 // bytes that are read of a receiver's answer
)

func (e environ) listenCommand() *cobra.Command {
	var to, after string
	var names []string
	c := e.command(cobra.Command{
		Use:   "listen",
		Short: "Deliver the client's events to a receiver on this machine as they happen",
		Long: `Follows the client's events and delivers each, once, as a webhook would be: the same body, headers
and signatures, but by a secret of this machine, which it prints. Nothing is subscribed, and the
service needs no way to this machine. The secret is kept with the profile, or comes from
KINDRED_LISTEN_SECRET. It begins with the events that happen from now on.`,
		Example: `  kindred listen --forward-to http://localhost:3000/hooks
  kindred listen --forward-to http://localhost:3000/hooks --events match.computed,clustering.completed
  kindred listen --forward-to http://localhost:3000/hooks --after evt_… --json`,
		Args: cobra.NoArgs,
	}, untilInterrupted(func(ctx context.Context, c *call) error {
		target, err := forwardURL(to)
		if err != nil {
			return err
		}
		types, err := typesOf(names)
		if err != nil {
			return err
		}
		k, err := c.connect()
		if err != nil {
			return err
		}
		params := kindred.FollowEventsParams{Types: types, After: after}
		since, livemode, err := now(ctx, k)
		if err != nil {
			return err
		}
		if after == "" {
			params.Since = since
		}
		secret, err := c.listenSecret()
		if err != nil {
			return err
		}
		if err := c.greet(secret, target); err != nil {
			return err
		}
		return c.forward(ctx, k.Events.Follow(ctx, params), newForwarder(target, secret, livemode))
	}))
	f := c.Flags()
	f.StringVar(&to, "forward-to", "", "the URL of the receiver")
	f.StringSliceVar(&names, "events", nil, "only events of these types (default: all)")
	f.StringVar(&after, "after", "", "begin behind this event, evt_…")
	completed(c, "events", typeNames)
	return required(c, "forward-to")
}

func forwardURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("--forward-to takes a URL such as http://localhost:3000/hooks, not %q", text)
	}
	return text, nil
}

// now is the time as the service has it, to the second, and whether the client is live.
func now(ctx context.Context, k *kindred.Client) (at time.Time, livemode string, err error) {
	var a kindred.Answer
	if _, err := k.Events.List(ctx, kindred.ListEventsParams{Limit: new(int64(1))}, kindred.WithAnswer(&a)); err != nil {
		return at, "", err
	}
	at, err = http.ParseTime(a.Header.Get("Date"))
	return at, a.Header.Get(livemodeHeader), err
}

// listenSecret is what this machine signs with, the same each time.
func (c *call) listenSecret() (string, error) {
	if secret := c.getenv("KINDRED_LISTEN_SECRET"); secret != "" {
		return secret, nil
	}
	stored, err := c.profiles()
	if err != nil {
		return "", err
	}
	if secret := stored.Profiles[c.name()].ListenSecret; secret != "" {
		return secret, nil
	}
	key := make([]byte, 24)
	_, _ = rand.Read(key) // it never fails
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	if stored.path == "" {
		return secret, nil
	}
	return secret, c.change(func(p *profile) { p.ListenSecret = secret })
}

func (c *call) greet(secret, target string) error {
	if c.json {
		return c.print(map[string]string{"secret": secret, "forward_to": target})
	}
	_, err := fmt.Fprintf(c.out, "Your signing secret is %s\nEvents go to %s. Ctrl-C ends it.\n", secret, target)
	return err
}

// forwarded tells of one delivery.
type forwarded struct {
	EventID      string `json:"event_id"`
	EventType    string `json:"event_type"`
	Status       int    `json:"status,omitzero"`
	Milliseconds int64  `json:"milliseconds"`
	Error        string `json:"error,omitzero"`
}

func (c *call) forward(ctx context.Context, events func(func(*kindred.Event, error) bool), to *forwarder) error {
	for event, err := range events {
		if err != nil {
			return err
		}
		began := time.Now()
		status, err := to.deliver(ctx, event)
		one := forwarded{EventID: event.ID, EventType: string(event.Type), Status: status, Milliseconds: time.Since(began).Milliseconds()}
		if err != nil {
			one.Error = err.Error()
		}
		if err := c.tell(one); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) tell(one forwarded) error {
	if c.json {
		return c.print(one)
	}
	colour, outcome := red, Printable(one.Error)
	if one.Status != 0 {
		outcome = fmt.Sprintf("%d %s", one.Status, http.StatusText(one.Status))
		if one.Status >= 200 && one.Status <= 299 {
			colour = green
		}
	}
	_, err := fmt.Fprintf(c.out, "%s  %-25s  %s  %s  %d ms\n", time.Now().Format(time.TimeOnly), one.EventType, one.EventID, c.coloured(colour, outcome), one.Milliseconds)
	return err
}

// forwarder delivers as the service does: signed, without following redirects.
type forwarder struct {
	target, secret, livemode string
	http                     *http.Client
}

func newForwarder(target, secret, livemode string) *forwarder {
	return &forwarder{target, secret, livemode, &http.Client{
		Timeout:       deliveryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (f *forwarder) deliver(ctx context.Context, e *kindred.Event) (status int, err error) {
	h, err := kindred.Sign(f.secret, e.ID, time.Now(), e.Type, e.Body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, bytes.NewReader(e.Body))
	if err != nil {
		return 0, err
	}
	req.Header = h
	req.Header.Set("User-Agent", "kindred-webhooks/1")
	req.Header.Set("X-Kindred-Delivery", "dlv_"+strings.ToLower(rand.Text()))
	if f.livemode == "false" { // what is live does not say so
		req.Header.Set(livemodeHeader, f.livemode)
	}
	resp, err := f.http.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, nil // the body is the bare connection, which no time-out ends
	}
	_, _ = io.CopyN(io.Discard, resp.Body, largestReply) // so that the connection is used again
	return resp.StatusCode, nil
}
