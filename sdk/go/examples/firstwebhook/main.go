// Firstwebhook signs up, subscribes to an event, has one sent and verifies it.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	kindred "kindred/sdk/go"
)

const secret = "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==" //nolint:gosec // of an example

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := os.Getenv("KINDRED_URL")
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	event, err := firstWebhook(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("verified", event.Type, event.ID)
}

func firstWebhook(ctx context.Context, url string) (*kindred.Event, error) {
	nobody, err := kindred.New(kindred.Config{BaseURL: url})
	if err != nil {
		return nil, err
	}
	up, err := nobody.Authentication.SignUp(ctx, kindred.SignupRequest{
		Email: strings.ToLower(rand.Text()) + "@example.com", Password: rand.Text(), CompanyName: "Acme",
	})
	if err != nil {
		return nil, err
	}
	person, err := kindred.New(kindred.Config{BaseURL: url, Token: up.Token})
	if err != nil {
		return nil, err
	}
	key, err := person.APIKeys.Create(ctx, kindred.NewAPIKey{Name: "backend"})
	if err != nil {
		return nil, err
	}
	k, err := kindred.New(kindred.Config{BaseURL: url, APIKey: key.RawKey})
	if err != nil {
		return nil, err
	}
	receiver, events, err := receive(ctx, up.Client.ID)
	if err != nil {
		return nil, err
	}
	hook, err := k.Webhooks.Create(ctx, kindred.NewWebhook{
		URL: receiver, EventTypes: []kindred.EventType{kindred.EventTypeMatchComputed}, Secret: kindred.Ptr(secret),
	})
	if err != nil {
		return nil, err
	}
	if _, err := k.Webhooks.Test(ctx, hook.ID, kindred.WebhookTest{EventType: kindred.EventTypeMatchComputed}); err != nil {
		return nil, err
	}
	select {
	case event := <-events:
		return event, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receive is what a server of yours would have: it answers 204 to what it has
// verified, and 401 to everything else.
func receive(ctx context.Context, client string) (string, <-chan *kindred.Event, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	events := make(chan *kindred.Event, 1)
	verifier := kindred.Verifier{Secrets: []string{secret}, ClientID: client}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return // the sender has gone
		}
		event, err := verifier.Verify(r.Header, body)
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		select {
		case events <- event:
		default: // a repetition
		}
	})}
	go func() { _ = server.Serve(listener) }() // until the program ends
	return "http://" + listener.Addr().String() + "/hooks", events, nil
}
