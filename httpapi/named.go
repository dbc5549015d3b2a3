package httpapi

import (
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Named reads the id by which a request names something. A text that is no id of that kind
// names nothing that is there.
// Faults: api_key_unknown, campaign_unknown, cluster_unknown, clustering_run_unknown, consent_layer_unknown,
// delivery_unknown, member_unknown, sandbox_unknown, segment_unknown, session_unknown, webhook_unknown.
func Named[T id.Typed](text string) (T, error) {
	named, err := id.Parse[T](text)
	if err != nil {
		return "", unknown(named)
	}
	return named, nil
}

func unknown[T id.Typed](kind T) error {
	switch any(kind).(type) {
	case id.Client: // of requests, which are one client's own, the sandbox that they name
		return fault.New(fault.Missing, "sandbox_unknown", "There is no such sandbox.")
	case id.Member:
		return fault.New(fault.Missing, "member_unknown", "There is no such member.")
	case id.Key:
		return fault.New(fault.Missing, "api_key_unknown", "There is no such API key.")
	case id.Session:
		return fault.New(fault.Missing, "session_unknown", "There is no such session.")
	case id.Webhook:
		return fault.New(fault.Missing, "webhook_unknown", "There is no such webhook subscription.")
	case id.Delivery:
		return fault.New(fault.Missing, "delivery_unknown", "There is no such delivery.")
	case id.ConsentLayer:
		return fault.New(fault.Missing, "consent_layer_unknown", "There is no such consent layer.")
	case id.Run:
		return fault.New(fault.Missing, "clustering_run_unknown", "There is no such clustering run.")
	case id.Cluster:
		return fault.New(fault.Missing, "cluster_unknown", "There is no such cluster.")
	case id.Segment:
		return fault.New(fault.Missing, "segment_unknown", "There is no such segment.")
	case id.Campaign:
		return fault.New(fault.Missing, "campaign_unknown", "There is no such campaign.")
	}
	panic("a request names no such thing")
}
