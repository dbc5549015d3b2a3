package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config is what an operator may choose. Every field is an environment
// variable; see settings.
type Config struct {
	Listen         string
	PublicURL      string
	DatabaseURL    string
	EventStoreURL  string
	DataDir        string
	MasterKey      string
	MasterKeyFile  string
	TokenTTL       time.Duration
	RetryDelays    []time.Duration
	WebhookTimeout time.Duration
	AllowNetworks  []netip.Prefix
	RateLimit      bool
	TrustedProxies []netip.Prefix
	Roles          []string
}

// Roles of a process.
const (
	roleAPI         = "api"
	roleProjections = "projections"
	rolePolicies    = "policies"
	roleDispatcher  = "dispatcher"
)

func (c Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// setting is one environment variable.
type setting struct {
	name, value, meaning string // value is the default
	set                  func(c *Config, value string) error
}

func settings() []setting {
	return []setting{
		{"KINDRED_LISTEN", "127.0.0.1:8080", "address and port to serve on", setListen},
		{"KINDRED_PUBLIC_URL", "", "the URL that callers use; the issuer of tokens (default: http:// and the address listened on)", setPublicURL},
		{"KINDRED_DATABASE_URL", "", "PostgreSQL, direct or session-pooled (default: a private local server under KINDRED_DATA_DIR)", setDatabaseURL},
		{"KINDRED_EVENTSTORE_URL", "", "esdb://… or kurrentdb://… keeps the event log in that cluster (default: in the database)", setEventStoreURL},
		{"KINDRED_DATA_DIR", ".data", "what a single machine keeps: the private database, the master key", text(func(c *Config) *string { return &c.DataDir })},
		{"KINDRED_MASTER_KEY", "", "id:base64 of 32 bytes; older ones may follow after commas (default: a file, see the next)", text(func(c *Config) *string { return &c.MasterKey })},
		{"KINDRED_MASTER_KEY_FILE", "", "a file with the same (default: master.key under KINDRED_DATA_DIR, made at the first start)", text(func(c *Config) *string { return &c.MasterKeyFile })},
		{"KINDRED_TOKEN_TTL", "900s", "how long tokens live, from 60s to 24h", setTokenTTL},
		{"KINDRED_WEBHOOK_RETRY_DELAYS", "30s,1m,2m,4m,8m", "waits before each retry of a delivery", setRetryDelays},
		{"KINDRED_WEBHOOK_TIMEOUT", "10s", "time that a receiver has to answer, from 1s to 60s", setWebhookTimeout},
		{"KINDRED_WEBHOOK_ALLOW_NETWORKS", "", "private networks (CIDR, with commas) that deliveries may reach", setAllowNetworks},
		{"KINDRED_RATE_LIMIT", "on", "on, or off for load tests", setRateLimit},
		{"KINDRED_TRUSTED_PROXIES", "", "networks (CIDR, with commas) of reverse proxies whose X-Forwarded-For tells callers apart", setTrustedProxies},
		{"KINDRED_ROLES", "api,projections,policies,dispatcher", "what this process does", setRoles},
	}
}

// readConfig reads the environment. All wrong values are named at once.
func readConfig(getenv func(string) string) (Config, error) {
	var c Config
	var wrong []error
	for _, s := range settings() {
		value := s.value
		if given := strings.TrimSpace(getenv(s.name)); given != "" {
			value = given
		}
		if err := s.set(&c, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return c, errors.Join(wrong...)
}

// describeSettings prints the settings with their defaults.
func describeSettings(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range settings() {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", s.name, s.value, s.meaning)
	}
	_ = table.Flush() // nothing is lost with a help text
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func setListen(c *Config, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("must be an address and a port, such as 127.0.0.1:8080")
	}
	c.Listen = value
	return nil
}

func setDatabaseURL(c *Config, value string) error {
	if value == "" {
		return nil
	}
	if _, err := pgx.ParseConfig(value); err != nil { // which may quote a password
		return errors.New("must be such as postgres://user:password@host/database; files that it names must be there")
	}
	c.DatabaseURL = value
	return nil
}

func setPublicURL(c *Config, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("must be an http or https URL, such as https://kindred.example.com")
	}
	c.PublicURL = strings.TrimRight(value, "/")
	return nil
}

func setEventStoreURL(c *Config, value string) error {
	scheme, _, _ := strings.Cut(value, "://")
	if value != "" && !slices.Contains([]string{"esdb", "esdb+discover", "kurrentdb", "kurrentdb+discover"}, scheme) {
		return errors.New("must begin with esdb:// or kurrentdb://")
	}
	c.EventStoreURL = value
	return nil
}

func duration(value string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("must be a duration from %s to %s, such as 90s", least, most)
	}
	return d, nil
}

func setTokenTTL(c *Config, value string) (err error) {
	c.TokenTTL, err = duration(value, time.Minute, 24*time.Hour)
	return err
}

func setWebhookTimeout(c *Config, value string) (err error) {
	c.WebhookTimeout, err = duration(value, time.Second, time.Minute)
	return err
}

func setRetryDelays(c *Config, value string) error {
	for part := range strings.SplitSeq(value, ",") {
		d, err := duration(strings.TrimSpace(part), time.Millisecond, 24*time.Hour)
		if err != nil {
			return err
		}
		c.RetryDelays = append(c.RetryDelays, d)
	}
	if len(c.RetryDelays) > 20 {
		return errors.New("at most 20 retries are allowed")
	}
	return nil
}

func setAllowNetworks(c *Config, value string) (err error) {
	c.AllowNetworks, err = networks(value)
	return err
}

func setTrustedProxies(c *Config, value string) (err error) {
	c.TrustedProxies, err = networks(value)
	return err
}

func networks(value string) (all []netip.Prefix, err error) {
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, errors.New("must be networks such as 10.0.0.0/8, with commas between")
		}
		all = append(all, network)
	}
	return all, nil
}

func setRateLimit(c *Config, value string) error {
	if value != "on" && value != "off" {
		return errors.New("must be on or off")
	}
	c.RateLimit = value == "on"
	return nil
}

func setRoles(c *Config, value string) error {
	known := []string{roleAPI, roleProjections, rolePolicies, roleDispatcher}
	for part := range strings.SplitSeq(value, ",") {
		role := strings.TrimSpace(part)
		if !slices.Contains(known, role) {
			return fmt.Errorf("must be some of %s, with commas between", strings.Join(known, ", "))
		}
		c.Roles = append(c.Roles, role)
	}
	return nil
}
