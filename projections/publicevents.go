package projections

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// PublicEvents is the read model of the events that clients are told: the bodies
// that webhooks send, in the order of the log. It knows no subscription. Bodies name
// users by their usr_… ids; a client's own are put in when they are read, so that
// nothing is left of who was erased.
type PublicEvents struct{ readmodel.Reader }

// Name of the read model.
func (PublicEvents) Name() string { return "public_events" }

// Wants says which events concern the read model.
func (PublicEvents) Wants(t string) bool { return t == "client.settings_changed" || event.IsPublic(t) }

// Version of the read model's tables.
func (PublicEvents) Version() int { return 1 }

// Options of the read model. Streams wait for it.
func (PublicEvents) Options() projector.Options {
	return projector.Options{Prompt: true, Indexes: publicEventIndexes}
}

// Schema of the read model. The time of an event is reached by all that stand
// behind it, whatever the clocks of the processes that recorded them.
func (PublicEvents) Schema() string {
	return `
CREATE TABLE public_events (
	client       text COLLATE "C" NOT NULL,
	position     log_position NOT NULL,
	event        text COLLATE "C" NOT NULL,
	type         text COLLATE "C" NOT NULL,
	body         text NOT NULL,
	reached      timestamptz NOT NULL, -- the latest time of the client's events up to this one
	external_ids boolean NOT NULL,
	PRIMARY KEY (client, position)
);
CREATE UNIQUE INDEX public_events_event ON public_events (client, event);
CREATE TABLE public_event_clients (
	client       text COLLATE "C" PRIMARY KEY,
	external_ids boolean NOT NULL,
	reached      timestamptz NOT NULL
) WITH (fillfactor = 50);`
}

var publicEventIndexes = []string{
	`CREATE INDEX IF NOT EXISTS public_events_type ON public_events (client, type, position);`,
	`CREATE INDEX IF NOT EXISTS public_events_reached ON public_events (client, reached, position);`,
	`CREATE INDEX IF NOT EXISTS public_events_position ON public_events (position);`,
}

const (
	selectPublicClients = `SELECT client, external_ids, reached FROM public_event_clients WHERE client = ANY($1)`
	insertPublicEvents  = `
INSERT INTO public_events (client, position, event, type, body, reached, external_ids)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::boolean[])
ON CONFLICT DO NOTHING -- what stands in the log twice counts where it stands first`
	upsertPublicClients = `
INSERT INTO public_event_clients (client, external_ids, reached)
SELECT * FROM unnest($1::text[], $2::boolean[], $3::timestamptz[])
ON CONFLICT (client) DO UPDATE SET external_ids = excluded.external_ids, reached = excluded.reached`
)

// publicClient is what the events of a client depend on.
type publicClient struct {
	client   id.Client
	external bool      // how it has its users named
	reached  time.Time // the latest time of its events
}

// Apply changes the model by a batch of events.
func (PublicEvents) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	clients, err := publicClients(ctx, tx, batch)
	if err != nil || len(clients) == 0 {
		return err
	}
	type row struct {
		eventstore.Recorded
		body   []byte
		client publicClient
	}
	var told []row
	for _, r := range batch {
		client := clients[r.Client]
		if changed, ok := r.Event.(event.ClientSettingsChanged); ok {
			client.external = changed.Settings.WebhookUserIDs == "external_id"
			continue
		}
		public, ok := r.Event.(event.Public)
		if !ok {
			continue
		}
		body, err := event.Body(public, r.Type, r.Client, r.RecordedAt)
		if err != nil {
			return err
		}
		if r.RecordedAt.After(client.reached) {
			client.reached = r.RecordedAt
		}
		told = append(told, row{r, body, *client})
	}
	if len(told) > 0 {
		if err := readmodel.Do(ctx, tx, "insert public events", insertPublicEvents,
			readmodel.Column(told, func(r row) string { return string(r.Client) }),
			readmodel.Column(told, func(r row) string { return string(r.Position) }),
			readmodel.Column(told, func(r row) string { return string(r.ID) }),
			readmodel.Column(told, func(r row) string { return r.Type }),
			readmodel.Column(told, func(r row) string { return string(r.body) }),
			readmodel.Column(told, func(r row) time.Time { return r.client.reached }),
			readmodel.Column(told, func(r row) bool { return r.client.external }),
		); err != nil {
			return err
		}
	}
	changed := readmodel.SortedValues(clients)
	return readmodel.Do(ctx, tx, "keep how users are named", upsertPublicClients,
		readmodel.Column(changed, func(c *publicClient) string { return string(c.client) }),
		readmodel.Column(changed, func(c *publicClient) bool { return c.external }),
		readmodel.Column(changed, func(c *publicClient) time.Time { return c.reached }),
	)
}

