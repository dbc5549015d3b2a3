package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"kindred/httpapi/docsite"
)

// routes finds the route of a request among those with the same key. A mux.Router tries its
// routes one after the other, each with a regular expression, and the contract has many. A
// request that fits none of them goes to the router of all.
type routes struct {
	all  *mux.Router
	near map[routeKey]*mux.Router
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

// newRoutes serves the routes that all has by now.
func newRoutes(all *mux.Router, middleware mux.MiddlewareFunc) (*routes, error) {
	r := &routes{all: all, near: map[routeKey]*mux.Router{}}
	return r, all.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return fmt.Errorf("route %s: %w", route.GetName(), err)
		}
		methods, err := route.GetMethods()
		if err != nil {
			return fmt.Errorf("route %s: %w", route.GetName(), err)
		}
		for _, method := range methods {
			key := keyOf(method, path)
			if strings.Contains(key.begin, "{") {
				continue
			}
			if r.near[key] == nil {
				r.near[key] = newRouter()
				r.near[key].Use(middleware)
				r.near[key].NotFoundHandler = all
			}
			r.near[key].Handle(path, route.GetHandler()).Methods(method).Name(route.GetName())
		}
		return nil
	})
}

func (r *routes) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if near := r.near[keyOf(request.Method, request.URL.EscapedPath())]; near != nil {
		near.ServeHTTP(w, request)
		return
	}
	r.all.ServeHTTP(w, request)
}

// ofAPI tells a path that costs something from one of the service's own pages,
// and from the keys of tokens, which are at hand.
func ofAPI(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") ||
		path == "/.well-known/audit-jwks.json" || path == docsite.SearchPath
}
