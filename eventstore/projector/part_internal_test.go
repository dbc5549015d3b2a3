package projector

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
)

// What a runner is given, its quiet one has too, but for what tells.
func TestAQuietRunnerLacksNothingElse(t *testing.T) {
	r := &Runner{
		Pool: new(pgxpool.Pool), Log: new(eventstore.Log), Name: "a", Logger: slog.New(slog.DiscardHandler), Now: time.Now, Leases: new(pgxpool.Pool),
		Renewals: new(Renewals), Large: make(chan struct{}), Progress: new(Progress), Metrics: new(Metrics), Lease: 1, Pause: 1, MaxLeftOut: 1, Batch: 1,
	}
	loud, quiet := reflect.ValueOf(r).Elem(), reflect.ValueOf(r.quiet()).Elem()
	for i := range loud.NumField() {
		field := loud.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		tells := field.Name == "Progress" || field.Name == "Metrics"
		if loud.Field(i).IsZero() || quiet.Field(i).IsZero() != tells {
			t.Errorf("%s: the quiet runner lacks it: %t", field.Name, quiet.Field(i).IsZero())
		}
	}
}
