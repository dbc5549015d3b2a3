package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	usersPath    = "/api/v1/users"
	importPath   = usersPath + "/import"
	exchangePath = "/auth/exchange"
	listLimit    = 50
	seedWorkers  = 16
	seedPageSize = 200
)

// population is who a kindred was filled with, through its API.
type population struct {
	addr    string
	http    *http.Client
	clients []client
}

// client is a tenant. Its key and the token of its owner are good for the run.
type client struct {
	id, owner, key, keyID, token string
	users                        []user
}

// seed signs clients up, gives each an API key, and imports users in equal
// parts. Where keep is set, what the API shows of the users is kept whole;
// else only their ids.
func seed(ctx context.Context, say io.Writer, at *server, clients, users int, keep bool) (*population, error) {
	began := time.Now()
	p := &population{
		addr: at.addr, clients: make([]client, clients),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: seedWorkers}},
	}
	defer p.http.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(seedWorkers)
	var mu sync.Mutex
	done := 0
	for i := range p.clients {
		group.Go(func() error {
			c, err := p.client(ctx, i, users/clients, keep)
			if err != nil {
				return fmt.Errorf("seed client %d: %w", i, err)
			}
			p.clients[i] = c
			mu.Lock()
			defer mu.Unlock()
			if done++; done%max(clients/10, 1) == 0 {
				fmt.Fprintf(say, "  %s: %d of %d clients, %.0f users/s\n", at.name, done, clients,
					float64(done*(users/clients))/time.Since(began).Seconds())
			}
			return nil
		})
	}
	return p, group.Wait()
}

// client makes one client with its users.
func (p *population) client(ctx context.Context, i, users int, keep bool) (c client, err error) {
	var signed struct {
		Client, User struct{ ID string }
		Token        string
	}
	err = p.send(ctx, http.MethodPost, "/auth/signup", "", fmt.Appendf(nil,
		`{"email":"owner%d@example.com","password":"correct horse %d","company_name":"Company %d"}`, i, i, i), &signed)
	if err != nil {
		return c, err
	}
	c.id, c.owner, c.token = signed.Client.ID, signed.User.ID, signed.Token
	var key struct {
		RawKey string `json:"raw_key"`
		Record struct{ ID string }
	}
	if err = p.send(ctx, http.MethodPost, "/api/v1/clients/"+c.id+"/api_keys", c.token, []byte(`{"name":"bench"}`), &key); err != nil {
		return c, err
	}
	c.key, c.keyID = key.RawKey, key.Record.ID
	random := draws(uint64(i)) //nolint:gosec // an index
	var lines bytes.Buffer
	for n := range users {
		lines.Write(person(random, fmt.Sprintf("u%d", n)))
		lines.WriteByte('\n')
	}
	var imported struct{ Created int }
	if err = p.send(ctx, http.MethodPost, importPath, c.token, lines.Bytes(), &imported); err != nil {
		return c, err
	}
	if imported.Created != users {
		return c, fmt.Errorf("%d of %d users were imported", imported.Created, users)
	}
	c.users, err = p.list(ctx, c.token, keep)
	return c, err
}

// list returns all users of a client.
func (p *population) list(ctx context.Context, token string, keep bool) (all []user, err error) {
	for cursor := ""; ; {
		var page struct {
			Data       []user
			NextCursor *string `json:"next_cursor"`
		}
		if err := p.send(ctx, http.MethodGet, fmt.Sprintf("%s?limit=%d%s", usersPath, seedPageSize, cursor), token, nil, &page); err != nil {
			return nil, err
		}
		for _, u := range page.Data {
			if !keep {
				u = user{ID: u.ID}
			}
			all = append(all, u)
		}
		if page.NextCursor == nil {
			return all, nil
		}
		cursor = "&cursor=" + *page.NextCursor
	}
}

// send asks the API once and decodes what comes back.
func (p *population) send(ctx context.Context, method, path, token string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if path == importPath {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return p.do(r, into)
}

func (p *population) do(r *http.Request, into any) error {
	answer, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %d: %.300s", r.Method, r.URL.Path, answer.StatusCode, content)
	}
	return json.Unmarshal(content, into)
}

// draws is randomness of which nothing secret is made.
func draws(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable where it is to be
}

func chance() *rand.Rand { return draws(rand.Uint64()) } //nolint:gosec // as above

// person writes a user as imports and requests take one, with ten mixed traits.
func person(random *rand.Rand, external string) []byte {
	pick := func(names ...string) string { return names[random.IntN(len(names))] }
	return fmt.Appendf(nil, `{"external_id":"%s","traits":{"age":%d,"visits":%d,"spend":%.2f,"plan":"%s","city":"%s","vip":%t,`+
		`"likes":["l%d","l%d"],"joined":"20%02d-%02d-%02d","device":"%s","score":%.3f}}`,
		external, 18+random.IntN(60), random.IntN(300), 500*random.Float64(), pick("free", "pro", "team"),
		pick("berlin", "paris", "rome", "oslo", "wien"), random.IntN(2) == 0, random.IntN(20), 20+random.IntN(20),
		10+random.IntN(16), 1+random.IntN(12), 1+random.IntN(28), pick("phone", "tablet", "desktop"), random.Float64())
}

// fill gives the bare handlers what kindred shows of its users and keys.
func (p *population) fill(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, ceilingTables); err != nil {
		return err
	}
	var users, keys [][]any
	for _, c := range p.clients {
		hash := sha256.Sum256([]byte(c.key))
		keys = append(keys, []any{hash[:], c.keyID, c.id, c.owner, "read write"})
		for n, u := range c.users {
			users = append(users, []any{c.id, u.ID, int64(n + 1), u.ExternalID, u.Traits, u.CreatedAt, u.UpdatedAt})
		}
	}
	columns := []string{"client", "id", "created_position", "external_id", "traits", "created_at", "updated_at"}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"users"}, columns, pgx.CopyFromRows(users)); err != nil {
		return err
	}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"keys"}, []string{"hash", "id", "client", "issued_by", "scopes"}, pgx.CopyFromRows(keys)); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE")
	return err
}
