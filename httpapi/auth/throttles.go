package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/httpapi"
)

// Throttles slow down who keeps trying, counted over all processes: after some
// free attempts each further one opens a pause that doubles up to a limit. Nobody
// is locked out for good, and quiet is forgiven. The database prunes what it
// counts. nil slows nobody down.
type Throttles struct {
	Pool *pgxpool.Pool
	Key  []byte // 32 bytes that key the hashes of addresses and accounts; the same on every replica
}

// budget is what a subject may try.
type budget struct {
	subject string
	free    int           // attempts before the first pause
	longest time.Duration // pause
}

const (
	throttleSQL   = `SELECT throttle($1, $2, $3)`
	unthrottleSQL = `SELECT unthrottle($1)`
	forgetSQL     = `SELECT forget_throttles($1)`
)

// take counts an attempt against each budget, unless one has to wait: then it counts
// against none and returns for how long. Counting first, and giving back when it was
// right, leaves no gap for many attempts at once.
func (t *Throttles) take(ctx context.Context, budgets ...budget) (wait time.Duration, err error) {
	if t == nil || len(budgets) == 0 {
		return 0, nil
	}
	free, longest := make([]int, len(budgets)), make([]time.Duration, len(budgets))
	for i, b := range budgets {
		free[i], longest[i] = b.free, b.longest
	}
	if err := t.Pool.QueryRow(ctx, throttleSQL, t.subjects(budgets), free, longest).Scan(&wait); err != nil {
		return 0, fmt.Errorf("count an attempt: %w", err)
	}
	return wait, nil
}

// giveBack takes back one attempt, and the pause that it opened.
func (t *Throttles) giveBack(ctx context.Context, budgets ...budget) error {
	return t.exec(ctx, unthrottleSQL, budgets)
}

// forget takes back all attempts.
func (t *Throttles) forget(ctx context.Context, budgets ...budget) error {
	return t.exec(ctx, forgetSQL, budgets)
}

func (t *Throttles) exec(ctx context.Context, sql string, budgets []budget) error {
	if t == nil || len(budgets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // also for a caller who has gone away
	defer cancel()
	if _, err := t.Pool.Exec(ctx, sql, t.subjects(budgets)); err != nil {
		return fmt.Errorf("take back an attempt: %w", err)
	}
	return nil
}

func (t *Throttles) subjects(budgets []budget) [][]byte {
	keyed := make([][]byte, len(budgets))
	for i, b := range budgets {
		mac := hmac.New(sha256.New, t.Key)
		mac.Write([]byte(b.subject))
		keyed[i] = mac.Sum(nil)
	}
	return keyed
}

// ofNetwork is what may be tried from where a call comes from. An IPv6 host can
// choose from a /64, and its owner from a /48, which may try twice as much.
func ofNetwork(ctx context.Context, what string, free int, longest time.Duration) []budget {
	narrow, wide := networksOf(httpapi.CallFrom(ctx).RemoteAddr)
	budgets := []budget{{what + " " + narrow, free, longest}}
	if wide != "" {
		budgets = append([]budget{{what + " " + wide, 2 * free, longest}}, budgets...)
	}
	return budgets
}

// networksOf names the network that a request comes from, an IPv4 address or an
// IPv6 /64, and for the latter the /48 that it is in.
func networksOf(remote string) (narrow, wide string) {
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		return remote, ""
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), ""
	}
	return netip.PrefixFrom(addr, 64).Masked().String(), netip.PrefixFrom(addr, 48).Masked().String()
}

// local says whether a call comes from this machine itself. One that was
// forwarded comes through a proxy that nobody has named.
func local(ctx context.Context) bool {
	call := httpapi.CallFrom(ctx)
	addr, err := netip.ParseAddr(call.RemoteAddr)
	return err == nil && addr.Unmap().IsLoopback() && !call.Forwarded
}
