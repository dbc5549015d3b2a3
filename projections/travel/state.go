package travel

import (
	"time"

	"kindred/domain/id"
	"kindred/projections"
)

// State is a client as it was. Its models are read with the first answer,
// eventual: they do not change any more.
type State struct {
	Client     id.Client
	Size       int64     // events that it had
	RecordedAt time.Time // the latest of them; zero where there was none

	reader projections.Reader
}

// Users as they were.
func (s *State) Users() projections.Users { return projections.Users{Reader: s.reader} }

// Webhooks as they were.
func (s *State) Webhooks() projections.Webhooks { return projections.Webhooks{Reader: s.reader} }

// Campaigns as they were.
func (s *State) Campaigns() projections.Campaigns { return projections.Campaigns{Reader: s.reader} }

// Clusters as they were.
func (s *State) Clusters() projections.Clusters { return projections.Clusters{Reader: s.reader} }

// Consent layers as they were.
func (s *State) Consent() projections.Consent { return projections.Consent{Reader: s.reader} }

// APIKeys as they were.
func (s *State) APIKeys() projections.APIKeys { return projections.APIKeys{Reader: s.reader} }
