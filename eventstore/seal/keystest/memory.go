package keystest

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

type (
	rootName struct {
		kind   seal.Kind
		client id.Client
	}
	subjectName struct {
		client  id.Client
		subject string
	}
)

// Memory is a key table for tests. It forgets everything with the process.
type Memory struct {
	mu       sync.Mutex
	roots    map[rootName]seal.WrappedKey
	subjects map[subjectName]seal.SubjectKey
}

// NewMemory makes an empty key table.
func NewMemory() *Memory {
	return &Memory{roots: map[rootName]seal.WrappedKey{}, subjects: map[subjectName]seal.SubjectKey{}}
}

// NewMaster makes a master key.
func NewMaster(t testing.TB) seal.MasterKeys {
	t.Helper()
	text, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	master, err := seal.ParseMasterKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return master
}

// Root finds a root key.
func (m *Memory) Root(_ context.Context, kind seal.Kind, client id.Client) (seal.WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return lookup(m.roots, rootName{kind, client})
}

// MakeRoot stores a root key unless there is one.
func (m *Memory) MakeRoot(_ context.Context, key seal.RootKey) (seal.WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return makeIn(m.roots, rootName{key.Kind, key.Client}, key.WrappedKey), nil
}

// RootsNotUnder lists root keys that another master key wraps.
func (m *Memory) RootsNotUnder(_ context.Context, master string, limit int) ([]seal.RootKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []seal.RootKey
	for name, key := range m.roots {
		if key.Under != master && len(key.Wrapped) > 0 && len(found) < limit {
			found = append(found, seal.RootKey{Kind: name.kind, Client: name.client, WrappedKey: key})
		}
	}
	return found, nil
}

// Rewrap stores root keys in their new wrapping.
func (m *Memory) Rewrap(_ context.Context, keys []seal.RootKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		name := rootName{key.Kind, key.Client}
		if there := m.roots[name]; there.ID == key.ID && len(there.Wrapped) > 0 {
			m.roots[name] = key.WrappedKey
		}
	}
	return nil
}

// Subject finds the key of a subject.
func (m *Memory) Subject(_ context.Context, client id.Client, subject string) (seal.WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, found := m.subjects[subjectName{client, subject}]
	if !found {
		return seal.WrappedKey{}, seal.ErrNoKey
	}
	return key.WrappedKey, nil
}

// MakeSubjects stores the keys that are missing.
func (m *Memory) MakeSubjects(_ context.Context, keys []seal.SubjectKey) ([]seal.SubjectKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := make([]seal.SubjectKey, len(keys))
	for i, key := range keys {
		name := subjectName{key.Client, key.Subject}
		_, there := m.subjects[name]
		if root, is := m.roots[rootName{seal.ClientKey, key.Client}]; is && len(root.Wrapped) == 0 && !there {
			return nil, seal.ErrDeleted
		}
		if holder, taken := m.find(key.Client, key.Lookup); taken && !there {
			stored[i] = holder
			continue
		}
		stored[i] = makeIn(m.subjects, name, key)
	}
	return stored, nil
}

// find finds the subject of a client that has a lookup.
func (m *Memory) find(client id.Client, lookup []byte) (seal.SubjectKey, bool) {
	if lookup == nil {
		return seal.SubjectKey{}, false
	}
	for name, key := range m.subjects {
		if name.client == client && bytes.Equal(key.Lookup, lookup) {
			return key, true
		}
	}
	return seal.SubjectKey{}, false
}

// Find finds subjects by their lookups.
func (m *Memory) Find(_ context.Context, wanted []seal.Lookup) ([]seal.SubjectKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make([]seal.SubjectKey, len(wanted))
	for i, lookup := range wanted {
		if holder, is := m.find(lookup.Client, lookup.Value); is {
			holder.Lookup = nil
			found[i] = holder
		}
	}
	return found, nil
}

// LookupOf returns the lookup of a subject.
func (m *Memory) LookupOf(_ context.Context, client id.Client, subject string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.subjects[subjectName{client, subject}].Lookup, nil
}

// Destroy leaves a tombstone.
func (m *Memory) Destroy(_ context.Context, client id.Client, subject string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := subjectName{client, subject}
	key := m.subjects[name]
	key.Client, key.Subject, key.Wrapped, key.Lookup = client, subject, nil, nil
	m.subjects[name] = key
	return nil
}

// DestroyClient leaves tombstones of all keys of a client.
func (m *Memory) DestroyClient(_ context.Context, client id.Client) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, key := range m.subjects {
		if name.client == client {
			key.Wrapped, key.Lookup = nil, nil
			m.subjects[name] = key
		}
	}
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		name := rootName{kind, client}
		key := m.roots[name]
		key.Wrapped = nil
		m.roots[name] = key
	}
	return false, nil
}

func lookup[K comparable](table map[K]seal.WrappedKey, name K) (seal.WrappedKey, error) {
	key, found := table[name]
	if !found {
		return seal.WrappedKey{}, seal.ErrNoKey
	}
	return key, nil
}

func makeIn[K comparable, V any](table map[K]V, name K, key V) V {
	if stored, found := table[name]; found {
		return stored
	}
	table[name] = key
	return key
}
