package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore/seal"
	"kindred/projections/travel"
)

// Config is what an operator may choose. Every field is an environment
// variable; see settings.
type Config struct {
	Listen         string
	PublicURL      string
	DatabaseURL    string
	DatabaseConns  int // 0: the default
	EventStoreURL  string
	DataDir        string
	MasterKey      string
	MasterKeyFile  string
	EpochDir       string
	TokenTTL       time.Duration
	RetryDelays    []time.Duration
	WebhookTimeout time.Duration
	AllowNetworks  []netip.Prefix
	RateLimit      bool
	MetricsListen  string
	MaxConnections int
	TrustedProxies []netip.Prefix
	Roles          []string
	TracesURL      string
}

// What is read before the rest, so that the rest can be logged.
const (
	LogFormatSetting = "KINDRED_LOG_FORMAT"
	LogLevelSetting  = "KINDRED_LOG_LEVEL"
)

// Roles of a process.
const (
	RoleAPI         = "api"
	RoleProjections = "projections"
	RolePolicies    = "policies"
	RoleDispatcher  = "dispatcher"
)

// EpochKeys is where the keys of epochs are, those of each database in a directory
// of their own.
func (c Config) EpochKeys() string { return cmp.Or(c.EpochDir, filepath.Join(c.DataDir, "epochs")) }

func (c Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// limit: edge | connections to the database | `KINDRED_DATABASE_CONNECTIONS`, {defaultConns}, at most {mostConns}: {followingConns} for who follows events, {controlConns} for the service itself, of the others 2 in 7, {leastWork} at least, for writes and read models, the rest for reads; {moreConns} more at most listen, append and show states of the past
const (
	defaultConns   = 36
	leastConns     = 16
	mostConns      = 1000
	controlConns   = 4
	followingConns = 4
	leastWork      = 4

	// moreConns are those that a process may open beside: one listens, the log appends over one
	// and notifies over another, and states of the past have their own.
	moreConns = 3 + travel.Conns
)

// conns is how many connections to the database are for writes and read models, and for reads.
func (c Config) conns() (work, reads int32) {
	shared := int32(cmp.Or(c.DatabaseConns, defaultConns)) - controlConns - followingConns //nolint:gosec // G115: it is 1,000 at most
	work = max(leastWork, shared*2/7)
	return work, shared - work
}

// setting is one environment variable.
type setting struct {
	name, value, meaning string // value is the default
	set                  func(value string) error
}

func (c *Config) settings() []setting {
	return []setting{
		{"KINDRED_LISTEN", "127.0.0.1:8080", "address and port to serve on", c.setListen},
		{"KINDRED_PUBLIC_URL", "", "the URL that callers use; the issuer of tokens (default: http:// and the address listened on)", c.setPublicURL},
		{"KINDRED_DATABASE_URL", "", "PostgreSQL, direct or session-pooled (default: a private local server under KINDRED_DATA_DIR)", c.setDatabaseURL},
		{"KINDRED_DATABASE_CONNECTIONS", strconv.Itoa(defaultConns), fmt.Sprintf("connections to PostgreSQL that a process shares among what it does, from %d to %d; it opens up to %d more, which listen, append and show states of the past", leastConns, mostConns, moreConns), number(&c.DatabaseConns, leastConns, mostConns)},
		{"KINDRED_EVENTSTORE_URL", "", "esdb://… or kurrentdb://… keeps the event log in that cluster (default: in the database)", c.setEventStoreURL},
		{"KINDRED_DATA_DIR", ".data", "what a single machine keeps: the private database, the master key, the epoch keys", text(&c.DataDir)},
		{"KINDRED_MASTER_KEY", "", "id:base64 of 32 bytes; others may follow after commas, the first one seals (default: a file, see the next)", c.setMasterKey},
		{"KINDRED_MASTER_KEY_FILE", "", "a file with the same (default: master.key under KINDRED_DATA_DIR, made at the first start)", text(&c.MasterKeyFile)},
		{"KINDRED_EPOCH_DIR", "", "the directory of the epoch keys, the same for all replicas (default: epochs under KINDRED_DATA_DIR)", text(&c.EpochDir)},
		{"KINDRED_TOKEN_TTL", "900s", "how long tokens live, from 60s to 24h", duration(&c.TokenTTL, time.Minute, 24*time.Hour)},
		{"KINDRED_WEBHOOK_RETRY_DELAYS", "30s,1m,2m,4m,8m", "waits before each retry of a delivery", c.setRetryDelays},
		{"KINDRED_WEBHOOK_TIMEOUT", "10s", "time that a receiver has to answer, from 1s to 60s", duration(&c.WebhookTimeout, time.Second, time.Minute)},
		{"KINDRED_WEBHOOK_ALLOW_NETWORKS", "", "private networks (CIDR, with commas) that deliveries may reach", networks(&c.AllowNetworks)},
		{"KINDRED_RATE_LIMIT", "on", "on; off, for load tests, bounds no rate of requests, nor sign-ups and new members", c.setRateLimit},
		{"KINDRED_TRUSTED_PROXIES", "", "networks (CIDR, with commas) of reverse proxies whose X-Forwarded-For tells callers apart", networks(&c.TrustedProxies)},
		{"KINDRED_MAX_CONNECTIONS", "4096", "connections that are kept open at a time, from 64 to 1000000; a quarter of them from one address", number(&c.MaxConnections, 64, 1_000_000)},
		{"KINDRED_METRICS_LISTEN", "", "address and port to serve /metrics on alone (default: KINDRED_LISTEN serves it, to everybody)", c.setMetricsListen},
		{"KINDRED_ROLES", "api,projections,policies,dispatcher", "what this process does: api answers requests, projections build read models, policies do what follows from events, dispatcher delivers to webhooks", c.setRoles},
		{LogFormatSetting, "text", "text, or json, a line each", oneWord("text", "json")},
		{LogLevelSetting, "info", "what is logged: debug, info, warn or error and above", func(value string) error { _, err := LogLevel(value); return err }},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "", "an OpenTelemetry collector that takes traces over HTTP (default: none are made)", c.setCollector},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", "the same, as the whole URL that traces are sent to", c.setTracesURL},
	}
}

