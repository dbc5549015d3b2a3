package app

import (
	"errors"
	"runtime"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"kindred/commands"
	"kindred/eventstore"
)

// registerProcess adds what tells of the process itself: its build, the Go
// runtime, the system's accounts of it.
func registerProcess(registry prometheus.Registerer) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kindred_build_info", Help: "1; the labels say what was built.",
	}, []string{"version", "go"})
	build.WithLabelValues(Version(), runtime.Version()).Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// registerPool adds how many connections to the database are in use.
func registerPool(registry prometheus.Registerer, name string, pool *pgxpool.Pool) {
	labels := prometheus.Labels{"pool": name}
	gauge := func(metric, help string, value func(*pgxpool.Stat) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kindred_pool_" + metric, Help: help, ConstLabels: labels,
		}, func() float64 { return value(pool.Stat()) }))
	}
	counter := func(metric, help string, value func(*pgxpool.Stat) float64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kindred_pool_" + metric, Help: help, ConstLabels: labels,
		}, func() float64 { return value(pool.Stat()) }))
	}
	gauge("connections", "Open connections.", func(s *pgxpool.Stat) float64 { return float64(s.TotalConns()) })
	gauge("connections_max", "Connections that may be open.", func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	gauge("connections_in_use", "Connections that somebody holds.", func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) })
	counter("acquires_total", "Connections that were taken.", func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) })
	counter("waits_total", "Takers that found none free.", func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) })
	counter("wait_seconds_total", "Time that takers waited.", func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() })
}

// countAppends counts the events that this process appends.
func countAppends(registry prometheus.Registerer) func(events int, err error) {
	appended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kindred_appended_events_total",
		Help: "Events that this process offered to the log, by what came of it: ok, conflict or error.",
	}, []string{"result"})
	registry.MustRegister(appended)
	ok, conflict, failed := appended.WithLabelValues("ok"), appended.WithLabelValues("conflict"), appended.WithLabelValues("error")
	return func(events int, err error) {
		result := failed
		if _, moved := errors.AsType[*eventstore.ConflictError](err); moved {
			result = conflict
		} else if err == nil {
			result = ok
		}
		result.Add(float64(events))
	}
}

// countImports counts the lines of imports that this process applies.
func countImports(registry prometheus.Registerer) func(commands.ImportReport) {
	lines := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kindred_imported_lines_total", Help: "Lines of imports that were applied, by what came of them.",
	}, []string{"result"})
	registry.MustRegister(lines)
	return func(r commands.ImportReport) {
		for result, n := range map[string]int{"created": r.Created, "updated": r.Updated, "unchanged": r.Unchanged, "failed": r.Failed} {
			lines.WithLabelValues(result).Add(float64(n))
		}
	}
}
