package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest major version that the service is run on.
const oldestMajor = 15

// binaries are one installation of the server.
type binaries struct {
	dir     string
	version string // "15.13"
	major   int
}

// findBinaries returns the installation that fits the cluster in data: its own major
// version, or the newest there is where no cluster has been made yet.
func findBinaries(ctx context.Context, data string) (binaries, error) {
	made, err := clusterMajor(data)
	if err != nil {
		return binaries{}, err
	}
	found := installed(ctx)
	for _, bin := range found { // newest first
		if bin.major == made || made == 0 && bin.major >= oldestMajor {
			return bin, nil
		}
	}
	have := make([]string, 0, len(found))
	for _, bin := range found {
		have = append(have, bin.version+" in "+bin.dir)
	}
	if len(have) == 0 {
		have = []string{"no version"}
	}
	if made != 0 {
		return binaries{}, fmt.Errorf("%s was made by PostgreSQL %d, and this machine has %s: install version %d "+
			"(nothing was changed)", data, made, strings.Join(have, ", "), made)
	}
	return binaries{}, fmt.Errorf("PostgreSQL %d or later is needed, and this machine has %s: "+
		"run scripts/install-postgres, name its directory in PG_BINDIR, or set KINDRED_DATABASE_URL",
		oldestMajor, strings.Join(have, ", "))
}

// clusterMajor returns the major version that made the cluster, or 0 when there is no cluster.
func clusterMajor(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(data); err == nil {
			return 0, fmt.Errorf("%s is there but is not a PostgreSQL cluster: move it away", data)
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("PG_VERSION of %s: %w", data, err)
	}
	return major, nil
}

// installed returns the installations on this machine, newest first. $PG_BINDIR, where
// set, is the only place that is looked at.
func installed(ctx context.Context) []binaries {
	var found []binaries
	for _, dir := range places() {
		if bin, ok := inspect(ctx, dir); ok {
			found = append(found, bin)
		}
	}
	slices.SortStableFunc(found, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
	return found
}

func places() []string {
	if dir := os.Getenv("PG_BINDIR"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
		"/usr/pgsql-*/bin",                  // PGDG on Red Hat
		"/usr/libexec/postgresql*",          // Alpine
		"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		matches, _ := filepath.Glob(pattern) // the patterns are well formed
		dirs = append(dirs, matches...)
	}
	return append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect asks the server in dir for its version; a directory of clients has no server.
func inspect(ctx context.Context, dir string) (binaries, bool) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return binaries{}, false
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	match := versionLine.FindStringSubmatch(string(out))
	if err != nil || match == nil {
		return binaries{}, false
	}
	major, err := strconv.Atoi(match[2])
	return binaries{dir, match[1], major}, err == nil
}
