package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kindred/app"
	client "kindred/cli"
	"kindred/domain/id"
	"kindred/eventstore/audit"
	"kindred/projections"
	"kindred/projections/auditing"
)

func (e environ) historyCommand() *cobra.Command {
	group := &cobra.Command{Use: "history", Short: "Show, export and verify what happened to a client"}
	group.AddCommand(e.historyListCommand(), e.historyExportCommand(), e.historyVerifyCommand(), e.historyStateCommand(), e.historyReplayCommand())
	return group
}

// onClient runs a tool on the history of one client.
func (e environ) onClient(cmd *cobra.Command, client string, work func(context.Context, *auditing.Auditor, id.Client) error) error {
	return e.withClient(client, func(ctx context.Context, f *app.App, client id.Client) error {
		auditor, err := f.Auditor(ctx)
		if err != nil {
			return err
		}
		return work(ctx, auditor, client)
	})(cmd, nil)
}

// limit: tools | events of one page of `history list` | {listAtOnce}
const listAtOnce = 200

func (e environ) historyListCommand() *cobra.Command {
	var (
		client, from, to string
		open             bool
		filter           = projections.Filter{After: -1}
	)
	cmd := &cobra.Command{
		Use:   "list --client ID",
		Short: "Print events of a client that filters select, as NDJSON",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for text, into := range map[*string]*time.Time{&from: &filter.From, &to: &filter.To} {
				if *text == "" {
					continue
				}
				var err error
				if *into, err = time.Parse(time.RFC3339Nano, *text); err != nil {
					return fmt.Errorf("%q is not a time as 2026-01-31T12:00:00Z is", *text)
				}
			}
			return e.onClient(cmd, client, func(ctx context.Context, a *auditing.Auditor, client id.Client) error {
				out := audit.NewWriter(e.out)
				for {
					page, more, err := a.Page(ctx, client, false, filter, listAtOnce, auditing.Shown{Data: true, Open: open})
					if err != nil {
						return err
					}
					for _, event := range page {
						if err := out.Event(event); err != nil {
							return err
						}
						filter.After = *event.Ordinal
					}
					switch {
					case more != nil:
						filter.After = *more
					case len(page) < listAtOnce:
						return nil
					}
				}
			})
		},
	}
	clientFlag(cmd, &client)
	flags := cmd.Flags()
	flags.StringVar(&filter.Stream, "stream", "", "only this stream")
	flags.StringVar(&filter.Type, "type", "", "only this type, such as end_user.created")
	flags.StringVar(&filter.Actor, "actor", "", "only what this member, key or policy did")
	flags.StringVar(&from, "from", "", "recorded at this time or later (RFC 3339)")
	flags.StringVar(&to, "to", "", "recorded before this time (RFC 3339)")
	flags.Int64Var(&filter.After, "after", -1, "only events with a higher ordinal")
	flags.BoolVar(&open, "personal", false, "open what is sealed")
	return cmd
}

func clientFlag(cmd *cobra.Command, client *string) {
	required(cmd, client, "client", "the client's id, cli_…")
}

func (e environ) historyExportCommand() *cobra.Command {
	var (
		client string
		open   bool
	)
	cmd := &cobra.Command{
		Use:   "export --client ID > EXPORT",
		Short: "Write the whole history of a client as NDJSON; its last line is a freshly signed head",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.onClient(cmd, client, func(ctx context.Context, a *auditing.Auditor, client id.Client) error {
				out := bufio.NewWriterSize(e.out, 1<<20)
				bar := newBar(cmd.ErrOrStderr(), "events exported")
				err := a.Export(ctx, client, open, out, func(x auditing.Exporting) { bar.Show(x.Done, x.Total) })
				bar.End()
				return errors.Join(err, out.Flush())
			})
		},
	}
	clientFlag(cmd, &client)
	cmd.Flags().BoolVar(&open, "personal", false, "open what is sealed")
	return cmd
}

func (e environ) historyVerifyCommand() *cobra.Command {
	var (
		jwks, proof string
		kept        []string
	)
	cmd := &cobra.Command{
		Use:   "verify --jwks URL|FILE {EXPORT|-|--proof FILE}",
		Short: "Check an export, or a proof, offline: whatever was changed, dropped, inserted or reordered is named",
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (proof != "") || len(args) > 1 {
				return errors.New("name an export, or a proof with --proof")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := loadKeys(cmd.Context(), jwks)
			if err != nil {
				return err
			}
			heads, err := readHeads(kept)
			if err != nil {
				return err
			}
			if proof != "" {
				return verifyProof(proof, keys, heads, e.out)
			}
			export := os.Stdin
			if args[0] != "-" {
				if export, err = os.Open(args[0]); err != nil {
					return err
				}
				defer export.Close()
			}
			return verifyExport(export, keys, heads, e.out, cmd.ErrOrStderr())
		},
	}
	required(cmd, &jwks, "jwks", "the audit keys: …/.well-known/audit-jwks.json, or a file")
	cmd.Flags().StringVar(&proof, "proof", "", "a file with an answer of …/history/proof")
	cmd.Flags().StringArrayVar(&kept, "head", nil, "a file with a head that was kept (a JWS, a proof, or an older export); may be repeated")
	return cmd
}

