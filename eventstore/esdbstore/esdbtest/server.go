// Package esdbtest plays an EventStoreDB server, of one node or several, in
// the test's own process and over real connections: with the answers that the
// protocol's stubs foresee, with the system's own events between the others,
// and with the failures that a client must survive.
package esdbtest

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
)

// Trouble is what an append meets.
type Trouble int

const (
	// Refused: nothing is written, and the node says that it is not ready.
	Refused Trouble = iota + 1
	// Lost: the append takes place, and the connection breaks before its answer.
	Lost
	// Mute: nothing is written, and no answer comes.
	Mute
	// Deaf: the append takes place, and no answer comes.
	Deaf
	// Unseen: the append takes place, and can be read, and is answered, only
	// after a while. The writer knows of it at once: another append conflicts
	// with it, and the same one is dropped (see Late).
	Unseen
	// Dropped: Unseen, and the connection breaks at once.
	Dropped
	// Exhausted: nothing is written, and there are too many calls at once.
	Exhausted
)

const (
	lateBy     = 2 * time.Millisecond // where nothing else is said; a server takes 2 to 20 ms
	unseenFor  = 40 * time.Millisecond
	droppedFor = 400 * time.Millisecond // where nothing else is said; a server takes 2 to 3 s
)

// Server is one log and the nodes that serve it.
type Server struct {
	url    string
	nodes  []*node
	secure []grpc.ServerOption

	mu        sync.Mutex
	log       []*event
	streams   map[string][]*event
	written   uint64 // bytes: positions are offsets in the log
	shown     uint64 // where readers find the log to end
	waiting   []*addition
	late      time.Duration // after which an append is shown
	drop      time.Duration // after which one that is dropped times out
	drops     int
	calls     map[string]int // under way, by connection
	peak      int            // the most calls at once over one connection
	exhausted int            // calls that were one too many
	most      int            // bytes of one append
	denied    bool           // reads of the whole log
	grown     chan struct{}
	dropped   chan struct{}
	troubles  []Trouble
	hidden    bool // positions
	breakAt   int  // how many events a read of the log tells; 0: all
	leader    int
	followers int
	reads     int
}

// event is an event as a node stores it.
type event struct {
	stream   string
	revision uint64
	position uint64
	id       [16]byte
	system   map[string]string // "type", "content-type", "created"
	data     []byte
	custom   []byte
}

func (e *event) kind() string { return e.system["type"] }

// addition is what was added to the log and cannot be read yet.
type addition struct {
	end uint64
	due bool
}

// Start starts a server of one node, which ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartCluster(t, 1)
}

// StartCluster starts a cluster of nodes; node 0 leads.
func StartCluster(t testing.TB, nodes int) *Server {
	t.Helper()
	s := newServer(t)
	var addresses []string
	for range nodes {
		addresses = append(addresses, s.join(t))
	}
	s.url = "esdb://" + strings.Join(addresses, ",") + "?tls=false"
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		streams: map[string][]*event{}, grown: make(chan struct{}), dropped: make(chan struct{}), calls: map[string]int{},
		late: lateBy, drop: droppedFor, most: maxAppend,
	}
	t.Cleanup(s.stop)
	s.Write("$settings", 1, map[string]string{"type": "$UserCreated", "created": "0"}, []byte(`{}`), nil)
	return s
}

// join adds a node and returns its address.
func (s *Server) join(t testing.TB) string {
	t.Helper()
	n := &node{server: s, index: len(s.nodes)}
	if err := n.start("127.0.0.1:0"); err != nil {
		t.Fatalf("start node %d: %v", n.index, err)
	}
	s.nodes = append(s.nodes, n)
	return n.address
}

// URL is the connection string of the server.
func (s *Server) URL() string { return s.url }

// Address is where one node listens, as "host:port".
func (s *Server) Address(node int) string { return s.nodes[node].address }

// Play gives the next appends their troubles, one each.
func (s *Server) Play(troubles ...Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles = append(s.troubles, troubles...)
}

// HidePositions lets the server tell no positions when it reads a stream, as
// old versions did, nor in its answers to appends.
func (s *Server) HidePositions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = true
}

// Late lets every append be readable, and answered, so much later than it takes
// place, as on a disk that takes its time. One that is repeated before that is
// dropped: it times out after drop.
func (s *Server) Late(late, drop time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late, s.drop = late, drop
}

// Unseen counts the appends of this moment that cannot be read yet.
func (s *Server) Unseen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Drops counts the repetitions that were dropped.
func (s *Server) Drops() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drops
}

// Calls says how many calls there were at once, at most, over one connection
// since it was last asked, and how many were refused as one too many.
func (s *Server) Calls() (peak, exhausted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.peak = 0 }()
	return s.peak, s.exhausted
}

// Small lets the server take only appends of so many bytes.
func (s *Server) Small(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

func (s *Server) mostBytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Deny lets nobody read the whole log, as a user outside $admins may not.
func (s *Server) Deny() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = true
}

// BreakReads lets every read of the log break off after so many events.
func (s *Server) BreakReads(after int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakAt = after
}

// Elect makes another node the leader.
func (s *Server) Elect(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = node
}

// Leader is the node that leads.
func (s *Server) Leader() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// Cut breaks all connections of this moment.
func (s *Server) Cut() {
	for _, n := range s.nodes {
		n.cut()
	}
}

// Restart kills the node that leads, and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	leader := s.Leader()
	s.Kill(leader)
	s.Return(t, leader)
}

// Kill ends a node without warning. The log stays.
func (s *Server) Kill(node int) { s.nodes[node].kill() }

