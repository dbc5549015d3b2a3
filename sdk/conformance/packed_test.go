package conformance

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// packed is a text by gzip, without its last bytes.
func packed(t *testing.T, text string, without int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Error(err)
	}
	return out.Bytes()[:out.Len()-without]
}

func answerPacked(w http.ResponseWriter, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(body)
}

// What packs answers on the way ends one well that it has got half of: HTTP itself says that all is there.
func TestAPackedAnswerThatEndsEarlyIsCut(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, without := range []int{1, 8, 30} { // of the check sum, all of it, and more
			s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n%2 == 1 {
					answerPacked(w, "application/json", append(packed(t, user[:20], 0), packed(t, user[20:], 0)...)) // of two members
					return
				}
				answerPacked(w, "application/json", packed(t, user, without))
			})
			d.client("c", s.URL)
			switch out := d.must("c", "users.get", getUser); {
			case d.name == "typescript" && without < 30: // fetch tells of no check sum, and of all that it is for
			case out.Attempts != 2:
				t.Errorf("without %d bytes it was taken: %+v", without, out)
			default:
				if f := d.fails("connection", "c", "users.change", changeUser); len(s.seen()) != 3 || !strings.Contains(f.Message, "may have taken effect") {
					t.Errorf("without %d bytes a change ended with %v after %d requests", without, f, len(s.seen()))
				}
			}
		}
	})
}

func TestAPackedExportThatEndsEarlyIsNotWhole(t *testing.T) {
	const lines = "user_id,external_id\nusr_1,a\nusr_2,b\n"
	members := command{"path": []string{"seg_1"}}
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			without := map[int]int{0: 8}[n]
			if asked := r.Header.Get("Accept-Encoding"); n < 2 && !strings.Contains(asked, "gzip") {
				w.Header().Set("Content-Type", "text/csv")
				_, _ = io.WriteString(w, lines)
				return
			}
			answerPacked(w, "text/csv", packed(t, lines, without))
		})
		d.client("c", s.URL)
		if d.name == "typescript" { // whose fetch takes what ends early as whole: it asks for what is not packed, and takes nothing else
			for range 2 {
				if out := d.must("c", "segments.list_members_csv", members); out.Count != 3 {
					t.Errorf("%d lines", out.Count)
				}
			}
			d.fails("answer", "c", "segments.list_members_csv", members)
			return
		}
		d.fails("connection", "c", "segments.list_members_csv", members)
		if out := d.must("c", "segments.list_members_csv", members); out.Count != 3 {
			t.Errorf("%d lines", out.Count)
		}
	})
}
