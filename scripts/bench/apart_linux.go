package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// apart gives this process a processor of its own and leaves the others to those
// that it has started: a driver that takes from them would be measured, too. It
// returns how they come together again. On a single processor they stay so.
func apart() (together func() error, err error) {
	var all, own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("which processors there are: %w", err)
	}
	if all.Count() < 2 {
		return func() error { return nil }, nil
	}
	rest := all
	rest.Clear(first(all))
	own.Set(first(all))
	return func() error { return place(all, all) }, place(own, rest)
}

// first is the first processor of a set that is not empty.
func first(of unix.CPUSet) (cpu int) {
	for !of.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// place says on which processors this process runs, and on which its descendants
// do. What they start from then on stays with them.
func place(own, descendants unix.CPUSet) error {
	parents, err := parents()
	if err != nil {
		return err
	}
	var wrong []error
	for pid := range parents {
		switch self := os.Getpid(); {
		case pid == self:
			wrong = append(wrong, placeThreads(pid, own))
		case descends(parents, pid, self):
			wrong = append(wrong, placeThreads(pid, descendants))
		}
	}
	return errors.Join(wrong...)
}

// placeThreads twice: a thread may have started another meanwhile.
func placeThreads(pid int, on unix.CPUSet) error {
	for range 2 {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(filepath.Base(thread))
			if err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(id, &on); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("place thread %d of process %d: %w", id, pid, err)
			}
		}
	}
	return nil
}

// parents are the parents of all processes.
func parents() (map[int]int, error) {
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	of := map[int]int{}
	for _, file := range found {
		read, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		stat := string(read) // "pid (name) state parent ..."; a name may hold anything
		pid, _ := strconv.Atoi(firstField(stat))
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 {
			of[pid], _ = strconv.Atoi(fields[1])
		}
	}
	return of, nil
}

func descends(parents map[int]int, pid, from int) bool {
	for range len(parents) {
		if pid = parents[pid]; pid == from {
			return true
		}
	}
	return false
}
