package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func (e environ) clustersCommand() *cobra.Command {
	clusters := &cobra.Command{
		Use: "clusters", Short: "Groups of like end users",
		Example: "  kindred clusters list --layer lay_…\n  kindred clusters assign ext:u1 --layer lay_…",
	}
	clusters.AddCommand(
		e.ofLayer(cobra.Command{
			Use: "list", Short: "List the clusters of a consent layer", Example: "  kindred clusters list --layer lay_…", Args: cobra.NoArgs,
		}, listClusters),
		e.ofLayer(cobra.Command{
			Use: "assign USER", Short: "Tell which cluster a user would be in, and why; nothing is recorded",
			Example: "  kindred clusters assign ext:u1 --layer lay_…", Args: cobra.ExactArgs(1),
		}, assignCluster),
	)
	return clusters
}

// ofLayer makes a subcommand that cannot do without a layer.
func (e environ) ofLayer(cmd cobra.Command, run func(ctx context.Context, c *call, k *kindred.Client, layer string) error) *cobra.Command {
	var layer string
	c := e.command(cmd, connected(func(ctx context.Context, c *call, k *kindred.Client) error { return run(ctx, c, k, layer) }))
	c.Flags().StringVar(&layer, "layer", "", "the consent layer of the clusters (required)")
	if err := c.MarkFlagRequired("layer"); err != nil {
		panic(err) // the flag is made before
	}
	return c
}

func listClusters(ctx context.Context, c *call, k *kindred.Client, layer string) error {
	table, found := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0), false
	for cluster, err := range k.Clusters.List(ctx, kindred.ListClustersParams{ConsentLayerID: layer}) {
		switch {
		case err != nil:
			return err
		case c.json:
			err = c.print(cluster)
		default:
			_, err = fmt.Fprintf(table, "%s\t%d\t%s\n", cluster.ID, cluster.ClusterSize, Printable(cluster.Label))
		}
		if err != nil {
			return err
		}
		found = true
	}
	if !found { // or a layer that is mistyped looks like one without clusters
		if _, err := k.Consent.GetLayer(ctx, layer); err != nil {
			return err
		}
	}
	return table.Flush()
}

// toldTerms are the terms that are told without --json.
const toldTerms = 5

func assignCluster(ctx context.Context, c *call, k *kindred.Client, layer string) error {
	found, err := k.Clusters.Assign(ctx, kindred.ClusterQuestion{UserID: c.args[0], ConsentLayerID: layer})
	if err != nil {
		return err
	}
	if c.json {
		return c.print(found)
	}
	if _, err := fmt.Fprintf(c.out, "%s  %s, confidence %.2f\n", found.ClusterID, Printable(found.Label), found.Confidence); err != nil {
		return err
	}
	for _, term := range found.Terms[:min(len(found.Terms), toldTerms)] {
		missing := ""
		if term.Missing {
			missing = "  (missing, taken as the middle)"
		}
		if _, err := fmt.Fprintf(c.out, "  %+7.2f  %s%s\n", term.Nearer, Printable(term.Trait), missing); err != nil {
			return err
		}
	}
	return nil
}
