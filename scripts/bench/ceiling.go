package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/gorilla/mux"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/postgres"
)

const (
	envCeilingURL    = "BENCH_CEILING_DATABASE_URL"
	envCeilingListen = "BENCH_CEILING_LISTEN"
	headerClient     = "X-Client"
	maxBody          = 1 << 20
)

const ceilingTables = `
CREATE TABLE users (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        bigint NOT NULL,
	external_id text NOT NULL,
	traits      json NOT NULL,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX users_listed ON users (client, created_position);
CREATE TABLE new_users (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	external_id text NOT NULL,
	traits      json NOT NULL,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE TABLE keys (
	hash      bytea PRIMARY KEY,
	id        text NOT NULL,
	client    text NOT NULL,
	issued_by text NOT NULL,
	scopes    text NOT NULL
);`

// ceiling is what kindred is held against: handlers that run one statement
// each, without tokens, checks, limits, logs or metrics, in a process of their
// own with the same router, driver, pool and server settings.
type ceiling struct {
	pool   *pgxpool.Pool
	signer jose.Signer
}

// serveCeiling serves until ctx ends.
func serveCeiling(ctx context.Context) error {
	pool, err := postgres.Open(ctx, os.Getenv(envCeilingURL), postgres.Options{AppName: "ceiling"})
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := ceiling{pool: pool}
	c.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "ceiling"}}, nil)
	if err != nil {
		return err
	}
	router := mux.NewRouter()
	router.HandleFunc(usersPath+"/{user_id}", answering(http.StatusOK, c.user)).Methods(http.MethodGet)
	router.HandleFunc(usersPath, answering(http.StatusOK, c.list)).Methods(http.MethodGet)
	router.HandleFunc(usersPath, answering(http.StatusCreated, c.create)).Methods(http.MethodPost)
	router.HandleFunc(exchangePath, answering(http.StatusOK, c.exchange)).Methods(http.MethodPost)
	router.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {}).Methods(http.MethodGet)

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", os.Getenv(envCeilingListen))
	if err != nil {
		return err
	}
	// As httpapi.NewServer has it.
	server := &http.Server{
		Handler: router, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func answering(status int, handler func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := handler(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(out) // the caller may have gone
	}
}

// user is an end user as both sides show one.
type user struct {
	CreatedAt  time.Time       `json:"created_at"`
	ExternalID string          `json:"external_id"`
	ID         string          `json:"id"`
	Traits     json.RawMessage `json:"traits"`
	UpdatedAt  time.Time       `json:"updated_at"`
}

func (u *user) columns() []any {
	return []any{&u.ID, &u.ExternalID, &u.Traits, &u.CreatedAt, &u.UpdatedAt}
}

const selectUser = `SELECT id, external_id, traits, created_at, updated_at FROM users WHERE client = $1 AND id = $2`

func (c ceiling) user(r *http.Request) (any, error) {
	var u user
	err := c.pool.QueryRow(r.Context(), selectUser, r.Header.Get(headerClient), mux.Vars(r)["user_id"]).Scan(u.columns()...)
	return u, err
}

const selectUsers = `
SELECT id, external_id, traits, created_at, updated_at FROM users WHERE client = $1 AND created_position > $2 ORDER BY created_position LIMIT $3`

func (c ceiling) list(r *http.Request) (any, error) {
	rows, err := c.pool.Query(r.Context(), selectUsers, r.Header.Get(headerClient), 0, listLimit)
	if err != nil {
		return nil, err
	}
	users, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u user, err error) {
		return u, row.Scan(u.columns()...)
	})
	return map[string]any{"data": users, "next_cursor": "a cursor, opaque to who gets it, as long as one"}, err
}

const insertUser = `
INSERT INTO new_users (client, id, external_id, traits, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)`

func (c ceiling) create(r *http.Request) (any, error) {
	var u user
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&u); err != nil {
		return nil, err
	}
	u.ID = string(id.Next[id.User](id.Random(rand.Reader)))
	u.CreatedAt = time.Now().UTC()
	u.UpdatedAt = u.CreatedAt
	_, err := c.pool.Exec(r.Context(), insertUser, r.Header.Get(headerClient), u.ID, u.ExternalID, u.Traits, u.CreatedAt)
	return u, err
}

const selectKey = `SELECT id, client, issued_by, scopes FROM keys WHERE hash = $1`

func (c ceiling) exchange(r *http.Request) (any, error) {
	var asked struct {
		APIKey string `json:"api_key"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&asked); err != nil {
		return nil, err
	}
	var claims struct {
		Issuer   string `json:"iss"`
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		Party    string `json:"azp"`
		Scope    string `json:"scope"`
		ID       string `json:"jti"`
		IssuedAt int64  `json:"iat"`
		Expires  int64  `json:"exp"`
	}
	hash := sha256.Sum256([]byte(asked.APIKey))
	err := c.pool.QueryRow(r.Context(), selectKey, hash[:]).Scan(&claims.Party, &claims.Audience, &claims.Subject, &claims.Scope)
	if err != nil {
		return nil, err
	}
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	claims.Issuer, claims.ID = "http://127.0.0.1:8080", base64.RawURLEncoding.EncodeToString(name[:])
	claims.IssuedAt = time.Now().Unix()
	claims.Expires = claims.IssuedAt + 900
	payload, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	signed, err := c.signer.Sign(payload)
	if err != nil {
		return nil, err
	}
	token, err := signed.CompactSerialize()
	return map[string]any{"token": token, "expires_in": 900, "scopes": []string{"read", "write"}}, err
}
