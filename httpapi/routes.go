package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// routes finds the route of a request among the few that look like it: a
// router tries its routes one after the other, each with a regular expression,
// and the contract has many. What fits none of the few is for the router of all.
type routes struct {
	all *mux.Router
	few map[likeness]*mux.Router
}

// likeness is what tells most routes apart.
type likeness struct {
	method   string
	begin    string // of the path, up to its fourth segment
	segments int
}

func likenessOf(method, path string) likeness {
	l := likeness{method: method, begin: path, segments: strings.Count(path, "/")}
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
		if want != got && !strings.HasPrefix(want, "{") {
			return false
		}
	}
	return path == ""
}

func newRouter() *mux.Router { return mux.NewRouter().UseEncodedPath().SkipClean(true) }

// newRoutes serves the routes that all has by now.
func newRoutes(all *mux.Router, middleware mux.MiddlewareFunc) (*routes, error) {
	r := &routes{all: all, few: map[likeness]*mux.Router{}}
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
			like := likenessOf(method, path)
			if strings.Contains(like.begin, "{") {
				continue
			}
			if r.few[like] == nil {
				r.few[like] = newRouter()
				r.few[like].Use(middleware)
				r.few[like].NotFoundHandler = all
			}
			r.few[like].Handle(path, route.GetHandler()).Methods(method).Name(route.GetName())
		}
		return nil
	})
}

func (r *routes) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if few := r.few[likenessOf(request.Method, request.URL.EscapedPath())]; few != nil {
		few.ServeHTTP(w, request)
		return
	}
	r.all.ServeHTTP(w, request)
}
