package httpapi

import (
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
