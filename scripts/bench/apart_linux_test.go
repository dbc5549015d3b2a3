package main

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheDriverIsApartFromThoseItStarted(t *testing.T) {
	child := exec.CommandContext(context.Background(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	places := func() (own, childs unix.CPUSet) {
		t.Helper()
		for pid, set := range map[int]*unix.CPUSet{os.Getpid(): &own, child.Process.Pid: &childs} {
			if err := unix.SchedGetaffinity(pid, set); err != nil {
				t.Fatal(err)
			}
		}
		return own, childs
	}
	before, _ := places()
	if before.Count() < 2 {
		t.Skip("needs two processors")
	}
	together, err := apart()
	if err != nil {
		t.Fatal(err)
	}
	own, childs := places()
	if own.Count() != 1 || childs.Count() != before.Count()-1 || childs.IsSet(first(own)) {
		t.Errorf("own %v, the child's %v, of %v", own, childs, before)
	}
	if err := together(); err != nil {
		t.Fatal(err)
	}
	if own, childs = places(); own != before || childs != before {
		t.Errorf("together again: own %v, the child's %v, of %v", own, childs, before)
	}
}
