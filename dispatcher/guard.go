package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/net/idna"
)

// Guard keeps deliveries away from addresses that are not on the public
// internet: a webhook URL is a customer's, and must not become a way into our
// own network. It decides on the resolved address, at every dial, so that DNS
// does not lead past it.
type Guard struct {
	allowed []netip.Prefix
}

// NewGuard makes a guard that admits public addresses and those in allowed.
func NewGuard(allowed ...netip.Prefix) *Guard { return &Guard{allowed} }

// The IANA special-purpose registries (RFC 6890 and its successors), and what
// clouds answer on outside of them. Everything in IPv6 but 2000::/3 is refused.
var (
	closed4 = prefixes(
		"0.0.0.0/8",        // this network
		"10.0.0.0/8",       // private
		"100.64.0.0/10",    // carrier-grade NAT
		"127.0.0.0/8",      // loopback
		"168.63.129.16/32", // Azure's host services
		"169.254.0.0/16",   // link-local, cloud metadata
		"172.16.0.0/12",    // private
		"192.0.0.0/24",     // protocol assignments
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // 6to4 relays
		"192.168.0.0/16",   // private
		"198.18.0.0/15",    // benchmarks
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"224.0.0.0/4",      // multicast
		"240.0.0.0/4",      // reserved, broadcast
	)
	open6   = netip.MustParsePrefix("2000::/3")
	closed6 = prefixes(
		"2001::/23",     // protocol assignments: Teredo, ORCHID, benchmarks
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: holds an IPv4 address
		"3fff::/20",     // documentation
	)
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// errRefused is in the chain of every refusal of an address.
var errRefused = errors.New("is not a public address, and deliveries do not reach it unless the operator allows its network with KINDRED_WEBHOOK_ALLOW_NETWORKS")

// CheckAddr refuses an address that is not public, unless it is allowed.
func (g *Guard) CheckAddr(a netip.Addr) error {
	a = a.WithZone("")
	if contains(g.allowed, a.Unmap()) {
		return nil
	}
	public := a.Is4() && !contains(closed4, a) || a.Is6() && open6.Contains(a) && !contains(closed6, a)
	if !public {
		return fmt.Errorf("%s %w", a, errRefused)
	}
	return nil
}

// limit: client | URL of a webhook | {maxURL} bytes | 422 `invalid`
const maxURL = 2048 // bytes

// CheckURL says, in a sentence for whoever configures a webhook, why a URL
// cannot be a target: its form, or a literal address that the guard refuses. A
// host name is judged when it is dialled.
func (g *Guard) CheckURL(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("the URL is over %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // the error quotes the URL, which may hold a secret
		return errors.New("the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the URL must begin with https:// or http://")
	case u.User != nil:
		return errors.New("the URL must not hold a user name or password; verify the signature instead")
	case u.Hostname() == "":
		return errors.New("the URL has no host")
	case u.Fragment != "":
		return errors.New("the URL must not have a fragment")
	}
	if strings.HasSuffix(u.Host, ":") {
		return errors.New("the URL has an empty port")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("the port must be between 1 and 65535")
		}
	}
	return g.checkHost(u.Hostname())
}

func (g *Guard) checkHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		if a.Zone() != "" {
			return errors.New("the address must not have a zone")
		}
		return g.CheckAddr(a)
	}
	// What the transport does before it resolves a name: wide digits and dots become plain ones. A name
	// that is plain it takes as it is, so that it may have an underscore.
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return errors.New("the host is not a valid name")
		}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if err := checkName(host); err != nil {
		return err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return g.CheckAddr(a)
	}
	if numeric(host[strings.LastIndexByte(host, '.')+1:]) {
		return errors.New("write an IPv4 address as four decimal numbers")
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return g.CheckAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return nil
}

const (
	// limit: client | name of the host in the URL of a webhook | {maxName B}, {maxLabel B} between two dots | 422 `invalid`
	maxName  = 253 // bytes: with their lengths, the 255 of RFC 1035
	maxLabel = 63
)

// checkName refuses a host that no DNS resolves, whoever owns it (RFC 1123, section 2.1). Underscores are
// no part of that rule, but hosts have them, and resolvers take them.
func checkName(host string) error {
	if len(host) > maxName {
		return fmt.Errorf("the host has over %d bytes", maxName)
	}
	for label := range strings.SplitSeq(host, ".") {
		switch {
		case label == "":
			return errors.New("the host has a dot too many")
		case len(label) > maxLabel:
			return fmt.Errorf("the host has over %d bytes without a dot", maxLabel)
		case label[0] == '-', label[len(label)-1] == '-':
			return errors.New("the host has a hyphen at the beginning or end, or beside a dot")
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return errors.New("the host may hold letters, digits, hyphens, underscores and dots only")
		}
	}
	return nil
}

// numeric says whether a host with this last label is an address to resolvers
// (WHATWG URL, "ends in a number"): 2130706433, 0177.0.0.1, 0x7f000001.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// dialer opens connections that the guard admits.
func (g *Guard) dialer(timeout time.Duration, resolver *net.Resolver) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:  timeout,
		Resolver: resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			target, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("read the resolved address: %w", err)
			}
			return g.CheckAddr(target.Addr())
		},
	}
	return d.DialContext
}
