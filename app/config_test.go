package app

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTrustedProxiesAreNetworksAndNoneByDefault(t *testing.T) {
	t.Parallel()
	read := func(value string) ([]netip.Prefix, error) {
		c, err := ReadConfig(func(name string) string { return map[string]string{"KINDRED_TRUSTED_PROXIES": value}[name] })
		return c.TrustedProxies, err
	}
	for value, want := range map[string][]netip.Prefix{
		"":                          nil,
		"10.0.0.0/8, 2001:db8::/32": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
	} {
		got, err := read(value)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%q: %v %s", value, err, diff)
		}
	}
	for _, wrong := range []string{
		"10.0.0.1", "proxy.example.com", "10.0.0.0/8 192.0.2.0/24", "10.0.0.0/33", "*",
		"::ffff:10.0.0.0/104", "::ffff:0.0.0.0/95", "10.0.0.0/8, 10.0.0.7/8", "2001:db8::1/32",
	} {
		if _, err := read(wrong); err == nil || !strings.HasPrefix(err.Error(), "KINDRED_TRUSTED_PROXIES: must be networks") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestTracesGoToTheCollectorOrToAnURLOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ collector, traces, want string }{
		{"", "", ""},
		{"http://collector:4318", "", "http://collector:4318/v1/traces"},
		{"https://collector/otlp/", "", "https://collector/otlp/v1/traces"},
		{"", "http://collector:4318/", "http://collector:4318/"},
		{"http://collector:4318", "https://traces/in", "https://traces/in"},
	} {
		c, err := ReadConfig(func(name string) string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": tt.collector, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": tt.traces}[name]
		})
		if err != nil || c.TracesURL != tt.want {
			t.Errorf("%+v: %q, %v", tt, c.TracesURL, err)
		}
	}
}

func TestSettingsThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	read := func(name, value string) error {
		_, err := ReadConfig(func(asked string) string { return map[string]string{name: value}[asked] })
		return err
	}
	for name, values := range map[string][]string{
		"KINDRED_LISTEN":               {"8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:8080"},
		"KINDRED_DATABASE_CONNECTIONS": {"15", "1001", "many", "-1", "16.5"},
		"KINDRED_DATABASE_URL": {
			"kindred", "postgres://user:hunter2@host:port/kindred", "postgres://user:hunter2@host/kindred?sslmode=on",
			"postgres://user:hunter2@host/kindred?pool_max_conns=5",
		},
		"KINDRED_MASTER_KEY":                 {"hunter2", "m1:hunter2", "m1:" + strings.Repeat("A", 43) + "=,m1:" + strings.Repeat("A", 43) + "="},
		"KINDRED_PUBLIC_URL":                 {"kindred.example.com", "https://:8080", "https://a.example/?tenant=1", "https://a.example/?", "https://a.example/#top", "https://ada:hunter2@a.example"},
		"KINDRED_METRICS_LISTEN":             {"9090", "127.0.0.1:8080"}, // which is where everything else is by default
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"collector:4318", "localhost", "grpc://collector:4317", "http://"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"collector:4318/v1/traces", "/v1/traces"},
	} {
		for _, value := range values {
			if err := read(name, value); err == nil || !strings.HasPrefix(err.Error(), name+": must be ") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
	for name, values := range map[string][]string{
		"KINDRED_LISTEN":               {":8080", "[::1]:0", "kindred.internal:80"},
		"KINDRED_DATABASE_CONNECTIONS": {"16", "1000"},
		"KINDRED_MASTER_KEY":           {"m1:" + strings.Repeat("A", 43) + "=, m2:" + strings.Repeat("B", 42) + "A="},
		"KINDRED_PUBLIC_URL":           {"https://a.example", "http://a.example:8080/kindred/"},
		"KINDRED_METRICS_LISTEN":       {":9090", "127.0.0.1:0"},
		"KINDRED_DATABASE_URL":         {"postgres://user@host/kindred?sslmode=disable", "host=/run/postgresql dbname=kindred"},
	} {
		for _, value := range values {
			if err := read(name, value); err != nil {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestWhoCannotReachTheDatabaseIsToldWhichSettingNamesIt(t *testing.T) {
	t.Parallel()
	c := Config{DatabaseURL: "postgres://user:hunter2@127.0.0.1:1/kindred"}
	_, opened := OpenDatabase(t.Context(), c, slog.New(slog.DiscardHandler))
	for what, err := range map[string]error{"a tool": c.Served(t.Context()), "a service": opened} {
		if err == nil || !strings.HasPrefix(err.Error(), "KINDRED_DATABASE_URL: ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestConnectionsToTheDatabaseAreDivided(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		all         int
		work, reads int32
	}{{0, 8, 20}, {36, 8, 20}, {leastConns, 4, 4}, {mostConns, 283, 709}} {
		work, reads := Config{DatabaseConns: tt.all}.conns()
		if work != tt.work || reads != tt.reads {
			t.Errorf("of %d, %d for writes and %d for reads", tt.all, work, reads)
		}
	}
}

func TestASettingThatIsMisspeltIsNamed(t *testing.T) {
	t.Parallel()
	names := Misspelt([]string{
		"KINDRED_LISTEN=x", "KINDRED_LISTN=x", "KINDRED_TEST_ANY=x", "KINDRED_SERVICE_HOST=x", "PATH=x",
		"KINDRED_URL=x", "KINDRED_API_KEY=x", "KINDRED_PROFILE=x", "KINDRED_LISTEN_SECRET=x",
	})
	if !slices.Equal(names, []string{"KINDRED_LISTN"}) {
		t.Errorf("%v", names)
	}
}
