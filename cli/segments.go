package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func (e environ) segmentsCommand() *cobra.Command {
	segments := &cobra.Command{
		Use: "segments", Short: "Groups of end users by rule",
		Example: "  kindred segments preview 'traits.plan == \"pro\"'\n  kindred segments create Pros 'traits.plan == \"pro\"'",
	}
	segments.AddCommand(
		e.command(cobra.Command{
			Use: "list", Short: "List the segments", Example: "  kindred segments list", Args: cobra.NoArgs,
		}, connected(listSegments)),
		e.ofLayer(cobra.Command{
			Use: "create NAME RULE", Short: "Make a segment, and wait until it is ready",
			Example: "  kindred segments create Pros 'traits.plan == \"pro\" && traits.age > 30'\n  kindred segments create Offers 'traits.plan == \"pro\"' --layer lay_…",
			Args:    cobra.ExactArgs(2),
		}, "the consent layer that it is found under, of who grants it", createSegment),
		e.ofLayer(cobra.Command{
			Use: "preview RULE", Short: "Tell whom a rule would name",
			Example: "  kindred segments preview 'has(traits.email)'\n  kindred segments preview 'traits.age > 30' --layer lay_…", Args: cobra.ExactArgs(1),
		}, "the consent layer that it would be found under", previewSegment),
		e.command(cobra.Command{
			Use: "members SEGMENT", Short: "List the members of a segment", Example: "  kindred segments members seg_…", Args: cobra.ExactArgs(1),
		}, connected(listSegmentMembers)),
		e.command(cobra.Command{
			Use: "why USER [SEGMENT]", Short: "List the segments that a user is in, and why; or say of one whether it is in, and why",
			Example: "  kindred segments why ext:u1\n  kindred segments why ext:u1 seg_…", Args: cobra.RangeArgs(1, 2),
		}, connected(whySegments)),
		e.command(cobra.Command{
			Use: "retire SEGMENT", Short: "End a segment", Example: "  kindred segments retire seg_…", Args: cobra.ExactArgs(1),
		}, connected(retireSegment)),
		e.followSegmentCommand(),
	)
	return segments
}

// orNone is a text that may be left out.
func orNone(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// connected runs what works on a service.
func connected(run func(context.Context, *call, *kindred.Client) error) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		k, err := c.connect()
		if err != nil {
			return err
		}
		return run(ctx, c, k)
	}
}

func listSegments(ctx context.Context, c *call, k *kindred.Client) error {
	_, err := list(c, k.Segments.List(ctx, kindred.ListSegmentsParams{}), func(s kindred.Segment) string {
		return fmt.Sprintf("%s\t%s\t%d\t%s\t%s", s.ID, s.State, s.Members, Printable(s.Name), Printable(s.Rule))
	})
	return err
}

const (
	// readyWithin is how long create waits for a segment.
	readyWithin = 10 * time.Minute
	readyPause  = 500 * time.Millisecond
)

