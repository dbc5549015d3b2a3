package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain/id"
	"kindred/golden"
	"kindred/testkit"
)

// samples are one event of each type with every field set: as its newest sample in
// testdata shows it, or, where that is still to be written, filled by its shape.
func samples(t *testing.T) (all []Event) {
	t.Helper()
	r := All()
	fill := filling{r: r}
	for _, name := range slices.Sorted(maps.Keys(r.Types())) {
		e, written := stored(t, r, name, r.byName[name].version)
		if !written {
			e = fill.event(t, name)
		}
		all = append(all, e)
	}
	return all
}

// stored reads the sample of a version of a type, if there is one.
func stored(t *testing.T, r *Registry, name string, version int) (Event, bool) {
	t.Helper()
	data, err := os.ReadFile(sampleFile(name, version))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	e := testkit.Must(r.Decode(name, version, data))(t)
	return e, true
}

// filling sets the fields of events that have no sample yet.
type filling struct {
	r     *Registry
	ids   map[reflect.Type]reflect.Value // of each type, as other samples have it
	boxes byte
}

// event is a sample of a type: what the version before shows, with what is empty in it
// filled.
func (f *filling) event(t *testing.T, name string) Event {
	t.Helper()
	if f.ids == nil {
		f.ids = map[reflect.Type]reflect.Value{}
		for other, version := range f.r.Types() {
			if e, written := stored(t, f.r, other, version); written {
				f.see(reflect.ValueOf(e))
			}
		}
	}
	d := f.r.byName[name]
	v := reflect.New(d.shape).Elem()
	if e, written := stored(t, f.r, name, d.version-1); written {
		v.Set(reflect.ValueOf(e))
	}
	f.boxes = 0
	f.fill(v, "")
	return v.Interface().(Event)
}

func isID(t reflect.Type) bool {
	return t.Kind() == reflect.String && t.PkgPath() == reflect.TypeFor[id.User]().PkgPath()
}

// see notes the ids of a sample.
func (f *filling) see(v reflect.Value) {
	switch {
	case isID(v.Type()):
		if known, ok := f.ids[v.Type()]; !ok || v.String() < known.String() {
			f.ids[v.Type()] = v
		}
	case v.Kind() == reflect.Struct:
		for _, child := range v.Fields() {
			f.see(child)
		}
	case v.Kind() == reflect.Slice && v.Len() > 0:
		f.see(v.Index(0))
	}
}

// fill sets what is empty of a value; name is that of its field in JSON.
func (f *filling) fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)))
		return
	case *Personal:
		f.boxes++
		n := f.boxes
		v.Set(reflect.ValueOf(&Personal{Box: &Box{Key: "k" + string('0'+n), Commitment: []byte{n, 1}, Cipher: []byte{n, 2}}}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for field, child := range v.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.Name != "fact" && (child.IsZero() || field.Anonymous) {
				f.fill(child, name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), name)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		f.fill(value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), value)
	case reflect.String:
		if known, ok := f.ids[v.Type()]; ok {
			v.Set(known)
			return
		}
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Uint8:
		v.SetUint(7)
	default: // of numbers; another kind has no place in an event
		v.SetInt(7)
	}
}

func sampleFile(name string, version int) string {
	return filepath.Join("testdata", fmt.Sprintf("%s.v%d.json", name, version))
}

func TestSamplesSetEveryField(t *testing.T) {
	for _, e := range samples(t) {
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name != "fact" && v.Field(i).IsZero() {
				t.Errorf("the sample of %T leaves %s empty: what is new needs a new version, or comes into a sample that was never committed", e, f.Name)
			}
		}
	}
}

// What is written today is what the newest sample shows: a shape that has
// changed needs a new version, not a new sample.
func TestEveryTypeIsWrittenAsItsNewestSample(t *testing.T) {
	r := All()
	for _, e := range samples(t) {
		name, version, err := r.Name(e)
		if err != nil {
			t.Fatal(err)
		}
		written := testkit.Must(Encode(e))(t)
		var indented bytes.Buffer
		if err := json.Indent(&indented, written, "", "  "); err != nil {
			t.Fatal(err)
		}
		got := indented.Bytes()
		want, err := os.ReadFile(sampleFile(name, version))
		if errors.Is(err, os.ErrNotExist) && *golden.Update {
			want, err = got, os.WriteFile(sampleFile(name, version), append(got, '\n'), 0o600)
		}
		if err != nil {
			t.Errorf("%v; make golden writes a sample that is new", err)
			continue
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s version %d is not written as its sample any more: %s", name, version, diff)
		}
		for _, stored := range [][]byte{want, written} { // fast.go reads the second alone
			decoded, err := r.Decode(name, version, stored)
			if err != nil {
				t.Error(err)
				continue
			}
			if diff := cmp.Diff(e, decoded, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Errorf("%s does not survive being stored; where it has its own methods in fast.go, these write and read each field: %s", name, diff)
			}
		}
	}
}

func TestEveryVersionEverWrittenIsRead(t *testing.T) {
	r := All()
	for name, newest := range r.Types() {
		for version := 1; version <= newest; version++ {
			data, err := os.ReadFile(sampleFile(name, version))
			if err != nil {
				t.Errorf("%v; make golden writes a sample that is new", err)
				continue
			}
			if _, err := r.Decode(name, version, data); err != nil {
				t.Errorf("%s version %d: %v", name, version, err)
			}
		}
	}
	files := testkit.Must(filepath.Glob("testdata/*.json"))(t)
	for _, file := range files {
		name, v, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), ".v")
		if version, err := strconv.Atoi(v); err != nil || version > r.Types()[name] {
			t.Errorf("%s is a sample of what is not known", file)
		}
	}
}

// The types are read off the source: whatever embeds fact is an event.
func TestEveryEventIsRegisteredOnce(t *testing.T) {
	declared := map[string]bool{}
	files := testkit.Must(filepath.Glob("*.go"))(t)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree := testkit.Must(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			shape, ok := spec.Type.(*ast.StructType)
			if ok && slices.ContainsFunc(shape.Fields.List, func(f *ast.Field) bool {
				ident, ok := f.Type.(*ast.Ident)
				return ok && ident.Name == "fact" && len(f.Names) == 0
			}) {
				declared[spec.Name.Name] = true
			}
			return true
		})
	}
	registered := map[string]bool{}
	for shape := range All().byShape {
		registered[shape.Name()] = true
	}
	if diff := cmp.Diff(declared, registered); diff != "" || len(All().byName) != len(registered) {
		t.Errorf("declared here, and in the lists of All in registry.go (-declared +listed): %s", diff)
	}
}

func TestPersonalFieldsAreListedUnderTheirJSONNames(t *testing.T) {
	for _, e := range samples(t) {
		want := map[string]*Personal{}
		v := reflect.ValueOf(e)
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Type == reflect.TypeFor[*Personal]() {
				want[name] = v.FieldByIndex(f.Index).Interface().(*Personal)
			}
		}
		got := map[string]*Personal{}
		if b, ok := e.(PersonalData); ok {
			if b.Subject() == "" {
				t.Errorf("%T has no subject", e)
			}
			for _, f := range b.Personal() {
				got[f.Name] = f.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the method Personal of %T lists %q; its fields of type *Personal, each to be listed under its JSON name, are %q",
				e, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}
