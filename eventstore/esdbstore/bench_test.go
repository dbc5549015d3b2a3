package esdbstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
)

// serverPID is the process that realURL leads to, where the benchmarks are to
// tell what processor time it takes.
const serverPID = "KINDRED_TEST_ESDB_PID"

const idleFollowers = 20

// benchmarked opens the server that realURL names, or one that is started or played.
func benchmarked(b *testing.B) *esdbstore.Store {
	b.Helper()
	if url := os.Getenv(realURL); url != "" {
		return open(b, url, options(time.Minute))
	}
	return open(b, esdbtest.StartNode(b).URL(), options(time.Minute))
}

// BenchmarkAppend appends an event of about 650 bytes to a stream of its own.
func BenchmarkAppend(b *testing.B) {
	s := benchmarked(b)
	for _, writers := range []int{1, 32, 256} {
		b.Run(strconv.Itoa(writers), func(b *testing.B) {
			costs(b)
			latency := write(b, s, writers)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(latency.Microseconds())/float64(b.N), "µs/append")
		})
	}
}

// BenchmarkAppendToOneStream appends to one stream, each time where it ends.
func BenchmarkAppendToOneStream(b *testing.B) {
	s := benchmarked(b)
	m := newMaker()
	stream, at := m.stream(), eventstore.NoStream
	costs(b)
	for b.Loop() {
		if _, err := s.Append(b.Context(), stream, at, m.events(1)); err != nil {
			b.Fatal(err)
		}
		at++
	}
}

