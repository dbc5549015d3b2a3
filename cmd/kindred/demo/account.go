package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

type client struct {
	ID, Slug, Name, Status, Tier string
	CreatedAt                    time.Time `json:"created_at"`
}

type member struct{ ID, Email, Role string }

type session struct {
	Token     string
	ExpiresIn int `json:"expires_in"` // seconds
	Scopes    []string
}

type keyRecord struct {
	ID, Name, Fingerprint string
	ClientID              string `json:"client_id"`
	Revoked               bool
}

// companies are who may sign up; which one is left to chance.
var companies = []string{
	"Larkspur Dating", "Harbour Mentors", "Tandem Tutors", "Kindling Clubs", "Meridian Jobs", "Foxglove Homes",
	"Juniper Rides", "Campfire Games",
}

// signUp makes a client and its owner, and looks at what was made.
func (s *story) signUp(ctx context.Context) error {
	chance := rand.Text()
	s.password = rand.Text()
	company := companies[int(chance[0])%len(companies)]
	s.email = "ada-" + strings.ToLower(chance[:10]) + "@demo.example"
	var made struct {
		Client client
		User   member
		session
	}
	err := s.api.do(ctx, request{
		method: "POST", path: "/auth/signup", open: true, want: 201,
		body: map[string]string{"email": s.email, "password": s.password, "company_name": company},
	}, &made)
	if err != nil {
		return err
	}
	s.client, s.owner, s.login = made.Client, made.User, made.session
	switch {
	case made.Client.Name != company || made.Client.Status != "active" || made.Client.Tier != "graph":
		return fmt.Errorf("the client is %+v, not an active %q of the tier graph", made.Client, company)
	case made.User.Role != "owner" || made.User.Email != s.email:
		return fmt.Errorf("the user is %+v, not the owner %s", made.User, s.email)
	case made.ExpiresIn <= 0 || made.Token == "":
		return fmt.Errorf("the token is missing, or is valid for %d seconds", made.ExpiresIn)
	}
	var shown client
	if err := s.api.do(ctx, request{method: "GET", path: s.clientPath(), token: s.login.Token, want: 200}, &shown); err != nil {
		return err
	}
	if shown.ID != s.client.ID || shown.Slug != s.client.Slug {
		return fmt.Errorf("the client reads as %s (%s), but signed up as %s (%s)", shown.ID, shown.Slug, s.client.ID, s.client.Slug)
	}
	s.page.table(nil, [][]string{
		{"company", shown.Name + " (" + shown.Slug + ")"},
		{"client", shown.ID},
		{"owner", s.owner.Email + ", " + s.owner.ID},
		{"state", shown.Status + ", tier " + shown.Tier + ", since " + shown.CreatedAt.Format(time.RFC3339)},
		{"token", fmt.Sprintf("valid for %d s, scopes %s", s.login.ExpiresIn, strings.Join(s.login.Scopes, ", "))},
	})
	return nil
}

func (s *story) clientPath() string { return "/api/v1/clients/" + s.client.ID }

// authorize makes an API key and exchanges it for the token that the rest of
// the story is told with.
func (s *story) authorize(ctx context.Context) error {
	scopes := []string{"read", "write", "webhooks", "erase"}
	var made struct {
		RawKey string `json:"raw_key"`
		Record keyRecord
	}
	err := s.api.do(ctx, request{
		method: "POST", path: s.clientPath() + "/api_keys", token: s.login.Token, want: 201,
		body: map[string]any{"name": "demo server", "scopes": scopes},
	}, &made)
	if err != nil {
		return err
	}
	s.key = made.Record
	if made.RawKey == "" || s.key.Fingerprint == "" || s.key.ClientID != s.client.ID || s.key.Revoked {
		return fmt.Errorf("the key %s is not a fresh key of the client %s", s.key.ID, s.client.ID)
	}
	s.api.rawKey = made.RawKey
	token, err := s.api.fresh(ctx)
	if err != nil {
		return err
	}
	left := time.Until(s.api.expires).Round(time.Second)
	s.page.say("Key %q, fingerprint %s. The key itself was shown once, and is not shown here.", s.key.Name, s.key.Fingerprint)
	s.page.say("Exchanged for a token of %s that may %s. Nobody may use a broken one:", left, strings.Join(scopes, ", "))
	return s.refuseForged(ctx, token)
}

// refuseForged changes one character in the middle of a token's signature.
func (s *story) refuseForged(ctx context.Context, token string) error {
	forged := []byte(token)
	signature := strings.LastIndexByte(token, '.') + 1
	at := signature + (len(token)-signature)/2
	if forged[at] != 'A' {
		forged[at] = 'A'
	} else {
		forged[at] = 'B'
	}
	err := s.api.do(ctx, request{method: "GET", path: "/api/v1/users", token: string(forged), want: 401}, nil)
	if err != nil {
		return fmt.Errorf("a forged token was not refused: %w", err)
	}
	s.page.say("the same with one character changed is answered with 401.")
	return nil
}
