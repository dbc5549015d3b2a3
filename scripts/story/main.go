// Command story counts the files that a POST of matches runs through until its webhook has
// arrived: what somebody reads who wants to know how a request becomes an event that is told.
//
//	bin/testpg go run -cover -covermode=atomic -coverpkg=kindred/... ./scripts/story [-v]
//
// It serves, has one match told, so that all that is done once is done, then counts
// statements for a while in which nothing is asked, and then for one more match. A file is
// passed if a statement of it runs for the match that does not run without. Those tell the
// story that hold, the largest first, 80 % of these statements. What is generated does not
// count, nor do the SDK and scripts.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/coverage"
	"slices"
	"strings"
	"time"

	"kindred/app"
	"kindred/eventstore/seal"
	"kindred/httpapi/auth"
	"kindred/postgres/pgtest"
	kindred "kindred/sdk/go"
)

const (
	quiet  = 3 * time.Second // in which only what goes on by itself runs
	told   = 80              // percent of the statements
	module = "kindred/"
)

func main() {
	verbose := flag.Bool("v", false, "list the files")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, verbose bool) error {
	folder, err := os.MkdirTemp("", "story")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	serving, stop := context.WithCancel(ctx)
	url, ended, err := serve(serving, folder)
	defer func() { stop(); <-ended }()
	if err != nil {
		return err
	}
	s, err := begin(ctx, url)
	if err != nil {
		return err
	}
	if err := s.match(ctx); err != nil {
		return err
	}
	time.Sleep(quiet) // what the first one has begun comes to its end
	without, err := during(ctx, filepath.Join(folder, "without"), func() error { time.Sleep(quiet); return nil })
	if err != nil {
		return err
	}
	with, err := during(ctx, filepath.Join(folder, "with"), func() error { return s.match(ctx) })
	if err != nil {
		return err
	}
	return report(os.Stdout, with, without, verbose)
}

// serve serves on the database of testpg until ctx ends.
func serve(ctx context.Context, folder string) (url string, ended <-chan struct{}, err error) {
	over := make(chan struct{})
	config, err := app.ReadConfig(func(string) string { return "" })
	if err == nil {
		config.MasterKey, err = seal.GenerateMasterKey(rand.Reader)
	}
	if err != nil {
		close(over)
		return "", over, err
	}
	config.DatabaseURL, config.Listen, config.DataDir = os.Getenv(pgtest.EnvURL), "127.0.0.1:0", folder
	config.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	ready, failed := make(chan app.Config, 1), make(chan error, 1)
	go func() {
		defer close(over)
		failed <- app.Serve(ctx, config, slog.New(slog.DiscardHandler), app.Hashing{Cost: auth.Cost{MemoryKiB: 8, Passes: 1}, Cores: 1},
			func(at app.Config) { ready <- at })
	}()
	select {
	case at := <-ready:
		return "http://" + at.Listen, over, nil
	case err := <-failed:
		return "", over, errors.Join(errors.New("it does not serve"), err)
	}
}

// story is a client with two users and a webhook.
type story struct {
	*kindred.Client
	users   [2]string
	arrived chan struct{}
}

func begin(ctx context.Context, url string) (*story, error) {
	nobody, err := kindred.New(kindred.Config{BaseURL: url})
	if err != nil {
		return nil, err
	}
	up, err := nobody.Authentication.SignUp(ctx, kindred.SignupRequest{Email: "ada@example.com", Password: rand.Text(), CompanyName: "Acme"})
	if err != nil {
		return nil, err
	}
	s := &story{arrived: make(chan struct{}, 1)}
	if s.Client, err = kindred.New(kindred.Config{BaseURL: url, Token: up.Token}); err != nil {
		return nil, err
	}
	for i := range s.users {
		user, err := s.Users.Create(ctx, kindred.NewUser{ExternalID: fmt.Sprint("u", i), Traits: map[string]any{"age": 30 + i, "city": "Rome"}})
		if err != nil {
			return nil, err
		}
		s.users[i] = user.ID
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		s.arrived <- struct{}{}
	})}
	go func() { _ = server.Serve(listener) }() // until the program ends
	_, err = s.Webhooks.Create(ctx, kindred.NewWebhook{
		URL: "http://" + listener.Addr().String(), EventTypes: []kindred.EventType{kindred.EventTypeMatchComputed},
	})
	return s, err
}

// match asks for a match and waits until its webhook has arrived, and has been noted.
func (s *story) match(ctx context.Context) error {
	if _, err := s.Matches.Compute(ctx, s.users[0], kindred.MatchRequest{}); err != nil {
		return err
	}
	select {
	case <-s.arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(quiet / 3)
	return nil
}

// during returns the statements that run while something is done, by file: how many there
// are in each block.
func during(ctx context.Context, folder string, do func() error) (map[string]map[string]int, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := coverage.ClearCounters(); err != nil {
		return nil, err
	}
	err := errors.Join(do(), coverage.WriteMetaDir(folder), coverage.WriteCountersDir(folder))
	if err != nil {
		return nil, err
	}
	profile := filepath.Join(folder, "profile")
	cmd := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i", folder, "-o", profile)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return ran(string(text))
}

// ran reads a profile: "kindred/app/app.go:10.2,12.3 2 1" is a block of 2 statements that
// ran once.
func ran(profile string) (map[string]map[string]int, error) {
	found := map[string]map[string]int{}
	for line := range strings.Lines(profile) {
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		var place string
		var statements, count int
		if _, err := fmt.Sscan(line, &place, &statements, &count); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		file, block, _ := strings.Cut(strings.TrimPrefix(place, module), ":")
		if count == 0 || strings.HasSuffix(file, ".gen.go") || strings.HasPrefix(file, "sdk/") || strings.HasPrefix(file, "scripts/") {
			continue
		}
		if found[file] == nil {
			found[file] = map[string]int{}
		}
		found[file][block] = statements
	}
	return found, nil
}

type passed struct {
	file       string
	statements int
}

func report(w io.Writer, with, without map[string]map[string]int, verbose bool) error {
	files, all := only(with, without)
	tell, sum := 0, 0
	for ; tell < len(files) && sum*100 < told*all; tell++ {
		sum += files[tell].statements
	}
	if verbose {
		for i, f := range files {
			mark := " "
			if i < tell {
				mark = "*"
			}
			if _, err := fmt.Fprintf(w, "%s %4d  %s\n", mark, f.statements, f.file); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d of %d files tell the story: they hold %d %% of its %d statements\n", tell, len(files), told, all)
	return err
}

// only returns the files of which statements run with the match alone, those with the most
// first, and how many statements there are in all.
func only(with, without map[string]map[string]int) (files []passed, all int) {
	for file, blocks := range with {
		n := 0
		for block, statements := range blocks {
			if _, also := without[file][block]; !also {
				n += statements
			}
		}
		if n > 0 {
			files, all = append(files, passed{file, n}), all+n
		}
	}
	slices.SortFunc(files, func(a, b passed) int {
		return cmp.Or(cmp.Compare(b.statements, a.statements), cmp.Compare(a.file, b.file))
	})
	return files, all
}
