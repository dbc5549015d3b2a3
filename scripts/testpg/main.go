// Testpg runs a command with a PostgreSQL server of its own, named by
// KINDRED_TEST_DATABASE_URL, and ends with the command's exit code. The server and its
// data go with it. Where the variable is already set, it only runs the command.
//
//	testpg go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"kindred/postgres/pgtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpg:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, command []string) (code int, err error) {
	if len(command) == 0 {
		return 2, errors.New("no command given")
	}
	if os.Getenv(pgtest.EnvURL) == "" {
		server, err := pgtest.StartServer(ctx)
		if err != nil {
			return 1, err
		}
		defer func() {
			if stopErr := server.Stop(context.WithoutCancel(ctx)); stopErr != nil {
				code, err = max(code, 1), errors.Join(err, stopErr)
			}
		}()
		if err := os.Setenv(pgtest.EnvURL, server.URL()); err != nil {
			return 1, err
		}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A group of its own: whatever ends us, the tests below `go test` end as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // those that did not heed the first
		}
		return 130, nil
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil
	case err != nil:
		return 127, err
	}
	return 0, nil
}