// maxFindings bounds what is printed of a file that is wrong all over.
// limit: tools | findings that `history verify` prints | {maxFindings}
const maxFindings = 1000

func verifyExport(export *os.File, keys audit.Keys, heads []string, out, progress io.Writer) error {
	info, err := export.Stat()
	if err != nil {
		return err
	}
	bar := newBar(progress, "bytes verified")
	printed := 0
	verified, err := audit.Verify(&client.ReadUnder{Bar: bar, File: export, Total: info.Size()}, keys, heads, func(f audit.Finding) {
		if printed++; printed <= maxFindings {
			fmt.Fprintln(out, client.Printable(f.String()))
		}
	})
	bar.End()
	if err != nil {
		return err
	}
	if verified.Findings > 0 {
		return fmt.Errorf("the export is not genuine: %d findings", verified.Findings)
	}
	if _, err := fmt.Fprintf(out, "genuine: %d events of %s, root %x, signed at %s\n",
		verified.Events, client.Printable(string(verified.Client)), verified.Head.Root, verified.Head.SignedAt.Format(time.RFC3339)); err != nil {
		return err
	}
	if len(heads) == 0 {
		_, err = fmt.Fprintln(out, "No head that was kept is given: what happened after these events may have been cut off.")
	}
	return err
}

// limit: tools | a proof that `history` reads | {maxProof B}
const maxProof = 1 << 20 // bytes; 64 levels of two paths have 9 KiB

// verifyProof checks an answer of GET history/proof.
func verifyProof(name string, keys audit.Keys, heads []string, out io.Writer) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	var proof audit.Proof
	if err := json.NewDecoder(io.LimitReader(file, maxProof)).Decode(&proof); err != nil {
		return fmt.Errorf("%s is no answer of history/proof: %w", name, err)
	}
	if proof.Head == "" { // as where the answer was an error
		return fmt.Errorf("%s is no answer of history/proof: it holds no head", name)
	}
	proven, err := proof.Verify(keys, heads)
	if err != nil {
		return err
	}
	head := proven.Head
	if _, err := fmt.Fprintf(out, "genuine: a head of %d events of %s, root %x, signed at %s\n",
		head.Size, client.Printable(string(head.Client)), head.Root, head.SignedAt.Format(time.RFC3339)); err != nil {
		return err
	}
	if proven.Event != nil {
		if _, err := fmt.Fprintf(out, "Event %d, whose hash is %x, is among them.\n", *proven.Event, proof.Hash); err != nil {
			return err
		}
	}
	if proven.Since != nil {
		_, err = fmt.Fprintf(out, "They begin with the %d events of the head kept of %s.\n", proven.Since.Size, proven.Since.SignedAt.Format(time.RFC3339))
	}
	return err
}

const (
	// limit: tools | a key set that `history` reads | {maxKeys B}
	maxKeys     = 1 << 20 // bytes of a key set
	keysTimeout = 30 * time.Second
)

func loadKeys(ctx context.Context, from string) (audit.Keys, error) {
	if !strings.HasPrefix(from, "http://") && !strings.HasPrefix(from, "https://") {
		jwks, err := os.ReadFile(from)
		if err != nil {
			return audit.Keys{}, err
		}
		return audit.ParseKeys(jwks)
	}
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return audit.Keys{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return audit.Keys{}, fmt.Errorf("fetch the audit keys: %w", err)
	}
	defer answer.Body.Close()
	jwks, err := io.ReadAll(io.LimitReader(answer.Body, maxKeys))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return audit.Keys{}, fmt.Errorf("fetch the audit keys: %w", err)
	}
	return audit.ParseKeys(jwks)
}

// readHeads reads heads that were kept.
func readHeads(files []string) ([]string, error) {
	var heads []string
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		found, err := headsIn(bufio.NewReader(file))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		heads = append(heads, found...)
	}
	if len(files) > 0 && len(heads) == 0 {
		return nil, errors.New("there is no head in the files that --head names")
	}
	return heads, nil
}

// headsIn reads the heads of a file: a JWS a line, or objects with one in "head", however these are laid out, which a
// proof and the lines of an export are.
func headsIn(file *bufio.Reader) (heads []string, err error) {
	for next, _ := file.Peek(1); len(next) > 0 && strings.Contains(" \t\r\n", string(next)); next, _ = file.Peek(1) {
		_, _ = file.Discard(1) // it was peeked at
	}
	if first, _ := file.Peek(1); string(first) != "{" { // what cannot be read fails below
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				heads = append(heads, line)
			}
		}
		return heads, lines.Err()
	}
	for objects := json.NewDecoder(file); ; {
		var holds struct {
			Head string `json:"head"`
		}
		if err := objects.Decode(&holds); errors.Is(err, io.EOF) {
			return heads, nil
		} else if err != nil {
			return nil, err
		}
		if holds.Head != "" {
			heads = append(heads, holds.Head)
		}
	}
}
