package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/testkit"
)

var patience = testkit.Patience() // until something that takes moments counts as never

// eachSDK runs a test against every SDK that is to be tested.
func eachSDK(t *testing.T, test func(t *testing.T, d *driver)) {
	t.Helper()
	t.Parallel()
	for _, name := range sdks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startDriver(t, name))
		})
	}
}

// sdks are those that are to be tested.
func sdks() []string {
	if list := os.Getenv("KINDRED_SDKS"); list != "" {
		return strings.Fields(list)
	}
	return []string{"go"}
}

// driver is a running program that has an SDK.
type driver struct {
	testing.TB
	name string
	in   io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
}

type reply struct {
	ID    int             `json:"id"`
	OK    json.RawMessage `json:"ok"`
	Error *failure        `json:"error"`
}

type failure struct {
	Kind      string   `json:"kind"`
	Status    int      `json:"status"`
	Code      string   `json:"code"`
	RequestID string   `json:"request_id"`
	Pointers  []string `json:"pointers"`
	Attempts  int      `json:"attempts"`
	Reason    string   `json:"reason"`
	Message   string   `json:"message"`
	Shown     string   `json:"shown"` // all that prints it
}

func (f *failure) Error() string { return fmt.Sprintf("%+v", *f) }

type command map[string]any

var buildGo = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programs, "driver")
	cmd := exec.Command("go", "build", "-o", program, "./conformance")
	cmd.Dir = filepath.Join("..", "go")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// pythonOf is the interpreter of an environment that has what requirements.txt names.
func pythonOf() string {
	if python := os.Getenv("KINDRED_SDK_PYTHON"); python != "" {
		return python
	}
	return "python3"
}

func startDriver(t testing.TB, name string, environment ...string) *driver {
	t.Helper()
	python := pythonOf()
	var arguments []string
	switch name {
	case "go":
		program, err := buildGo()
		if err != nil {
			t.Fatal(err)
		}
		arguments = []string{program}
	case "typescript":
		arguments = []string{"node", "--expose-gc", "--no-warnings", "../typescript/build/conformance/driver.js"}
	case "python":
		arguments = []string{python, "../python/conformance/driver.py"}
	case "python-async":
		arguments = []string{python, "../python/conformance/driver.py", "--async"}
	default:
		t.Fatalf("there is no SDK %s", name)
	}
	cmd := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KINDRED_") }), "PYTHONPATH=../python/src")
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the SDK %s cannot be run: %v", name, err)
	}
	d := &driver{TB: t, name: name, in: in, waiting: map[int]chan reply{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.read(out)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // it was killed
	})
	return d
}

func (d *driver) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			d.Errorf("%s wrote %q", d.name, line)
			return
		}
		d.mu.Lock()
		d.waiting[r.ID] <- r
		delete(d.waiting, r.ID)
		d.mu.Unlock()
	}
}

// begin sends a command and returns its number and where its reply comes.
func (d *driver) begin(c command) (int, <-chan reply) {
	d.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	c["id"] = d.last
	line, err := json.Marshal(c)
	if err != nil {
		d.Fatal(err)
	}
	answer := make(chan reply, 1)
	d.waiting[d.last] = answer
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		d.Errorf("%s is gone: %v", d.name, err)
	}
	return d.last, answer
}

// try runs a command.
func (d *driver) try(c command) (json.RawMessage, *failure) {
	d.Helper()
	_, answer := d.begin(c)
	return d.wait(answer)
}

func (d *driver) wait(answer <-chan reply) (json.RawMessage, *failure) {
	d.Helper()
	select {
	case r := <-answer:
		return r.OK, r.Error
	case <-time.After(patience):
		return nil, &failure{Kind: "no reply came from the driver"}
	}
}

// client makes a client of a server.
func (d *driver) client(name, url string, more ...command) {
	d.Helper()
	options := command{"base_url": url, "api_key": "kin_secret_key"}
	for _, one := range more {
		maps.Copy(options, one)
	}
	if _, failed := d.try(command{"do": "new", "client": name, "options": options}); failed != nil {
		d.Fatal(failed)
	}
}

// called is the outcome of a call.
type called struct {
	Value     json.RawMessage `json:"value"`
	ETag      string          `json:"etag"`
	RequestID string          `json:"request_id"`
	Attempts  int             `json:"attempts"`

	Count int             `json:"count"` // of a list
	First json.RawMessage `json:"first"`
	Last  json.RawMessage `json:"last"`
}

func (d *driver) call(client, method string, more command) (called, *failure) {
	d.Helper()
	var out called
	ok, failed := d.try(calling(client, method, more))
	if failed == nil {
		if err := json.Unmarshal(ok, &out); err != nil {
			d.Errorf("%s replied %s", d.name, ok)
		}
	}
	return out, failed
}

func calling(client, method string, more command) command {
	resource, name, _ := strings.Cut(method, ".")
	c := command{"do": "call", "client": client, "resource": resource, "method": name}
	for _, o := range operations {
		if o.Resource == resource && o.Method == strings.TrimSuffix(strings.TrimSuffix(name, "_page"), "_later") && len(o.Query) > 0 {
			c["params"] = command{} // where arguments have an order, it has its place
		}
	}
	maps.Copy(c, more)
	return c
}

// must is call for what has to succeed.
func (d *driver) must(client, method string, more command) called {
	d.Helper()
	out, failed := d.call(client, method, more)
	if failed != nil {
		d.Fatalf("%s %s: %v", d.name, method, failed)
	}
	return out
}

// fails is call for what has to fail in a way.
func (d *driver) fails(kind, client, method string, more command) failure {
	d.Helper()
	out, failed := d.call(client, method, more)
	if failed == nil {
		d.Fatalf("%s %s: %+v came back, want a fault of the kind %s", d.name, method, out, kind)
	}
	if failed.Kind != kind {
		d.Errorf("%s %s: %v, want the kind %s", d.name, method, failed, kind)
	}
	return *failed
}

func (d *driver) memory() int {
	d.Helper()
	ok, failed := d.try(command{"do": "memory"})
	if failed != nil {
		d.Error(failed)
	}
	var n int
	if err := json.Unmarshal(ok, &n); err != nil {
		d.Error(err)
	}
	return n
}