// publicClients reads what is known of the clients whose events in a batch concern the model.
func publicClients(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (map[id.Client]*publicClient, error) {
	clients := map[id.Client]*publicClient{}
	for _, r := range batch {
		if (PublicEvents{}).Wants(r.Type) {
			clients[r.Client] = &publicClient{client: r.Client}
		}
	}
	if len(clients) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, selectPublicClients, readmodel.Texts(readmodel.SortedKeys(clients)))
	if err != nil {
		return nil, err
	}
	var known publicClient
	_, err = pgx.ForEachRow(rows, []any{&known.client, &known.external, &known.reached}, func() error {
		*clients[known.client] = known
		return nil
	})
	return clients, err
}

// PublicEvent is an event as a client is told of it.
type PublicEvent struct {
	Client   id.Client
	Position eventstore.Position
	ID       id.Event
	Type     string
	Body     []byte    // as webhooks send it; never changed, it is handed out
	Reached  time.Time // the latest time of the client's events up to this one
	Erased   bool      // a user that the client would find under its own id is gone; its usr_… id stays

	external bool // the body is to name users as the client does
}

// Size is about how many bytes an event takes.
func (e *PublicEvent) Size() int { return len(e.Body) + 128 }

func (e *PublicEvent) columns() []any {
	return []any{readmodel.Text(&e.Client), readmodel.Text(&e.Position), readmodel.Text(&e.ID), &e.Type, &e.Body, &e.external, &e.Reached}
}

const (
	placeOfEvent   = `SELECT e.position FROM public_events e WHERE e.client = $1 AND e.event = $2`
	publicColumns  = `e.client, e.position, e.event, e.type, e.body, e.external_ids, e.reached`
	publicPage     = ` ORDER BY e.position LIMIT $%d`
	publicNewest   = ` ORDER BY e.position DESC LIMIT $%d`
	publicOfClient = `SELECT ` + publicColumns + ` FROM public_events e WHERE e.client = $1`
	publicOfID     = ` AND e.event = $2`
	publicAfter    = ` AND e.position > $%d`
	publicBefore   = ` AND e.position < $%d`
	publicSince    = ` AND e.position >= (SELECT s.position FROM public_events s
	WHERE s.client = $1 AND s.reached >= $%d ORDER BY s.reached, s.position LIMIT 1)`
	// Each type is a walk of its index of its own: one for several is in no order.
	publicOfTypes = `SELECT e.* FROM unnest($%d::text[]) AS wanted (type), LATERAL (
	SELECT ` + publicColumns + ` FROM public_events e WHERE e.client = $1 AND e.type = wanted.type`
)

// Place is where a public event of a client stands; ok is false where there is none
// of that id.
// Faults: building, overloaded, quarantined, stale.
func (m PublicEvents) Place(ctx context.Context, client id.Client, eventual bool, of id.Event) (at eventstore.Position, ok bool, err error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, placeOfEvent, []any{string(of)}, readmodel.OneText[eventstore.Position])
	if err != nil || len(found) == 0 {
		return eventstore.Start, false, err
	}
	return found[0], true, nil
}

// Get returns a public event of a client, with users named as the client does; ok is
// false where there is none of that id.
// Faults: building, overloaded, quarantined, stale.
func (m PublicEvents) Get(ctx context.Context, client id.Client, eventual bool, of id.Event) (e PublicEvent, ok bool, err error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, publicOfClient+publicOfID, []any{string(of)}, (*PublicEvent).columns)
	if err != nil || len(found) == 0 {
		return PublicEvent{}, false, err
	}
	err = m.NameUsers(ctx, client, eventual, found[:1])
	return found[0], err == nil, err
}

// PublicQuery selects public events.
type PublicQuery struct {
	Since  time.Time // from the first on that was recorded then or later; zero: from the beginning
	Types  []string  // none: all
	Newest bool      // first; a page then ends where the next one, of older events, begins
	readmodel.Page
}

