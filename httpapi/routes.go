package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"kindred/httpapi/docsite"
)

// routes finds the route of a request among those with the same key. A mux.Router tries its
// routes one after the other, each with a regular expression for which it escapes the path anew,
// and the contract and the documentation have hundreds of them.
type routes struct {
	near  map[routeKey]*mux.Router
	fixed map[string][]string // the methods of each path without a variable, such as /users/import, which is no /users/{user_id}
	none  http.Handler        // answers a request that has no route
}

// routeKey is what tells most routes apart.
type routeKey struct {
	method   string
	begin    string // of the path, up to its fourth segment
	segments int
}

func keyOf(method, path string) routeKey {
	l := routeKey{method: method, begin: path, segments: strings.Count(path, "/")}
	for i, seen := 0, 0; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if seen++; seen == 4 {
			l.begin = path[:i]
			break
		}
	}
	return l
}

// fits says whether a path is one of a template, such as /users/{user_id}.
func fits(template, path string) bool {
	for template != "" {
		var want, got string
		want, template, _ = strings.Cut(template, "/")
		got, path, _ = strings.Cut(path, "/")
		if want != got && (got == "" || !strings.HasPrefix(want, "{")) {
			return false
		}
	}
	return path == ""
}

func newRouter() *mux.Router { return mux.NewRouter().UseEncodedPath().SkipClean(true) }

// newRoutes serves the routes that all has by now, and with none what has no route.
func newRoutes(all *mux.Router, middleware mux.MiddlewareFunc, none http.Handler) (*routes, error) {
	r := &routes{near: map[routeKey]*mux.Router{}, fixed: map[string][]string{}, none: none}
	return r, all.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return fmt.Errorf("route %s: %w", route.GetName(), err)
		}
		methods, err := route.GetMethods()
		if err != nil {
			return fmt.Errorf("route %s: %w", route.GetName(), err)
		}
		if !strings.Contains(path, "{") {
			r.fixed[path] = append(r.fixed[path], methods...)
		}
		for _, method := range methods {
			key := keyOf(method, path)
			if strings.Contains(key.begin, "{") {
				return fmt.Errorf("route %s: its first three segments hold a variable", route.GetName())
			}
			if r.near[key] == nil {
				r.near[key] = newRouter()
				r.near[key].Use(middleware)
				r.near[key].NotFoundHandler = none
			}
			r.near[key].Handle(path, route.GetHandler()).Methods(method).Name(route.GetName())
		}
		return nil
	})
}

func (r *routes) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if near := r.of(request); near != nil {
		near.ServeHTTP(w, request)
		return
	}
	r.none.ServeHTTP(w, request)
}

// of is the router that may have the request's route, or nil.
func (r *routes) of(request *http.Request) *mux.Router {
	path := request.URL.EscapedPath()
	if methods, fixed := r.fixed[path]; fixed && !slices.Contains(methods, request.Method) {
		return nil
	}
	return r.near[keyOf(request.Method, path)]
}

// has says whether a request has a route.
func (r *routes) has(request *http.Request) bool {
	near, match := r.of(request), mux.RouteMatch{}
	return near != nil && near.Match(request, &match) && match.MatchErr == nil
}

// ofAPI tells a path that costs something from one of the service's own pages,
// and from the keys of tokens, which are at hand.
func ofAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") ||
		path == "/.well-known/audit-jwks.json" || path == docsite.SearchPath
}
