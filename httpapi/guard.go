package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"kindred/domain/fault"
	"kindred/domain/id"
)

// guard lets a request through to its handler when it is what the contract
// asks for.
func (e *edge) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, name := exchangeFrom(r.Context()), mux.CurrentRoute(r).GetName()
		op := e.operations[name]
		if op == nil {
			x.service = name
			next.ServeHTTP(w, r)
			return
		}
		x.op = op
		x.call.Export = op.wantsExport(r.Header.Values("Accept"))
		follows := op.follows(r.URL.RawQuery)
		if !op.streams && !x.call.Export && !follows {
			ctx, cancel := context.WithTimeout(r.Context(), e.o.Timeout)
			defer cancel()
			r = r.WithContext(ctx)
		}
		body, err := e.admit(w, r, x)
		if err != nil {
			w.(*recorder).leave() // what is yet to come of the body keeps nobody else out
			e.fail(w, r, err)
			if fault.Of(err, fault.TooLarge) {
				e.letFinish(w, r)
			}
			return
		}
		serve := func(ctx context.Context) {
			r := r.WithContext(ctx)
			if x.call.IdempotencyKey != "" {
				e.once(w.(*recorder), r, x, body, next)
				return
			}
			next.ServeHTTP(w, r)
		}
		switch {
		case follows:
			err = e.o.Follows.during(r.Context(), x.principal, serve)
		case op.streams || x.call.Export:
			err = e.streaming(r.Context(), x, serve)
		default:
			serve(r.Context())
		}
		if err != nil {
			e.fail(w, r, err)
		}
	})
}

// admit checks all of a request that can be checked without its handler, the
// cheap and the secret first: who is refused learns nothing more.
func (e *edge) admit(w http.ResponseWriter, r *http.Request, x *exchange) (body []byte, err error) {
	path, err := plainPath(mux.Vars(r))
	if err != nil {
		return nil, err
	}
	if x.op.access != nil {
		if x.principal, err = e.authenticate(r); err != nil {
			return nil, err
		}
		w.Header().Set(headerLivemode, strconv.FormatBool(!x.principal.Client.Sandbox()))
		if client, named := path["client_id"]; named && id.Client(client) != x.principal.Client {
			return nil, fault.New(fault.Forbidden, "other_client", "The token is not for this client.")
		}
		if err := permit(x.op, x.principal); err != nil {
			return nil, err
		}
		if err := e.limit(w, x.principal); err != nil {
			return nil, err
		}
	}
	if err := readHeaders(r, x); err != nil {
		return nil, err
	}
	if err := validateQuery(r, x.op); err != nil {
		return nil, err
	}
	if x.op.streams {
		if err := checkType(w, r, mediaLines, mediaCSV); err != nil {
			return nil, err
		}
		body := e.stream(w.(*recorder), r)
		r.Body = body
		if mediaType(r.Header.Get("Content-Type"), mediaCSV) {
			r.Body = struct {
				io.Reader
				io.Closer
			}{newCSVLines(body), body}
		}
		return nil, nil
	}
	if x.op.body == nil {
		return nil, nil
	}
	return e.readBody(w, r, x)
}

// plainPath takes the percent-encoding out of a route's variables, in place.
func plainPath(vars map[string]string) (map[string]string, error) {
	for name, escaped := range vars {
		plain, err := url.PathUnescape(escaped)
		if err != nil || !clean(plain) {
			return nil, fault.New(fault.Missing, "no_such_path", "There is no such path: %s must be UTF-8 without control characters.", name)
		}
		vars[name] = plain
	}
	return vars, nil
}

// These begin every API key, and no token: that of a sandbox, and any other.
const (
	APIKeyPrefix  = "kin_live_"
	TestKeyPrefix = "kin_test_"
)

func isAPIKey(text string) bool {
	return strings.HasPrefix(text, APIKeyPrefix) || strings.HasPrefix(text, TestKeyPrefix)
}

