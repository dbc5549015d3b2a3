package httpapi

import (
	"cmp"
	"math"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Limits says how much callers may ask for. The zero value means the documented
// numbers.
type Limits struct {
	Off bool // no rate limits, for load tests

	ClientRate int // requests a second for all tokens of a client; 2,000
	TokenRate  int // requests a second for one token; 1,000
	InFlight   int // writes that are let in at one time, and reads that may wait; 256
	Reads      int // reads that are answered at one time: connections to the database; 20
	Hashes     int // passwords that are hashed at one time: cores; 1
}

const (
	// limit: requests | requests of one client | {clientRate} a second, {window} times that in a burst | 429 `rate_limited`
	clientRate = 2_000
	// limit: requests | requests of one token | {tokenRate} a second, {window} times that in a burst | 429 `rate_limited`
	tokenRate = 1_000
	// window is how many seconds' worth of requests may come at once.
	window = 2
	// limit: edge | callers whose rates are known | {rated} of each kind
	rated = 1 << 16

	inFlight = 256
	reads    = 20
)

func (l Limits) orDefault() Limits {
	inFlight := cmp.Or(l.InFlight, inFlight)
	return Limits{
		Off:        l.Off,
		ClientRate: cmp.Or(l.ClientRate, clientRate),
		TokenRate:  cmp.Or(l.TokenRate, tokenRate),
		InFlight:   inFlight,
		Reads:      min(cmp.Or(l.Reads, reads), inFlight),
		Hashes:     cmp.Or(l.Hashes, 1),
	}
}

// limiter is a token bucket for each of the callers that came last. It answers
// in the terms of draft-ietf-httpapi-ratelimit-headers-10.
type limiter struct {
	name    string
	rate    int
	buckets *lru.Cache[string, *rate.Limiter]
}

func newLimiter(name string, perSecond int) (*limiter, error) {
	buckets, err := lru.New[string, *rate.Limiter](rated)
	return &limiter{name: name, rate: perSecond, buckets: buckets}, err
}

// policy is the limiter's part of a RateLimit-Policy: q requests in w seconds.
func (l *limiter) policy() string {
	return `"` + l.name + `";q=` + strconv.Itoa(window*l.rate) + `;w=` + strconv.Itoa(window)
}

// take counts n requests of who. It returns the limiter's part of the RateLimit
// header, r requests left until all are in t seconds, and how long to wait
// where too few are left.
func (l *limiter) take(who string, n int, now time.Time) (state string, wait time.Duration) {
	bucket, ok := l.buckets.Get(who)
	if !ok {
		bucket = rate.NewLimiter(rate.Limit(l.rate), window*l.rate)
		if earlier, found, _ := l.buckets.PeekOrAdd(who, bucket); found {
			bucket = earlier
		}
	}
	allowed := bucket.AllowN(now, n)
	left := max(0, bucket.TokensAt(now))
	if !allowed {
		wait = time.Duration((1 - left) / float64(l.rate) * float64(time.Second))
	}
	full := math.Ceil((float64(window*l.rate) - left) / float64(l.rate))
	return `"` + l.name + `";r=` + strconv.Itoa(int(left)) + `;t=` + strconv.Itoa(int(full)), wait
}
