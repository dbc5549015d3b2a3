package app

import (
	"net"
	"strings"
	"testing"
)

func TestAnAddressThatIsTakenIsNamedWithItsSetting(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, _, err = listen(t.Context(), &Config{Listen: taken.Addr().String()})
	if err == nil || strings.Count(err.Error(), taken.Addr().String()) != 1 || !strings.Contains(err.Error(), "KINDRED_LISTEN") {
		t.Errorf("%v", err)
	}
}
