package seal

import (
	"context"
	"sync"

	"kindred/domain/id"
)

// Memory is a key table for tests. It forgets everything with the process.
type Memory struct {
	mu       sync.Mutex
	roots    map[rootName]WrappedKey
	subjects map[subjectName]WrappedKey
}

// NewMemory makes an empty key table.
func NewMemory() *Memory {
	return &Memory{roots: map[rootName]WrappedKey{}, subjects: map[subjectName]WrappedKey{}}
}

// Root finds a root key.
func (m *Memory) Root(_ context.Context, kind Kind, client id.Client) (WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return lookup(m.roots, rootName{kind, client})
}

// MakeRoot stores a root key unless there is one.
func (m *Memory) MakeRoot(_ context.Context, key RootKey) (WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return makeIn(m.roots, rootName{key.Kind, key.Client}, key.WrappedKey), nil
}

// RootsNotUnder lists root keys that another master key wraps.
func (m *Memory) RootsNotUnder(_ context.Context, master string, limit int) ([]RootKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []RootKey
	for name, key := range m.roots {
		if key.Under != master && len(found) < limit {
			found = append(found, RootKey{name.kind, name.client, key})
		}
	}
	return found, nil
}

// Rewrap stores root keys in their new wrapping.
func (m *Memory) Rewrap(_ context.Context, keys []RootKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		name := rootName{key.Kind, key.Client}
		if m.roots[name].ID == key.ID {
			m.roots[name] = key.WrappedKey
		}
	}
	return nil
}

// Subject finds the key of a subject.
func (m *Memory) Subject(_ context.Context, client id.Client, subject string) (WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return lookup(m.subjects, subjectName{client, subject})
}

// MakeSubjects stores the keys that are missing.
func (m *Memory) MakeSubjects(_ context.Context, keys []SubjectKey) ([]WrappedKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := make([]WrappedKey, len(keys))
	for i, key := range keys {
		stored[i] = makeIn(m.subjects, subjectName{key.Client, key.Subject}, key.WrappedKey)
	}
	return stored, nil
}

// Destroy leaves a tombstone.
func (m *Memory) Destroy(_ context.Context, client id.Client, subject string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := subjectName{client, subject}
	key := m.subjects[name]
	key.Wrapped = nil
	m.subjects[name] = key
	return nil
}

func lookup[K comparable](table map[K]WrappedKey, name K) (WrappedKey, error) {
	key, found := table[name]
	if !found {
		return WrappedKey{}, ErrNoKey
	}
	return key, nil
}

func makeIn[K comparable](table map[K]WrappedKey, name K, key WrappedKey) WrappedKey {
	if stored, found := table[name]; found {
		return stored
	}
	table[name] = key
	return key
}
