package auth

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"kindred/domain/fault"
)

//go:embed common.txt
var commonText string

// common are the stems of the commonest passwords.
var common = sync.OnceValue(func() map[string]bool {
	stems := map[string]bool{}
	for word := range strings.FieldsSeq(commonText) {
		stems[stem(word)] = true
	}
	return stems
})

const (
	minPassword = 8 // bytes
	// limit: client | password | {minPassword} to {maxPassword} bytes | 422 `invalid`
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
		if stem(password) == stem(about) || stem(password) == stem(local) {
			return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "must not be your e-mail address or your company's name"})
		}
	}
	return nil
}

// tooCommon says whether a password is among the commonest, in whatever case and
// with whatever digits and signs behind, or is short and has no three different
// characters.
func tooCommon(password string) bool {
	different := map[rune]bool{}
	for _, c := range password {
		different[c] = true
	}
	return len(different) < 3 && len(password) < 2*minPassword || common()[stem(password)]
}

// stem is what is left of a password, or of what is known of somebody, when case,
// space, and the digits and signs at its end are taken away; of one that is made
// of digits and signs, all but space.
func stem(password string) string {
	plain := strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return unicode.ToLower(c)
	}, password)
	if cut := strings.TrimRightFunc(plain, func(c rune) bool { return !unicode.IsLetter(c) }); cut != "" {
		return cut
	}
	return plain
}