// limit: requests | connections | `KINDRED_MAX_CONNECTIONS`, 4,096, a quarter of them from one address | it is closed
// limit: kept | tokens | `KINDRED_TOKEN_TTL`, 15 minutes

// ReadConfig reads the environment. All wrong values are named at once.
func ReadConfig(getenv func(string) string) (Config, error) {
	var c Config
	var wrong []error
	for _, s := range c.settings() {
		value := s.value
		if given := strings.TrimSpace(getenv(s.name)); given != "" {
			value = given
		}
		if err := s.set(value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return c, errors.Join(append(wrong, c.apart())...)
}

// DescribeSettings prints the settings with their defaults.
func DescribeSettings(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range new(Config).settings() {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", s.name, s.value, s.meaning)
	}
	_ = table.Flush() // nothing is lost with a help text
}

// Misspelt lists what is set in an environment under our prefix, and is no setting, nor read by the commands of
// clients, which a shell may have set for both. Kubernetes sets some itself for a service called kindred.
func Misspelt(environment []string) []string {
	var names []string
	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		known := slices.ContainsFunc(new(Config).settings(), func(s setting) bool { return s.name == name })
		ofClients := slices.Contains([]string{"KINDRED_URL", "KINDRED_API_KEY", "KINDRED_PROFILE", "KINDRED_LISTEN_SECRET"}, name)
		others := strings.HasPrefix(name, "KINDRED_TEST_") || strings.HasPrefix(name, "KINDRED_SERVICE_") || strings.HasPrefix(name, "KINDRED_PORT")
		if strings.HasPrefix(name, "KINDRED_") && !known && !ofClients && !others {
			names = append(names, name)
		}
	}
	return names
}

func oneWord(words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("must be %s", strings.Join(words, " or "))
		}
		return nil
	}
}

func text(into *string) func(string) error {
	return func(value string) error {
		*into = value
		return nil
	}
}

func (c *Config) setListen(value string) error {
	c.Listen = value
	return checkListen(value, "127.0.0.1:8080")
}

func (c *Config) setMetricsListen(value string) error {
	c.MetricsListen = value
	if value == "" {
		return nil
	}
	return checkListen(value, "127.0.0.1:9090")
}

// apart fails where metrics are to be served on the address of everything else.
func (c *Config) apart() error {
	_, port, _ := net.SplitHostPort(c.Listen)
	if c.MetricsListen == c.Listen && port != "0" {
		return errors.New("KINDRED_METRICS_LISTEN: must be another address than KINDRED_LISTEN, or not set")
	}
	return nil
}

func checkListen(value, example string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("must be an address and a port, such as %s", example)
	}
	return nil
}

func number(into *int, least, most int) func(string) error {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be a number from %d to %d", least, most)
		}
		*into = n
		return nil
	}
}

