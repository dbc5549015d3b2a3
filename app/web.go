package app

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"kindred/app/resources"
	"kindred/commands"
	"kindred/commands/policies"
	"kindred/commands/writeapi"
	"kindred/console"
	"kindred/dispatcher"
	"kindred/domain"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/httpapi/idempotency"
	"kindred/httpapi/requestlog"
	"kindred/projections"
	"kindred/projections/auditing"
	"kindred/projections/feeds"
	"kindred/projections/populations"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/projections/streams"
	"kindred/projections/travel"
	"kindred/readapi"
)

// api is the whole server interface: the halves that read and write, and the
// identity endpoints.
type api struct {
	*writing
	*reading
	*auth.Endpoints
}

type (
	writing = writeapi.API
	reading = readapi.API
)

var _ httpapi.StrictServerInterface = api{}

// SignUp makes a client and its owner.
func (a api) SignUp(ctx context.Context, r httpapi.SignUpRequestObject) (answer httpapi.SignUpResponseObject, err error) {
	err = a.Endpoints.SignUp(ctx, func() error {
		answer, err = a.writing.SignUp(ctx, r)
		return err
	})
	return answer, err
}

// AddMember lets somebody log in for the client.
func (a api) AddMember(ctx context.Context, r httpapi.AddMemberRequestObject) (answer httpapi.AddMemberResponseObject, err error) {
	err = a.Endpoints.AddMember(ctx, func() error {
		answer, err = a.writing.AddMember(ctx, r)
		return err
	})
	return answer, err
}

// web is the HTTP edge with what must run beside it.
type web struct {
	handler     http.Handler
	keyring     *auth.Keyring
	revocations *auth.Revocations
	repeats     *idempotency.Store
	feeds       *feeds.Feeds
	auditor     *auditing.Auditor
	states      *travel.Traveller
	follows     *httpapi.Follows
	requests    *requestlog.Log
	streams     *streams.Streams
}

// run does the work of the API that goes on between requests, in group until ctx ends.
func (w *web) run(ctx context.Context, group *errgroup.Group, logger *slog.Logger) {
	group.Go(func() error { return w.keyring.Run(ctx) })
	group.Go(func() error { return w.revocations.Run(ctx) })
	group.Go(func() error { w.repeats.Run(ctx, logger); return nil })
	group.Go(func() error { w.requests.Run(ctx); return nil })
	group.Go(func() error { w.feeds.Run(ctx, logger); return nil })
	group.Go(func() error { w.auditor.Run(ctx); return nil })
	group.Go(func() error { w.states.Run(ctx); return nil })
	group.Go(func() error { w.streams.Run(ctx); return nil })
	group.Go(func() error { w.follows.Run(ctx); return nil })
}

// Reader reads the read models.
func (a *App) Reader() readmodel.Reader {
	return readmodel.Reader{Pool: a.Pool, Progress: a.Progress, Vault: a.Vault, Judging: a.judging}
}

func (a *App) revocations() projections.Revocations {
	return projections.Revocations{Reader: readmodel.Reader{Pool: a.control}}
}

// Keyring opens the keys that sign tokens.
func (a *App) Keyring(ctx context.Context) (*auth.Keyring, error) {
	keyring := &auth.Keyring{
		Pool: a.Pool, Secrets: a.Vault, TokenTTL: a.Config.TokenTTL,
		Now: time.Now, Entropy: rand.Reader, Logger: a.logger,
	}
	return keyring, keyring.Open(ctx)
}

// Auditor opens the history of clients and the keys that sign it.
func (a *App) Auditor(ctx context.Context) (*auditing.Auditor, error) {
	auditor := &auditing.Auditor{
		History: projections.History{Reader: a.Reader()}, Log: a.Log, Secrets: a.Vault,
		Now: time.Now, Entropy: rand.Reader, Logger: a.logger,
	}
	return auditor, auditor.Open(ctx)
}

// Traveller shows clients as they were.
func (a *App) Traveller() *travel.Traveller {
	return travel.New(travel.Sources{
		Runner: a.Runner, History: projections.History{Reader: a.Reader()}, Log: a.Log, Now: time.Now, Logger: a.logger,
	})
}

