package httpapi

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests by route, never by path.
type metrics struct {
	inFlight prometheus.Gauge
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	m := metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kindred_http_requests_in_flight",
			Help: "Requests that are being answered.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kindred_http_request_duration_seconds",
			Help:    "Time from the request's header to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route", "status"}),
	}
	registry.MustRegister(m.inFlight, m.duration)
	return m
}
