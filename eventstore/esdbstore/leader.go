package esdbstore

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	gossip "github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// maxMessage bounds one answer of the server, which takes events of at most
// 16 MiB: others than this service may write there.
// limit: log | a message from KurrentDB | {maxMessage B}
const maxMessage = 17 << 20

// link is the connection to one node. It reconnects by itself.
type link struct {
	address string
	conn    *grpc.ClientConn
	streams api.StreamsClient
}

// leader keeps the connection to the node that leads.
type leader struct {
	config *esdb.Configuration
	dial   []grpc.DialOption
	lock   chan struct{} // held while somebody looks for the leader

	mu        sync.Mutex
	current   *link
	suspected bool   // that current leads
	hint      string // which node leads, as one said
	closed    bool
}

func newLeader(config *esdb.Configuration) (*leader, error) {
	transport := insecure.NewCredentials()
	if !config.DisableTLS {
		settings := &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    config.RootCAs,
			//nolint:gosec // tlsVerifyCert=false, as whoever runs the service has set it
			InsecureSkipVerify: config.SkipCertificateVerification,
		}
		if config.UserCertFile != "" {
			certificate, err := tls.LoadX509KeyPair(config.UserCertFile, config.UserKeyFile)
			if err != nil {
				return nil, fmt.Errorf("load the certificate for the event store: %w", err)
			}
			settings.Certificates = []tls.Certificate{certificate}
		}
		transport = credentials.NewTLS(settings)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: longestPause},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if config.KeepAliveInterval >= 0 {
		dial = append(dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: config.KeepAliveInterval, Timeout: config.KeepAliveTimeout, PermitWithoutStream: true,
		}))
	}
	if config.Username != "" && !config.DisableTLS {
		dial = append(dial, grpc.WithPerRPCCredentials(basic{config.Username, config.Password}))
	}
	return &leader{config: config, dial: dial, lock: make(chan struct{}, 1)}, nil
}

// link returns the connection to the leader, and whether it is a new one.
func (l *leader) link(ctx context.Context) (_ *link, changed bool, err error) {
	if now, err := l.known(); now != nil || err != nil {
		return now, false, err
	}
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if now, err := l.known(); now != nil || err != nil { // somebody else found it
		return now, false, err
	}
	address, err := l.find(ctx)
	if err != nil {
		return nil, false, err
	}
	return l.connect(address)
}

// known returns the connection if it is not suspected.
func (l *leader) known() (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errClosed
	case l.suspected:
		return nil, nil
	default:
		return l.current, nil
	}
}

// suspect notes that a call over a connection failed, and which node leads, if the error
// says so.
func (l *leader) suspect(over *link, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over != l.current {
		return
	}
	l.suspected, l.hint = true, ""
	if moved, said := errors.AsType[*movedError](err); said {
		l.hint = moved.address
	}
}

func (l *leader) connect(address string) (*link, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, errClosed
	}
	if l.current != nil && l.current.address == address {
		l.suspected = false
		l.current.conn.ResetConnectBackoff() // callers pause by themselves
		return l.current, false, nil
	}
	conn, err := grpc.NewClient(address, l.dial...)
	if err != nil {
		return nil, false, fmt.Errorf("connect to %s: %w", address, err)
	}
	if l.current != nil {
		_ = l.current.conn.Close() // fails only where it is closed already
	}
	l.current, l.suspected = &link{address, conn, api.NewStreamsClient(conn)}, false
	return l.current, true, nil
}

func (l *leader) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.current == nil {
		return nil
	}
	return l.current.conn.Close()
}

// find says where the leader is: as a node said it, as the cluster's nodes say,
// or, for a single address, there.
func (l *leader) find(ctx context.Context) (string, error) {
	l.mu.Lock()
	hint := l.hint
	l.hint = ""
	l.mu.Unlock()
	switch {
	case hint != "":
		return hint, nil
	case l.config.DnsDiscover:
		return l.discover(ctx, l.config.Address)
	case len(l.config.GossipSeeds) > 0:
		var seeds []string
		for _, s := range l.config.GossipSeeds {
			seeds = append(seeds, s.String())
		}
		return l.discover(ctx, seeds...)
	default:
		return l.config.Address, nil
	}
}

// discover asks all nodes at once which one leads, and takes the first answer.
func (l *leader) discover(ctx context.Context, nodes ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.config.GossipTimeout)*time.Second)
	defer cancel()
	answers, failures := make([]string, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			if answers[i], failures[i] = l.ask(ctx, node); failures[i] == nil {
				cancel()
			}
		})
	}
	group.Wait()
	for i, failure := range failures {
		if failure == nil {
			return answers[i], nil
		}
	}
	return "", status.Error(codes.Unavailable, errors.Join(failures...).Error())
}

// ask asks one node which one leads.
func (l *leader) ask(ctx context.Context, node string) (string, error) {
	conn, err := grpc.NewClient(node, l.dial...)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", node, err)
	}
	defer conn.Close()
	info, err := gossip.NewGossipClient(conn).Read(ctx, &shared.Empty{})
	if err != nil {
		return "", fmt.Errorf("ask %s who leads: %w", node, err)
	}
	for _, m := range info.GetMembers() {
		if m.GetIsAlive() && m.GetState() == gossip.MemberInfo_Leader {
			at := m.GetHttpEndPoint()
			return net.JoinHostPort(at.GetAddress(), strconv.FormatUint(uint64(at.GetPort()), 10)), nil
		}
	}
	return "", fmt.Errorf("%s knows no leader", node)
}

// basic sends a user and a password with every call, over TLS alone.
type basic struct{ user, password string }

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{
		"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b.user+":"+b.password)),
	}, nil
}

func (basic) RequireTransportSecurity() bool { return true }
