// Package writeapi answers the HTTP requests that change something. Each
// handler turns a request that is already authenticated and valid into one
// command, and what the command did into the answer of the contract.
package writeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
)

// API is the writing half of the generated server interface.
type API struct {
	Commands *commands.Commands
	Cursors  httpapi.Cursors
	Lines    httpapi.UserLines // the rules for the lines of an import
	Imports  Imports
	// Login makes the token of a member who has just signed up.
	Login func(ctx context.Context, account commands.Account) (Login, error)
	// ExternalIDs names users as their client does. Users who are gone are
	// left out.
	ExternalIDs func(ctx context.Context, client id.Client, users []id.User) (map[id.User]string, error)
	// TraitSchema is a client's trait schema as it is now, and its entity tag.
	TraitSchema func(ctx context.Context, client id.Client) (httpapi.TraitSchema, string, error)
	// InferredTraits are those that users would give by themselves, and how many paths too
	// many they have. Nothing is recorded.
	InferredTraits func(ctx context.Context, client id.Client, users map[string]json.RawMessage) ([]httpapi.Trait, int, error)
	Deliveries     Deliveries
	Rebuilds       Rebuilds
	// ScopeOf finds what a clustering run divides, or fails with a fault of kind
	// Missing.
	ScopeOf func(ctx context.Context, client id.Client, run id.Run) (event.RunScope, error)
	// SessionOf finds whose a session is, or fails with a fault of kind Missing.
	SessionOf func(ctx context.Context, client id.Client, session id.Session) (id.Member, error)
}

// Login is a token and what it allows.
type Login struct {
	Token     string
	ExpiresIn time.Duration
	Scopes    []string
}

// call says on whose behalf a request changes something.
func call(ctx context.Context) commands.Call {
	p, c := httpapi.PrincipalFrom(ctx), httpapi.CallFrom(ctx)
	out := commands.Call{
		Client: p.Client, Member: p.Member, Actor: p.Actor(),
		Correlation: string(c.ID), Trace: eventstore.TraceOf(ctx), Seed: c.Seed, Request: c.BodyMAC,
	}
	out.IfExists, out.IfNoneMatch, out.IfMatchUser = c.IfExists, c.IfNoneMatch, c.IfMatchUser
	if c.IfMatch != nil {
		revision := eventstore.Revision(*c.IfMatch)
		out.IfMatch = &revision
	}
	return out
}

// mayRead says whether who asks may be shown what was there before.
func mayRead(ctx context.Context) bool { return httpapi.PrincipalFrom(ctx).May("read") }

func etag(o commands.Outcome) string { return httpapi.ETag(int64(o.Revision)) }

func position(o commands.Outcome) string { return string(o.Position) }

// positionIfAny is null where nothing was written.
func positionIfAny(at eventstore.Position) *string { return httpapi.OrNull(string(at)) }

// under is the path of something that belongs to a client.
func under[T ~string](client id.Client, kind string, item T) string {
	return fmt.Sprintf("/api/v1/clients/%s/%s/%s", client, kind, item)
}
