package e2e

import (
	"bytes"
	"cmp"
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
	"kindred/httpapi"

	gocmp "github.com/google/go-cmp/cmp"
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
	if diff := gocmp.Diff(map[string]string{
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

// Two processes: one takes the requests, the other does what follows. Whatever follows
// from a request is in its trace, attempts at deliveries included; and what asks for
// one, by hand, is in its own.
func TestAttemptsAreInTheTraceOfTheRequestThatCausedThem(t *testing.T) {
	url, sent := startCollector(t)
	traces := func(c *app.Config) { c.TracesURL = url + "/v1/traces" }
	front := startService(t, traces, func(c *app.Config) { c.Roles = []string{app.RoleAPI} })
	back := startService(t, replicaOf(front), traces, func(c *app.Config) {
		c.Roles = []string{app.RoleProjections, app.RolePolicies, app.RoleDispatcher}
		c.RetryDelays = []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}
	})
	const created, imported, again, tried = "11111111111111111111111111111111", "22222222222222222222222222222222",
		"33333333333333333333333333333333", "44444444444444444444444444444444"
	within := func(trace string) option { return header("traceparent", "00-"+trace+"-00f067aa0ba902b7-01") }

	a := front.signUp()
	want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"settings":{"automatic_matching":{"on":true,"k":1,"min_score":0}}}`))
	a.createUser("byron@example.com", map[string]any{"plan": "pro"})
	a.swept()
	receiver := receive(t, 500, 503, 200)
	hook := a.subscribe(receiver.URL+"?token=s3cr3t", "")
	lovelace := map[string]any{"external_id": "lovelace@example.com", "traits": map[string]any{"plan": "pro"}}
	user := want[httpapi.User](t, http.StatusCreated, a.send("POST", "/api/v1/users", lovelace, within(created)))
	first := a.settled(t, hook, "delivered", 1)[0]
	want[httpapi.Import](t, http.StatusAccepted, a.send("POST", "/api/v1/users/import?async=true", `{"external_id":"babbage@example.com","traits":{"plan":"pro"}}`, ndjson, within(imported)))
	a.settled(t, hook, "delivered", 2)
	path := "/webhooks/" + string(hook.ID)
	want[httpapi.Delivery](t, http.StatusAccepted, a.sendTo("POST", path+"/deliveries/"+string(first.ID)+"/redeliver", nil, within(again)))
	want[httpapi.Delivery](t, http.StatusAccepted, a.sendTo("POST", path+"/test", map[string]any{"event_type": "match.computed"}, within(tried)))
	a.settled(t, hook, "delivered", 4)
	for range 6 {
		if d := receiver.next(t); d.Header.Get("Traceparent") != "" || bytes.Contains(d.Body, []byte(created)) {
			t.Errorf("the receiver is told of the trace: %v %s", d.Header, d.Body)
		}
	}
	export := a.export()
	if found := findings(t, a.get("/.well-known/audit-jwks.json").Body, export); len(found) > 0 {
		t.Errorf("%q", found)
	}
	front.stop()
	back.stop()

	spansOf := map[string][]sentSpan{}
	for _, span := range sent() {
		trace := fmt.Sprintf("%x", span.TraceId)
		spansOf[trace] = append(spansOf[trace], span)
		for _, private := range []string{"lovelace", "babbage", "byron", "127.0.0.1", "s3cr3t", "/hook"} {
			if text := fmt.Sprint(span.Span, span.resource); strings.Contains(text, private) {
				t.Errorf("%s in %s", private, text)
			}
		}
	}
	for _, tt := range []struct {
		trace, request string
		statuses       []string
	}{
		{created, "POST /api/v1/users", []string{"500", "503", "200"}},
		{imported, "POST /api/v1/users/import", []string{"200"}},
		{again, "POST /api/v1/clients/{client_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", []string{"200"}},
		{tried, "POST /api/v1/clients/{client_id}/webhooks/{webhook_id}/test", []string{"200"}},
	} {
		all := spansOf[tt.trace]
		slices.SortFunc(all, func(a, b sentSpan) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
		if len(all) != 1+len(tt.statuses) || all[0].Name != tt.request {
			t.Errorf("%s: %v", tt.request, all)
			continue
		}
		for i, attempt := range all[1:] {
			said := texts(attempt.Attributes)
			if attempt.Name != "webhook attempt" || attempt.Kind != spans.Span_SPAN_KIND_CLIENT || !bytes.Equal(attempt.ParentSpanId, all[0].SpanId) ||
				said["kindred.webhook_id"] != string(hook.ID) || said["kindred.client_id"] != string(a.Client.ID) || said["kindred.event_type"] != "match.computed" ||
				said["kindred.attempt"] != strconv.Itoa(i+1) || said["http.response.status_code"] != tt.statuses[i] ||
				(attempt.Status.GetCode() == spans.Status_STATUS_CODE_ERROR) != (tt.statuses[i] != "200") {
				t.Errorf("%s: attempt %d is told as %v", tt.request, i+1, attempt)
			}
		}
	}
	if n := strings.Count(string(export), `\"trace\":\"00-`+created+"-"+fmt.Sprintf("%x", spansOf[created][0].SpanId)+`-01\"`); n != 2 {
		t.Errorf("%d events are in the trace of %s, not that it was created and matched", n, user.ID)
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
