package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"kindred/app"
	"kindred/eventstore/seal/epochs"
	"kindred/postgres"
)

func (e environ) snapshotCommand() *cobra.Command {
	var to, recipient string
	cmd := &cobra.Command{
		Use:   "snapshot --to FILE --recipient age1… [-- COMMAND…]",
		Short: "Write the epoch keys, encrypted to a recipient, beside a dump of the database",
		Long: "Write the keys of all epochs that the database names, encrypted to a recipient (age). A dump of the database\n" +
			"and a snapshot that was taken right after it open, together, everybody who was not erased before. Keep them apart.\n\n" +
			"A COMMAND, such as pg_dump, is run first, and no epoch key is destroyed meanwhile: then the snapshot fits the\n" +
			"dump, however long that takes. Without one, the dump must have begun less than two minutes before.\n" +
			"A dump and its snapshot go on opening those who are erased later: keep them no longer than you may.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, command []string) error {
			recipients, err := age.ParseRecipients(strings.NewReader(recipient))
			if err != nil {
				return errors.New("--recipient must be one of age, age1…")
			}
			if err := writable(to); err != nil { // or it would be told after the dump
				return err
			}
			told := e.out
			return e.with(func(ctx context.Context, f *app.App) error {
				held, err := f.Epochs.Hold(ctx)
				if err != nil {
					return err
				}
				defer held.Release(ctx)
				if len(command) > 0 {
					told = cmd.ErrOrStderr() // standard output may be the dump

					run := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // it is the operator's own
					run.Stdin, run.Stdout, run.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
					if err := run.Run(); err != nil {
						return fmt.Errorf("run %s: %w", command[0], err)
					}
				}
				n, err := writeSnapshot(ctx, f.Epochs, to, recipients)
				if err != nil {
					return err
				}
				if len(command) > 0 {
					if err := held.Check(ctx); err != nil { // it may lack what the dump needs
						return errors.Join(fmt.Errorf("no snapshot fits what %s made; begin again: %w", command[0], err), os.Remove(to))
					}
				}
				_, err = fmt.Fprintf(told, "%d epoch keys are in %s.\n", n, to)
				return err
			})(cmd, nil)
		},
	}
	required(cmd, &to, "to", "the file to write; it must not be there yet")
	required(cmd, &recipient, "recipient", "the recipient of age, age1…, that alone can read it")
	return cmd
}

// writable fails where a file is there already, or cannot be made.
func writable(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already", path)
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(path))
}

// writeSnapshot writes a file that is whole and durable, or not there.
func writeSnapshot(ctx context.Context, from *epochs.Epochs, path string, recipients []age.Recipient) (n int, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = from.Snapshot(ctx, file, recipients...)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(path))
	}
	return n, postgres.SyncDir(filepath.Dir(path))
}

func (e environ) restoreCommand() *cobra.Command {
	var (
		from     []string
		identity string
		giveUp   bool
	)
	cmd := &cobra.Command{
		Use:   "restore --from FILE --identity FILE",
		Short: "Give a restored database its epoch keys, from snapshots",
		Long: "Give a database that was restored, or whose directory of epoch keys is lost, a directory of its own under\n" +
			"KINDRED_EPOCH_DIR, with the keys of all epochs that it names, from snapshots. No service may run on it. The\n" +
			"database that the dump was made of keeps its own.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(from) == 0 && !giveUp || len(from) > 0 && identity == "" {
				return errors.New("name the snapshots with --from, and the file that can read them with --identity")
			}
			config, err := app.ReadConfig(e.getenv)
			if err == nil {
				err = config.Served(cmd.Context())
			}
			if err != nil {
				return err
			}
			f, err := app.OpenDatabase(cmd.Context(), config, e.logger)
			if err != nil {
				return err
			}
			defer f.Close()
			done, err := restoreEpochs(cmd.Context(), f, from, identity, giveUp)
			if err != nil {
				return err
			}
			said := fmt.Sprintf("%d epoch keys are restored.\n", done.Epochs)
			if done.Lost > 0 {
				said += fmt.Sprintf("%d are given up; the keys of %d subjects count as destroyed.\n", done.Lost, done.Erased)
			}
			if done.Stays != "" {
				said += fmt.Sprintf("%s belongs to the database that this one is a copy of: remove it once that has gone.\n", done.Stays)
			}
			if done.Left != "" {
				said += fmt.Sprintf("A restore that was broken off has left copies of epoch keys in %s: remove them, unless a physical copy "+
					"of this database uses them.\n", done.Left)
			}
			_, err = io.WriteString(e.out, said)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&from, "from", nil, "a snapshot; may be repeated")
	flags.StringVar(&identity, "identity", "", "a file with the identity of age that can read them, AGE-SECRET-KEY-1…")
	flags.BoolVar(&giveUp, "give-up", false, "epochs whose keys are not to be had are lost: whose keys were under them count as erased, for good")
	return cmd
}

// restoreEpochs reads what the flags name, and restores from it.
func restoreEpochs(ctx context.Context, a *app.App, from []string, identity string, giveUp bool) (epochs.Restoring, error) {
	var identities []age.Identity
	if identity != "" {
		file, err := os.Open(identity)
		if err != nil {
			return epochs.Restoring{}, err
		}
		identities, err = age.ParseIdentities(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return epochs.Restoring{}, errors.New("--identity holds no identity of age") // the error could quote one
		}
	}
	var snapshots []io.Reader
	for _, name := range from {
		file, err := os.Open(name)
		if err != nil {
			return epochs.Restoring{}, err
		}
		defer file.Close()
		snapshots = append(snapshots, file)
	}
	return a.RestoreEpochs(ctx, identities, snapshots, giveUp)
}
