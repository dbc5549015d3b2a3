package dispatcher

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

const (
	secretTTL = 10 * time.Second
	// limit: deliveries | secrets that are open in memory | {maxOpened}
	maxOpened = 1_024
)

// openedSecrets keeps the secrets and addresses that are in use. One serves for secretTTL, and
// goes with the next that is opened after that.
type openedSecrets struct {
	vault Secrets

	mu    sync.Mutex
	kept  map[openedKey]openedSecret
	swept time.Time
}

type openedKey struct {
	subject string
	event   id.Event
	field   string
}

type openedSecret struct {
	plain []byte
	at    time.Time // when it was opened
}

func (o openedSecret) serves(at time.Time) bool {
	age := at.Sub(o.at)
	return age >= 0 && age < secretTTL
}

func newOpenedSecrets(vault Secrets) *openedSecrets {
	return &openedSecrets{vault: vault, kept: map[openedKey]openedSecret{}}
}

// signing opens the secrets that sign a delivery at a time, the newest first.
func (s *openedSecrets) signing(ctx context.Context, c claim, at time.Time) ([][]byte, error) {
	var plain [][]byte
	for _, sealed := range c.Secrets {
		if !sealed.signs(at) {
			continue
		}
		opened, err := s.open(ctx, c, string(c.Webhook), "secret", sealed.sealed, at)
		if err != nil {
			return nil, fmt.Errorf("open a signing secret: %w", err)
		}
		plain = append(plain, opened)
	}
	return plain, nil
}

// keys opens the private keys that sign a delivery at a time, the newest first.
func (s *openedSecrets) keys(ctx context.Context, c claim, at time.Time) ([]ed25519.PrivateKey, error) {
	var private []ed25519.PrivateKey
	for _, pair := range c.Pairs {
		if !pair.signs(at) {
			continue
		}
		opened, err := s.open(ctx, c, string(pair.Key.ID), "private_key", pair.sealed, at)
		if err != nil {
			return nil, fmt.Errorf("open a signing key: %w", err)
		}
		private = append(private, opened)
	}
	return private, nil
}

// url opens the address of a delivery.
func (s *openedSecrets) url(ctx context.Context, c claim, at time.Time) (string, error) {
	if c.Address.Sealed == nil {
		return c.Address.Clear, nil
	}
	opened, err := s.open(ctx, c, string(c.Webhook), "url", *c.Address.Sealed, at)
	if err != nil {
		return "", fmt.Errorf("open the address: %w", err)
	}
	return string(opened), nil
}

// headers opens the endpoint's own headers, by name.
func (s *openedSecrets) headers(ctx context.Context, c claim, at time.Time) (map[string]string, error) {
	if c.Headers == nil {
		return nil, nil
	}
	opened, err := s.open(ctx, c, string(c.Webhook), "headers", *c.Headers, at)
	if err != nil {
		return nil, fmt.Errorf("open the headers: %w", err)
	}
	var headers map[string]string
	if err := json.Unmarshal(opened, &headers); err != nil {
		return nil, errors.New("the headers cannot be read")
	}
	return headers, nil
}

func (s *openedSecrets) open(ctx context.Context, c claim, subject, field string, of sealed, at time.Time) ([]byte, error) {
	key := openedKey{subject, of.Event, field}
	s.mu.Lock()
	kept, found := s.kept[key]
	s.mu.Unlock()
	if found && kept.serves(at) {
		return kept.plain, nil
	}
	place := seal.Place{Client: c.Client, Stream: of.Stream, Event: of.Event, Field: field}
	plain, err := s.vault.Open(ctx, subject, place, of.Box)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxOpened {
		clear(s.kept)
	}
	if age := at.Sub(s.swept); age < 0 || age >= secretTTL {
		maps.DeleteFunc(s.kept, func(_ openedKey, kept openedSecret) bool { return !kept.serves(at) })
		s.swept = at
	}
	s.kept[key] = openedSecret{plain, at}
	return plain, nil
}
