package httpapi

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func trustedProxies() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10")}
}

func TestTheCallerIsTheLastAddressThatIsNotTrusted(t *testing.T) {
	for _, test := range []struct {
		what, peer string
		forwarded  []string
		want       string
	}{
		{"nobody says anything", "10.0.0.1", nil, "10.0.0.1"},
		{"one proxy", "10.0.0.1", []string{"192.0.2.7"}, "192.0.2.7"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.7, 10.9.9.9"}, "192.0.2.7"},
		{"what the caller has made up", "10.0.0.1", []string{"10.0.0.3, 198.51.100.1,192.0.2.7 ,\t10.9.9.9"}, "192.0.2.7"},
		{"made up on a line of its own", "10.0.0.1", []string{"198.51.100.1", "192.0.2.7", "10.9.9.9"}, "192.0.2.7"},
		{"a peer that is not trusted", "203.0.113.5", []string{"192.0.2.7"}, "203.0.113.5"},
		{"a peer that has no address", "@", []string{"192.0.2.7"}, "@"},
		{"all are trusted", "10.0.0.1", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{"no address", "10.0.0.1", []string{"192.0.2.7, unknown, 10.9.9.9"}, "10.9.9.9"},
		{"nothing", "10.0.0.1", []string{""}, "10.0.0.1"},
		{"an empty entry", "10.0.0.1", []string{"192.0.2.7,"}, "10.0.0.1"},
		{"a port", "10.0.0.1", []string{"192.0.2.7:4711"}, "192.0.2.7"},
		{"IPv6", "fd00::1", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 and a port", "fd00::1", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"IPv6 in brackets", "fd00::1", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"a zone", "fe80::1%eth0", []string{"192.0.2.7, fe80::2%eth1"}, "192.0.2.7"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:192.0.2.7, ::ffff:10.9.9.9"}, "192.0.2.7"},
	} {
		if got := caller(test.peer, test.forwarded, trustedProxies()); got != test.want {
			t.Errorf("%s: %s; want %s", test.what, got, test.want)
		}
	}
}

// Whatever callers send before what the proxies add, on the same line or on one of
// its own, the answer is as without.
func FuzzCallersCannotChooseTheirAddress(f *testing.F) {
	for _, sent := range []string{"", ",", "192.0.2.1", "10.0.0.1, 10.0.0.2", "unknown", "[::1]:80", " , ,1.2.3.4,"} {
		f.Add(sent, uint8(2), false)
	}
	f.Fuzz(func(t *testing.T, sent string, proxies uint8, sameLine bool) {
		added := "203.0.113.9" + strings.Repeat(", 10.0.0.2", int(proxies%4))
		lines := []string{sent, added}
		if sameLine {
			lines = []string{sent + "," + added}
		}
		if got := caller("10.0.0.1", lines, trustedProxies()); got != "203.0.113.9" {
			t.Errorf("%q: %s", lines, got)
		}
		if got := caller("203.0.113.9", lines, trustedProxies()); got != "203.0.113.9" {
			t.Errorf("%q, not by a proxy: %s", lines, got)
		}

		// Alone, it names one of its own entries or the proxy, and the lines make no difference.
		got := caller("10.0.0.1", []string{sent}, trustedProxies())
		named := []string{"10.0.0.1"}
		for entry := range strings.SplitSeq(sent, ",") {
			if a, ok := plainAddr(host(strings.TrimSpace(entry))); ok {
				named = append(named, a.String())
			}
		}
		if !slices.Contains(named, got) {
			t.Errorf("%q: %s", sent, got)
		}
		if split := caller("10.0.0.1", strings.Split(sent, ","), trustedProxies()); split != got {
			t.Errorf("%q: %s on one line, %s on many", sent, got, split)
		}
	})
}