// BenchmarkReadAll reads pages of 1,000 events, as followers do.
func BenchmarkReadAll(b *testing.B) {
	s := benchmarked(b)
	const pages, page = 20, 1000
	from, err := s.Head(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	m := newMaker()
	for range pages * page / 250 {
		if _, err := s.Append(b.Context(), m.stream(), eventstore.NoStream, m.events(250)); err != nil {
			b.Fatal(err)
		}
	}
	for name, read := range map[string]func(eventstore.Position) (int, eventstore.Position, error){
		"decoded": func(after eventstore.Position) (int, eventstore.Position, error) {
			records, err := s.ReadAll(b.Context(), after, page)
			if len(records) == 0 {
				return 0, after, err
			}
			return len(records), records[len(records)-1].Position, err
		},
	} {
		for _, size := range []string{"page", "nothing"} {
			b.Run(name+"/"+size, func(b *testing.B) {
				costs(b)
				after, events := from, 0
				if size == "nothing" { // as a follower reads that has caught up
					if after, err = s.Head(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					n, last, err := read(after)
					if err != nil {
						b.Fatal(err)
					}
					events += n
					switch {
					case size == "nothing":
					case n < page:
						after = from
					default:
						after = last
					}
				}
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkHead reads where the log ends.
func BenchmarkHead(b *testing.B) {
	s := benchmarked(b)
	m := newMaker()
	if _, err := s.Append(b.Context(), m.stream(), eventstore.NoStream, m.events(10)); err != nil {
		b.Fatal(err)
	}
	costs(b)
	for b.Loop() {
		if _, err := s.Head(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdle is a second in which nothing happens, with 20 followers and
// with none.
func BenchmarkIdle(b *testing.B) {
	for _, followers := range []int{0, idleFollowers} {
		b.Run(strconv.Itoa(followers), func(b *testing.B) {
			s := benchmarked(b)
			followed(b, s, followers)
			costs(b)
			for b.Loop() {
				<-time.After(time.Second)
			}
		})
	}
}

// BenchmarkFollowed appends one event after the other, with followers who have
// all seen it before the next one comes.
func BenchmarkFollowed(b *testing.B) {
	for _, followers := range []int{1, idleFollowers} {
		b.Run(strconv.Itoa(followers), func(b *testing.B) {
			s := benchmarked(b)
			await := followed(b, s, followers)
			m := newMaker()
			costs(b)
			for b.Loop() {
				a, err := s.Append(b.Context(), m.stream(), eventstore.NoStream, m.events(1))
				if err != nil {
					b.Fatal(err)
				}
				await(a.Position)
			}
		})
	}
}

// BenchmarkWrittenAndFollowed lets 32 writers append beside 20 followers.
func BenchmarkWrittenAndFollowed(b *testing.B) {
	s := benchmarked(b)
	await := followed(b, s, idleFollowers)
	costs(b)
	write(b, s, 32)
	head, err := s.Head(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	await(head)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// write lets writers append b.N events, and says how long they waited for that
// together.
func write(b *testing.B, s *esdbstore.Store, writers int) time.Duration {
	b.Helper()
	var (
		group  sync.WaitGroup
		left   atomic.Int64
		waited atomic.Int64
	)
	left.Store(int64(b.N))
	b.ResetTimer()
	for range writers {
		m := newMaker()
		group.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if _, err := s.Append(b.Context(), m.stream(), eventstore.NoStream, m.events(1)); err != nil {
					b.Error(err)
					return
				}
				waited.Add(int64(time.Since(began)))
			}
		})
	}
	group.Wait()
	return time.Duration(waited.Load())
}

// followed starts followers who have caught up, and returns what waits until all
// have seen a position.
func followed(b *testing.B, s *esdbstore.Store, followers int) func(eventstore.Position) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	head, err := s.Head(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var group, caughtUp sync.WaitGroup
	seen := make([]chan eventstore.Position, followers)
	for i := range seen {
		seen[i] = make(chan eventstore.Position, 1<<20)
		subscription, err := s.Subscribe(ctx, head)
		if err != nil {
			b.Fatal(err)
		}
		caughtUp.Add(1)
		group.Go(func() {
			defer close(seen[i])
			defer subscription.Close()
			for first := true; ; first = false {
				batch, err := subscription.Next(ctx, 1000)
				if first {
					caughtUp.Done()
				}
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						b.Error(err)
					}
					return
				}
				if n := len(batch.Records); n > 0 {
					seen[i] <- batch.Records[n-1].Position
				}
			}
		})
	}
	b.Cleanup(func() { cancel(); group.Wait() })
	caughtUp.Wait()
	return func(position eventstore.Position) {
		b.Helper()
		for i, last := range seen {
			for at := eventstore.Start; at < position; {
				var follows bool
				if at, follows = <-last; !follows {
					b.Fatalf("follower %d has ended", i)
				}
			}
		}
	}
}

// costs tells, at the end of a benchmark, what processor time a round took here
// and, where it is known, in the server.
func costs(b *testing.B) {
	b.Helper()
	rounds := func() float64 { return float64(max(b.N, 1)) }
	here, there := ours(b), theirs(b)
	b.Cleanup(func() {
		b.ReportMetric(float64((ours(b)-here).Microseconds())/rounds(), "cpu-µs/op")
		if os.Getenv(serverPID) != "" {
			b.ReportMetric(float64((theirs(b)-there).Microseconds())/rounds(), "server-cpu-µs/op")
		}
	})
}

// ours is the processor time of this process.
func ours(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// theirs is the processor time of the server, in steps of 10 ms.
func theirs(b *testing.B) time.Duration {
	b.Helper()
	pid := os.Getenv(serverPID)
	if pid == "" {
		return 0
	}
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the third of all is the first of these
	var ticks int64
	for _, field := range fields[11:13] { // in user mode, and in the kernel
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// maker makes streams and events of one client. It serves one goroutine.
type maker struct {
	ids        *id.Source
	client     id.Client
	data, meta []byte
}

func newMaker() *maker {
	ids := id.Random(rand.Reader)
	m := &maker{ids: ids, client: id.Next[id.Client](ids)}
	m.data = []byte(`{"traits":"` + strings.Repeat("x", 400) + `"}`)
	var err error
	m.meta, err = json.Marshal(eventstore.Meta{Client: m.client, Version: 1, RecordedAt: recordedAt, Actor: strings.Repeat("y", 100)})
	if err != nil {
		panic(err) // a struct of strings, a number and a time
	}
	return m
}

var recordedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *maker) stream() eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("user-%s-%s", m.client, id.Next[id.User](m.ids)))
}

func (m *maker) events(n int) []eventstore.Proposed {
	events := make([]eventstore.Proposed, n)
	for i := range events {
		events[i] = eventstore.Proposed{
			ID: id.Next[id.Event](m.ids), Type: "end_user.created", Version: 1, Client: m.client,
			RecordedAt: recordedAt, Data: m.data, Meta: m.meta,
		}
	}
	return events
}
