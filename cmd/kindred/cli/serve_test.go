package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"kindred/testkit"
)

func TestAStartThatIsInterruptedHasNotFailed(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"KINDRED_LISTEN": "127.0.0.1:0", "KINDRED_DATA_DIR": t.TempDir()}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var said bytes.Buffer
	command := newEnviron(func(name string) string { return settings[name] }, io.Discard, &said).serveCommand()
	command.SetArgs([]string{})
	if err := command.ExecuteContext(ctx); err != nil || !strings.Contains(said.String(), "stopped before it served") {
		t.Errorf("%v; it said %q", err, &said)
	}
}

// Who misspells a setting is told, whatever else is wrong.
func TestServingWarnsOfWhatIsNoSetting(t *testing.T) {
	taken := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	t.Setenv("KINDRED_LISTN", "127.0.0.1:1")
	settings := map[string]string{"KINDRED_LISTEN": taken.Addr().String(), "KINDRED_DATA_DIR": t.TempDir()}
	var out, said bytes.Buffer
	command := newEnviron(func(name string) string { return settings[name] }, &out, &said).serveCommand()
	command.SetArgs([]string{})
	if err := command.ExecuteContext(t.Context()); err == nil {
		t.Error("it served where another one listens")
	}
	if got := said.String(); !strings.Contains(got, "name=KINDRED_LISTN") || !strings.Contains(got, "no setting is ignored") {
		t.Errorf("it said %q", got)
	}
}