// Commands wires what changes things.
// Faults: building, busy, catching_up, idempotency_key_reused, invalid, quarantined, stale.
func (a *App) Commands(passwords *auth.Passwords, guard *dispatcher.Guard) (*commands.Commands, error) {
	reader := a.Reader()
	matcher, err := populations.New(reader, a.memory*2/5)
	if err != nil {
		return nil, err
	}
	c := &commands.Commands{
		Log: a.Log, Entropy: rand.Reader, CountWebhooks: projections.Webhooks{Reader: reader}.Count,
		WebhooksBefore: projections.Webhooks{Reader: reader}.Before,
		LastDecision:   projections.TraitSchemas{Reader: reader}.LastDecision,
		Matcher:        matcher, Filter: segments.Model{Reader: reader}, Audiences: projections.Campaigns{Reader: reader},
		Directory: projections.Consent{Reader: reader}, Revoked: a.revocations().Note,
		Erasures: a.spool(), Imported: countImports(a.metrics), Keys: projections.APIKeys{Reader: reader},
		Spends: projections.Spends{Reader: reader}, Impressions: projections.Campaigns{Reader: reader},
		EventIDs: projections.EventIDs{Reader: reader}, Server: reader.Progress.Server, Traces: a.tracing != nil,
		HashPassword: func(_ context.Context, password string, known ...string) (string, error) {
			if err := auth.CheckPassword("/password", password, known...); err != nil {
				return "", err
			}
			return passwords.Hash(password)
		},
		NewAPIKey: func(of id.Client) (commands.APIKeySecret, error) {
			raw, err := auth.Generate(rand.Reader, of)
			return commands.APIKeySecret{Raw: raw, Hash: auth.Hash(raw), Fingerprint: auth.Fingerprint(raw)}, err
		},
		CheckURL: func(url string) error {
			if err := guard.CheckURL(url); err != nil {
				return fault.NewInvalid(fault.Field{Pointer: "/url", Detail: err.Error()})
			}
			return nil
		},
	}
	c.Slices, c.MatchSlices = a.slices("end_user.created", importsWaiting), a.slices("match.computed", matchesWaiting)
	matcher.Record, matcher.Logger = c.RecordTraitSchema, a.logger
	a.populations = matcher
	return c, nil
}