func (c *Config) setDatabaseURL(value string) error {
	if value == "" {
		return nil
	}
	config, err := pgx.ParseConfig(value)
	if err != nil { // which may quote a password
		return errors.New("must be such as postgres://user:password@host/database; files that it names must be there")
	}
	for name := range config.RuntimeParams {
		if strings.HasPrefix(name, "pool_") { // settings of a library
			return fmt.Errorf("must be without %s: KINDRED_DATABASE_CONNECTIONS says how many connections are opened", name)
		}
	}
	c.DatabaseURL = value
	return nil
}

func (c *Config) setPublicURL(value string) error {
	const example = "https://kindred.example.com"
	u, err := webURL(value, example)
	if u != nil && (u.RawQuery != "" || u.ForceQuery || strings.Contains(value, "#") || u.User != nil) { // paths are put behind it
		return fmt.Errorf("must be a URL without a user, a query or a fragment, such as %s", example)
	}
	c.PublicURL = strings.TrimRight(value, "/")
	return err
}

func (c *Config) setMasterKey(value string) error {
	if value == "" {
		return nil
	}
	if _, err := seal.ParseMasterKeys(value); err != nil { // which quotes no key
		return fmt.Errorf("must be id:base64 of 32 bytes, several with commas between: %w", err)
	}
	c.MasterKey = value
	return nil
}

// setCollector adds the path that OTLP has for traces.
func (c *Config) setCollector(value string) error {
	u, err := webURL(value, "http://localhost:4318")
	if u != nil {
		c.TracesURL = u.JoinPath("v1/traces").String()
	}
	return err
}

func (c *Config) setTracesURL(value string) error {
	u, err := webURL(value, "http://localhost:4318/v1/traces")
	if u != nil {
		c.TracesURL = value
	}
	return err
}

// webURL is an http or https URL, or nil where none is given.
func webURL(value, example string) (*url.URL, error) {
	if value == "" {
		return nil, nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("must be an http or https URL, such as %s", example)
	}
	return u, nil
}

func (c *Config) setEventStoreURL(value string) error {
	c.EventStoreURL = value
	return CheckEventStoreURL(value)
}

// CheckEventStoreURL refuses what names no event store; "" is the database.
func CheckEventStoreURL(value string) error {
	scheme, _, _ := strings.Cut(value, "://")
	if value != "" && !slices.Contains([]string{"esdb", "esdb+discover", "kurrentdb", "kurrentdb+discover"}, scheme) {
		return errors.New("must begin with esdb:// or kurrentdb://")
	}
	return nil
}

func duration(into *time.Duration, least, most time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Errorf("must be a duration from %s to %s, such as 90s", least, most)
		}
		*into = d
		return nil
	}
}

func (c *Config) setRetryDelays(value string) error {
	for part := range strings.SplitSeq(value, ",") {
		var d time.Duration
		if err := duration(&d, time.Millisecond, 24*time.Hour)(strings.TrimSpace(part)); err != nil {
			return err
		}
		c.RetryDelays = append(c.RetryDelays, d)
	}
	if len(c.RetryDelays) > 20 {
		return errors.New("at most 20 retries are allowed")
	}
	return nil
}

func networks(into *[]netip.Prefix) func(string) error {
	return func(value string) error {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			network, err := netip.ParsePrefix(part)
			switch {
			case err != nil:
				return errors.New("must be networks such as 10.0.0.0/8, with commas between")
			case network.Addr().Is4In6():
				return fmt.Errorf("must be networks of IPv4 or IPv6 addresses, such as 10.0.0.0/8; %s is both", part)
			case network != network.Masked():
				return fmt.Errorf("must be networks by their first address; that of %s is %s", part, network.Masked().Addr())
			}
			*into = append(*into, network)
		}
		return nil
	}
}

func (c *Config) setRateLimit(value string) error {
	if value != "on" && value != "off" {
		return errors.New("must be on or off")
	}
	c.RateLimit = value == "on"
	return nil
}

func (c *Config) setRoles(value string) error {
	known := []string{RoleAPI, RoleProjections, RolePolicies, RoleDispatcher}
	for part := range strings.SplitSeq(value, ",") {
		role := strings.TrimSpace(part)
		if !slices.Contains(known, role) {
			return fmt.Errorf("must be some of %s, with commas between", strings.Join(known, ", "))
		}
		c.Roles = append(c.Roles, role)
	}
	return nil
}

// LogLevel reads debug, info, warn or error; empty is info.
func LogLevel(text string) (level slog.Level, err error) {
	if text == "" {
		return slog.LevelInfo, nil
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, text) {
		return slog.LevelInfo, errors.New("must be debug, info, warn or error")
	}
	return level, level.UnmarshalText([]byte(text))
}
