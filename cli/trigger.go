package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kindred "kindred/sdk/go"
)

const (
	lookEvery  = 200 * time.Millisecond
	storyTakes = 5 * time.Minute // at most
	moved      = 60              // users of a cluster; drift is told of from 50 members on
	others     = 20              // users of another, the least that makes one
)

// stories make a true event of a type each, over the public API.
var stories = map[kindred.EventType]func(*story, context.Context) error{
	kindred.EventTypeMatchComputed:           (*story).match,
	kindred.EventTypeClusteringCompleted:     (*story).cluster,
	kindred.EventTypeClusteringFailed:        (*story).fail,
	kindred.EventTypeCampaignBudgetExhausted: (*story).exhaust,
	kindred.EventTypeClusterDriftDetected:    (*story).drift,
}

func (e environ) triggerCommand() *cobra.Command {
	var live string
	c := e.command(cobra.Command{
		Use:   "trigger TYPE",
		Short: "Have a true event of a type happen, in a sandbox",
		Long: `Plays a story over the API that ends with a true event of the type, with users, a consent layer or a
campaign of its own, whose names begin with "trigger-": match.computed takes 2 users,
cluster.drift_detected takes 80, a run, a shift and another run. What it makes stays.

It refuses where the client is live. Where the service does not say whether it is, name the client
with --live to have it all the same.`,
		Example: `  kindred trigger match.computed
  kindred trigger cluster.drift_detected --sandbox cli_… --json
  kindred trigger clustering.failed --live cli_…`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), areTypes),
		ValidArgs: typeNames(),
	}, connected(func(ctx context.Context, c *call, k *kindred.Client) error {
		if err := harmless(ctx, k, live); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, storyTakes)
		defer cancel()
		s := &story{k: k, name: "trigger-" + strings.ToLower(rand.Text()[:10]), say: c.say, kind: kindred.EventType(c.args[0])}
		if err := stories[s.kind](s, ctx); err != nil {
			return fmt.Errorf("the story %s: %w", s.name, err)
		}
		event, err := s.await(ctx)
		if err != nil {
			return err
		}
		return c.show(event)
	}))
	c.Flags().StringVar(&live, "live", "", "the client, cli_…, that is to have it though it may be live")
	return c
}

// areTypes refuses arguments that are no types of events.
func areTypes(_ *cobra.Command, names []string) error {
	_, err := typesOf(names)
	return err
}

// harmless refuses a client that is live, and one that may be and was not named.
func harmless(ctx context.Context, k *kindred.Client, named string) error {
	details, livemode, err := client(ctx, k)
	switch {
	case err != nil:
		return err
	case livemode == "false":
		return nil
	case livemode == "true":
		return fmt.Errorf("%s (%s) is live, and a trigger is for clients that are not: make a sandbox (kindred sandboxes)", details.ID, details.Name)
	case named == details.ID:
		return nil
	case named != "":
		return fmt.Errorf("--live names %s, but the key is of %s (%s)", named, details.ID, details.Name)
	default:
		return fmt.Errorf("%s (%s) may be live, for the service does not say: name it with --live to have the event all the same", details.ID, details.Name)
	}
}

// story makes one event happen.
type story struct {
	k    *kindred.Client
	name string
	kind kindred.EventType
	say  func(string, ...any)

	since time.Time // the event is of then or later
	about []string  // ids of which its data names one
}

// await waits for the event that the story has made.
func (s *story) await(ctx context.Context) (*kindred.Event, error) {
	params := kindred.ListEventsParams{Types: []kindred.EventType{s.kind}, Since: s.since, Wait: new(int64(10))}
	for event, err := range s.k.Events.Pull(ctx, params) {
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", s.kind, err)
		}
		if slices.ContainsFunc(s.about, func(id string) bool { return strings.Contains(string(event.Raw), `"`+id+`"`) }) {
			return event, nil
		}
	}
	return nil, errors.New("the events ended")
}

// users brings n users in whose traits differ a little.
func (s *story) users(ctx context.Context, n int, traits func(int) map[string]any) (refs []string, err error) {
	list := make([]kindred.NewUser, n)
	for i := range list {
		list[i] = kindred.NewUser{ExternalID: fmt.Sprintf("%s-%d", s.name, i+1), Traits: traits(i)}
		refs = append(refs, "ext:"+list[i].ExternalID)
	}
	result, err := s.k.Users.Import(ctx, kindred.Lines(slices.Values(list)), kindred.ImportUsersParams{})
	switch {
	case err != nil:
		return nil, err
	case result.Failed > 0:
		return nil, fmt.Errorf("line %d was refused: %s", result.Errors[0].Line, result.Errors[0].Detail)
	}
	s.say("%d users came in: %s-1 …", n, s.name)
	return refs, nil
}

