package e2e

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kindred/app"
	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
)

func TestAMasterKeyThatIsLostIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	config := testConfig(t)
	config.MasterKey, config.DatabaseURL = "", pgtest.URL(t)
	path := filepath.Join(config.DataDir, "master.key")
	seals := func() error {
		a, err := app.Open(t.Context(), config, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer a.Close()
		return a.Vault.Prepare(t.Context(), id.Next[id.Client](id.Random(rand.Reader)), "somebody")
	}
	if err := seals(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".lost"); err != nil {
		t.Fatal(err)
	}
	err := seals()
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "KINDRED_MASTER_KEY") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another key was made: %v", err)
	}
	if err := os.Rename(path+".lost", path); err != nil {
		t.Fatal(err)
	}
	if err := seals(); err != nil {
		t.Errorf("with the key at its place again: %v", err)
	}
}

// As operations.md has it: a new key stands behind the old one everywhere before it comes first anywhere.
func TestAMasterKeyIsRotatedOneReplicaAfterAnother(t *testing.T) {
	t.Parallel()
	fresh, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var old string
	before := startService(t, func(c *app.Config) {
		old = c.MasterKey
		c.MasterKey += "," + fresh
	})
	after := startService(t, replicaOf(before), func(c *app.Config) { c.MasterKey = fresh + "," + old })
	a := after.signUp()
	a.createUser("ann", map[string]any{"town": "Ghent"})
	at := a.segment("Ghent", `traits.town == "Ghent"`) // the first leads: it opens what the second has sealed
	if names := a.at(before).segmentMembers(at); len(names) != 1 {
		t.Errorf("in it are %v", names)
	}
	want[httpapi.User](t, http.StatusOK, a.at(before).get("/api/v1/users/ext:ann"))
}
