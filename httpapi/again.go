package httpapi

import (
	"context"
	"net/http"
	"time"

	"kindred/domain/fault"
)

// again repeats a handler that fails with a fault which says how to wait for an
// answer (fault.Fault.Soon): the request gives up its place, waits as one of a
// bounded number, and takes a place again. A wait of over a second gives way to
// another client's where too many wait. Such a fault comes before anything was
// recorded. The body of a stream is read once, so that is never repeated.
func (e *edge) again(handle StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		for {
			response, err := handle(ctx, w, r, request)
			f := fault.As(err)
			if f == nil || f.Soon == nil || exchangeFrom(ctx).op.streams {
				return response, err
			}
			if ctx, err = e.wait(ctx, f.Soon); err != nil {
				return nil, err
			}
		}
	}
}

// wait waits while the request of ctx holds no place of its class.
func (e *edge) wait(ctx context.Context, soon func(context.Context) (context.Context, error)) (context.Context, error) {
	x := exchangeFrom(ctx)
	inner, end := context.WithCancel(ctx)
	defer end()
	after := ctx
	err := x.rec.without(ctx, x.client(), func() error {
		return e.waiting.during(ctx, x.client(), waits(tolerated, end), func() error {
			reached, err := soon(inner)
			after = carried{ctx, reached}
			return err
		})
	})
	return after, err
}

// carried is a context with the values of another, which may have ended.
type carried struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (c carried) Value(key any) any { return c.values.Value(key) }

const tooMuch = "Too much is going on. Try again."

func overloaded() error {
	return fault.New(fault.Unavailable, "overloaded", tooMuch).After(time.Second)
}
