package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	"kindred/backoff"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/projector"
	"kindred/eventstore/replay"
	"kindred/postgres"
	"kindred/projections"
)

// replayFlags say what is replayed, and where to.
type replayFlags struct {
	into, intoStore, from, fromStore, keys, jwks string
}

func (e environ) historyReplayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use:   "replay --into DATABASE_URL",
		Short: "Build a second kindred from the log of this one, or from an export, and say whether both are equal",
		Long: "Build a second kindred in an empty database, from the log of the one that the environment names, or from\n" +
			"an export of one client: the same events, by their stored bytes, and every read model. Then say whether\n" +
			"both are equal, or where they are not. No webhook is sent for what is replayed. A replay that was broken\n" +
			"off goes on when the same command is run again; until it has ended well, nothing serves from the database.\n\n" +
			"The keys of what is sealed come along as they are, wrapped; the same master key opens them. An export\n" +
			"holds no keys: name the database that has them with --keys, or all that is sealed counts as erased.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.from == "" && (flags.keys != "" || flags.jwks != "") {
				return errors.New("--keys and --jwks are for an export")
			}
			config, err := app.ReadConfig(e.getenv)
			if err != nil {
				return err
			}
			config.EventStoreURL = cmp.Or(flags.fromStore, config.EventStoreURL)
			// What was sealed is asked for its master key first: beside the empty
			// database a new one could be made.
			var source *app.App
			switch {
			case flags.from == "":
				if err := config.Served(cmd.Context()); err != nil {
					return err
				}
				if source, err = app.Open(cmd.Context(), config, e.logger); err != nil {
					return err
				}
				defer source.Close()
			case flags.keys != "":
				if err := e.findMasterKeys(cmd.Context(), config, flags.keys); err != nil {
					return err
				}
			}
			r, err := e.openReplay(cmd.Context(), config, flags, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer r.to.Close()
			if source == nil {
				return r.fromExport(cmd.Context(), flags)
			}
			return r.fromLog(cmd.Context(), source)
		},
	}
	required(cmd, &flags.into, "into", "the empty database that becomes the second kindred")
	f := cmd.Flags()
	f.StringVar(&flags.intoStore, "into-store", "", "esdb://… or kurrentdb://… that keeps its log, empty too (default: that database)")
	f.StringVar(&flags.from, "from", "", "an export (default: the log of the kindred in the environment)")
	f.StringVar(&flags.fromStore, "from-store", "", "its log is in this event store (default: KINDRED_EVENTSTORE_URL)")
	f.StringVar(&flags.keys, "keys", "", "the database that has the keys of an export")
	f.StringVar(&flags.jwks, "jwks", "", "audit keys that must have signed an export, as verify takes them")
	cmd.MarkFlagsMutuallyExclusive("from", "from-store")
	return cmd
}

// replaying is a replay into a second kindred.
type replaying struct {
	to   *app.App
	out  io.Writer // for what was found
	errs io.Writer // for bars
	mark replay.Mark
}

func (e environ) openReplay(ctx context.Context, config app.Config, flags replayFlags, errs io.Writer) (*replaying, error) {
	config.DatabaseURL, config.EventStoreURL = flags.into, flags.intoStore
	if err := app.CheckEventStoreURL(flags.intoStore); err != nil {
		return nil, fmt.Errorf("--into-store: %w", err)
	}
	if err := refuseForeign(ctx, flags.into); err != nil {
		return nil, err
	}
	to, err := app.Open(ctx, config, e.logger)
	if err != nil {
		return nil, err
	}
	return &replaying{to: to, out: e.out, errs: errs}, nil
}

// refuseForeign looks, before anything is changed, whether a database is another's.
func refuseForeign(ctx context.Context, url string) error {
	conn, err := postgres.Connect(ctx, url, projector.ToolName)
	if err != nil {
		return fmt.Errorf("reach the database of --into: %w", err)
	}
	if err := errors.Join(replay.RefuseForeign(ctx, conn), conn.Close(ctx)); err != nil {
		return fmt.Errorf("look into the database of --into: %w", err)
	}
	return nil
}

// begin goes on with a replay of a source, or begins it.
func (r *replaying) begin(ctx context.Context, source string) (err error) {
	r.mark, err = replay.Begin(ctx, r.to.Pool, r.to.Log.Store, source)
	return err
}

// finish lets the second kindred serve.
func (r *replaying) finish(ctx context.Context) error {
	end, err := r.to.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	if err := replay.Finish(ctx, r.to.Pool, end); err != nil {
		return err
	}
	_, err = fmt.Fprintln(r.out, "equal")
	return err
}