// Return starts a killed node again, at its old address.
func (s *Server) Return(t testing.TB, node int) {
	t.Helper()
	if n := s.nodes[node]; n.start(n.address) != nil {
		t.Fatalf("the address %s of node %d was taken by another process", n.address, node)
	}
}

// DropSubscriptions ends all subscriptions of this moment, and leaves the
// connections as they are.
func (s *Server) DropSubscriptions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.dropped)
	s.dropped = make(chan struct{})
}

// Followers counts the subscriptions of this moment.
func (s *Server) Followers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.followers
}

// Reads counts the reads that were asked for, those of subscriptions excepted.
func (s *Server) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// Write adds an event as nobody's append would: of the system, of another
// program, or crippled. Its id is made from seed.
func (s *Server) Write(stream string, seed uint64, system map[string]string, data, custom []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &event{system: system, data: data, custom: custom}
	binary.BigEndian.PutUint64(e.id[:], seed)
	s.add(stream, e)
	s.publish(0)
}

// add appends an event; the caller holds the lock.
func (s *Server) add(stream string, e *event) {
	e.stream, e.revision, e.position = stream, uint64(len(s.streams[stream])), s.written
	s.written += uint64(64 + len(e.stream) + len(e.data) + len(e.custom))
	s.log = append(s.log, e)
	s.streams[stream] = append(s.streams[stream], e)
}

// publish lets what was added be read after a while, in the order in which it
// was added; the caller holds the lock.
func (s *Server) publish(after time.Duration) {
	a := &addition{end: s.written, due: after == 0}
	s.waiting = append(s.waiting, a)
	if a.due {
		s.show()
		return
	}
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.due = true
		s.show()
	})
}

// show lets what is due be read; the caller holds the lock.
func (s *Server) show() {
	if !s.waiting[0].due {
		return
	}
	for len(s.waiting) > 0 && s.waiting[0].due {
		s.shown = s.waiting[0].end
		s.waiting = s.waiting[1:]
	}
	close(s.grown)
	s.grown = make(chan struct{})
}

// readable is what readers find of events; the caller holds the lock.
func (s *Server) readable(events []*event) []*event {
	n, _ := slices.BinarySearchFunc(events, s.shown, func(e *event, end uint64) int { return cmp.Compare(e.position, end) })
	return events[:n]
}

// take appends events where the stream is at the expected revision, or finds
// them there by their ids, as a server does; "any" revision is the stream's
// end. It says where the log ends that the answer waits for, and nothing of a
// repetition of what cannot be read yet. The caller holds the lock.
func (s *Server) take(o *api.AppendReq_Options, events []*event, late time.Duration) (_ *api.AppendResp, end uint64) {
	stream := string(o.GetStreamIdentifier().GetStreamName())
	have := s.streams[stream]
	actual, expected := len(have)-1, len(have)-1
	switch e := o.GetExpectedStreamRevision().(type) {
	case *api.AppendReq_Options_NoStream:
		expected = -1
	case *api.AppendReq_Options_Revision:
		expected = int(e.Revision) //nolint:gosec // a test's revisions are small
	}
	if expected > actual || expected < actual && !stands(have, expected, events) {
		return wrong(o, actual), 0
	}
	if expected == actual {
		created := map[string]string{"type": "$statsCollected", "created": strconv.FormatUint(s.written, 10)}
		s.add("$stats-"+s.nodes[s.leader].address, &event{system: created, data: []byte(`{}`)})
		for _, e := range events {
			s.add(stream, e)
		}
		s.publish(late)
	} else if have[expected+len(events)].position >= s.shown {
		s.drops++
		return nil, 0
	}
	last := s.streams[stream][expected+len(events)]
	success := &api.AppendResp_Success{
		CurrentRevisionOption: &api.AppendResp_Success_CurrentRevision{CurrentRevision: last.revision},
		PositionOption:        &api.AppendResp_Success_NoPosition{},
	}
	if !s.hidden {
		success.PositionOption = &api.AppendResp_Success_Position{
			Position: &api.AppendResp_Position{CommitPosition: last.position, PreparePosition: last.position},
		}
	}
	return &api.AppendResp{Result: &api.AppendResp_Success_{Success: success}}, last.position + 1
}

// stands says whether exactly these ids stand right after a revision.
func stands(have []*event, after int, events []*event) bool {
	if after+len(events) >= len(have) {
		return false
	}
	return slices.EqualFunc(have[after+1:][:len(events)], events, func(a, b *event) bool { return a.id == b.id })
}

func wrong(o *api.AppendReq_Options, actual int) *api.AppendResp {
	w := &api.AppendResp_WrongExpectedVersion{
		CurrentRevisionOption: &api.AppendResp_WrongExpectedVersion_CurrentNoStream{},
	}
	if actual >= 0 {
		w.CurrentRevisionOption = &api.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(actual)}
	}
	switch e := o.GetExpectedStreamRevision().(type) {
	case *api.AppendReq_Options_Revision:
		w.ExpectedRevisionOption = &api.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: e.Revision}
	case *api.AppendReq_Options_NoStream:
		w.ExpectedRevisionOption = &api.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: e.NoStream}
	}
	return &api.AppendResp{Result: &api.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: w}}
}

// trouble takes the next trouble, or none; the caller holds the lock.
func (s *Server) trouble() Trouble {
	if len(s.troubles) == 0 {
		return 0
	}
	next := s.troubles[0]
	s.troubles = s.troubles[1:]
	return next
}

func (s *Server) stop() {
	for _, n := range s.nodes {
		n.kill()
	}
}
