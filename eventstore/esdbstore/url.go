package esdbstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// parseURL reads a connection string. The credentials are cut out first, so
// that no error can quote them.
func parseURL(text string) (*esdb.Configuration, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errors.New("the URL of the event store does not begin with esdb:// or kurrentdb://")
	}
	credentials := ""
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		credentials, rest = rest[:at], rest[at+1:]
	}
	if strings.ContainsAny(credentials, "/?#") {
		return nil, errors.New("the URL of the event store: write / ? # @ as %2F %3F %23 %40 in the user, the password and the settings")
	}
	scheme = strings.Replace(strings.ToLower(scheme), "kurrentdb", "esdb", 1)
	config, err := esdb.ParseConnectionString(scheme + "://" + rest)
	if err != nil {
		return nil, fmt.Errorf("the URL of the event store: %w", err)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("the URL of the event store: %w", err)
	}
	user, password, _ := strings.Cut(credentials, ":")
	var userErr, passwordErr error
	config.Username, userErr = url.PathUnescape(user)
	config.Password, passwordErr = url.PathUnescape(password)
	if userErr != nil || passwordErr != nil {
		return nil, errors.New("the URL of the event store: the credentials are not percent-encoded")
	}
	return config, nil
}
