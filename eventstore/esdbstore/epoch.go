package esdbstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kindred/eventstore"
)

const (
	// epochStream holds the epoch as its one event: the server has no other
	// place for it. Reads of the log pass over it.
	epochStream = "log-epoch"
	epochType   = "log.begun"
)

// Epoch implements [eventstore.Store]. Whoever asks first draws it.
func (s *Store) Epoch(ctx context.Context) (epoch string, err error) {
	err = s.call(ctx, func(ctx context.Context, streams api.StreamsClient) (err error) {
		if epoch, err = readEpoch(ctx, streams); err != nil || epoch != "" {
			return err
		}
		var random [16]byte
		if _, err := io.ReadFull(s.entropy, random[:]); err != nil {
			return fmt.Errorf("read entropy: %w", err)
		}
		drawn := []byte(`{"epoch":"` + hex.EncodeToString(random[:]) + `"}`)
		requests := []*api.AppendReq{header(epochStream, eventstore.NoStream), message(random, epochType, drawn, nil)}
		if _, err := send(ctx, streams, requests); err != nil {
			return err
		}
		if epoch, err = readEpoch(ctx, streams); err == nil && epoch == "" {
			err = status.Error(codes.Unavailable, "the epoch cannot be read yet")
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("epoch: %w", err)
	}
	return epoch, nil
}

// readEpoch reads the epoch, or nothing where none was drawn.
func readEpoch(ctx context.Context, streams api.StreamsClient) (string, error) {
	page, err := read(ctx, streams, one(epochStream, 0, api.ReadReq_Options_Forwards, 1))
	if err != nil || len(page) == 0 {
		return "", err
	}
	var drawn struct {
		Epoch string `json:"epoch"`
	}
	if err := json.Unmarshal(page[0].GetData(), &drawn); err != nil || drawn.Epoch == "" {
		return "", fmt.Errorf("the stream %s does not hold an epoch", epochStream)
	}
	return drawn.Epoch, nil
}
