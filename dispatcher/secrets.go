package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
)

const (
	secretTTL = 10 * time.Second
	maxOpened = 1_024
)

// openedSecrets keeps the secrets that are in use, for a short while.
type openedSecrets struct {
	vault Secrets

	mu   sync.Mutex
	kept map[openedKey]openedSecret
}

type openedKey struct {
	webhook id.Webhook
	event   id.Event
}

type openedSecret struct {
	plain []byte
	at    time.Time // when it was opened
}

func newOpenedSecrets(vault Secrets) *openedSecrets {
	return &openedSecrets{vault: vault, kept: map[openedKey]openedSecret{}}
}

// signing opens the secrets that sign a delivery at a time, the newest first. One that
// was replaced by a clock that was ahead does not sign until that time has come.
func (s *openedSecrets) signing(ctx context.Context, j job, at time.Time) ([][]byte, error) {
	var plain [][]byte
	for _, sealed := range j.Secrets {
		if sealed.Until != nil && (!at.Before(*sealed.Until) || event.Ahead(sealed.Until.Add(-rotation), at)) {
			continue
		}
		opened, err := s.open(ctx, j, sealed, at)
		if err != nil {
			return nil, fmt.Errorf("open a signing secret: %w", err)
		}
		plain = append(plain, opened)
	}
	return plain, nil
}

func (s *openedSecrets) open(ctx context.Context, j job, sealed secret, at time.Time) ([]byte, error) {
	key := openedKey{j.Webhook, sealed.Event}
	s.mu.Lock()
	kept, found := s.kept[key]
	s.mu.Unlock()
	if age := at.Sub(kept.at); found && age >= 0 && age < secretTTL {
		return kept.plain, nil
	}
	plain, err := s.vault.Open(ctx, string(j.Webhook), sealed.place(j.Client), sealed.Box)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxOpened {
		clear(s.kept)
	}
	s.kept[key] = openedSecret{plain, at}
	return plain, nil
}
