package dispatcher

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"time"

	"kindred/domain/id"
)

// limit: webhooks | retries | 5, after 30 s, 1, 2, 4 and 8 minutes

// Jitter leaves most of a second for what is late for other reasons.
const (
	// limit: webhooks | a retry's delay beyond its schedule | 1 %, at most {maxJitter}
	maxJitter   = 300 * time.Millisecond
	jitterShare = 100 // 1 % of the delay
)

// retryIn returns how long after its latest failure a delivery is tried again;
// failed counts its failures, that one included. It is the delay of the
// schedule (docs/contract.md#retries) and up to 1 % or 0.3 s more, whichever is
// less: never early. False: the schedule is exhausted.
//
// The jitter follows from the delivery, so that what failed together does not
// return together and needs no source of randomness.
func retryIn(delays []time.Duration, delivery id.Delivery, failed int) (time.Duration, bool) {
	if failed > len(delays) {
		return 0, false
	}
	delay := delays[failed-1]
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(delivery), uint32(failed))) //nolint:gosec // failed is at most len(delays)
	share := float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32)
	return delay + time.Duration(share*float64(min(delay/jitterShare, maxJitter))), true
}

// limit: webhooks | wait that a receiver asks for by `Retry-After` | {maxRetryAfter}; what is beyond counts as that
const maxRetryAfter = time.Hour

// retryAfter reads a Retry-After header, in seconds or an HTTP date, as a duration from
// now on; 0 where it holds neither, or lies in the past.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the largest
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}
