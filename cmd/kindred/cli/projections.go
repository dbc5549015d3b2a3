package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	client "kindred/cli"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/replay"
	"kindred/projections"
)

func (e environ) projectionsCommand() *cobra.Command {
	group := &cobra.Command{Use: "projections", Short: "List and rebuild the read models"}
	var asJSON bool
	list := &cobra.Command{
		Use:   "list",
		Short: "Show how far each projection and policy has come",
		Args:  cobra.NoArgs,
		RunE: e.with(func(ctx context.Context, f *app.App) error {
			statuses, err := projector.List(ctx, f.Pool)
			if err != nil {
				return err
			}
			return printStatuses(e.out, statuses, asJSON)
		}),
	}
	skip := &cobra.Command{
		Use:   "skip NAME",
		Short: "Let a policy or the dispatcher go on from the end of the log, without what it has not seen",
		Long: "Let a policy or the dispatcher go on from the end of the log, without what it has not seen.\n" +
			"It is for the time after the log was restored from a backup, when they refuse to run.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(projections.Names(), args[0]) { // which [projector.Runner.Skip] knows with its version
				return fmt.Errorf("%s is a read model, which can be rebuilt instead", args[0])
			}
			return e.with(func(ctx context.Context, f *app.App) error {
				if err := f.Runner.Skip(ctx, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(e.out, "%s goes on from the end of the log.\n", args[0])
				return err
			})(cmd, args)
		},
	}
	jsonFlag(list, &asJSON)
	group.AddCommand(list, e.rebuildCommand(), e.verifyModelsCommand(), e.resumeCommand(), skip)
	return group
}

func (e environ) resumeCommand() *cobra.Command {
	var (
		client string
		names  []string
	)
	for _, p := range app.Resumable(eventstore.Start) {
		names = append(names, p.Name())
	}
	cmd := &cobra.Command{
		Use:   "resume NAME --client ID",
		Short: "Apply what was left out of a client in " + strings.Join(names, " or ") + ", and let it go on where it stopped",
		Long: "Apply the events that were left out of a client in " + strings.Join(names, " or ") + ". Where the client is\n" +
			"quarantined, it goes on from the event that it stopped at: what was passed over since is applied in order.\n" +
			"Each event is applied once. Run it with the release that can; it fails where some are left out again.\n" +
			"Broken off, it goes on where it was when it is run again; until then the client waits.",
		ValidArgs: names,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), oneOf("follower that can be resumed", names)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withClient(client, func(ctx context.Context, f *app.App, of id.Client) error {
				replayed, err := replay.Through(ctx, f.Pool)
				if err != nil {
					return err
				}
				follower := app.Resumable(replayed)[slices.Index(names, args[0])]
				if err := patiently(ctx, func() error { return f.Runner.Resume(ctx, follower, of) }); err != nil {
					return err
				}
				_, err = fmt.Fprintln(e.out, "resumed", of, "in", args[0])
				return err
			})(cmd, args)
		},
	}
	required(cmd, &client, "client", "the client of which events were left out, or that is quarantined")
	return cmd
}

func (e environ) verifyModelsCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "verify [NAME…]",
		Short:       "Build read models anew beside the live ones, and compare them row by row",
		Annotations: map[string]string{background: ""},
		ValidArgs:   projections.Names(),
		Args:        oneOf("read model", projections.Names()),
		RunE: func(cmd *cobra.Command, names []string) error {
			return e.with(func(ctx context.Context, f *app.App) error {
				return e.verifyModels(ctx, f, names, newBar(cmd.ErrOrStderr(), "events applied"))
			})(cmd, names)
		},
	}
}

func (e environ) verifyModels(ctx context.Context, f *app.App, names []string, progress *client.Bar) error {
	different, incomplete := 0, 0
	for _, model := range projections.All() {
		if len(names) > 0 && !slices.Contains(names, model.Name()) {
			continue
		}
		var checked projector.Checked
		err := patiently(ctx, func() (err error) {
			checked, err = f.Runner.Verify(ctx, model, func(r projector.Rebuilding) { progress.Show(r.Events, r.Expected) },
				printDifferences(e.out, model, "has a row that a rebuild does not make", "lacks a row that a rebuild makes"))
			return err
		})
		progress.End()
		if err != nil {
			return err
		}
		if checked.Differences > 0 {
			different++
		}
		fmt.Fprintf(e.out, "%s: %d rows compared, %d differences\n", model.Name(), checked.Rows, checked.Differences)
		if checked.Incomplete != nil {
			incomplete++
			fmt.Fprintf(e.out, "%s: %v\n", model.Name(), checked.Incomplete)
		}
	}
	if different > 0 {
		return fmt.Errorf("%d read models are not what the log makes of them; rebuild them", different)
	}
	if incomplete > 0 {
		return fmt.Errorf("of %d read models this release cannot apply every event", incomplete)
	}
	return nil
}

// maxDifferences bounds what is printed of a read model that is wrong all over.
// limit: tools | differences that `projections verify` prints | {maxDifferences}
const maxDifferences = 100

