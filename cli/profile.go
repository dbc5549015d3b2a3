package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// profiles is the file of stored logins, which the user alone may read.
type profiles struct {
	Profiles map[string]profile `json:"profiles"`
	path     string
}

// profile is one stored login.
type profile struct {
	URL      string `json:"url,omitzero"`
	ClientID string `json:"client_id,omitzero"`
	Member   string `json:"member,omitzero"`  // its e-mail address
	Session  string `json:"session,omitzero"` // the secret of a session

	SessionID string `json:"session_id,omitzero"`

	ListenSecret string `json:"listen_secret,omitzero"` // what `kindred listen` signs with
}

func (p profiles) names() []string { return slices.Sorted(maps.Keys(p.Profiles)) }

// profilesPath follows the XDG base directory specification.
func (e environ) profilesPath() (string, error) {
	dir := e.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // one that is relative counts as not set
		home := e.getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set, so there is no place for logins")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "kindred", "profiles.json"), nil
}

// profiles reads the stored logins; there may be none.
func (e environ) profiles() (profiles, error) {
	stored := profiles{Profiles: map[string]profile{}}
	path, err := e.profilesPath()
	if err != nil {
		return stored, nil // nothing is stored where nothing can be
	}
	stored.path = path
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stored, nil
	}
	if err != nil {
		return stored, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return stored, err
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return stored, fmt.Errorf("others may read %s (mode %#o), which holds secrets: chmod 600 it, and log in anew", path, info.Mode().Perm())
	}
	if err := json.NewDecoder(file).Decode(&stored); err != nil {
		return stored, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if stored.Profiles == nil {
		stored.Profiles = map[string]profile{}
	}
	return stored, nil
}

// save replaces the file at once or not at all.
func (p profiles) save() error {
	if p.path == "" {
		_, err := environ{func(string) string { return "" }}.profilesPath()
		return err
	}
	dir := filepath.Dir(p.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "profiles-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	out := json.NewEncoder(file)
	out.SetIndent("", "  ")
	if err := errors.Join(out.Encode(p), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), p.path)
}

// change changes a profile.
func (o *options) change(by func(*profile)) error {
	stored, err := o.profiles()
	if err != nil {
		return err
	}
	one := stored.Profiles[o.name()]
	by(&one)
	stored.Profiles[o.name()] = one
	if one == (profile{}) {
		delete(stored.Profiles, o.name())
	}
	return stored.save()
}
