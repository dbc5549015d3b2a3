package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/httpapi"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/projections"

	"kindred/eventstore/feed"
)

const benchConns = 32

// driving is a service on a durable server, and what drives it.
type driving struct {
	account
	pool   *pgxpool.Pool
	client *http.Client
}

func startWriting(b *testing.B) driving {
	server := pgtest.Durable(b)
	s := startService(b, func(c *Config) { c.DatabaseURL = server.URL() })
	pool, err := postgres.Open(b.Context(), server.URL(), postgres.Options{MaxConns: benchConns})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * benchConns}}
	b.Cleanup(client.CloseIdleConnections)
	return driving{s.signUp(), pool, client}
}

// post sends one body and takes no notice of the answer but its status.
func (w driving) post(ctx context.Context, url, kind string, body io.Reader, status int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Authorization", "Bearer "+w.Token)
	answer, err := w.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != status {
		err = fmt.Errorf("%s answered %d: %.200s", url, answer.StatusCode, text)
	}
	return text, err
}

// drive sends b.N bodies over all connections, and reports the rate.
func (w driving) drive(b *testing.B, url string, body func(i int64) string) float64 {
	b.Helper()
	var (
		all  sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		took []time.Duration
	)
	b.ResetTimer()
	for range benchConns {
		all.Go(func() {
			var own []time.Duration
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				if _, err := w.post(b.Context(), url, "application/json", strings.NewReader(body(i)), http.StatusCreated); err != nil {
					b.Error(err)
					return
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	all.Wait()
	rate := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(rate, "requests/s")
	b.ReportMetric(0, "ns/op") // hidden: connections work at the same time
	percentiles(b, "", took)
	return rate
}

func percentiles(b *testing.B, what string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2].Microseconds())/1000, what+"p50-ms")
		b.ReportMetric(float64(took[n*99/100].Microseconds())/1000, what+"p99-ms")
	}
}

func traitsOf(i int64) string {
	return fmt.Sprintf(`{"age":%d,"visits":%d,"plan":"p%d","city":"c%d","likes":["l%d","l%d"]}`, 18+i*7%60, i*13%300, i%4, i*3%11, i%9, i%7)
}

func bodyOf(i int64) string {
	return fmt.Sprintf(`{"external_id":"bench-%d-%d","traits":%s}`, time.Now().UnixNano(), i, traitsOf(i))
}

// lag samples how long a model takes to reach what the log holds, until ctx
// ends.
func (w driving) lag(ctx context.Context, model feed.Projection) (lags []time.Duration) {
	for ctx.Err() == nil {
		var head, at string
		_ = w.pool.QueryRow(ctx, `SELECT coalesce(max(position), '') FROM heads`).Scan(&head)
		began := time.Now()
		for ctx.Err() == nil {
			_ = w.pool.QueryRow(ctx, `SELECT position FROM checkpoints WHERE name = $1`, feed.Slot(model)).Scan(&at)
			if at >= head {
				lags = append(lags, time.Since(began))
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return lags
}

// during runs watch while work is done.
func during[T any](ctx context.Context, watch func(context.Context) T, work func()) T {
	ctx, end := context.WithCancel(ctx)
	watched := make(chan T, 1)
	go func() { watched <- watch(ctx) }()
	work()
	end()
	return <-watched
}

// BenchmarkCreateUsers puts POST /users beside a bare handler that makes one
// durable insert of the same body.
func BenchmarkCreateUsers(b *testing.B) {
	w := startWriting(b)
	if _, err := w.pool.Exec(b.Context(), `CREATE TABLE bare (id text PRIMARY KEY, body bytea NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	bare := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = w.pool.Exec(r.Context(), `INSERT INTO bare (id, body) VALUES ($1, $2)`, fmt.Sprintf("usr_%d", n.Add(1)), body)
		}
		if err != nil {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		rw.WriteHeader(http.StatusCreated)
		_, _ = rw.Write(body)
	}))
	b.Cleanup(bare.Close)
	var floor float64
	b.Run("bare", func(b *testing.B) { floor = w.drive(b, bare.URL, bodyOf) })
	b.Run("users", func(b *testing.B) {
		lags := during(b.Context(), func(ctx context.Context) []time.Duration { return w.lag(ctx, projections.Users{}) },
			func() { b.ReportMetric(w.drive(b, w.URL+"/api/v1/users", bodyOf)/floor, "of_bare") })
		percentiles(b, "lag-", lags)
	})
}

// BenchmarkImportUsers imports b.N users in one file, first alone, then while
// others create users one by one.
func BenchmarkImportUsers(b *testing.B) {
	w := startWriting(b)
	load := func(b *testing.B) {
		began := time.Now()
		body, into := io.Pipe()
		go func() {
			var line bytes.Buffer
			for i := range int64(b.N) {
				fmt.Fprintf(&line, `{"external_id":"line-%d-%d","traits":%s}`+"\n", began.UnixNano(), i, traitsOf(i))
				if line.Len() > 32<<10 || i == int64(b.N)-1 {
					_, _ = into.Write(line.Bytes())
					line.Reset()
				}
			}
			into.Close()
		}()
		text, err := w.post(b.Context(), w.URL+"/api/v1/users/import", "application/x-ndjson", body, http.StatusOK)
		if err != nil {
			b.Fatal(err)
		}
		var result httpapi.ImportResult
		if err := json.Unmarshal(text, &result); err != nil || result.Created != int64(b.N) {
			b.Fatalf("%v: %s", err, text)
		}
		b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "users/s")
		b.ReportMetric(0, "ns/op")
	}
	heap := func(ctx context.Context) (most uint64) {
		for ctx.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			time.Sleep(50 * time.Millisecond)
		}
		return most
	}
	b.Run("alone", func(b *testing.B) {
		most := during(b.Context(), heap, func() { load(b) })
		b.ReportMetric(float64(most)/(1<<20), "MiB-heap")
		began := time.Now()
		var head string
		_ = w.pool.QueryRow(b.Context(), `SELECT max(position) FROM heads`).Scan(&head)
		for at := ""; at < head; time.Sleep(5 * time.Millisecond) {
			_ = w.pool.QueryRow(b.Context(), `SELECT position FROM checkpoints WHERE name = $1`, feed.Slot(projections.Users{})).Scan(&at)
		}
		b.ReportMetric(time.Since(began).Seconds(), "behind-s")
	})
	other := w.account.service.signUp()
	others := driving{other, w.pool, w.client}
	single := func(ctx context.Context) (took []time.Duration) {
		for i := int64(0); ctx.Err() == nil; i++ {
			began := time.Now()
			if _, err := others.post(ctx, w.URL+"/api/v1/users", "application/json", strings.NewReader(bodyOf(i)), http.StatusCreated); err != nil {
				if ctx.Err() == nil {
					b.Error(err)
				}
				return took
			}
			took = append(took, time.Since(began))
		}
		return took
	}
	b.Run("others-before", func(b *testing.B) {
		percentiles(b, "other-", during(b.Context(), single, func() { time.Sleep(2 * time.Second) }))
	})
	b.Run("others-meanwhile", func(b *testing.B) {
		percentiles(b, "other-", during(b.Context(), single, func() { load(b) }))
	})
}