func (s *story) match(ctx context.Context) error {
	refs, err := s.users(ctx, 2, func(int) map[string]any { return map[string]any{"likes": []string{s.name, "jazz"}, "plan": s.name} })
	if err != nil {
		return err
	}
	users := make([]*kindred.User, len(refs))
	for i, ref := range refs {
		if users[i], err = s.k.Users.Get(ctx, ref); err != nil {
			return err
		}
	}
	s.since, s.about = users[0].CreatedAt, []string{users[0].ID, strings.TrimPrefix(refs[0], "ext:")}
	found, err := s.k.Matches.Compute(ctx, refs[0], kindred.MatchRequest{MatchedUserID: new(refs[1])})
	if err != nil {
		return err
	}
	s.say("%d match was computed", len(found.Data))
	return nil
}

// layer makes a consent layer to which the users consent.
func (s *story) layer(ctx context.Context, refs []string) (*kindred.ConsentLayer, error) {
	l, err := s.k.Consent.CreateLayer(ctx, kindred.NewConsentLayer{Name: s.name, TraitPaths: []string{"age", "spend", "plan"}})
	if err != nil {
		return nil, err
	}
	s.since = l.CreatedAt
	s.say("%s is a consent layer of its own", l.ID)
	if len(refs) == 0 {
		return l, nil
	}
	_, err = s.k.Consent.GrantMany(ctx, l.ID, kindred.ConsentsChange{UserIDs: refs, Source: new(s.name)})
	return l, err
}

// run clusters and waits for the end of it, which is to be as wanted.
func (s *story) run(ctx context.Context, l *kindred.ConsentLayer, want kindred.RunStatus) (*kindred.ClusteringRun, error) {
	run, err := s.k.Clusters.StartClusteringRun(ctx, kindred.NewClusteringRun{ConsentLayerID: l.ID, K: new(int64(2)), Seed: new(int64(1))})
	for err == nil && run.EndedAt == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery):
		}
		run, err = s.k.Clusters.GetClusteringRun(ctx, run.ID)
	}
	if err != nil {
		return nil, err
	}
	s.say("%s is %s", run.ID, run.Status)
	if run.Status != want {
		return nil, fmt.Errorf("the run %s is %s", run.ID, run.Status)
	}
	return run, nil
}

func (s *story) fail(ctx context.Context) error {
	l, err := s.layer(ctx, nil)
	if err != nil {
		return err
	}
	s.about = []string{l.ID}
	_, err = s.run(ctx, l, kindred.RunStatusFailed) // nobody has consented
	return err
}

// people are two kinds: those who may move, and others.
func people(i int) map[string]any {
	if i < moved {
		return map[string]any{"age": 20 + i%10, "spend": 10 + i%7, "plan": "free"}
	}
	return map[string]any{"age": 80 + i%10, "spend": 900 + i%7, "plan": "pro"}
}

// clustered has people come in, consent, and be clustered.
func (s *story) clustered(ctx context.Context) (*kindred.ConsentLayer, *kindred.ClusteringRun, error) {
	refs, err := s.users(ctx, moved+others, people)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.layer(ctx, refs)
	if err != nil {
		return nil, nil, err
	}
	run, err := s.run(ctx, l, kindred.RunStatusCompleted)
	return l, run, err
}

func (s *story) cluster(ctx context.Context) error {
	_, run, err := s.clustered(ctx)
	if err != nil {
		return err
	}
	s.about = []string{run.ID}
	return nil
}

func (s *story) drift(ctx context.Context) error {
	l, before, err := s.clustered(ctx)
	if err != nil {
		return err
	}
	for _, c := range before.Clusters {
		s.about = append(s.about, c.ID)
	}
	_, err = s.users(ctx, moved, func(i int) map[string]any {
		return map[string]any{"age": 45 + i%10, "spend": 200 + i%7, "plan": "free"}
	})
	if err != nil {
		return err
	}
	after, err := s.run(ctx, l, kindred.RunStatusCompleted)
	if err != nil {
		return err
	}
	for _, c := range after.Clusters {
		drifts, err := s.k.Clusters.ListDriftPage(ctx, c.ID, kindred.ListClusterDriftParams{})
		if err != nil {
			return err
		}
		if slices.Contains(s.about, c.ID) && slices.ContainsFunc(drifts.Data, func(d kindred.ClusterDrift) bool { return len(d.Causes) > 0 }) {
			return nil
		}
	}
	return errors.New("no cluster has drifted")
}

func (s *story) exhaust(ctx context.Context) error {
	c, err := s.k.Campaigns.Create(ctx, kindred.NewCampaign{Name: s.name, BudgetMinor: 100, Currency: "EUR"})
	if err != nil {
		return err
	}
	s.since, s.about = c.CreatedAt, []string{c.ID}
	if _, err := s.k.Campaigns.Change(ctx, c.ID, kindred.CampaignChange{Status: new(kindred.CampaignCommandRunning)}); err != nil {
		return err
	}
	s.say("%s runs with a budget of EUR 1.00", c.ID)
	_, err = s.k.Campaigns.RecordSpend(ctx, c.ID, kindred.NewSpend{AmountMinor: 100, SpendID: new(s.name)})
	return err
}
