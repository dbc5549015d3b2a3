package auth

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"kindred/domain/fault"
)

//go:embed common.txt
var commonText string

// common are the commonest passwords, folded.
var common = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(commonText) {
		all[folded(word)] = true
	}
	return all
})

const (
	minPassword = 8 // bytes
	// limit: client | password | {minPassword} characters to {maxPassword} bytes | 422 `invalid`
	maxPassword = 1024 // bytes
)

// CheckPassword refuses a password that may not be chosen, with a fault that
// names the field at pointer: one that is too short or long, among the commonest,
// or one of the things that are known of whose it is.
// Faults: invalid.
func CheckPassword(pointer, password string, known ...string) error {
	if n := len(password); n < minPassword || n > maxPassword {
		return fault.NewInvalid(fault.Field{
			Pointer: pointer,
			Detail:  fmt.Sprintf("A password must have between %d and %d bytes.", minPassword, maxPassword),
		})
	}
	if tooCommon(password) {
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "is among the commonest passwords; choose another one"})
	}
	for _, about := range known {
		local, _, _ := strings.Cut(about, "@")
		if folded(password) == folded(about) || folded(password) == folded(local) {
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "must not be your e-mail address or your company's name"})
		}
	}
	return nil
}

// tooCommon says whether a password is among the commonest, or is short and has no three
// different characters. As NIST SP 800-63B (5.1.1.2) has it, the whole is compared: password123
// may be chosen, as the contract says nothing against it.
func tooCommon(password string) bool {
	different := map[rune]bool{}
	for _, c := range password {
		different[c] = true
	}
	return len(different) < 3 && len(password) < 2*minPassword || common()[folded(password)]
}

// folded is a password, or what is known of somebody, in lower case and without space.
func folded(password string) string {
	return strings.ToLower(strings.Join(strings.Fields(password), ""))
}