// List returns a page of the public events of a client, in the order of the log or
// the newest first, with users named as the client does.
// Faults: building, overloaded, quarantined, stale.
func (m PublicEvents) List(ctx context.Context, client id.Client, eventual bool, q PublicQuery) ([]PublicEvent, error) {
	var w readmodel.Where
	beyond, ordered := publicAfter, publicPage
	if q.Newest {
		beyond, ordered = publicBefore, publicNewest
	}
	narrow := func() {
		if !q.Newest || q.After != eventstore.Start {
			w.And(beyond, string(q.After))
		}
		if !q.Since.IsZero() {
			w.And(publicSince, q.Since)
		}
		w.And(ordered, q.Limit)
	}
	if len(q.Types) == 0 {
		w.SQL = publicOfClient
		narrow()
	} else {
		w.And(publicOfTypes, q.Types)
		narrow()
		w.SQL += `) e`
		w.And(ordered, q.Limit)
	}
	found, err := readmodel.QueryPage(ctx, m.Reader, m, client, eventual, w.SQL, w.Args, (*PublicEvent).columns, (*PublicEvent).Size)
	if err != nil {
		return nil, err
	}
	return found, m.NameUsers(ctx, client, eventual, found)
}

// NameUsers names the users of a client's events as the client does, where it had
// chosen that when they were recorded.
// Faults: building, overloaded, quarantined, stale.
func (m PublicEvents) NameUsers(ctx context.Context, client id.Client, eventual bool, events []PublicEvent) error {
	var users []id.User
	for _, e := range events {
		if e.external {
			users = append(users, event.UsersOf(e.Body)...)
		}
	}
	if len(users) == 0 {
		return nil
	}
	names, err := Users{Reader: m.Reader}.ExternalIDsOfAll(ctx, client, eventual, users)
	if err != nil {
		return err
	}
	for i := range events {
		if e := &events[i]; e.external {
			named, whole := event.NameUsers(e.Body, names)
			e.Body, e.Erased, e.external = named, !whole, false
		}
	}
	return nil
}

var nextPublic = `
SELECT stopped.clients, ` + publicColumns + `
FROM (SELECT coalesce(array_agg(q.client), '{}') AS clients FROM quarantine q WHERE q.projection = '` + projector.ID(PublicEvents{}) + `') stopped
LEFT JOIN LATERAL (SELECT ` + publicColumns + ` FROM public_events e WHERE e.position > $1 ORDER BY e.position LIMIT $2) e ON true
ORDER BY e.position`

// Next returns at most limit events of all clients behind a position, in the order
// of the log, as far as the model has come, and the clients whose part stands still
// meanwhile. Users are named by their usr_… ids.
func (m PublicEvents) Next(ctx context.Context, after eventstore.Position, limit int) (found []PublicEvent, stopped []id.Client, err error) {
	ctx, cancel := m.Bounded(ctx)
	defer cancel()
	rows, err := m.Pool.Query(ctx, nextPublic, string(after), limit)
	if err != nil {
		return nil, nil, err
	}
	var e struct {
		PublicEvent
		typeOf   *string
		external *bool
		reached  *time.Time
	}
	_, err = pgx.ForEachRow(rows, []any{&stopped, readmodel.Text(&e.Client), readmodel.Text(&e.Position), readmodel.Text(&e.ID), &e.typeOf, &e.Body, &e.external, &e.reached}, func() error {
		if e.typeOf != nil {
			e.Type, e.PublicEvent.external, e.Reached = *e.typeOf, *e.external, *e.reached
			found = append(found, e.PublicEvent)
		}
		return nil
	})
	return found, stopped, err
}

// End is how far the model has come.
func (m PublicEvents) End(ctx context.Context) (at eventstore.Position, err error) {
	ctx, cancel := m.Bounded(ctx)
	defer cancel()
	err = m.Pool.QueryRow(ctx, `SELECT coalesce((SELECT position FROM checkpoints WHERE name = $1), '')`, projector.ID(m)).Scan(&at)
	return at, err
}

// Grown returns how far the model is known to have come, and a channel that is
// closed once it has come further.
func (m PublicEvents) Grown() (eventstore.Position, <-chan struct{}) { return m.Progress.Reached(m) }
