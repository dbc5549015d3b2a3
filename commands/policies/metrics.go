package policies

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tell what this process has done by itself. A nil *Metrics counts
// nothing.
type Metrics struct {
	running         prometheus.Gauge
	ended           *prometheus.CounterVec
	seconds         prometheus.Histogram
	users, recorded prometheus.Counter
	failed          prometheus.Counter
}

// How an attempt at a clustering run has ended.
const (
	runCompleted   = "completed"
	runFailed      = "failed"
	runInterrupted = "interrupted" // it was cancelled, or is tried again
	runWaiting     = "waiting"     // it goes on once there is memory
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	m := &Metrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kindred_clustering_runs_in_progress", Help: "Clustering runs that this process is at.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_clustering_runs_total", Help: "Attempts at clustering runs, by how they ended.",
		}, []string{"status"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kindred_clustering_run_seconds", Help: "How long completed clustering runs took, from their beginning.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 14),
		}),
		users:    counter("kindred_matching_users_total", "Users whose matches were computed automatically."),
		recorded: counter("kindred_matching_recorded_total", "Matches that were recorded automatically."),
		failed:   counter("kindred_matching_failures_total", "Turns of automatic matching that went wrong and are repeated."),
	}
	registry.MustRegister(m.running, m.ended, m.seconds)
	for _, status := range []string{runCompleted, runFailed, runInterrupted, runWaiting} {
		m.ended.WithLabelValues(status) // so that none is missing until it happens
	}
	return m
}

// runs tells that an attempt has begun; the caller tells how it ended.
func (m *Metrics) runs(began time.Time) (ended func(status string, at time.Time)) {
	if m == nil {
		return func(string, time.Time) {}
	}
	m.running.Inc()
	return func(status string, at time.Time) {
		m.running.Dec()
		m.ended.WithLabelValues(status).Inc()
		if status == runCompleted {
			m.seconds.Observe(at.Sub(began).Seconds())
		}
	}
}

func (m *Metrics) matched(recorded int) {
	if m != nil {
		m.users.Inc()
		m.recorded.Add(float64(recorded))
	}
}

func (m *Metrics) notMatched() {
	if m != nil {
		m.failed.Inc()
	}
}
