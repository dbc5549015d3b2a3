package dispatcher

import (
	"crypto/sha256"
	"encoding/binary"
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
