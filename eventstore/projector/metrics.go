package projector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/eventstore"
)

// Metrics tell how the followers of this process do. A nil *Metrics counts
// nothing.
type Metrics struct {
	leader, lagSeconds, lagEvents, clients, slow, leftOut, stopped *prometheus.GaugeVec
	events                                                         *prometheus.CounterVec
}

// NewMetrics registers the metrics, each labelled by projection.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kindred_projection_" + name, Help: help}, []string{"projection"})
		registry.MustRegister(g)
		return g
	}
	m := &Metrics{
		leader:     gauge("leader", "1 where this process leads."),
		lagSeconds: gauge("lag_seconds", "Age of the oldest event that is known to wait; 0 when caught up."),
		lagEvents:  gauge("lag_events", "Events that are known to wait; a full batch (1000) means at least so many."),
		clients:    gauge("quarantined_clients", "Clients whose part stopped at an event that cannot be applied."),
		slow:       gauge("slow_clients", "Clients whose events take long and are applied in slices, beside the others'."),
		leftOut:    gauge("left_out_events", "Events that could not be applied and that clients went on without."),
		stopped:    gauge("stopped", "1 where an event could not be handled and everything after it waits."),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_projection_events_total", Help: "Events that were passed.",
		}, []string{"projection"}),
	}
	registry.MustRegister(m.events)
	return m
}

func (m *Metrics) leads(name string, leading bool) {
	if m == nil {
		return
	}
	if leading {
		m.leader.WithLabelValues(name).Set(1)
		return
	}
	m.leader.WithLabelValues(name).Set(0)
	m.caughtUp(name) // the lag is the next leader's to tell, and so is what was refused
	m.refused(name, 0, 0, 0)
}

// behind tells of what waits. The clock of a sandbox may be ahead, so the earliest time
// counts; where all lie ahead, it is not known for how long they have waited.
func (m *Metrics) behind(name string, waiting []eventstore.Record, now time.Time) {
	if m == nil {
		return
	}
	m.lagEvents.WithLabelValues(name).Set(float64(len(waiting)))
	var age time.Duration
	for _, r := range waiting {
		age = max(age, now.Sub(r.RecordedAt))
	}
	if age > 0 {
		m.lagSeconds.WithLabelValues(name).Set(age.Seconds())
	}
}

func (m *Metrics) caughtUp(name string) {
	if m != nil {
		m.lagEvents.WithLabelValues(name).Set(0)
		m.lagSeconds.WithLabelValues(name).Set(0)
	}
}

func (m *Metrics) applied(name string, events int) {
	if m != nil {
		m.events.WithLabelValues(name).Add(float64(events))
	}
}

func (m *Metrics) refused(name string, clients, slow, events int) {
	if m != nil {
		m.leftOut.WithLabelValues(name).Set(float64(events))
		m.clients.WithLabelValues(name).Set(float64(clients))
		m.slow.WithLabelValues(name).Set(float64(slow))
	}
}

func (m *Metrics) stops(name string, stopped bool) {
	if m == nil {
		return
	}
	value := 0.0
	if stopped {
		value = 1
	}
	m.stopped.WithLabelValues(name).Set(value)
}