func createSegment(ctx context.Context, c *call, k *kindred.Client, layer string) error {
	made, err := k.Segments.Create(ctx, kindred.NewSegment{Name: c.args[0], Rule: c.args[1], ConsentLayerID: orNone(layer)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for made.State == "building" {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was made and is still being built: %w", made.ID, ctx.Err())
		case <-time.After(readyPause):
		}
		if made, err = k.Segments.Get(ctx, made.ID); err != nil {
			return err
		}
	}
	if c.json {
		return c.print(made)
	}
	_, err = fmt.Fprintf(c.out, "%s has %d members\n", made.ID, made.Members)
	return err
}

func previewSegment(ctx context.Context, c *call, k *kindred.Client, layer string) error {
	preview, err := k.Segments.PreviewRule(ctx, kindred.RuleToPreview{Rule: c.args[0], ConsentLayerID: orNone(layer)})
	if err != nil {
		return err
	}
	if c.json {
		return c.print(preview)
	}
	about := ""
	if preview.Judged < preview.Users {
		about = fmt.Sprintf(", ± %.1f points, by a sample of %d", 100*preview.Margin, preview.Judged)
	}
	if _, err := fmt.Fprintf(c.out, "%d of %d users, %.1f %%%s\n", preview.Members, preview.Users, 100*preview.Share, about); err != nil {
		return err
	}
	for _, w := range preview.Warnings {
		if _, err := fmt.Fprintf(c.out, "  line %d, column %d: %s\n", w.Line, w.Column, Printable(w.Detail)); err != nil {
			return err
		}
	}
	for _, d := range preview.Apart {
		name, value := d.Path, func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
		if d.Level != nil {
			name += " " + *d.Level
			value = func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
		}
		if _, err := fmt.Fprintf(c.out, "  %s: %s, all %s\n", Printable(name), value(d.NamedValue), value(d.OverallValue)); err != nil {
			return err
		}
	}
	for _, m := range preview.Sample {
		if _, err := fmt.Fprintf(c.out, "  %s  %s\n", m.UserID, Printable(m.ExternalID)); err != nil {
			return err
		}
	}
	return nil
}

func listSegmentMembers(ctx context.Context, c *call, k *kindred.Client) error {
	for m, err := range k.Segments.ListMembers(ctx, c.args[0], kindred.ListSegmentMembersParams{}) {
		if err == nil {
			err = c.tellMember("", m.UserID, m.ExternalID, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tellMember writes a user, and what became of it; value is that as machines read it.
func (c *call) tellMember(change, user, external string, value any) error {
	if c.json {
		return c.print(value)
	}
	_, err := fmt.Fprintln(c.out, strings.TrimSpace(fmt.Sprintf("%-7s  %s  %s", change, user, Printable(external))))
	return err
}

func whySegments(ctx context.Context, c *call, k *kindred.Client) error {
	if len(c.args) == 2 {
		return whySegment(ctx, c, k)
	}
	in, err := k.Segments.ListOfUser(ctx, c.args[0])
	if err != nil {
		return err
	}
	if c.json {
		return c.print(in)
	}
	for _, s := range in.Segments {
		if _, err := fmt.Fprintf(c.out, "%s  %s\n", s.SegmentID, Printable(s.Name)); err != nil {
			return err
		}
		if err := c.tellWhy(s.Why); err != nil {
			return err
		}
	}
	return nil
}

// whySegment says of one segment whether a user is in it, and why.
func whySegment(ctx context.Context, c *call, k *kindred.Client) error {
	one, err := k.Segments.GetMember(ctx, c.args[1], c.args[0])
	if err != nil {
		return err
	}
	if c.json {
		return c.print(one)
	}
	told := "is in it"
	switch {
	case one.Member:
	case one.Granted != nil && !*one.Granted:
		told = "is not in it: it does not grant " + *one.ConsentLayerID
	case len(one.Why) == 0:
		told = "is not in it: nobody is while it is blocked"
	default:
		told = "is not in it"
	}
	if _, err := fmt.Fprintln(c.out, one.UserID, told); err != nil {
		return err
	}
	return c.tellWhy(one.Why)
}

// tellWhy writes what the comparisons of a rule say of a user.
func (c *call) tellWhy(why []kindred.JudgedComparison) error {
	for _, part := range why {
		until := ""
		if part.FlipsAt != nil {
			until = "  until " + part.FlipsAt.Format(time.RFC3339)
		}
		if _, err := fmt.Fprintf(c.out, "  %-7s  %s%s\n", part.Truth, Printable(part.Comparison), until); err != nil {
			return err
		}
	}
	return nil
}

func retireSegment(ctx context.Context, c *call, k *kindred.Client) error {
	if err := k.Segments.Retire(ctx, c.args[0]); err != nil || !c.json {
		return err
	}
	return c.print(map[string]string{"retired": c.args[0]})
}

func (e environ) followSegmentCommand() *cobra.Command {
	return e.command(cobra.Command{
		Use:   "follow SEGMENT",
		Short: "List the members of a segment, and then who enters and leaves",
		Long: `Lists the members as entered, and then the changes, until interrupted. Where another rule counts, it begins anew
with a line "again".`,
		Example: "  kindred segments follow seg_… --json | your-audience-sync",
		Args:    cobra.ExactArgs(1),
	}, untilInterrupted(connected(followSegment)))
}

// followWait is for how many seconds it waits for more changes in one request.
const followWait = 20

func followSegment(ctx context.Context, c *call, k *kindred.Client) error {
	for {
		after, err := c.tellMembers(ctx, k)
		if err != nil {
			return err
		}
		err = c.tellChanges(ctx, k, after)
		if !kindred.Is(err, kindred.CodeCursorExpired) {
			return err
		}
		if err := c.tellMember("again", "", "", map[string]string{"change": "again"}); err != nil {
			return err
		}
	}
}

// tellMembers tells of all members, and returns where their changes begin.
func (c *call) tellMembers(ctx context.Context, k *kindred.Client) (after string, err error) {
	params := kindred.ListSegmentMembersParams{}
	for {
		page, err := k.Segments.ListMembersPage(ctx, c.args[0], params)
		if err != nil {
			return "", err
		}
		if after == "" {
			after = page.ChangesCursor
		}
		for _, m := range page.Data {
			change := kindred.SegmentChange{UserID: m.UserID, ExternalID: &m.ExternalID, Change: "entered"}
			if err := c.tellMember("entered", m.UserID, m.ExternalID, change); err != nil {
				return "", err
			}
		}
		if page.NextCursor == nil {
			return after, nil
		}
		params.Cursor = *page.NextCursor
	}
}

// tellChanges tells of changes until it is interrupted.
func (c *call) tellChanges(ctx context.Context, k *kindred.Client, after string) error {
	for {
		page, err := k.Segments.ListChanges(ctx, c.args[0], kindred.ListSegmentChangesParams{After: after, Wait: new(int64(followWait))})
		if err != nil {
			return err
		}
		for _, change := range page.Changes {
			external := ""
			if change.ExternalID != nil {
				external = *change.ExternalID
			}
			if err := c.tellMember(string(change.Change), change.UserID, external, change); err != nil {
				return err
			}
		}
		after = page.Cursor
	}
}
