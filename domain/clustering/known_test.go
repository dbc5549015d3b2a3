package clustering

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
	"kindred/testkit"
)

// python runs the reference, and skips the test where it cannot be run.
func python(t testing.TB, args ...string) []byte {
	t.Helper()
	const noReference = 77
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.Command(name, append([]string{"testdata/reference.py"}, args...)...).Output()
		if err == nil {
			return out
		}
		exit, ran := errors.AsType[*exec.ExitError](err)
		if ran && exit.ExitCode() != noReference {
			t.Fatalf("%s testdata/reference.py %s: %v\n%s", name, args[0], err, exit.Stderr)
		}
	}
	t.Skip("no python3 with scikit-learn is installed (Debian: python3-sklearn): nothing to compare with")
	return nil
}

// known is a set of which the true groups are known.
type known struct {
	name    string
	points  Points
	classes []uint16
	k       int
}

// knownClasses reads scikit-learn's sets and encodes them as traits of users.
func knownClasses(t testing.TB) []known {
	t.Helper()
	folder := t.TempDir()
	python(t, "known", folder)
	var sets []known
	for _, name := range []string{"iris", "wine", "breast_cancer", "digits"} {
		raw := testkit.Must(os.ReadFile(filepath.Join(folder, name+".json")))(t)
		var set struct {
			Rows    [][]float64
			Classes []uint16
		}
		if err := json.Unmarshal(raw, &set); err != nil {
			t.Fatal(err)
		}
		users := make([]traits.Flat, len(set.Rows))
		for i, row := range set.Rows {
			for d, x := range row {
				users[i].Values = append(users[i].Values, traits.Value{Path: fmt.Sprintf("t%02d", d), Kind: traits.Number, Number: x})
			}
		}
		k := 0
		for _, c := range set.Classes {
			k = max(k, int(c)+1)
		}
		sets = append(sets, known{name, encode(users), set.Classes, k})
	}
	return sets
}

var asOf = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func named(users []traits.Flat) iter.Seq2[string, traits.Flat] {
	return func(yield func(string, traits.Flat) bool) {
		for i, u := range users {
			if !yield(fmt.Sprintf("usr_%07d", i), u) {
				return
			}
		}
	}
}

func encode(users []traits.Flat) Points {
	encoder := traits.Infer(named(users), nil).Encoder(asOf)
	p := Points{Dims: len(encoder.Dimensions())}
	for _, u := range users {
		p.Data = encoder.Append(p.Data, u)
	}
	return p
}

// gauss draws from the normal distribution, by the sum of twelve. The race
// detector is spared it: most of what these tests do is to draw.
//
//go:norace
func gauss(random *splitmix.Source) float64 {
	sum := -6.0
	for range 12 {
		sum += random.Float64()
	}
	return sum
}

// madeUp draws users of k groups, as vectors of 64 dimensions that look like
// encoded traits: 20 numbers, four categories of eight levels, eight flags and
// a set of four. The groups' centers are apart by so many standard deviations,
// and their levels are held by that share of the members.
func madeUp(n, k int, apart, share float64, seed uint64) known {
	set := known{name: fmt.Sprintf("made up %d/%d", k, n), points: Points{Dims: 64}, k: k}
	random := draws(seed, 77)
	type group struct {
		numbers [20]float64
		levels  [4]int
		flags   [8]float64
		members [4]float64
	}
	groups := make([]group, k)
	for g := range groups {
		for i := range groups[g].numbers {
			groups[g].numbers[i] = gauss(&random) * apart
		}
		for i := range groups[g].levels {
			groups[g].levels[i] = random.IntN(8)
		}
		for i := range groups[g].flags {
			groups[g].flags[i] = random.Float64()
		}
		for i := range groups[g].members {
			groups[g].members[i] = random.Float64()
		}
	}
	set.points.Data = make([]float32, 0, 64*n)
	row := make([]float32, 64)
	for range n {
		c := random.IntN(k)
		g := groups[c]
		clear(row)
		for i, center := range g.numbers {
			row[i] = float32(min(max(center+gauss(&random)*0.7, -3), 3))
		}
		for i, level := range g.levels {
			if random.Float64() > share {
				level = random.IntN(8)
			}
			row[20+8*i+level] = 0.5
		}
		for i, p := range g.flags {
			if random.Float64() < p {
				row[52+i] = 0.707
			}
		}
		for i, p := range g.members {
			if random.Float64() < p {
				row[60+i] = 0.4
			}
		}
		set.points.Data = append(set.points.Data, row...)
		set.classes = append(set.classes, uint16(c))
	}
	return set
}

// file writes the points as scikit-learn is to read them.
func (p Points) file(t testing.TB) string {
	t.Helper()
	raw := make([]byte, 0, 4*len(p.Data))
	for _, x := range p.Data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	path := filepath.Join(t.TempDir(), "points")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type reference struct{ Inertia, CPU, Wall float64 }

// scikit fits the points with ten starts of scikit-learn's KMeans.
func scikit(t testing.TB, p Points, k, threads int) reference {
	t.Helper()
	var r reference
	out := python(t, "fit", p.file(t), fmt.Sprint(p.Dims), fmt.Sprint(k), fmt.Sprint(threads))
	if err := json.Unmarshal([]byte(strings.TrimSpace(string(out))), &r); err != nil {
		t.Fatal(err)
	}
	return r
}
