package httpapi

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"kindred/testkit"
)

// What is not in memory yet comes behind what is, or a body that goes on would be taken for its beginning.
func TestABodyThatIsBufferedInPartIsReadWhole(t *testing.T) {
	t.Parallel()
	sent := strings.Repeat("0123456789", 2_000)
	for _, most := range []int64{0, 1, 4_096, 19_998, 19_999, 20_000, 30_000} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", io.NopCloser(strings.NewReader(sent)))
		buffer(r).fill(most)
		if got := testkit.Must(io.ReadAll(r.Body))(t); string(got) != sent {
			t.Errorf("%d bytes are read where %d were buffered", len(got), most)
		}
	}
}
