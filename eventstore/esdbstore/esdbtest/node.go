package esdbtest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// node is one process of the server, as its clients see it.
type node struct {
	api.UnimplementedStreamsServer
	server  *Server
	index   int
	address string // since it was first started

	mu       sync.Mutex
	listener *listener    // nil while it is dead
	serving  *grpc.Server // nil while it is dead
	served   sync.WaitGroup
}

func (n *node) start(address string) error {
	inner, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.address == "" { // what nodes read of one another is not written again
		n.address = inner.Addr().String()
	}
	n.listener = &listener{Listener: inner, open: map[net.Conn]bool{}}
	n.serving = grpc.NewServer(append(n.server.secure, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
		MinTime: time.Second, PermitWithoutStream: true,
	}))...)
	api.RegisterStreamsServer(n.serving, n)
	gossip.RegisterGossipServer(n.serving, members{node: n})
	serverfeatures.RegisterServerFeaturesServer(n.serving, features{})
	serving, listening := n.serving, n.listener
	n.served.Go(func() { _ = serving.Serve(listening) }) // ends when the node is killed
	return nil
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving != nil {
		n.serving.Stop()
		n.served.Wait()
		n.serving, n.listener = nil, nil
	}
}

func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		n.listener.cut()
	}
}

func (n *node) alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.serving != nil
}

// refuse says which node leads, where a caller insists on the leader and this is not it.
func (n *node) refuse(ctx context.Context, insists bool, trailer func(metadata.MD)) error {
	asked, _ := metadata.FromIncomingContext(ctx)
	if v := asked.Get("requires-leader"); len(v) > 0 && v[0] == "true" {
		insists = true
	}
	leader := n.server.Leader()
	if !insists || leader == n.index {
		return nil
	}
	host, port, err := net.SplitHostPort(n.server.nodes[leader].address)
	if err != nil {
		return err
	}
	trailer(metadata.Pairs("exception", "not-leader", "leader-endpoint-host", host, "leader-endpoint-port", port))
	return status.Error(codes.NotFound, "Leader info available")
}

// listener knows its open connections.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return &connection{Conn: c, listener: l}, nil
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close() // fails only where it is closed already
	}
}

// connection leaves its listener when it is closed.
type connection struct {
	net.Conn
	listener *listener
}

func (c *connection) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c.Conn)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// members tells which node leads.
type members struct {
	gossip.UnimplementedGossipServer
	node *node
}

func (m members) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	info, leader := &gossip.ClusterInfo{}, m.node.server.Leader()
	for i, n := range m.node.server.nodes {
		host, port, err := net.SplitHostPort(n.address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, err
		}
		state := gossip.MemberInfo_Follower
		if i == leader {
			state = gossip.MemberInfo_Leader
		}
		info.Members = append(info.Members, &gossip.MemberInfo{
			State: state, IsAlive: n.alive(), HttpEndPoint: &gossip.EndPoint{Address: host, Port: uint32(number)},
		})
	}
	return info, nil
}

// features tells the version of the server that is played.
type features struct {
	serverfeatures.UnimplementedServerFeaturesServer
}

func (features) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: "24.10.0"}, nil
}
