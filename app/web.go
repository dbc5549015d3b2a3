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
	return readmodel.Reader{Pool: a.Pool, Progress: a.Progress, Vault: a.Vault, Judging: a.judging, Places: a.queries, Within: answerWithin}
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
// Faults: building, busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale.
func (a *App) Commands(passwords *auth.Passwords, guard *dispatcher.Guard) (*commands.Commands, error) {
	reader := a.Reader()
	matcher, err := populations.New(reader, a.memory*2/5)
	if err != nil {
		return nil, err
	}
	c := &commands.Commands{
		Log: a.Log, Writers: commands.NewWriters(), Entropy: rand.Reader, CountWebhooks: projections.Webhooks{Reader: reader}.Count,
		WebhooksBefore: projections.Webhooks{Reader: reader}.Before,
		LastDecision:   projections.TraitSchemas{Reader: reader}.LastDecision,
		Matcher:        matcher, Filter: segments.Model{Reader: reader}, Judging: reader.Judging.Do, Audiences: projections.Campaigns{Reader: reader},
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

// readers read the same models, each for callers of its own.
type readers struct {
	waiting   readmodel.Reader // waits until a model has come far enough
	asked     readmodel.Reader // tells the edge to wait instead, and to run the request again
	shown     readmodel.Reader // is asked on the connections of requests that only read
	following readmodel.Reader // waits, on connections for requests that last
}

func (a *App) readers() readers {
	waiting := a.Reader()
	r := readers{waiting: waiting, asked: waiting, shown: waiting, following: waiting}
	r.asked.AtOnce, r.shown.AtOnce = true, true
	r.shown.Pool, r.following.Pool = a.reads, a.following
	r.shown.Places, r.following.Places = nil, nil // admission shares them
	return r
}

// web wires the HTTP edge, which hashes passwords on so many cores.
func (a *App) web(ctx context.Context, c *commands.Commands, passwords *auth.Passwords, cores int) (*web, error) {
	keyring, err := a.Keyring(ctx)
	if err != nil {
		return nil, err
	}
	auditor, err := a.Auditor(ctx)
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
	r := a.readers()
	w := &web{
		keyring: keyring, auditor: auditor, states: a.Traveller(), feeds: a.feeds(r, c), streams: streams.New(r.following, a.logger),
		repeats:  &idempotency.Store{Pool: a.Pool, Leases: a.control},
		requests: &requestlog.Log{Pool: a.Pool, Reads: a.reads, Now: time.Now, Logger: a.logger},
		revocations: &auth.Revocations{
			Source:   revocationSource{noted: a.revocations(), model: projections.Revocations{Reader: r.waiting}},
			TokenTTL: a.Config.TokenTTL, Now: time.Now, Logger: a.logger,
		},
	}
	w.states.History.AtOnce = true
	verifier := auth.NewVerifier(keyring, a.Config.PublicURL, w.revocations)
	w.follows = httpapi.NewFollows(verifier.Ended, time.Now)
	issuer := &auth.Issuer{Keys: keyring, URL: a.Config.PublicURL}
	server := api{
		reading: a.reading(w, r, c, cursors[:]),
		Endpoints: auth.New(auth.Config{
			Issuer: issuer, Accounts: accounts{c}, Passwords: passwords, Metrics: a.metrics,
			Throttles: &auth.Throttles{Pool: a.Pool, Key: throttles[:]}, Unlimited: !a.Config.RateLimit,
			Keys:     keyLookup{projections.APIKeys{Reader: r.asked}.Coalescing(), a.Log},
			Sessions: sessions{commands: c, model: projections.Sessions{Reader: r.waiting}, now: time.Now},
		}),
	}
	server.writing = a.writing(server.reading, r, c, issuer)
	forms := new(httpapi.Forms)
	w.handler = httpapi.Handler(server, httpapi.Options{
		Authenticator: verifier, Known: verifier.Known, Follows: w.follows, Forms: forms,
		Reserve: w.repeats.Reserve, Secret: repeats[:], TrustedProxies: a.Config.TrustedProxies,
		Limits:   httpapi.Limits{Off: !a.Config.RateLimit, Reads: int(a.reads.Config().MaxConns), Hashes: cores},
		Answered: w.requests.Note, Classify: classify, Ready: a.ready(w.revocations.Current),
		Logger: a.logger, Metrics: a.metrics, MetricsElsewhere: a.Config.MetricsListen != "", Tracing: a.tracing,
		Now: time.Now, Entropy: rand.Reader,
	})
	w.handler, err = console.New(console.Config{
		API: httpapi.Unlisted(w.handler), ProxyHeaders: httpapi.ProxyHeaders(), Next: w.handler, Forms: forms.During,
		PublicURL: a.Config.PublicURL, Now: time.Now, NewKey: rand.Text, Logger: a.logger,
	})
	return w, err
}

// feeds wires what ranks feeds and records what they show.
func (a *App) feeds(r readers, c *commands.Commands) *feeds.Feeds {
	return &feeds.Feeds{
		Pool: a.Pool, Users: projections.Users{Reader: r.asked}, Interactions: projections.Interactions{Reader: r.asked},
		Consent: projections.Consent{Reader: r.asked}, Populations: a.populations, Segments: segments.Model{Reader: r.asked},
		Campaigns: feeds.ShownCampaigns{
			Model: projections.Campaigns{Reader: r.waiting}, Clusters: projections.Clusters{Reader: r.waiting}, Segments: segments.Model{Reader: r.waiting},
			Clock: a.Log.TimeOf, Record: policies.Impressions{Commands: c}.Record,
		},
		Now: time.Now, Clock: a.Log.TimeOf, Entropy: rand.Reader,
	}
}

// reading wires the half of the API that reads.
func (a *App) reading(w *web, r readers, c *commands.Commands, cursors []byte) *readapi.API {
	clusters, users := projections.Clusters{Reader: r.shown}, projections.Users{Reader: r.shown}
	deliveries := dispatcher.Log{Pool: a.reads, Progress: a.Progress, AtOnce: true}
	history := *w.auditor
	history.History.Reader = r.shown
	return &readapi.API{
		Deliveries: resources.Deliveries{Log: deliveries, Checker: dispatcher.Checker{Log: deliveries, Secrets: a.Vault, Now: time.Now}},
		Imports:    resources.Imports{Spool: a.spool()}, Projections: a.rebuildable(), Requests: w.requests,
		Reader: r.shown, Users: users.Coalescing(), Populations: a.populations,
		RunMaps: projections.NewRunMaps(projections.RunMaps{
			Clusters: clusters, Users: users, TraitsAt: c.TraitsAt, TraitSchemaAt: c.TraitSchemaAt,
		}),
		Assigner: projections.Assigner{Clusters: clusters, Consent: projections.Consent{Reader: r.shown}, Users: users, Profile: c.Profile},
		Feeds:    w.feeds, History: &history, States: w.states, Streams: w.streams, Now: time.Now, Clock: a.Log.ClockOf,
		Cursors: httpapi.Cursors{Key: cursors}, DefaultSettings: domain.DefaultSettings(),
	}
}

// writing wires the half of the API that changes things.
func (a *App) writing(reads *readapi.API, r readers, c *commands.Commands, issuer *auth.Issuer) *writeapi.API {
	deliveries := dispatcher.Log{Pool: a.Pool, Progress: a.Progress}
	return &writeapi.API{
		Commands: c, Cursors: reads.Cursors, Login: login(issuer),
		Lines: httpapi.NewUserLines(), Imports: resources.Imports{Spool: a.spool()},
		ExternalIDs: externalIDs(projections.Users{Reader: r.waiting}), TraitSchema: reads.TraitSchema, InferredTraits: reads.InferredTraits,
		Deliveries: resources.ManualDeliveries{Manual: dispatcher.Manual{Log: deliveries, Now: time.Now, Entropy: rand.Reader}},
		Rebuilds:   a.rebuildable(),
		ScopeOf:    scopeOf(projections.Clusters{Reader: r.waiting}),
		SessionOf:  sessionOf(projections.Sessions{Reader: r.asked}, time.Now),
	}
}

// rebuildable are the read models that a client may have rebuilt.
func (a *App) rebuildable() resources.Projections {
	return resources.Projections{Jobs: a.rebuilds(), Now: time.Now, Entropy: rand.Reader}
}

// externalIDs names users as their client does.
func externalIDs(users projections.Users) func(context.Context, id.Client, []id.User) (map[id.User]string, error) {
	return func(ctx context.Context, client id.Client, ids []id.User) (map[id.User]string, error) {
		return users.ExternalIDs(ctx, client, false, ids)
	}
}
