package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/id"
)

// Metrics are the dispatcher's, in this process.
type Metrics struct {
	attempts   *prometheus.CounterVec
	seconds    prometheus.Histogram
	delay      prometheus.Histogram
	claims     prometheus.Histogram
	deliveries *prometheus.CounterVec
	inFlight   *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	endpoints  *prometheus.GaugeVec
	failing    prometheus.Gauge
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_webhook_attempts_total", Help: "Attempts to deliver, by kind (first, retry) and result (accepted, refused, unreachable).",
		}, []string{"kind", "result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kindred_webhook_attempt_seconds", Help: "How long attempts took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kindred_webhook_first_attempt_delay_seconds", Help: "From the recording of an event to its first attempt.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 14),
		}),
		claims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kindred_webhook_claim_seconds", Help: "How long it took to claim deliveries from the queue.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_webhook_deliveries_total", Help: "Deliveries that ended, by state (delivered, dropped, cancelled).",
		}, []string{"state"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kindred_webhook_in_flight", Help: "Attempts under way, by kind.",
		}, []string{"kind"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kindred_webhook_oldest_pending_seconds", Help: "For first attempts, the age of the oldest that waits; for retries, how long the most overdue has been due.",
		}, []string{"kind"}),
		endpoints: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kindred_webhook_endpoints_waiting", Help: "Endpoints with something in the queue, by kind; counted up to 2,000.",
		}, []string{"kind"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kindred_webhook_endpoints_failing", Help: "Active endpoints that have accepted nothing for an hour or more; over all processes.",
		}),
	}
	r.MustRegister(m.attempts, m.seconds, m.delay, m.claims, m.deliveries, m.inFlight, m.oldest, m.endpoints, m.failing)
	return m
}

// started counts an attempt; what it returns is called at its end.
func (m *Metrics) started(c claim) func(outcome) {
	gauge := m.inFlight.WithLabelValues(c.Kind.String())
	gauge.Inc()
	if c.Kind == firstAttempt {
		m.delay.Observe(c.Age.Seconds())
	}
	return func(o outcome) {
		gauge.Dec()
		result := "accepted"
		switch {
		case o.verdict == failed && o.status != 0:
			result = "refused"
		case o.verdict == failed:
			result = "unreachable"
		case o.verdict != delivered:
			return
		}
		m.attempts.WithLabelValues(c.Kind.String(), result).Inc()
		m.seconds.Observe(o.latency.Seconds())
	}
}

func (m *Metrics) ended(states map[id.Delivery]string) {
	for _, state := range states {
		if state != string(failed) && state != string(returned) {
			m.deliveries.WithLabelValues(state).Inc()
		}
	}
}

func (m *Metrics) waiting(kind attemptKind, endpoints []waiting) {
	m.oldest.WithLabelValues(kind.String()).Set(oldest(endpoints).Seconds())
	m.endpoints.WithLabelValues(kind.String()).Set(float64(len(endpoints)))
}

func oldest(endpoints []waiting) (age time.Duration) {
	for _, e := range endpoints {
		age = max(age, e.Overdue)
	}
	return age
}
