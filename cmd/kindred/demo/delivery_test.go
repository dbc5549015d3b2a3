package demo

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

// The example of RFC 4231, section 4.3 (test case 2).
func TestASignatureIsHMACSHA256InLowerCaseHex(t *testing.T) {
	const want = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	if got := signature("Jefe", []byte("what do ya want for nothing?")); got != want {
		t.Errorf("got %s, not %s", got, want)
	}
}

const genuine = `{"event_type":"match.computed","data":{"client_id":"cli_1","user_id":"usr_1","matched_user_id":"usr_2","score":0.5},` +
	`"timestamp":"2026-01-31T12:00:00.123456Z"}`

func genuineHeader(body string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("X-Service-Event", "match.computed")
	h.Set("X-Service-Signature", signature("secret", []byte(body)))
	return h
}

func TestAGenuineDeliveryIsRead(t *testing.T) {
	d := testkit.Must(readDelivery("secret", genuineHeader(genuine), []byte(genuine)))(t)
	want := delivery{
		subject: subject{"match.computed", "usr_1", "usr_2"}, client: "cli_1", score: 0.5,
		occurred: time.Date(2026, 1, 31, 12, 0, 0, 123456000, time.UTC), body: []byte(genuine),
	}
	if diff := cmp.Diff(want, d, cmp.AllowUnexported(delivery{}, subject{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAWrongSignatureIsRefused(t *testing.T) {
	right := signature("secret", []byte(genuine))
	for name, wrong := range map[string]string{
		"none":                "",
		"of another secret":   signature("Secret", []byte(genuine)),
		"of another body":     signature("secret", []byte(genuine+" ")),
		"in upper case":       strings.ToUpper(right),
		"cut off":             right[:32],
		"with something more": right + "0",
	} {
		h := genuineHeader(genuine)
		h.Set("X-Service-Signature", wrong)
		if _, err := readDelivery("secret", h, []byte(genuine)); err == nil || !strings.Contains(err.Error(), "signature") {
			t.Errorf("a signature %s: %v", name, err)
		}
	}
}

func TestADeliveryThatIsNotAsTheSpecificationSaysIsRefused(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{`"timestamp":`, `"version":1,"timestamp":`, "the body has the fields data, event_type, timestamp, version"},
		{`,"timestamp":"2026-01-31T12:00:00.123456Z"`, ``, "the body has the fields data, event_type, not exactly"},
		{`,"score":0.5`, ``, "the data has the fields client_id, matched_user_id, user_id, not exactly"},
		{`"score":0.5`, `"score":0.5,"percentile":9`, "the data has the fields client_id, matched_user_id, percentile"},
		{`"score":0.5`, `"score":"0.5"`, "score is of the wrong type"},
		{`"score":0.5`, `"score":null`, "score is of the wrong type"},
		{`"score":0.5`, `"score":1.5`, "the score 1.5 is not between 0 and 1"},
		{`"user_id":"usr_1"`, `"user_id":7`, "user_id is of the wrong type"},
		{`12:00:00.123456Z`, `12:00:00.123456+01:00`, "is not ISO 8601 in UTC"},
		{`"match.computed"`, `"clustering.failed"`, `the event is "clustering.failed", its header says "match.computed"`},
		{`{"event_type"`, `[{"event_type"`, "the body is not a JSON object"},
	} {
		body := strings.Replace(genuine, test.old, test.new, 1)
		if _, err := readDelivery("secret", genuineHeader(body), []byte(body)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, which does not say %q", body, err, test.want)
		}
	}
}

func TestTheReceiverRefusesAForgeryAndRemembersIt(t *testing.T) {
	r := testkit.Must(listen(t.Context()))(t)
	defer r.close()
	post := func(signature string) int {
		q := testkit.Must(http.NewRequest("POST", r.url, strings.NewReader(genuine)))(t)
		q.Header = genuineHeader(genuine)
		q.Header.Set("X-Service-Signature", signature)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	right := signature(r.secret, []byte(genuine))
	if statuses := []int{post(right), post(right)}; !slices.Equal(statuses, []int{204, 204}) {
		t.Errorf("genuine deliveries were answered with %v", statuses)
	}
	got, err := r.await(t.Context(), time.Minute, func(got []delivery) (bool, error) { return len(got) == 2, nil })
	if err != nil || got[0].repeated || !got[1].repeated {
		t.Errorf("the second of two is not known as a repetition: %+v, %v", got, err)
	}
	if status := post(signature("guess", []byte(genuine))); status != 401 {
		t.Errorf("a forgery was answered with %d", status)
	}
	if _, _, err := r.so(); err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("the forgery was forgotten: %v", err)
	}
}
