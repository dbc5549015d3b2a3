package dispatcher

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kindred/testkit"

	"golang.org/x/net/dns/dnsmessage"
)

func TestOnlyPublicAddressesAreReached(t *testing.T) {
	t.Parallel()
	refused := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
		"168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:2::1", "2001:10::1", "2001:db8::1",
		"2002:7f00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	}
	admitted := []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "198.17.0.1", "198.20.0.1",
		"223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888",
	}
	g := NewGuard()
	for _, text := range refused {
		if err := g.CheckAddr(netip.MustParseAddr(text)); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "KINDRED_WEBHOOK_ALLOW_NETWORKS") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range admitted {
		if err := g.CheckAddr(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAllowedNetworksAreReached(t *testing.T) {
	t.Parallel()
	g := NewGuard(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for text, want := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "fd12::1": true, "::1": false, "10.0.0.1": false, "fc00::1": false, "64:ff9b::7f00:1": false,
	} {
		if got := g.CheckAddr(netip.MustParseAddr(text)) == nil; got != want {
			t.Errorf("%s: admitted is %v, not %v", text, got, want)
		}
	}
}

func TestURLsAreCheckedWhenTheyAreGiven(t *testing.T) {
	t.Parallel()
	refused := []string{
		"", "example.com", "//example.com", "ftp://example.com", "file:///etc/passwd", "gopher://example.com", "http://", "http:///x", "https://:443",
		"http://user@example.com", "http://user:password@example.com", "http://example.com/#fragment", "http://example.com:0", "http://example.com:65536", "http://example.com:",
		"http://example.com:x", "http://%31%32%37.0.0.1", "http://exa mple.com", "http://" + strings.Repeat("a", 3000) + ".com",
		"http://127.0.0.1", "http://127.0.0.1:8080/x", "http://127.0.0.1.", "http://10.1.2.3", "http://169.254.169.254/latest/meta-data", "http://0.0.0.0",
		"http://[::1]", "http://[::]", "http://[::ffff:127.0.0.1]", "http://[::ffff:7f00:1]", "http://[64:ff9b::7f00:1]", "http://[2002:7f00:1::]", "http://[fe80::1%25eth0]", "http://[2001:4860:4860::8888%25x]",
		"http://0x7f000001", "http://0X7F000001", "http://2130706433", "http://017700000001", "http://0177.0.0.1", "http://0x7f.1", "http://127.1", "http://127.0.1", "http://1.2.3.4.5", "http://256.1.1.1", "http://8.8.8.08", "http://0x", "http://x.0x7f",
		"http://１２７.0.0.1", "http://127。0。0。1", "http://localhost", "http://LOCALHOST:3000", "http://a.localhost", "http://localhost.",
		"http://a..b/", "http://.a.com", "http://a.com..", "http://.", "http://-a.com", "http://a-.com", "http://a.-b.com", "http://a_.-b", "http://*.example.com",
		"http://" + strings.Repeat("a", 64) + ".com", "http://" + strings.Repeat("a.", 126) + "aa", "http://" + strings.Repeat("ü", 60) + ".example",
	}
	g := NewGuard()
	for _, text := range refused {
		if err := g.CheckURL(text); err == nil {
			t.Errorf("%q is admitted", text)
		}
	}
	for _, text := range []string{
		"http://example.com", "HTTPS://Example.com", "https://example.com/hook?token=x", "https://example.com:8443/", "https://8.8.8.8/", "https://[2606:4700::1111]:443/", "https://bücher.example/", "https://0x7f.example", "https://1.example.com.",
		"https://my_hooks.example.com", "https://_a.example.com", "https://a--b.example.com", "https://r3---sn-x.example.com", "https://xn--bcher-kva.example", "https://hooks", "https://3com.example",
		"https://" + strings.Repeat("a", 63) + ".com", "https://" + strings.Repeat("a.", 126) + "a.",
	} {
		if err := g.CheckURL(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	local := NewGuard(netip.MustParsePrefix("127.0.0.0/8"))
	for _, text := range []string{"http://127.0.0.1:99", "http://localhost:3000"} {
		if err := local.CheckURL(text); err != nil {
			t.Errorf("%q with loopback allowed: %v", text, err)
		}
	}
	if err := g.CheckURL("http://user:hunter2@example.com\x7f"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the refusal repeats the URL: %v", err)
	}
}

// fakeDNS resolves every name to what address says at that moment.
func fakeDNS(t *testing.T, address func() string) *net.Resolver {
	t.Helper()
	server := testkit.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			q, a := m.Questions[0], netip.MustParseAddr(address())
			header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}
			switch {
			case q.Type == dnsmessage.TypeA && a.Is4():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: a.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && a.Is6():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// post sends one request through a transport that the guard watches.
func post(t *testing.T, transport *http.Transport, url string) error {
	t.Helper()
	req := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}")))(t)
	resp, err := transport.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func TestANameThatComesToPointInsideIsRefusedAtTheDial(t *testing.T) {
	t.Parallel()
	rx := newReceiver(t, nil)
	_, port, _ := net.SplitHostPort(rx.Listener.Addr().String())
	var address atomic.Value
	guard := NewGuard(netip.MustParsePrefix("127.0.0.1/32"))
	transport := newTransport(guard, Config{}.withDefaults(), fakeDNS(t, func() string { return address.Load().(string) }))
	defer transport.CloseIdleConnections()
	url := "http://rebinding.example:" + port

	address.Store("127.0.0.1")
	if err := guard.CheckURL(url); err != nil {
		t.Fatal(err)
	}
	if err := post(t, transport, url); err != nil {
		t.Fatal("the name points where it may:", err)
	}
	for _, inside := range []string{"127.0.0.2", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.2", "64:ff9b::7f00:1"} {
		transport.CloseIdleConnections()
		address.Store(inside)
		if err := post(t, transport, url); !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", inside, err)
		}
	}
}

func TestNoProxyOfTheEnvironmentIsAsked(t *testing.T) {
	proxy, rx := newReceiver(t, nil), newReceiver(t, nil)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	transport := newTransport(NewGuard(netip.MustParsePrefix("127.0.0.0/8")), Config{}.withDefaults(), fakeDNS(t, func() string { return "127.0.0.1" }))
	defer transport.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(rx.Listener.Addr().String())
	if err := post(t, transport, "http://hook.example:"+port); err != nil {
		t.Fatal(err)
	}
	if transport.Proxy != nil || len(proxy.got) != 0 || len(rx.got) != 1 {
		t.Errorf("%d requests at the proxy, %d at the target", len(proxy.got), len(rx.got))
	}
}

func TestAPrivateTargetIsAFailedAttemptWithAClearError(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: []time.Duration{time.Millisecond}})
	rx := newReceiver(t, nil)
	r.Guard = NewGuard()
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL+"/?token=hunter2", "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	r.ended("dropped", 1)
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE error LIKE '%leads to no public address%' AND error NOT LIKE '%127.0.0.1%' AND error NOT LIKE '%hunter2%' AND status IS NULL`); n != 2 {
		t.Errorf("%d attempts with a clear error, not 2", n)
	}
	if len(rx.got) != 0 {
		t.Error("the receiver was reached through port " + strconv.Itoa(rx.Listener.Addr().(*net.TCPAddr).Port))
	}
}
