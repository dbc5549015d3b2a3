package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	kindred "kindred/sdk/go"
)

// transport plays what is on the way to kindred.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func throughTransport(t *testing.T, way transport) *kindred.Client {
	t.Helper()
	k, err := kindred.New(kindred.Config{BaseURL: "http://127.0.0.1:1", Token: tokenOf(0), HTTPClient: &http.Client{Transport: way}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func answerOf(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// A transport of Go may read a request on when it has returned its answer.
func TestAnImportOfGoIsSentAgainWhole(t *testing.T) {
	t.Parallel()
	const lines = "{\"external_id\":\"a\"}\n{\"external_id\":\"b\"}\n"
	again, late := make(chan struct{}), make(chan error, 1)
	var got []byte
	requests := 0
	k := throughTransport(t, func(r *http.Request) (*http.Response, error) {
		if requests++; requests == 1 {
			go func() {
				<-again
				_, err := r.Body.Read(make([]byte, 10))
				late <- err
			}()
			return answerOf(503, ""), nil
		}
		close(again)
		if err := <-late; err == nil {
			t.Error("the request that was answered has read of the one that repeats it")
		}
		var err error
		got, err = io.ReadAll(r.Body)
		return answerOf(200, "{}"), err
	})
	if _, err := k.Users.Import(t.Context(), strings.NewReader(lines), kindred.ImportUsersParams{}); err != nil || string(got) != lines {
		t.Errorf("%q arrived (%v)", got, err)
	}
}

// Whoever is refused may read the file again, or send it again.
func TestAnImportOfGoThatHasEndedReadsNoMore(t *testing.T) {
	t.Parallel()
	late := make(chan error, 1)
	again := make(chan struct{})
	k := throughTransport(t, func(r *http.Request) (*http.Response, error) {
		go func() {
			<-again
			_, err := r.Body.Read(make([]byte, 10))
			late <- err
		}()
		return answerOf(403, ""), nil
	})
	file := strings.NewReader("{\"external_id\":\"a\"}\n")
	if _, err := k.Users.Import(t.Context(), file, kindred.ImportUsersParams{}); err == nil {
		t.Fatal("it was not refused")
	}
	close(again)
	if err := <-late; err == nil {
		t.Error("the request that was answered has read on")
	}
}

// Go's transport waits for a read of the body that has begun: of a terminal, or of an iterator that waits for the next user.
func TestAnImportOfGoEndsThoughItsReaderWaits(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 2)
	s := play(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
		begun <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body) // until the other end breaks it off
	})
	k, err := kindred.New(kindred.Config{BaseURL: s.URL, Token: tokenOf(0)})
	if err != nil {
		t.Fatal(err)
	}
	waiting, never := io.Pipe()
	defer never.Close()
	more := make(chan struct{})
	defer close(more)
	for what, lines := range map[string]io.Reader{
		"a pipe":      waiting,
		"an iterator": kindred.Lines(func(func(kindred.NewUser) bool) { <-more }),
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := k.Users.Import(ctx, lines, kindred.ImportUsersParams{})
			ended <- err
		}()
		<-begun
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: the import goes on", what)
		}
	}
}

func TestAnImportOfGoThatIsRefusedEndsItsIterator(t *testing.T) {
	t.Parallel()
	k := throughTransport(t, func(*http.Request) (*http.Response, error) { return answerOf(403, ""), nil })
	ended := make(chan struct{})
	people := func(yield func(kindred.NewUser) bool) {
		defer close(ended)
		for n := 0; yield(kindred.NewUser{ExternalID: fmt.Sprint(n)}); n++ { //nolint:revive // until it is enough
		}
	}
	if _, err := k.Users.Import(t.Context(), kindred.Lines(people), kindred.ImportUsersParams{}); err == nil {
		t.Fatal("it was not refused")
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the iterator goes on")
	}
}

func TestAnImportOfTypeScriptThatIsRefusedEndsItsIterator(t *testing.T) {
	t.Parallel()
	if !slices.Contains(sdks(), "typescript") {
		return
	}
	s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 403, "missing_scope") })
	cmd := exec.CommandContext(t.Context(), "node", "--no-warnings", "--input-type=module", "-e", `
import { Kindred } from "../typescript/build/src/index.js";
const [url, token] = process.argv.slice(1);
for (const baseUrl of [url, "http://127.0.0.1:1"]) {
  for (const asynchronous of [false, true]) {
    let ended;
    const end = new Promise((resolve) => (ended = resolve));
    function* people() {
      try {
        for (let n = 0; ; n++) yield { external_id: String(n) };
      } finally {
        ended();
      }
    }
    async function* later() {
      yield* people();
    }
    await new Kindred({ baseUrl, token }).users.import(asynchronous ? later() : people()).then(() => process.exit(3), () => undefined);
    await end;
  }
}
process.exit();
`, s.URL, tokenOf(0))
	cmd.WaitDelay = time.Second
	killing := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer killing.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// fetch takes no other parts than bytes, and waits for ever where it gets one.
func TestAWebStreamOfUsersIsImported(t *testing.T) {
	t.Parallel()
	if !slices.Contains(sdks(), "typescript") {
		return
	}
	got := make(chan string, 3)
	s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			got <- string(body)
		}
		respond(w, 200, "{}")
	})
	cmd := exec.CommandContext(t.Context(), "node", "--no-warnings", "--input-type=module", "-e", `
import { Kindred, UsageError } from "../typescript/build/src/index.js";
const [baseUrl, token] = process.argv.slice(1);
const kindred = new Kindred({ baseUrl, token });
const line = '{"external_id":"ü"}\n';
const bytes = new TextEncoder().encode(line);
await kindred.users.import(ReadableStream.from([{ external_id: "ü" }]));
await kindred.users.import(ReadableStream.from([bytes.subarray(0, 17), bytes.subarray(17)])); // in the middle of a character
const text = ReadableStream.from([line.slice(0, 5), line.slice(5)]);
const fault = await kindred.users.import(text).catch((fault) => fault);
if (!(fault instanceof UsageError)) throw fault;
process.exit();
`, s.URL, tokenOf(0))
	cmd.WaitDelay = time.Second
	killing := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer killing.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, what := range []string{"users", "bytes"} {
		if body := <-got; body != "{\"external_id\":\"ü\"}\n" {
			t.Errorf("of a stream of %s, %q arrived", what, body)
		}
	}
}

// Its types let a stream of Node's be given, whose parts were written as objects.
func TestAStreamOfNodesIsImportedAsItIs(t *testing.T) {
	t.Parallel()
	if !slices.Contains(sdks(), "typescript") {
		return
	}
	got := make(chan string, 2)
	s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- string(body)
		respond(w, 200, "{}")
	})
	const lines = "external_id,city\nada,Zürich\nbob,Bern\n"
	cmd := exec.CommandContext(t.Context(), "node", "--no-warnings", "--input-type=module", "-e", `
import { Readable } from "node:stream";
import { Kindred } from "../typescript/build/src/index.js";
const [baseUrl, token, lines] = process.argv.slice(1);
const bytes = Buffer.from(lines);
for (const encoding of [undefined, "utf8"]) {
  const parts = Readable.from([bytes.subarray(0, 23), bytes.subarray(23)], { objectMode: false, encoding }); // in the middle of a character
  await new Kindred({ baseUrl, token }).users.import(parts, {}, { csv: true });
}
`, s.URL, tokenOf(0), lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, what := range []string{"bytes", "text"} {
		if body := <-got; body != lines {
			t.Errorf("of a stream of %s, %q arrived", what, body)
		}
	}
}
