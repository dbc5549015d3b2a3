package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred"
	"kindred/domain/event"
	"kindred/httpapi"
	"kindred/testkit"
)

// block is a fenced block of a page.
type block struct{ Language, Info, Text string }

func blocksOf(t testing.TB, page string) []block {
	t.Helper()
	text, err := kindred.Documentation.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var list []block
	for _, found := range regexp.MustCompile("(?ms)^```([a-z]+) ?([^\n]*)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		list = append(list, block{string(found[1]), string(found[2]), string(found[3])})
	}
	return list
}

func TestTheEventsOfTheDocumentationAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, b := range blocksOf(t, "docs/webhooks.md") {
		if b.Info != "event" {
			continue
		}
		eventType := regexp.MustCompile(`"event_type": "([a-z._]+)"`).FindStringSubmatch(b.Text)[1]
		named[eventType] = true
		if _, err := checkEvent([]byte(b.Text)); err != nil {
			t.Errorf("%s: %v", eventType, err)
		}
	}
	if diff := cmp.Diff(event.PublicTypes(), slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("(-public +shown):\n%s", diff)
	}
}

// TestTheReceiversOfTheDocumentationVerify runs each against a real kindred, and
// against what is forged, old or repeated.
func TestTheReceiversOfTheDocumentationVerify(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for _, b := range blocksOf(t, "docs/webhooks.md") {
		if !strings.HasPrefix(b.Info, "receiver.") {
			continue
		}
		t.Run(b.Info, func(t *testing.T) {
			a := s.signUp()
			secret := "whsec_bWFwLWFuZC1jb21wYXNzLWZvci1ldmVyeW9uZQ=="
			url, printed := runReceiver(t, b, secret)
			hook := a.subscribe(url, secret)
			path := a.under("/webhooks/" + string(hook.ID))
			want[httpapi.Delivery](t, http.StatusAccepted, a.send("POST", path+"/test", `{"event_type":"match.computed"}`))
			a.settled(t, hook, "delivered", 1)
			testkit.Eventually(t, "the receiver has told the event", func() bool { return printed() == "match.computed\n" })

			now := time.Now().Unix()
			for _, tt := range []struct {
				what, id, body, secret string
				at                     int64
				status                 int
			}{
				{"another", "evt_2", `{"event_type":"clustering.failed"}`, secret, now, 204},
				{"the same again", "evt_2", `{"event_type":"clustering.failed"}`, secret, now, 204},
				{"a forged one", "evt_3", `{"event_type":"match.computed"}`, "whsec_Zm9yZ2VkLWZvcmdlZC1mb3JnZWQtZm9yZ2Vk", now, 401},
				{"an old one", "evt_4", `{"event_type":"match.computed"}`, secret, now - 301, 401},
			} {
				if got := deliverTo(t, url, tt.id, tt.body, tt.secret, tt.at); got != tt.status {
					t.Errorf("%s is answered %d, want %d", tt.what, got, tt.status)
				}
			}
			if got := printed(); got != "match.computed\nclustering.failed\n" {
				t.Errorf("it took %q", got)
			}
		})
	}
}

// deliverTo sends a body as kindred would, and returns the answer's status.
func deliverTo(t *testing.T, url, event, body, secret string, at int64) int {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", event, at, body)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Webhook-Id": {event}, "Webhook-Timestamp": {fmt.Sprint(at)},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString([]byte("the old secret's")) + " v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// runReceiver runs a program of the documentation until the test ends, and
// returns where it listens and what it has printed.
func runReceiver(t *testing.T, b block, secret string) (url string, printed func() string) {
	t.Helper()
	command := map[string][]string{"js": {"node"}, "go": {"go", "run"}, "python": {"python3"}}[b.Language]
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Skipf("%s is not on this machine", command[0])
	}
	file := filepath.Join(t.TempDir(), b.Info)
	if err := os.WriteFile(file, []byte(b.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	if b.Language == "go" { // so that the process that listens is the one that is ended
		program := strings.TrimSuffix(file, ".go")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		command, file = nil, program
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	out := new(logBuffer)
	command = append(command, file)
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "SECRET="+secret, "PORT="+port)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	testkit.Eventually(t, "the receiver listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://127.0.0.1:" + port + "/hooks", out.String
}
