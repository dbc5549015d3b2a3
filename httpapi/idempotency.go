package httpapi

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"kindred/domain/fault"
)

// idempotencyKey reads an Idempotency-Key; "": there is none.
func idempotencyKey(given []string) (string, error) {
	if len(given) == 0 {
		return "", nil
	}
	key := given[0]
	var wrong string
	switch {
	case len(given) > 1:
		wrong = "is given more than once"
	case key == "":
		wrong = "must not be empty"
	case len(key) > 255:
		wrong = "must have at most 255 characters"
	case strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }):
		wrong = "must be printable ASCII"
	default:
		return key, nil
	}
	return "", fault.NewInvalid(fault.Field{Pointer: headerIdempotencyKey, Detail: wrong})
}

// once runs next for a request that carries an Idempotency-Key, while no other
// with the same key is under way. Nothing of an answer is kept: a repeated
// request runs again, with identifiers derived from the same seed, and meets
// what it did before.
func (e *edge) once(w *recorder, r *http.Request, x *exchange, body []byte, next http.Handler) {
	key, route := x.call.IdempotencyKey, x.op.method+" "+x.op.path
	mac := keyedHash(e.o.Secret, "body", r.Method, r.URL.EscapedPath(), string(body))
	// What the log keeps for ever must not tell, by trying bodies, whom it was about:
	// the caller's key is kept nowhere.
	x.call.BodyMAC = hex.EncodeToString(keyedHash(e.o.Secret, "keyed body", key, r.Method, r.URL.EscapedPath(), string(body)))
	x.call.Seed = []string{string(x.principal.Client), route, key}
	if e.o.Reserve == nil {
		next.ServeHTTP(w, r)
		return
	}
	complete, err := e.o.Reserve(r.Context(), Repeat{
		Client: x.principal.Client, Route: route,
		Key: keyedHash(e.o.Secret, "key", key), Body: mac,
	})
	if err != nil {
		e.fail(w, r, err)
		return
	}
	// The caller may be gone by then; the key is completed all the same.
	defer e.complete(context.WithoutCancel(r.Context()), w, complete)
	next.ServeHTTP(w, r)
}

func (e *edge) complete(ctx context.Context, w *recorder, complete Complete) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := complete(ctx, w.status >= 200 && w.status < 300); err != nil {
		e.o.Logger.WarnContext(ctx, "idempotency key not completed", slog.Any("error", err), requestAttr(ctx))
	}
}
