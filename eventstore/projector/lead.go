package projector

import "context"

// Lead does work under a lease of its own whenever no other process does,
// until ctx ends; then it returns nil. The context of the work ends with the
// lease; work that returns before rests and is begun again.
func (r *Runner) Lead(ctx context.Context, name string, work func(context.Context) error) error {
	return r.terms(ctx, name, func(ctx context.Context, _ lease) error { return work(ctx) })
}
