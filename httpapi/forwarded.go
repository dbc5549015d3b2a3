package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const headerForwardedFor = "X-Forwarded-For"

// caller is the address that a request comes from: the peer's, or where that is a
// trusted proxy, the one that it was called from, and so on. Each proxy adds that at
// the end of X-Forwarded-For, so whatever stands before the last address that is not
// trusted may be made up. Where an entry is no address, the one after it counts.
func caller(peer string, forwarded []string, trusted []netip.Prefix) string {
	at, ok := plainAddr(peer)
	if !ok || !within(at, trusted) {
		return peer
	}
	for _, line := range slices.Backward(forwarded) {
		for more := true; more; {
			var entry string
			line, entry, more = cutLast(line)
			from, ok := plainAddr(host(strings.TrimSpace(entry)))
			if !ok {
				return at.String()
			}
			if at = from; !within(at, trusted) {
				return at.String()
			}
		}
	}
	return at.String()
}

// ProxyHeaders are those by which proxies tell that a request came through them.
func ProxyHeaders() []string { return []string{headerForwardedFor, "Forwarded", "X-Real-Ip", "Via"} }

// forwarded says whether a request came through a proxy, as proxies tell.
func forwarded(h http.Header) bool {
	return slices.ContainsFunc(ProxyHeaders(), func(name string) bool { return len(h[name]) > 0 })
}

// region is what the log says of an address, enough to turn abuse away: the /24
// of an IPv4 address, the /48 of an IPv6 one.
func region(addr string) string {
	a, ok := plainAddr(addr)
	if !ok {
		return "unknown"
	}
	bits := 48
	if a.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}

// plainAddr reads an address as networks are told apart: without a zone, and an IPv4
// address as one.
func plainAddr(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}

func within(a netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// cutLast splits off the last entry of a list.
func cutLast(list string) (before, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], list[i+1:], i >= 0
}

// network is the network that an address belongs to, as far as its host chooses
// from it: the address itself, or the /64 of one of IPv6.
func network(address string) string {
	a, ok := plainAddr(address)
	if !ok || a.Is4() {
		return address
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}

// clientOf is who a request counts against before its token is verified: the
// client of one that was lately, or the network that it comes from.
func (e *edge) clientOf(authorization []string, peer string, forwarded []string) string {
	if len(authorization) == 1 && e.o.Known != nil {
		if scheme, bearer := credentials(authorization[0]); strings.EqualFold(scheme, "Bearer") {
			if client := e.o.Known(bearer); client != "" {
				return client.Owner()
			}
		}
	}
	return network(e.caller(peer, forwarded))
}

// remoteAddr is the caller's address.
func (e *edge) remoteAddr(r *http.Request) string {
	return e.caller(r.RemoteAddr, r.Header[headerForwardedFor])
}

func (e *edge) caller(peer string, forwarded []string) string {
	peer = host(peer)
	if len(e.o.TrustedProxies) == 0 {
		return peer
	}
	return caller(peer, forwarded, e.o.TrustedProxies)
}

// host is an address without its port, and without the brackets of one that has none.
func host(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	if inner, found := strings.CutPrefix(addr, "["); found {
		return strings.TrimSuffix(inner, "]")
	}
	return addr
}
