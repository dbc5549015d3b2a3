// Package panics turns panics into errors. A request's own goroutine is caught by the HTTP server;
// where others work on what a client has sent, a panic would end the process for all clients, and
// again at each start where the work is taken up again.
package panics

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Catch, deferred, turns a panic into an error that says where it was.
func Catch(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v%s", p, where())
	}
}

// Caught is the error of work, or its panic as one.
func Caught(work func() error) (err error) {
	defer Catch(&err)
	return work()
}

const (
	shownFrames = 8
	aboveCaller = 3 // runtime.Callers, where and Catch
)

// where lists the functions in which a panic was, the innermost first, without the runtime's.
func where() string {
	pcs := make([]uintptr, 4*shownFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(aboveCaller, pcs)])
	var said strings.Builder
	for listed, more := 0, true; more && listed < shownFrames; {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.HasPrefix(frame.Function, "runtime.") {
			continue
		}
		listed++
		fmt.Fprintf(&said, "; %s:%d", frame.Function, frame.Line)
	}
	return said.String()
}

// Group is an [errgroup.Group] whose goroutines' panics are errors.
type Group struct{ *errgroup.Group }

// New makes a group.
func New() Group { return Group{new(errgroup.Group)} }

// WithContext makes a group, and a context that ends with its first error.
func WithContext(ctx context.Context) (Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return Group{group}, ctx
}

// Go does work beside.
func (g Group) Go(work func() error) { g.Group.Go(func() error { return Caught(work) }) }
