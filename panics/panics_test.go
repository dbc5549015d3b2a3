package panics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"kindred/panics"
)

func fails() { panic([]string{"seven"}[0]) }

func TestAPanicIsAnErrorThatSaysWhere(t *testing.T) {
	err := panics.Caught(func() error { fails(); return nil })
	if err == nil || !strings.Contains(err.Error(), "panic: seven") || !strings.Contains(err.Error(), "panics_test.fails:") {
		t.Errorf("it says %v", err)
	}
	own := errors.New("own")
	if err := panics.Caught(func() error { return own }); !errors.Is(err, own) {
		t.Errorf("an error became %v", err)
	}
}

func TestAPanicEndsItsGroup(t *testing.T) {
	group, ctx := panics.WithContext(context.Background())
	group.Go(func() error { fails(); return nil })
	group.Go(func() error { <-ctx.Done(); return nil })
	if err := group.Wait(); err == nil || !strings.Contains(err.Error(), "seven") {
		t.Errorf("the group ended with %v", err)
	}
	alone := panics.New()
	alone.Go(func() error { fails(); return nil })
	if alone.Wait() == nil {
		t.Error("the panic is lost")
	}
}