// web wires the HTTP edge, which hashes passwords on so many cores.
func (a *App) web(ctx context.Context, c *commands.Commands, passwords *auth.Passwords, cores int) (*web, error) {
	keyring, err := a.Keyring(ctx)
	if err != nil {
		return nil, err
	}
	cursors, err := a.Vault.Index(ctx, "", "list cursors", "")
	if err != nil {
		return nil, err
	}
	repeats, err := a.Vault.Index(ctx, "", "idempotency keys", "")
	if err != nil {
		return nil, err
	}
	throttles, err := a.Vault.Index(ctx, "", "throttles", "")
	if err != nil {
		return nil, err
	}
	// Four readers of the same models: reader waits until a model has come far enough, asked
	// tells the edge to wait instead and to run the request again, shown is asked on the
	// connections of requests that only read, and following has connections for those that last.
	reader := a.Reader()
	asked := reader
	asked.AtOnce = true
	shown := asked
	shown.Pool = a.reads
	following := reader
	following.Pool = a.following
	w := &web{
		keyring: keyring, repeats: &idempotency.Store{Pool: a.Pool, Leases: a.control},
		requests: &requestlog.Log{Pool: a.Pool, Reads: a.reads, Now: time.Now, Logger: a.logger},
	}
	w.revocations = &auth.Revocations{
		Source:   revocationSource{noted: a.revocations(), model: projections.Revocations{Reader: reader}},
		TokenTTL: a.Config.TokenTTL, Now: time.Now, Logger: a.logger,
	}
	w.feeds = &feeds.Feeds{
		Pool: a.Pool, Users: projections.Users{Reader: asked}, Interactions: projections.Interactions{Reader: asked},
		Consent: projections.Consent{Reader: asked}, Populations: a.populations, Segments: segments.Model{Reader: asked},
		Campaigns: feeds.ShownCampaigns{
			Model: projections.Campaigns{Reader: reader}, Clusters: projections.Clusters{Reader: reader}, Segments: segments.Model{Reader: reader},
			Clock: a.Log.TimeOf, Record: policies.Impressions{Commands: c}.Record,
		},
		Now: time.Now, Clock: a.Log.TimeOf, Entropy: rand.Reader,
	}
	issuer := &auth.Issuer{Keys: keyring, URL: a.Config.PublicURL}
	if w.auditor, err = a.Auditor(ctx); err != nil {
		return nil, err
	}
	history := *w.auditor
	history.History.Reader = shown
	w.states = a.Traveller()
	w.states.History.AtOnce = true
	w.streams = streams.New(following, a.logger)
	deliveries := dispatcher.Log{Pool: a.Pool, Progress: a.Progress}
	shownDeliveries := dispatcher.Log{Pool: a.reads, Progress: a.Progress, AtOnce: true}
	models := resources.Projections{Jobs: a.rebuilds(), Now: time.Now, Entropy: rand.Reader}
	reads := &readapi.API{
		Deliveries: resources.Deliveries{Log: shownDeliveries, Checker: dispatcher.Checker{Log: shownDeliveries, Secrets: a.Vault, Now: time.Now}},
		Imports:    resources.Imports{Spool: a.spool()}, Projections: models, Requests: w.requests,
		Reader: shown, Users: projections.Users{Reader: shown}.Coalescing(), Populations: a.populations,
		RunMaps: projections.NewRunMaps(projections.RunMaps{
			Clusters: projections.Clusters{Reader: shown}, Users: projections.Users{Reader: shown}, TraitsAt: c.TraitsAt, TraitSchemaAt: c.TraitSchemaAt,
		}),
		Assigner: projections.Assigner{
			Clusters: projections.Clusters{Reader: shown}, Consent: projections.Consent{Reader: shown}, Users: projections.Users{Reader: shown}, Profile: c.Profile,
		},
		Feeds: w.feeds, History: &history, States: w.states, Streams: w.streams, Now: time.Now, Clock: a.Log.ClockOf,
		Cursors: httpapi.Cursors{Key: cursors[:]}, DefaultSettings: domain.DefaultSettings(),
	}
	server := api{
		writing: &writeapi.API{
			Commands: c, Cursors: httpapi.Cursors{Key: cursors[:]}, Login: login(issuer),
			Lines: httpapi.NewUserLines(), Imports: resources.Imports{Spool: a.spool()},
			ExternalIDs: externalIDs(projections.Users{Reader: reader}), TraitSchema: reads.TraitSchema, InferredTraits: reads.InferredTraits,
			Deliveries: resources.ManualDeliveries{Manual: dispatcher.Manual{Log: deliveries, Now: time.Now, Entropy: rand.Reader}},
			Rebuilds:   models,
			ScopeOf:    scopeOf(projections.Clusters{Reader: reader}),
			SessionOf:  sessionOf(projections.Sessions{Reader: asked}, time.Now),
		},
		reading: reads,
		Endpoints: auth.New(auth.Config{
			Issuer: issuer, Accounts: accounts{c}, Passwords: passwords, Metrics: a.metrics,
			Throttles: &auth.Throttles{Pool: a.Pool, Key: throttles[:]}, Unlimited: !a.Config.RateLimit,
			Keys:     keyLookup{projections.APIKeys{Reader: asked}.Coalescing(), a.Log},
			Sessions: sessions{commands: c, model: projections.Sessions{Reader: reader}, now: time.Now},
		}),
	}
	verifier := auth.NewVerifier(keyring, a.Config.PublicURL, w.revocations)
	w.follows = httpapi.NewFollows(verifier.Ended, time.Now)
	w.handler = httpapi.Handler(server, httpapi.Options{
		Authenticator: verifier, Known: verifier.Known, Follows: w.follows,
		Reserve: w.repeats.Reserve, Secret: repeats[:], TrustedProxies: a.Config.TrustedProxies,
		Limits:   httpapi.Limits{Off: !a.Config.RateLimit, Reads: int(a.reads.Config().MaxConns), Hashes: cores},
		Answered: w.requests.Note, Classify: classify, Ready: a.ready(w.revocations.Current),
		Logger: a.logger, Metrics: a.metrics, MetricsElsewhere: a.Config.MetricsListen != "", Tracing: a.tracing,
		Now: time.Now, Entropy: rand.Reader,
	})
	w.handler, err = console.New(console.Config{
		API: httpapi.Unlisted(w.handler), ProxyHeaders: httpapi.ProxyHeaders(), Next: w.handler,
		PublicURL: a.Config.PublicURL, Now: time.Now, NewKey: rand.Text, Logger: a.logger,
	})
	return w, err
}

// externalIDs names users as their client does.
func externalIDs(users projections.Users) func(context.Context, id.Client, []id.User) (map[id.User]string, error) {
	return func(ctx context.Context, client id.Client, ids []id.User) (map[id.User]string, error) {
		return users.ExternalIDs(ctx, client, false, ids)
	}
}
