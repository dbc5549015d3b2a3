package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Report is what a run leaves: its conditions and its figures.
type Report struct {
	At       time.Time `json:"at"`
	Revision string    `json:"revision"`
	Go       string    `json:"go"`
	CPU      string    `json:"cpu"`
	CPUs     int       `json:"cpus"`
	Users    int       `json:"users"`
	Clients  int       `json:"clients"`
	Rounds   int       `json:"rounds"`
	Seconds  float64   `json:"seconds"` // of each run
	Grouped  bool      `json:"grouped"` // sched_autogroup_enabled: the kernel may starve Postgres, see docs/operations.md
	Figures  []Figure  `json:"figures"`
}

func newReport(ctx context.Context, o options, now time.Time) Report {
	return Report{
		At: now.UTC().Truncate(time.Second), Revision: revision(ctx), Go: runtime.Version(), CPU: processor(), CPUs: runtime.NumCPU(),
		Users: o.users, Clients: o.clients, Rounds: o.rounds, Seconds: o.run.Seconds(),
		Grouped: grouped(),
	}
}

// Conditions is the report's first line.
func (r Report) Conditions() string {
	scheduler := ""
	if r.Grouped {
		scheduler = "; sched_autogroup_enabled"
	}
	return fmt.Sprintf("%s, revision %s, %s, %d × %s%s; %s users of %s clients, %d connections; medians (min..max) of %d interleaved runs of %s s",
		r.At.Format("2006-01-02 15:04"), r.Revision, r.Go, r.CPUs, r.CPU, scheduler, number(float64(r.Users)), number(float64(r.Clients)),
		connections, r.Rounds, number(r.Seconds))
}

// grouped says whether Linux shares the processors among sessions first, of which
// each connection to Postgres is one, and only then among processes.
func grouped() bool {
	content, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	return err == nil && strings.TrimSpace(string(content)) == "1"
}

func (r Report) write(file string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o600)
}

func readReport(file string) (Report, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(content, &r); err != nil {
		return Report{}, fmt.Errorf("read %s: %w", file, err)
	}
	return r, nil
}

func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func processor() string {
	content, _ := os.ReadFile("/proc/cpuinfo") // only for information
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
