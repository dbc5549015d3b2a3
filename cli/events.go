package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func typeNames() []string {
	var names []string
	for _, t := range kindred.EventTypes() {
		names = append(names, string(t))
	}
	return names
}

func typesOf(names []string) ([]kindred.EventType, error) {
	var types []kindred.EventType
	for _, name := range names {
		if !slices.Contains(kindred.EventTypes(), kindred.EventType(name)) {
			return nil, fmt.Errorf("%q is no type of event; there are %s", name, strings.Join(typeNames(), ", "))
		}
		types = append(types, kindred.EventType(name))
	}
	return types, nil
}

func (e environ) eventsCommand() *cobra.Command {
	var follow bool
	var names []string
	var after, since string
	var limit int
	c := e.command(cobra.Command{
		Use:   "events",
		Short: "List the events that webhooks tell of, or follow them",
		Long: `Lists the events of the client in the order of the log, the first one first, whatever subscriptions
there are. To go on later, pass the id of the last event to --after.`,
		Example: `  kindred events --since 2026-11-01T00:00:00Z
  kindred events --follow --types match.computed,cluster.drift_detected
  kindred events --after evt_… --json | jq .data`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *call) error {
		types, err := typesOf(names)
		if err != nil {
			return err
		}
		if limit < 0 {
			return fmt.Errorf("--limit takes a number of events, or 0 for all, not %d", limit)
		}
		var from time.Time
		if since != "" {
			if from, err = time.Parse(time.RFC3339, since); err != nil {
				return fmt.Errorf("--since takes a time such as 2026-11-01T00:00:00Z, not %q", since)
			}
		}
		k, err := c.connect()
		if err != nil {
			return err
		}
		// What pulls and follows waits for minutes, and in silence, for a service that is away. Who has named a wrong one
		// is told at once.
		if _, _, err := now(ctx, k); err != nil {
			if follow && interrupted(ctx, err) {
				return nil
			}
			return err
		}
		var events iter.Seq2[*kindred.Event, error]
		if follow {
			events = k.Events.Follow(ctx, kindred.FollowEventsParams{Types: types, After: after, Since: from})
		} else {
			params := kindred.ListEventsParams{Types: types, After: after, Since: from}
			if limit > 0 {
				params.Limit = new(int64(min(limit, 1000)))
			}
			events = k.Events.Pull(ctx, params)
		}
		shown := 0
		for event, err := range events {
			if follow && interrupted(ctx, err) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := c.show(event); err != nil {
				return err
			}
			if shown++; shown == limit {
				return nil
			}
		}
		return nil
	})
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on with what happens, until interrupted")
	f.StringSliceVar(&names, "types", nil, "only events of these types")
	f.StringVar(&after, "after", "", "only events behind this one, evt_…")
	f.StringVar(&since, "since", "", "only events from this time on")
	f.IntVar(&limit, "limit", 0, "at most so many (default: all)")
	c.MarkFlagsMutuallyExclusive("after", "since")
	completed(c, "types", typeNames)
	return c
}

// line is an event as machines read it.
type line struct {
	ID        string    `json:"id"`
	EventType string    `json:"event_type"`
	Data      any       `json:"data"`
	Timestamp time.Time `json:"timestamp"`
	Erased    bool      `json:"erased,omitzero"`
}

func (c *call) show(e *kindred.Event) error {
	if c.json {
		return c.print(line{e.ID, string(e.Type), e.Raw, e.Timestamp, e.Erased})
	}
	_, err := fmt.Fprintf(c.out, "%s  %-25s  %s  %s\n", e.Timestamp.UTC().Format(time.RFC3339), e.Type, e.ID, Printable(string(e.Raw)))
	return err
}
