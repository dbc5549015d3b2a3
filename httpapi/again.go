package httpapi

import (
	"context"
	"net/http"

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

// wait waits while the request of ctx holds no place of its class. The context that
// it returns ends with ctx.
func (e *edge) wait(ctx context.Context, soon func(context.Context) (context.Context, error)) (after context.Context, err error) {
	x := exchangeFrom(ctx)
	inner, end := context.WithCancel(ctx)
	err = x.rec.trade(ctx, x.client(), e.waiting, waits(tolerated, end), func() (err error) {
		after, err = soon(inner) //nolint:fatcontext // one for each wait, which the request goes on with
		return err
	})
	if err != nil {
		end()
	}
	return after, err
}
