package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/app"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// sentSpan is a span as a collector gets it.
type sentSpan struct {
	*spans.Span
	resource map[string]string
}

// startCollector takes spans until the test ends.
func startCollector(t *testing.T) (url string, sent func() []sentSpan) {
	t.Helper()
	var (
		mu  sync.Mutex
		all []sentSpan
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request collector.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("sent to %s: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, from := range request.ResourceSpans {
			for _, scope := range from.ScopeSpans {
				for _, span := range scope.Spans {
					all = append(all, sentSpan{span, texts(from.Resource.Attributes)})
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []sentSpan {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// texts are attributes by name.
func texts(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		out[a.Key] = a.Value.GetStringValue()
		if _, number := a.Value.Value.(*common.AnyValue_IntValue); number {
			out[a.Key] = strconv.FormatInt(a.Value.GetIntValue(), 10)
		}
	}
	return out
}

// The standard variables alone turn traces on. Nothing personal is in those.
func TestRequestsAreTraced(t *testing.T) {
	url, sent := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_SERVICE_NAME", "kindred-eu")
	s := startService(t, func(c *app.Config) {
		env, err := app.ReadConfig(os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		c.TracesURL = env.TracesURL
	})
	a := s.signUp()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	s.send("GET", "/api/v1/users/ext:lovelace@example.com?lovelace=1", nil, bearer(a.Token),
		header("traceparent", "00-"+trace+"-00f067aa0ba902b7-01"), header("baggage", "name=lovelace"),
		header("User-Agent", "lovelace"), header("X-Forwarded-For", "203.0.113.7"))
	s.send("GET", "/healthz", nil)
	s.stop()

	got := slices.DeleteFunc(sent(), func(s sentSpan) bool {
		return texts(s.Attributes)["http.response.status_code"] == "503" // as long as it could not know who was revoked
	})
	if len(got) != 2 {
		t.Fatalf("%d spans, not of two requests: %v", len(got), got)
	}
	own, called := got[0], got[1]
	if own.Name != "POST /auth/signup" || len(own.TraceId) == 0 || len(own.ParentSpanId) > 0 {
		t.Errorf("without a trace of the caller's: %v", own)
	}
	if fmt.Sprintf("%x %x", called.TraceId, called.ParentSpanId) != trace+" 00f067aa0ba902b7" {
		t.Errorf("within the caller's trace: %v", called)
	}
	if called.Name != "GET /api/v1/users/{user_id}" || called.Kind != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("%v", called)
	}
	if diff := cmp.Diff(map[string]string{
		"http.request.method": "GET", "http.route": "/api/v1/users/{user_id}", "http.response.status_code": "422",
	}, texts(called.Attributes)); diff != "" {
		t.Error(diff)
	}
	for _, span := range got {
		if name := span.resource["service.name"]; name != "kindred-eu" {
			t.Errorf("of the service %q", name)
		}
		for _, personal := range []string{"lovelace", "203.0.113.7", "127.0.0.1"} {
			if text := fmt.Sprint(span.Span, span.resource); strings.Contains(text, personal) {
				t.Errorf("%s in %s", personal, text)
			}
		}
	}
}

func TestACollectorThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it connects, and no more
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := startService(t, func(c *app.Config) { c.TracesURL = "http://" + silent.Addr().String() })
	s.signUp()
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	if log := s.Logs.String(); strings.Count(log, "trouble with traces") != 1 {
		t.Errorf("the log tells of it otherwise than once:\n%s", log)
	}
}