// credentials takes a header Authorization apart. Any number of spaces may stand
// behind the scheme (RFC 9110, 11.4).
func credentials(header string) (scheme, given string) {
	scheme, given, _ = strings.Cut(header, " ")
	return scheme, strings.TrimLeft(given, " ")
}

func (e *edge) authenticate(r *http.Request) (Principal, error) {
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return Principal{}, fault.New(fault.Unauthenticated, "token_missing",
			"Send a token from /auth/exchange as Authorization: Bearer …")
	}
	scheme, token := credentials(given[0])
	switch {
	case isAPIKey(token), isAPIKey(scheme):
		return Principal{}, fault.New(fault.Unauthenticated, "invalid_token",
			"This is an API key, not a token. Exchange it for one at POST /auth/exchange.")
	case len(given) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "":
		return Principal{}, fault.New(fault.Unauthenticated, "invalid_token",
			"The Authorization header is not a bearer token. Send it as Bearer, a space and the token.")
	}
	return e.o.Authenticator.Authenticate(r.Context(), token)
}

// permit says whether the token has what the operation asks for.
func permit(op *operation, p Principal) error {
	scopes := make([]string, 0, len(op.access))
	for _, need := range op.access {
		switch {
		case need.login && p.Key != "":
			return fault.New(fault.Forbidden, "login_required",
				"This takes a token from signup or login; one that was exchanged for an API key will not do.")
		case need.scope != "" && !p.May(need.scope):
			scopes = append(scopes, need.scope)
		default:
			return nil
		}
	}
	return fault.New(fault.Forbidden, "missing_scope", "This takes a token with the scope %s.", strings.Join(scopes, " or "))
}

// readHeaders reads the headers that operations share.
func readHeaders(r *http.Request, x *exchange) error {
	if x.op.repeatable {
		var err error
		if x.call.IdempotencyKey, err = idempotencyKey(r.Header.Values(headerIdempotencyKey)); err != nil {
			return err
		}
	}
	if given := r.Header.Values(headerConsistency); x.op.reads && len(given) > 0 {
		if len(given) > 1 || given[0] != "eventual" {
			return fault.NewInvalid(fault.Field{Pointer: headerConsistency, Detail: "must be one of eventual"})
		}
		x.call.Eventual = true
	}
	if x.op.conditional {
		if err := x.ifMatch(r.Header.Values(headerIfMatch)); err != nil {
			return err
		}
		x.call.IfExists = x.call.IfMatch == nil && r.Header.Get(headerIfMatch) != ""
	}
	if given := r.Header.Values(headerIfNoneMatch); x.op.making && len(given) > 0 {
		if len(given) > 1 || strings.TrimSpace(given[0]) != "*" {
			return fault.NewInvalid(fault.Field{Pointer: headerIfNoneMatch, Detail: "must be *"})
		}
		x.call.IfNoneMatch = true
	}
	return nil
}

// ifMatch reads an If-Match (RFC 9110, section 13.1.1) with one entity tag.
func (x *exchange) ifMatch(given []string) error {
	if len(given) == 0 || len(given) == 1 && strings.TrimSpace(given[0]) == "*" {
		return nil
	}
	tag := strings.TrimSpace(given[0])
	if len(given) > 1 || strings.Contains(tag, ",") {
		return fault.NewInvalid(fault.Field{Pointer: headerIfMatch, Detail: "must be one entity tag"})
	}
	if opaque := strings.TrimPrefix(tag, "W/"); len(opaque) < 2 || opaque[0] != '"' || !strings.HasSuffix(opaque, `"`) {
		return fault.NewInvalid(fault.Field{Pointer: headerIfMatch, Detail: `must be an entity tag, in its quotes, as in "3"`})
	}
	user, revision, ok := readETag(tag)
	if !ok || (user != "") != x.op.ofUser {
		user, revision = "", noRevision
	}
	x.call.IfMatch, x.call.IfMatchUser = &revision, user
	return nil
}

