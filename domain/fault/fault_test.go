package fault_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"kindred/domain/fault"
)

func TestAFaultIsFoundInAChain(t *testing.T) {
	f := fault.New(fault.Conflict, "taken", "%s is taken.", "x").After(time.Second)
	for _, err := range []error{f, fmt.Errorf("reserve: %w", f), errors.Join(errors.New("other"), f)} {
		if got := fault.As(err); got != f || !fault.Is(err, "taken") || fault.Is(err, "free") {
			t.Errorf("%v: found %v", err, got)
		}
	}
	if f.Detail != "x is taken." || f.RetryAfter != time.Second {
		t.Errorf("made %+v", f)
	}
}

func TestWhatIsNoFaultIsNotShown(t *testing.T) {
	for _, err := range []error{nil, errors.New("disk full")} {
		if fault.As(err) != nil || fault.Is(err, "") {
			t.Errorf("%v is a fault", err)
		}
	}
}

func TestAnInvalidFaultSaysWhere(t *testing.T) {
	f := fault.NewInvalid(fault.Field{Pointer: "/a", Detail: "is wrong"}, fault.Field{Pointer: "/b", Detail: "too"})
	if f.Kind != fault.Invalid || len(f.Fields) != 2 || f.Error() != "invalid: The request is not valid. (/a: is wrong)" {
		t.Errorf("made %v", f)
	}
}
