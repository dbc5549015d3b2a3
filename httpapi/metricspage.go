package httpapi

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metricsFor is how long metrics are shown before they are gathered again:
// however often they are asked for, they cost no more.
const metricsFor = time.Second

// Metrics serves what a registry gathers, in the text format of Prometheus.
func Metrics(from prometheus.Gatherer, now func() time.Time) http.Handler {
	p := &metricsPage{from: from, now: now}
	return http.HandlerFunc(p.serve)
}

type metricsPage struct {
	from prometheus.Gatherer
	now  func() time.Time

	mu       sync.Mutex
	page     []byte
	gathered time.Time
}

func (p *metricsPage) serve(w http.ResponseWriter, _ *http.Request) {
	page, err := p.current()
	if err != nil {
		http.Error(w, "The metrics cannot be gathered.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(page) // nobody there is no trouble
}

func (p *metricsPage) current() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.page != nil && now.Sub(p.gathered) < metricsFor {
		return p.page, nil
	}
	families, err := p.from.Gather()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	to := expfmt.NewEncoder(&page, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return nil, err
		}
	}
	p.page, p.gathered = page.Bytes(), now
	return p.page, nil
}
