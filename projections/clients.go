package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Clients is the read model of clients and their members.
type Clients struct{ readmodel.Reader }

// Client is a tenant.
type Client struct {
	ID        id.Client
	Name      string
	Slug      string
	Settings  event.Settings
	Revision  eventstore.Revision
	CreatedAt time.Time
}

// Member is a dashboard user.
type Member struct {
	ID              id.Member
	Email           string
	Role            string
	CreatedAt       time.Time
	CreatedPosition eventstore.Position
}

// Name of the read model.
func (Clients) Name() string { return "clients" }

// Wants says which events the model is made of.
func (Clients) Wants(t string) bool {
	return strings.HasPrefix(t, "client.") || strings.HasPrefix(t, "member.") || t == "sandbox.opened"
}

// Version of the read model's tables.
func (Clients) Version() int { return 3 }

// Schema of the read model. Settings that were never chosen are NULL.
func (Clients) Schema() string {
	return `
CREATE TABLE clients (
	client     text COLLATE "C" PRIMARY KEY,
	name       text NOT NULL,
	slug       text NOT NULL,
	settings   text,
	revision   bigint NOT NULL,
	created_at timestamptz NOT NULL
);
CREATE TABLE members (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	email       bytea NOT NULL,
	email_event text NOT NULL,
	role        text NOT NULL,
	created_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX members_listed ON members (client, created_position);`
}

const (
	insertClient = `INSERT INTO clients (client, name, slug, revision, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	renameClient = `UPDATE clients SET name = $2 WHERE client = $1`
	setSettings  = `UPDATE clients SET settings = $2 WHERE client = $1`
	insertMember = `
INSERT INTO members (client, id, created_position, email, email_event, role, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	deleteMember = `DELETE FROM members WHERE client = $1 AND id = $2`
	reviseClient = `UPDATE clients SET revision = $2 WHERE client = $1`
)

// Apply changes the model by a batch of events.
func (Clients) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		if err := applyClient(&b, r); err != nil {
			return err
		}
	}
	return readmodel.Send(ctx, tx, "clients", &b)
}

func applyClient(b *pgx.Batch, r eventstore.Recorded) error {
	switch e := r.Event.(type) {
	case event.ClientSignedUp:
		b.Queue(insertClient, string(e.Client), e.Name, e.Slug, int64(r.Revision), r.RecordedAt)
		return nil
	case event.SandboxOpened:
		b.Queue(insertClient, string(e.Client), e.Name, e.Slug, int64(r.Revision), r.RecordedAt)
		return nil
	case event.ClientRenamed:
		b.Queue(renameClient, string(e.Client), e.Name)
	case event.ClientSettingsChanged:
		settings, err := json.Marshal(e.Settings)
		if err != nil {
			return fmt.Errorf("encode settings: %w", err)
		}
		b.Queue(setSettings, string(e.Client), string(settings))
	case event.MemberAdded:
		email, err := readmodel.SealedOf(r, e.Email)
		if err != nil {
			return err
		}
		b.Queue(insertMember, string(r.Client), string(e.Member), string(r.Position), email.Box, string(email.Event), e.Role, r.RecordedAt)
	case event.MemberRemoved:
		b.Queue(deleteMember, string(r.Client), string(e.Member))
	case event.MemberAbandoned:
	default:
		return nil
	}
	b.Queue(reviseClient, string(r.Client), int64(r.Revision))
	return nil
}

const getClient = `SELECT c.client, c.name, c.slug, c.settings, c.revision, c.created_at FROM clients c WHERE c.client = $1`

// Get returns the client, or fails with a fault of kind Missing. Settings that
// were never chosen are those of defaults.
// Faults: building, client_unknown, overloaded, quarantined, stale.
func (m Clients) Get(ctx context.Context, client id.Client, eventual bool, defaults event.Settings) (Client, error) {
	type row struct {
		Client
		settings *string
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getClient, nil, func(r *row) []any {
		return []any{readmodel.Text(&r.ID), readmodel.Text(&r.Name), readmodel.Text(&r.Slug), &r.settings, &r.Revision, &r.CreatedAt}
	})
	found, err := readmodel.Only(rows, err, fault.UnknownClient())
	if err != nil {
		return Client{}, err
	}
	found.Settings = defaults
	if found.settings != nil {
		if err := json.Unmarshal([]byte(*found.settings), &found.Settings); err != nil {
			return Client{}, fmt.Errorf("decode settings of %s: %w", client, err)
		}
	}
	return found.Client, nil
}

const allClients = `
SELECT client, name, slug, created_at FROM clients WHERE client > $1 ORDER BY client LIMIT $2`

// All returns clients in the order of their ids, as far as the model has come,
// without their settings.
// Faults: building, quarantined, stale.
func (m Clients) All(ctx context.Context, after id.Client, limit int) (found []Client, err error) {
	reader := projector.Reader{Of: m, Progress: m.Progress}
	err = reader.Read(ctx, true, func(ctx context.Context) (at projector.At, err error) {
		rows, _ := m.Pool.Query(ctx, allClients, after, limit) // what it fails with, its rows end with
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Client, err error) {
			return c, row.Scan(&c.ID, &c.Name, &c.Slug, &c.CreatedAt)
		})
		return at, err
	})
	if err != nil {
		return nil, fmt.Errorf("list clients: %w", err)
	}
	return found, nil
}

const listMembers = `
SELECT m.id, m.created_position, m.email, m.email_event, m.role, m.created_at, k.id AS key, k.client_key, k.wrapped
FROM members m LEFT JOIN subject_keys k ON k.client = m.client AND k.subject = m.id
WHERE m.client = $1 AND m.created_position > $2 ORDER BY m.created_position LIMIT $3`

// Members returns the members of a client in order of creation.
// Faults: building, overloaded, quarantined, stale.
func (m Clients) Members(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]Member, error) {
	type row struct {
		Member
		email readmodel.Sealed
		key   seal.WrappedKey
	}
	return readmodel.Filled(page, nil, func(page readmodel.Page) (members []Member, more bool, last eventstore.Position, err error) {
		rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, listMembers, []any{string(page.After), page.Limit}, func(r *row) []any {
			return []any{
				readmodel.Text(&r.ID), readmodel.Text(&r.CreatedPosition), &r.email.Box, readmodel.Text(&r.email.Event), readmodel.Text(&r.Role), &r.CreatedAt,
				readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
			}
		})
		if err != nil || len(rows) == 0 {
			return nil, false, "", err
		}
		for _, r := range rows {
			email, err := m.Open(ctx, r.key, string(r.ID), r.email, client, eventstore.ClientStream(client), "email")
			if err != nil {
				return nil, false, "", err
			}
			if email == nil {
				continue // removed, and on its way here
			}
			r.Email = string(email)
			members = append(members, r.Member)
		}
		return members, len(rows) == page.Limit, rows[len(rows)-1].CreatedPosition, nil
	})
}