// printDifferences prints in what a read model differs from another: rows that
// it has, and rows that it lacks.
func printDifferences(out io.Writer, model projector.ReadModel, has, lacks string) func(projector.Difference) {
	printed := 0
	return func(d projector.Difference) {
		if printed++; printed > maxDifferences {
			return
		}
		what := has
		if d.Missing {
			what = lacks
		}
		fmt.Fprintf(out, "%s: %s %s: %s\n", model.Name(), d.Table, what, d.Row)
	}
}

func (e environ) rebuildCommand() *cobra.Command {
	var client string
	cmd := &cobra.Command{
		Use:   "rebuild NAME…",
		Short: "Build read models anew beside the live ones, and put them in their place",
		Long: "Build read models anew beside the live ones, which serve meanwhile, and put them in their place.\n" +
			"Broken off, it goes on where it was when it is run again. No webhook is sent.\n" +
			"It fails, once they are in place, where events had to be left out.\n" +
			"It goes slower while others use the database.",
		Annotations: map[string]string{background: ""},
		ValidArgs:   projections.Names(),
		Args:        cobra.MatchAll(cobra.MinimumNArgs(1), oneOf("read model", projections.Names())),
		RunE: func(cmd *cobra.Command, names []string) error {
			return e.withClientOrAll(client, func(ctx context.Context, f *app.App, of id.Client) error {
				return e.rebuild(ctx, f, names, of, cmd.ErrOrStderr())
			})(cmd, names)
		},
	}
	cmd.Flags().StringVar(&client, "client", "", "only this client's part; everybody else's stays as it is")
	return cmd
}

func (e environ) rebuild(ctx context.Context, f *app.App, names []string, client id.Client, progress io.Writer) error {
	var incomplete error
	for _, model := range projections.All() {
		if !slices.Contains(names, model.Name()) {
			continue
		}
		bar := newBar(progress, "events applied to "+model.Name())
		report := func(r projector.Rebuilding) { bar.Show(r.Events, r.Expected) }
		err := patiently(ctx, func() error {
			if client == "" {
				return f.Runner.Rebuild(ctx, model, report)
			}
			return f.Runner.RebuildClient(ctx, model, client, report)
		})
		bar.End()
		if err != nil && !errors.Is(err, projector.ErrIncomplete) {
			return err
		}
		incomplete = cmp.Or(incomplete, err)
		fmt.Fprintln(e.out, strings.TrimSpace("rebuilt "+model.Name()+" "+string(client)))
	}
	return incomplete
}

// listedStatus is a projection as `kindred projections list` tells of it.
type listedStatus struct {
	Name        string              `json:"name"`
	Position    eventstore.Position `json:"position"`
	Events      int64               `json:"events"`
	UpdatedAt   time.Time           `json:"updated_at"`
	Leader      string              `json:"leader"`
	Quarantined []listedQuarantine  `json:"quarantined"`
	LeftOut     []listedLeftOut     `json:"left_out"`
}

type listedQuarantine struct {
	Client   id.Client           `json:"client"`
	Position eventstore.Position `json:"position"`
	Event    id.Event            `json:"event_id"`
	At       time.Time           `json:"at"`
	Reason   string              `json:"reason"`
}

type listedLeftOut struct {
	Client   id.Client           `json:"client"`
	Position eventstore.Position `json:"position"`
	Event    id.Event            `json:"event_id"`
	Type     string              `json:"type"`
	Reason   string              `json:"reason"`
	At       time.Time           `json:"at"`
}

func printStatuses(out io.Writer, statuses []projector.Status, asJSON bool) error {
	list := newListing(out, asJSON, "NAME", "POSITION", "EVENTS", "UPDATED", "LEADER", "QUARANTINED", "LEFT OUT")
	for _, s := range statuses {
		item := listedStatus{s.Name, s.Position, s.Events, s.UpdatedAt, s.Leader, []listedQuarantine{}, []listedLeftOut{}}
		row := []string{
			s.Name, string(s.Position), strconv.FormatInt(s.Events, 10), s.UpdatedAt.UTC().Format(time.RFC3339), s.Leader,
			strconv.Itoa(len(s.Quarantined)), strconv.Itoa(len(s.LeftOut)),
		}
		for _, q := range s.Quarantined {
			item.Quarantined = append(item.Quarantined, listedQuarantine{q.Client, q.Position, q.Event, q.At, q.Reason})
			row[len(row)-1] += fmt.Sprintf("\n  %s\t%s\t\t%s\t\tquarantined at %s: %s", q.Client, q.Position, q.At.UTC().Format(time.RFC3339),
				q.Event, client.Printable(q.Reason))
		}
		for _, o := range s.LeftOut {
			item.LeftOut = append(item.LeftOut, listedLeftOut(o))
			row[len(row)-1] += fmt.Sprintf("\n  %s\t%s\t\t%s\t\tleft out %s (%s): %s", o.Client, o.Position, o.At.UTC().Format(time.RFC3339),
				o.Event, o.Type, client.Printable(o.Reason))
		}
		if err := list.add(item, row...); err != nil {
			return err
		}
	}
	return list.end()
}
