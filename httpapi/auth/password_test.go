package auth

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"kindred/domain/fault"
	"kindred/testkit"
)

func TestAPasswordVerifiesAgainstItsOwnHashOnly(t *testing.T) {
	p := NewPasswords(rand.Reader, Cost{})
	stored := testkit.Must(p.Hash("correct horse"))(t)
	if !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored as %s", stored)
	}
	again := testkit.Must(p.Hash("correct horse"))(t)
	if stored == again {
		t.Error("two hashes have one salt")
	}
	for password, want := range map[string]bool{"correct horse": true, "correct horsf": false, "": false, "Correct horse": false} {
		got, err := p.Verify(stored, password)
		if err != nil || got != want {
			t.Errorf("%q verifies: %v, %v; want %v", password, got, err, want)
		}
	}
	if got, err := p.Verify("", "correct horse"); err != nil || got {
		t.Errorf("no stored hash verifies: %v, %v", got, err)
	}
}

func TestAPasswordIsTheSameHoweverAKeyboardSendsIt(t *testing.T) {
	p := NewPasswords(rand.Reader, Cost{})
	stored := testkit.Must(p.Hash("caf\u00e9 correct horse"))(t)
	if !testkit.Must(p.Verify(stored, "cafe\u0301 correct horse"))(t) {
		t.Error("a password does not verify whose é came as two characters")
	}
}

// The vector is of the argon2 reference implementation (src/test.c).
func TestAHashOfOtherParametersVerifies(t *testing.T) {
	const stored = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	got, err := NewPasswords(rand.Reader, Cost{}).Verify(stored, "password")
	if err != nil || !got {
		t.Errorf("verifies: %v, %v", got, err)
	}
}

func TestAStoredHashOverTheLimitsIsNotComputed(t *testing.T) {
	const salt, hash = "c29tZXNhbHQ", "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	for name, stored := range map[string]string{
		"memory":            "$argon2id$v=19$m=65537,t=2,p=1$" + salt + "$" + hash,
		"memory beyond int": "$argon2id$v=19$m=99999999999,t=2,p=1$" + salt + "$" + hash,
		"too little memory": "$argon2id$v=19$m=7,t=2,p=1$" + salt + "$" + hash,
		"passes":            "$argon2id$v=19$m=64,t=11,p=1$" + salt + "$" + hash,
		"no passes":         "$argon2id$v=19$m=64,t=0,p=1$" + salt + "$" + hash,
		"lanes":             "$argon2id$v=19$m=64,t=2,p=5$" + salt + "$" + hash,
		"no lanes":          "$argon2id$v=19$m=64,t=2,p=0$" + salt + "$" + hash,
		"short salt":        "$argon2id$v=19$m=64,t=2,p=1$c29t$" + hash,
		"short hash":        "$argon2id$v=19$m=64,t=2,p=1$" + salt + "$CTFh",
		"long":              "$argon2id$v=19$m=64,t=2,p=1$" + salt + "$" + strings.Repeat("A", 300),
		"other algorithm":   "$argon2i$v=19$m=64,t=2,p=1$" + salt + "$" + hash,
		"other version":     "$argon2id$v=16$m=64,t=2,p=1$" + salt + "$" + hash,
		"sloppy":            "$argon2id$v=19$m=+64,t=2,p=1$" + salt + "$" + hash,
		"padded":            "$argon2id$v=19$m=64,t=2,p=1$" + salt + "==$" + hash,
		"plain text":        "password",
	} {
		ok, err := NewPasswords(rand.Reader, Cost{}).Verify(stored, "password")
		if ok || !errors.Is(err, errBadHash) {
			t.Errorf("%s: %v, %v; want it refused", name, ok, err)
		}
	}
}

func TestPasswordsHaveALength(t *testing.T) {
	for password, ok := range map[string]bool{
		"": false, "1234567": false, "12345678": false, "72918350": true, "äöüß": true,
		strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false,
	} {
		err := CheckPassword("/password", password)
		if ok && err != nil {
			t.Errorf("%d bytes: %v", len(password), err)
		}
		if f := fault.As(err); !ok && (f == nil || f.Kind != fault.Invalid || f.Fields[0].Pointer != "/password") {
			t.Errorf("%d bytes: %v; want a fault that names the field", len(password), err)
		}
	}
}

func TestPasswordsThatEverybodyTriesFirstAreRefused(t *testing.T) {
	known := []string{"Ada.Lovelace@Example.com", "Engines & Co"}
	for _, password := range []string{
		"password", "PassWord", "password1", "P@ssw0rd", "pass word", "qwertyuiop", "1q2w3e4r", "123456789", "aaaaaaaa", "abababab",
		"iloveyou", "changeme", "ada.lovelace@example.com", "ADA.LOVELACE", "engines & co", "Engines&Co",
	} {
		if f := fault.As(CheckPassword("/password", password, known...)); f == nil || f.Code != "invalid" || f.Fields[0].Pointer != "/password" {
			t.Errorf("%q: %v; want a fault that names the field", password, f)
		}
	}
	for _, password := range []string{"correct horse battery staple", "a password of ada", "a good password", "lovelace", "7yDk2-pq", "password-of-mine is long", "Password123!", "Engines&Co99", "yjqyjqyj", "yjyjyjyjyjyjyjyj"} {
		if err := CheckPassword("/password", password, known...); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
}
