package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

func (e environ) clustersCommand() *cobra.Command {
	clusters := &cobra.Command{
		Use: "clusters", Short: "Groups of like end users",
		Example: "  kindred clusters list --layer lay_…\n  kindred clusters assign ext:u1 --layer lay_…",
	}
	const usage = "the consent layer of the clusters (required)"
	clusters.AddCommand(
		required(e.ofLayer(cobra.Command{
			Use: "list", Short: "List the clusters of a consent layer", Example: "  kindred clusters list --layer lay_…", Args: cobra.NoArgs,
		}, usage, listClusters), "layer"),
		required(e.ofLayer(cobra.Command{
			Use: "assign USER", Short: "Tell which cluster a user would be in, and why; nothing is recorded",
			Example: "  kindred clusters assign ext:u1 --layer lay_…", Args: cobra.ExactArgs(1),
		}, usage, assignCluster), "layer"),
	)
	return clusters
}

// ofLayer makes a subcommand that may name a consent layer.
func (e environ) ofLayer(cmd cobra.Command, usage string, run func(ctx context.Context, c *call, k *kindred.Client, layer string) error) *cobra.Command {
	var layer string
	c := e.command(cmd, connected(func(ctx context.Context, c *call, k *kindred.Client) error { return run(ctx, c, k, layer) }))
	c.Flags().StringVar(&layer, "layer", "", usage)
	return c
}

func listClusters(ctx context.Context, c *call, k *kindred.Client, layer string) error {
	some, err := list(c, k.Clusters.List(ctx, kindred.ListClustersParams{ConsentLayerID: layer}), func(cluster kindred.Cluster) string {
		return fmt.Sprintf("%s\t%d\t%s", cluster.ID, cluster.ClusterSize, Printable(cluster.Label))
	})
	if err == nil && !some { // or a layer that is mistyped looks like one without clusters
		_, err = k.Consent.GetLayer(ctx, layer)
	}
	return err
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
