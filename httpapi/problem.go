package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi/docsite"
)

// A caller that did not wait, as nginx logs it, and as we do.
const (
	statusGone = 499
	codeGone   = "cancelled"
)

// status is the one table from faults to HTTP.
func status(kind fault.Kind) int {
	switch kind {
	case fault.Unreadable:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.Missing:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Gone:
		return http.StatusGone
	case fault.Stale:
		return http.StatusPreconditionFailed
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.WrongType:
		return http.StatusUnsupportedMediaType
	case fault.Invalid:
		return http.StatusUnprocessableEntity
	case fault.Limited:
		return http.StatusTooManyRequests
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// fail answers a request with what err says. A fault is shown, anything else is
// logged, here alone, and shown as "internal".
func (e *edge) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	rec, ok := w.(*recorder)
	if ok && rec.status != 0 {
		exchangeFrom(ctx).code = codeGone // answers are whole before they are written
		return
	}
	if ok && rec.ended() {
		rec.class.shed.Inc()
		err = overloaded()
	} else if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled) {
		switch why := context.Cause(ctx); {
		case errors.Is(why, ErrStopping):
			err = notReady()
		case !errors.Is(why, context.Canceled): // its token has ended, or nobody could say
			err = why
		default:
			e.write(w, r, statusGone, codeGone, "The caller has gone away.", nil) // nobody reads it
			return
		}
	}
	f := fault.As(err)
	overdue := errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) // not that of a part of it
	if f == nil && !overdue && e.o.Classify != nil {
		if f = e.o.Classify(ctx, err); f != nil {
			e.o.Logger.WarnContext(ctx, "request not answered", slog.Any("error", err), requestAttr(ctx))
		}
	}
	switch {
	case f != nil:
	case errors.Is(err, context.DeadlineExceeded):
		f = fault.New(fault.Unavailable, "timeout", "The request took too long. Try again.")
		e.o.Logger.WarnContext(ctx, "request timed out", slog.Any("error", err), requestAttr(ctx))
	default:
		e.o.Logger.ErrorContext(ctx, "request failed", slog.Any("error", err), requestAttr(ctx))
		e.write(w, r, http.StatusInternalServerError, "internal", "Something went wrong on our side.", nil)
		return
	}
	if f.Code == "overloaded" {
		e.tellTurnedAway(ctx)
	}
	header := w.Header()
	if op := exchangeFrom(ctx).op; op != nil && op.streams {
		header.Set("Connection", "close") // or net/http would first wait for some of the body, up to its time-out
	}
	if f.Kind == fault.Unauthenticated {
		header.Set("WWW-Authenticate", challenge(r, f))
	}
	if f.RetryAfter > 0 || f.Kind == fault.Limited || f.Kind == fault.Unavailable {
		header.Set("Retry-After", seconds(f.RetryAfter))
	}
	fields := make([]FieldError, len(f.Fields))
	for i, field := range f.Fields {
		fields[i] = FieldError{Pointer: field.Pointer, Detail: field.Detail}
	}
	e.write(w, r, status(f.Kind), f.Code, f.Detail, fields)
}

// Narrower says how to ask for less: by the filters and the limit that the
// operation of a request takes. It is empty where it takes none.
func Narrower(ctx context.Context) string {
	op := exchangeFrom(ctx).op
	if op == nil {
		return ""
	}
	var names []string
	for _, p := range op.query {
		if p.Name != "cursor" && p.Name != "personal" {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " Ask for less by " + strings.Join(names, ", ") + "."
}

// write sends a problem.
func (e *edge) write(w http.ResponseWriter, r *http.Request, status int, code, detail string, fields []FieldError) {
	x := exchangeFrom(r.Context())
	x.code = code
	body, err := json.Marshal(Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Code: code, RequestID: string(x.call.ID), Errors: fields,
	})
	if err != nil {
		panic(err) // strings and numbers only
	}
	body = append(body, '\n')
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Link", helpLink(code))
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(body))) // so that it has ended before a body that is refused has
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that has gone away is not our trouble
}

// helpLink leads to the page about a code (RFC 8288).
func helpLink(code string) string { return "<" + docsite.CodePath(code) + `>; rel="help"` }

// challenge is the WWW-Authenticate of RFC 6750, section 3: without an error
// where no token was sent.
func challenge(r *http.Request, f *fault.Fault) string {
	if r.Header.Get("Authorization") == "" {
		return `Bearer realm="kindred"`
	}
	return `Bearer realm="kindred", error="invalid_token", error_description=` + strconv.QuoteToASCII(f.Detail)
}

// seconds writes a Retry-After: whole seconds, rounded up, at least one.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

func requestAttr(ctx context.Context) slog.Attr {
	return slog.String("request_id", string(exchangeFrom(ctx).call.ID))
}
