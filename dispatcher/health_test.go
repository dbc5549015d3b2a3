package dispatcher

import (
	"testing"
	"time"
)

// How receivers answered while the database was away is written down later: a failure that goes on
// since before counts from its first attempt, and one that a success ended does not.
func TestWhatCouldNotBeWrittenDownCountsWithWhatCameSince(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC) }
	tell := func(h *health, from int, answers string) {
		for i, a := range answers {
			h.observe(endpointKey{webhook: "whk_1"}, a == '+', at(from+i))
		}
	}
	of := func(h *health) (out [3]string) {
		a := h.take()[endpointKey{webhook: "whk_1"}]
		for i, when := range []*time.Time{a.success, a.failure, a.failing} {
			if when != nil {
				out[i] = when.Format("05")
			}
		}
		return out
	}
	for _, answers := range []string{"-", "+", "--", "-+", "+-", "++", "+--", "--+-", "-+-+", "+---"} {
		whole := newHealth()
		tell(whole, 0, answers)
		want := of(whole)
		for cut := range len(answers) + 1 {
			h := newHealth()
			tell(h, 0, answers[:cut])
			taken := h.take()
			tell(h, cut, answers[cut:])
			h.giveBack(taken)
			if got := of(h); got != want {
				t.Errorf("%q, cut at %d: success, failure and failing since are %q, not %q", answers, cut, got, want)
			}
		}
	}
}
