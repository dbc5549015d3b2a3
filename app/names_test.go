package app

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"kindred"
	"kindred/commands/policies"
	"kindred/dispatcher"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/golden"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/projections"
	"kindred/testkit"
)

func TestSettingsAndTheirDefaultsStay(t *testing.T) {
	var lines []string
	for _, s := range new(Config).settings() {
		lines = append(lines, s.name+"="+s.value)
	}
	for _, role := range []string{RoleAPI, RoleProjections, RolePolicies, RoleDispatcher} {
		lines = append(lines, "KINDRED_ROLES holds "+role)
	}
	golden.Check(t, "settings.txt", lines)
}

// Those who follow the log are named in commands, requests and metrics.
func TestFollowersStay(t *testing.T) {
	var lines []string
	for _, m := range projections.All() {
		lines = append(lines, "read model "+m.Name())
	}
	for _, p := range Resumable(eventstore.Start) {
		lines = append(lines, "follower "+p.Name())
	}
	golden.Check(t, "followers.txt", lines)
}

// described is a registry that keeps no more than what metrics are called.
type described struct {
	t     *testing.T
	lines []string
}

var descOf = regexp.MustCompile(`^Desc\{fqName: "(\w+)", .*, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// Register implements [prometheus.Registerer].
func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 1_000)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		found := descOf.FindStringSubmatch(desc.String())
		if found == nil {
			d.t.Fatalf("what is %s?", desc)
		}
		name := found[1]
		if !strings.HasPrefix(name, "kindred_") { // the Go runtime's and the process's
			continue
		}
		labels := strings.TrimSpace(found[2] + " " + found[3])
		d.lines = append(d.lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", kindOf(d.t, c, name), name, labels)))
	}
	return nil
}

// MustRegister implements [prometheus.Registerer].
func (d *described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := d.Register(c); err != nil {
			d.t.Fatal(err)
		}
	}
}

// Unregister implements [prometheus.Registerer].
func (*described) Unregister(prometheus.Collector) bool { return false }

func kindOf(t *testing.T, c prometheus.Collector, name string) string {
	t.Helper()
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	alone := prometheus.NewRegistry()
	alone.MustRegister(c)
	families := testkit.Must(alone.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return strings.ToLower(f.GetType().String())
		}
	}
	t.Fatalf("nobody can say what %s is", name)
	return ""
}

// Dashboards and alerts are made of these.
func TestMetricsStay(t *testing.T) {
	t.Parallel()
	d := &described{t: t}
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // which nobody connects
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	registerProcess(d)
	registerPool(d, "work", pool)
	registerPool(d, "control", pool)
	countAppends(d)
	countImports(d)
	projector.NewMetrics(d)
	policies.NewMetrics(d)
	dispatcher.NewMetrics(d)
	edge := prometheus.NewRegistry()
	httpapi.Handler(nil, httpapi.Options{Metrics: edge, Now: time.Now, Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler)}).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/nowhere", nil)) // which is counted
	d.MustRegister(edge)
	auth.New(auth.Config{Issuer: &auth.Issuer{Keys: &auth.Keyring{Now: time.Now}}, Metrics: d})
	golden.Check(t, "metrics.txt", d.lines)

	const page = "docs/operations.md"
	text := string(testkit.Must(kindred.Documentation.ReadFile(page))(t))
	for _, line := range d.lines {
		name := strings.Fields(line)[1]
		told := strings.Contains(text, "`"+name+"`")
		for at, c := range name {
			told = told || c == '_' && strings.Contains(text, "`"+name[:at+1]+"…`")
		}
		if !told {
			t.Errorf("%s does not say when %s is alarming", page, name)
		}
	}
}
