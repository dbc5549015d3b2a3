package conformance

import (
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

//go:embed operations.gen.json
var operationsFile []byte

type operation struct {
	ID, Resource, Method, HTTP, Path   string
	Parameters, Query, Errors          []string
	Body, Lines, Key, Open, List, None bool
}

var operations = func() (list []operation) {
	if err := json.Unmarshal(operationsFile, &list); err != nil {
		panic(err)
	}
	return list
}()

// call makes the arguments of an operation: an id for each part of its path, an
// empty body.
func (o operation) call() command {
	c := command{}
	if len(o.Parameters) > 0 {
		c["path"] = o.Parameters
	}
	if o.Body {
		c["body"] = command{}
	}
	if o.Lines {
		c["lines"] = "{}\n"
	}
	switch o.ID {
	case "getHistoryState":
		c["params"] = command{"at": "10"}
	case "getStatistics":
		c["params"] = command{"metric": "users"}
	}
	return c
}

func (o operation) path() string {
	path := strings.Replace(o.Path, "{client_id}", "cli_1", 1)
	for _, p := range o.Parameters {
		path = strings.Replace(path, "{"+p+"}", p, 1)
	}
	return path
}

// TestEveryOperationIsSentAndEachRefusalIsTold calls each operation of the
// contract where it succeeds, and where it gets each answer that it documents.
func TestEveryOperationIsSentAndEachRefusalIsTold(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, o := range operations {
			if o.ID == "exchangeAPIKey" { // what plays the server answers that one itself
				continue
			}
			t.Run(o.ID, func(t *testing.T) {
				var mu sync.Mutex
				status := 0
				s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
					_, _ = io.Copy(io.Discard, r.Body)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case status > 0:
						refuse(w, status, "a_code")
					case o.None:
						w.WriteHeader(http.StatusNoContent)
					case o.List:
						respond(w, 200, `{"data":[],"next_cursor":null}`)
					default:
						respond(w, 200, `{}`)
					}
				})
				d.client(o.ID, s.URL, command{"max_retries": -1, "token": tokenOf(1)})
				d.must(o.ID, o.Resource+"."+o.Method, o.call())
				a := s.seen()[0]
				if query := map[string]string{"getHistoryState": "at=10", "getStatistics": "metric=users"}[o.ID]; a.Query != query {
					t.Errorf("its query is %q, want %q", a.Query, query)
				}
				if a.Method != o.HTTP || a.Path != o.path() || (a.Key != "") != o.Key || (a.Token == "") != o.Open {
					t.Errorf("sent %s %s, key %q, token %q", a.Method, a.Path, a.Key, a.Token)
				}
				for _, text := range o.Errors {
					mu.Lock()
					status, _ = strconv.Atoi(text) // statuses are numbers
					mu.Unlock()
					f := d.fails("refused", o.ID, o.Resource+"."+o.Method, o.call())
					if f.Code != "a_code" || strconv.Itoa(f.Status) != text || f.RequestID != "req_1" || f.Attempts != 1 {
						t.Errorf("%s is told as %+v", text, f)
					}
				}
			})
		}
	})
}
