package projections_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/segments"
)

// asking notes what is asked of the database, and by whom.
type asking struct {
	mu    sync.Mutex
	asks  string
	asked map[string]string
}

func (s *asking) note(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[sql] == "" {
		s.asked[sql] = s.asks
	}
}

// TraceQueryStart implements [pgx.QueryTracer].
func (s *asking) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.note(q.SQL)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*asking) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// some is a value of a type that is not zero, as far as one can be made.
func some(of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.Append(v, some(of.Elem())))
	case reflect.Pointer:
		if of == reflect.TypeFor[*time.Location]() {
			return reflect.ValueOf(time.UTC)
		}
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(some(of.Elem()))
	case reflect.Struct:
		if of == reflect.TypeFor[time.Time]() {
			return reflect.ValueOf(time.Unix(1_700_000_000, 0))
		}
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				v.Field(i).Set(some(of.Field(i).Type))
			}
		}
	}
	return v
}

// Each method that asks about a client says so of each table, whatever it is asked with: no
// query can meet another client's rows by a mistake in an id. Nothing is there to be found.
func TestEachQueryOfAReadModelNamesTheClient(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.All()...)
	asked := &asking{asked: map[string]string{}}
	config := w.Pool.Config()
	config.ConnConfig.Tracer = asked
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	reader := w.Reader
	reader.Pool = pool
	models := []any{segments.New(reader), projections.MatchQueue{Reader: reader}}
	for _, m := range projections.All() {
		model := reflect.New(reflect.TypeOf(m)).Elem()
		if model.Type() != reflect.TypeFor[segments.Model]() {
			model.FieldByName("Reader").Set(reflect.ValueOf(reader))
			models = append(models, model.Interface())
		}
	}
	for _, m := range models {
		model := reflect.ValueOf(m)
		for i := range model.NumMethod() {
			method := model.Type().Method(i)
			takes := model.Method(i).Type()
			if takes.NumIn() < 2 || takes.In(0) != reflect.TypeFor[context.Context]() || takes.In(1) != reflect.TypeFor[id.Client]() {
				continue
			}
			asked.asks = fmt.Sprintf("%T.%s", m, method.Name)
			for zero := -1; zero <= takes.NumIn(); zero++ { // none, each, and in the end all
				args := []reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(w.Acme)}
				for n := 2; n < takes.NumIn(); n++ {
					if zero == n || zero == takes.NumIn() {
						args = append(args, reflect.Zero(takes.In(n)))
					} else {
						args = append(args, some(takes.In(n)))
					}
				}
				func() {
					defer func() { _ = recover() }() // of what is asked with nothing
					if takes.IsVariadic() {
						model.Method(i).CallSlice(args)
					} else {
						model.Method(i).Call(args)
					}
				}()
			}
		}
	}
	tenancy, looked := pgtest.TenancyOf(t.Context(), t, w.Pool), 0
	for sql, by := range asked.asked {
		of, touches, unbound := tenancy.Unbound(sql)
		if touches {
			looked++
		}
		if !unbound {
			of, unbound = tenancy.Untied(sql)
		}
		if unbound {
			t.Errorf("%s names no client, of %q: %s", by, of, sql)
		}
	}
	if looked < 90 {
		t.Errorf("%d statements were looked at", looked)
	}
}