// fromLog replays the log of another kindred, and compares with its read models.
func (r *replaying) fromLog(ctx context.Context, from *app.App) error {
	epoch, err := from.Log.Store.Epoch(ctx)
	if err != nil {
		return err
	}
	if err := r.begin(ctx, "log "+epoch); err != nil {
		return err
	}
	head, err := from.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	expected, err := projector.Followed(ctx, from.Pool)
	if err != nil {
		return err
	}
	copyTo := func(upTo eventstore.Position) error {
		return r.copy(ctx, &replay.Log{Store: from.Log.Store, After: r.mark.Position, UpTo: upTo}, expected)
	}
	build := func(upTo eventstore.Position) error {
		if err := copyTo(upTo); err != nil {
			return err
		}
		if err := r.copyKeys(ctx, from.Pool, from.Epochs, ""); err != nil { // models of segments open what is sealed
			return err
		}
		return r.buildModels(ctx)
	}
	if err := build(head); err != nil {
		return err
	}
	// The source may serve meanwhile: what it says is compared as of a moment
	// at which all its read models were at one place.
	still, end, err := standing(ctx, from.Pool, r.mark.Position)
	if err != nil {
		return err
	}
	defer still.end(ctx)
	if err := build(end); err != nil {
		return err
	}
	if err := r.copyHeads(ctx, from.Pool); err != nil {
		return err
	}
	there := func() replay.Source { return &replay.Log{Store: from.Log.Store, UpTo: end} }
	if err := errors.Join(r.compareLogs(ctx, there), r.compareModels(ctx, still.tx, "")); err != nil {
		return err
	}
	return r.finish(ctx)
}

// fromExport replays the export of one client.
func (r *replaying) fromExport(ctx context.Context, flags replayFlags) error {
	export, err := os.Open(flags.from)
	if err != nil {
		return err
	}
	defer export.Close()
	whole := func() *replay.Export { return replay.NewExport(io.NewSectionReader(export, 0, math.MaxInt64)) }
	if flags.jwks != "" {
		keys, err := loadKeys(ctx, flags.jwks)
		if err != nil {
			return err
		}
		if err := verifyExport(export, keys, nil, r.out, r.errs); err != nil {
			return err
		}
	}
	head, err := lastHeadOf(ctx, whole())
	if err != nil {
		return err
	}
	if err := r.begin(ctx, fmt.Sprintf("export of %s %x", head.Client, head.Root)); err != nil {
		return err
	}
	from := whole()
	for skip := r.mark.Events; skip > 0; {
		page, err := from.Next(ctx, int(min(skip, projector.MaxBatch)))
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return errors.New("more was copied than the export holds")
		}
		skip -= int64(len(page))
	}
	if err := r.copy(ctx, from, head.Size); err != nil {
		return err
	}
	if flags.keys == "" {
		err = r.buryKeys(ctx, whole())
	} else {
		err = r.copyKeysOf(ctx, flags.keys, head.Client)
	}
	if err != nil {
		return err
	}
	if err := r.buildModels(ctx); err != nil {
		return err
	}
	if err := r.compareLogs(ctx, func() replay.Source { return whole() }); err != nil {
		return err
	}
	if flags.keys != "" {
		if err := r.compareExport(ctx, flags.keys, head); err != nil {
			return err
		}
	}
	return r.finish(ctx)
}

// lastHeadOf goes through an export, to see whether it is whole.
func lastHeadOf(ctx context.Context, export *replay.Export) (audit.Head, error) {
	for {
		page, err := export.Next(ctx, projector.MaxBatch)
		if err != nil {
			return audit.Head{}, err
		}
		if len(page) == 0 {
			return export.Head()
		}
	}
}

// copy copies events, and notes how far it has come.
func (r *replaying) copy(ctx context.Context, from replay.Source, expected int64) error {
	bar := newBar(r.errs, "events copied")
	defer bar.End()
	return replay.Copy(ctx, from, r.to.Log, func(ctx context.Context, n int, last eventstore.Position) error {
		mark, err := r.mark.Advance(ctx, r.to.Pool, n, last)
		if err != nil {
			return err
		}
		r.mark = mark
		bar.Show(r.mark.Events, max(expected, r.mark.Events))
		return nil
	})
}

// buildModels brings every read model to the end of the log, and lets the
// others go on from there: what is delivered and matched of the past was
// another's to do.
func (r *replaying) buildModels(ctx context.Context) error {
	for _, model := range projections.All() {
		bar := newBar(r.errs, "events applied to "+model.Name())
		report := func(p projector.Rebuilding) { bar.Show(p.Events, max(p.Expected, r.mark.Events)) }
		built, err := projector.Built(ctx, r.to.Pool, model)
		if err == nil && !built {
			err = patiently(ctx, func() error { return r.to.Runner.Rebuild(ctx, model, report) })
			if errors.Is(err, projector.ErrIncomplete) { // so it is in the first
				_, err = fmt.Fprintf(r.out, "%s: %v\n", model.Name(), err)
			}
		}
		if err == nil {
			err = patiently(ctx, func() error { return r.to.Runner.CatchUp(ctx, model, report) })
		}
		bar.End()
		if err != nil {
			return err
		}
	}
	end, err := r.to.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	for _, follower := range app.Resumable(end) {
		if err := patiently(ctx, func() error { return r.to.Runner.CatchUp(ctx, follower, nil) }); err != nil {
			return err
		}
	}
	return nil
}

const (
	leaseTries = 50
	leasePause = 100 * time.Millisecond
)

// patiently repeats what the lease of a process that was killed keeps from
// working, until that has ended.
func patiently(ctx context.Context, work func() error) (err error) {
	for range leaseTries {
		if err = work(); !errors.Is(err, projector.ErrLed) && !errors.Is(err, projector.ErrRebuilding) {
			return err
		}
		if err := backoff.Sleep(ctx, leasePause); err != nil {
			return err
		}
	}
	return err
}