// receive takes the rest of a body that has not come at once.
func (e *edge) receive(r *http.Request, x *exchange, b *buffered) error {
	m, waits := &meter{now: e.o.Now}, cutter{deadline: http.NewResponseController(x.rec).SetReadDeadline}
	defer func() {
		if waits.end() {
			x.rec.Header().Set("Connection", "close")
		}
	}()
	b.from = metered{b.from, m}
	return x.rec.trade(r.Context(), x.client(), e.bodies, m.holder(waits.cut), func() error {
		if b.fill(x.op.bodyLimit); b.err != nil {
			return incomplete()
		}
		return nil
	})
}

// readBody reads, checks and validates a JSON body, and leaves it to be read again.
func (e *edge) readBody(w http.ResponseWriter, r *http.Request, x *exchange) ([]byte, error) {
	op := x.op
	if r.ContentLength > op.bodyLimit {
		return nil, tooLarge(op)
	}
	b := buffer(r)
	if !b.whole(op.bodyLimit) {
		if err := e.receive(r, x, b); err != nil {
			return nil, err
		}
	}
	body := b.buf.Bytes()
	switch {
	case b.err != nil:
		return nil, incomplete()
	case int64(len(body)) > op.bodyLimit:
		return nil, tooLarge(op)
	case len(body) == 0 && op.bodyRequired:
		return nil, fault.New(fault.Unreadable, "body_missing", "The request needs a body.")
	case len(body) == 0:
		return nil, nil
	}
	if err := checkType(w, r, "application/json"); err != nil {
		return nil, err
	}
	told := checkJSON(body)
	if told == nil && op.plain != nil && op.plain(body) {
		return body, nil
	}
	return body, validateBody(op.body, body, told)
}

const (
	finishWithin = 2 * time.Second
	finishBytes  = 32 << 20
)

// letFinish takes the rest of a body that was refused: many callers do not
// look for an answer before they have sent all of it, and never see that of a
// connection that is closed on them meanwhile.
func (e *edge) letFinish(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	if conn.Flush() == nil && conn.SetReadDeadline(e.o.Now().Add(finishWithin)) == nil {
		_, _ = io.CopyN(io.Discard, r.Body, finishBytes) // whoever sends more, or slowly, is cut off
	}
}

func tooLarge(op *operation) error {
	return fault.New(fault.TooLarge, "body_too_large", "The body is larger than %d bytes.", op.bodyLimit)
}

// checkType refuses a body of none of these types, or one that is compressed,
// and says what is taken (RFC 9110, section 15.5.16). Every PATCH is a merge patch
// (RFC 7396), and may be called that.
func checkType(w http.ResponseWriter, r *http.Request, types ...string) error {
	given := r.Header.Get("Content-Type")
	switch {
	case encoded(r):
		w.Header().Set("Accept-Encoding", "identity")
		return fault.New(fault.WrongType, "wrong_content_type", "The body is compressed. Send it without a Content-Encoding.")
	case slices.ContainsFunc(types, func(of string) bool { return mediaType(given, of) }),
		r.Method == http.MethodPatch && mediaType(given, "application/merge-patch+json"):
		return nil
	}
	return fault.New(fault.WrongType, "wrong_content_type", "Send %s, in UTF-8.", strings.Join(types, " or "))
}

// encoded says whether the body is compressed or the like, which nobody here
// undoes. An element of the list that is empty is none (RFC 9110, section 5.6.1.2).
func encoded(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Content-Encoding"), ","), ",") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}

// limit counts a request against its token and, where that has not used up its
// own, against its client, whose other tokens pay for no refusals.
func (e *edge) limit(w http.ResponseWriter, p Principal) error {
	if e.o.Limits.Off {
		return nil
	}
	now := e.o.Now()
	ofToken, wait := e.tokens.take(p.TokenID, 1, now)
	n := 1
	if wait > 0 {
		n = 0
	}
	ofClient, waitClient := e.clients.take(string(p.Client), n, now)
	header := w.Header()
	header.Set("RateLimit-Policy", e.ratePolicy)
	header.Set("RateLimit", ofToken+", "+ofClient)
	if wait = max(wait, waitClient); wait > 0 {
		return fault.New(fault.Limited, "rate_limited", "Too many requests. Slow down.").After(wait)
	}
	return nil
}
