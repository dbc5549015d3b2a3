package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	client "kindred/cli"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/projections/travel"
	"kindred/readapi"
)

func (e environ) historyStateCommand() *cobra.Command {
	var client, at, kind string
	cmd := &cobra.Command{
		Use:   "state --client ID --at TIME|ORDINAL|POSITION",
		Short: "Show a client as it was right after an event, or at a time, as the API shows it: NDJSON, or a table on a terminal",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kinds := readapi.StateKinds()
			if kind != "" {
				if !slices.Contains(kinds, httpapi.StateKind(kind)) {
					return fmt.Errorf("%q is none of %v", kind, kinds)
				}
				kinds = []httpapi.StateKind{httpapi.StateKind(kind)}
			}
			return e.withClient(client, func(ctx context.Context, f *app.App, client id.Client) error {
				states := f.Traveller()
				size, err := states.Resolve(ctx, client, false, at)
				if err != nil {
					return err
				}
				bar := newBar(cmd.ErrOrStderr(), "events applied")
				return states.Build(ctx, client, size, func(p projector.Rebuilding) { bar.Show(p.Events, p.Expected) },
					func(ctx context.Context, s *travel.State) error {
						bar.End()
						return printState(ctx, e.out, s, kinds)
					})
			})(cmd, nil)
		},
	}
	clientFlag(cmd, &client)
	required(cmd, &at, "at", "an ordinal or a position, the event there included, or a time (RFC 3339)")
	cmd.Flags().StringVar(&kind, "kind", "", fmt.Sprintf("only one of %v", readapi.StateKinds()))
	return cmd
}

// limit: tools | items of one page of `history state` | {stateAtOnce}
const stateAtOnce = 500 // items

// printState prints all that a state holds of the kinds.
func printState(ctx context.Context, to io.Writer, s *travel.State, kinds []httpapi.StateKind) error {
	out := bufio.NewWriterSize(to, 1<<16)
	show, end := stateLines(out)
	if terminal(to) != nil {
		show, end = stateTable(out, s)
	}
	for from := (&readapi.StatePlace{Kind: kinds[0]}); from != nil; {
		items, next, err := readapi.StateItems(ctx, s, kinds, *from, stateAtOnce)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := show(item); err != nil {
				return err
			}
		}
		from = next
	}
	return errors.Join(end(), out.Flush())
}

// stateLines writes items as NDJSON.
func stateLines(out io.Writer) (show func(httpapi.HistoryStateItem) error, end func() error) {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return func(item httpapi.HistoryStateItem) error { return lines.Encode(item) }, func() error { return nil }
}

const tablePage = 200 // rows that share the widths of columns

// stateTable writes items for people.
func stateTable(out io.Writer, s *travel.State) (show func(httpapi.HistoryStateItem) error, end func() error) {
	fmt.Fprintf(out, "%s after %d events", s.Client, s.Size)
	if !s.RecordedAt.IsZero() {
		fmt.Fprintf(out, ", the last at %s", s.RecordedAt.Format(time.RFC3339Nano))
	}
	fmt.Fprint(out, "\n\n")
	table, rows := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), 0
	return func(item httpapi.HistoryStateItem) error {
		row := stateRow(item)
		for i := range row {
			row[i] = client.Printable(row[i])
		}
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
		if rows++; rows%tablePage == 0 {
			return table.Flush()
		}
		return nil
	}, table.Flush
}

func stateRow(item httpapi.HistoryStateItem) []string {
	switch {
	case item.User != nil && item.User.ExternalID == nil:
		return []string{"user", string(item.User.ID), "erased since"}
	case item.User != nil:
		return []string{"user", string(item.User.ID), fmt.Sprintf("%q", *item.User.ExternalID), string(item.User.Traits)}
	case item.Webhook != nil:
		return []string{"webhook", string(item.Webhook.ID), string(item.Webhook.Status), item.Webhook.URL}
	case item.Campaign != nil:
		c := item.Campaign
		return []string{"campaign", string(c.ID), string(c.Status), fmt.Sprintf("%q spent %d of %d %s (minor units)", c.Name, c.SpentMinor, c.BudgetMinor, c.Currency)}
	case item.Cluster != nil:
		return []string{"cluster", string(item.Cluster.ID), fmt.Sprintf("%d users", item.Cluster.ClusterSize), item.Cluster.Label}
	case item.ConsentLayer != nil:
		return []string{"consent layer", string(item.ConsentLayer.ID), fmt.Sprintf("%q", item.ConsentLayer.Name), strings.Join(item.ConsentLayer.TraitPaths, " ")}
	case item.Segment != nil && item.Segment.Rule == nil:
		return []string{"segment", string(item.Segment.ID), "retired since", fmt.Sprintf("%q", item.Segment.Name)}
	case item.Segment != nil:
		members := ""
		if item.Segment.Members != nil {
			members = fmt.Sprintf("%d users", *item.Segment.Members)
		}
		return []string{"segment", string(item.Segment.ID), members, fmt.Sprintf("%q %s", item.Segment.Name, *item.Segment.Rule)}
	case item.APIKey != nil:
		state := "valid"
		if item.APIKey.Revoked {
			state = "revoked"
		}
		return []string{"api key", string(item.APIKey.ID), state, fmt.Sprintf("%q", item.APIKey.Name)}
	}
	return nil
}
