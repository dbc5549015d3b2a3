package auth

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"testing/iotest"

	"kindred/domain/id"
	"kindred/testkit"
)

func TestAGeneratedKeyIsAccepted(t *testing.T) {
	seen := make(map[string]bool)
	client := id.Next[id.Client](id.Random(rand.Reader))
	for of, prefix := range map[id.Client]string{client: "kin_live_", id.NextSandbox(id.Random(rand.Reader), client): "kin_test_"} {
		for range 1000 {
			key := testkit.Must(Generate(rand.Reader, of))(t)
			if len(key) != 45 || !strings.HasPrefix(key, prefix) || !Check(key) {
				t.Fatalf("%s is not an API key", key)
			}
			if seen[key] {
				t.Fatalf("%s was generated twice", key)
			}
			seen[key] = true
		}
	}
}

func TestEveryCharacterIsEquallyLikely(t *testing.T) {
	const keys = 20_000
	count := make(map[rune]int)
	for range keys {
		key := testkit.Must(Generate(rand.Reader, ""))(t)
		for _, c := range key[len(keyPrefix) : len(keyPrefix)+keyRandom] {
			count[c]++
		}
	}
	const mean = keys * keyRandom / 62 // standard deviation: below 100
	for _, c := range base62 {
		if n := count[c]; n < mean-800 || n > mean+800 {
			t.Errorf("%c occurs %d times; want about %d", c, n, mean)
		}
	}
}

func TestEveryWrongCharacterIsNoticed(t *testing.T) {
	key := testkit.Must(Generate(rand.Reader, ""))(t)
	for i := range key {
		for _, c := range []byte(base62 + "_- \x00\xff") {
			if wrong := key[:i] + string(c) + key[i+1:]; wrong != key && Check(wrong) {
				t.Errorf("%q is accepted beside %q", wrong, key)
			}
		}
	}
	for _, wrong := range []string{"", "kin_live_", key[len(keyPrefix):], key[1:], key[:len(key)-1], key + "0", key + key, strings.ToLower(key), " " + key} {
		if Check(wrong) {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestTheFormatOfKeysStays(t *testing.T) {
	const key = "kin_live_0123456789ABCDEFGHIJKLMNOPQRST" + "4PMbyp"
	if !Check(key) {
		t.Errorf("%s is refused; its checksum is %s", key, checksum(key[len(keyPrefix):len(key)-keyChecksum]))
	}
	if got, want := Fingerprint(key), "kin_live_0123...Mbyp"; got != want {
		t.Errorf("fingerprint %s; want %s", got, want)
	}
	if got := Fingerprint("hunter2"); got != "" {
		t.Errorf("the fingerprint of no key is %q", got)
	}
}

func TestPoorEntropyMakesNoKey(t *testing.T) {
	if _, err := Generate(iotest.ErrReader(iotest.ErrTimeout), ""); err == nil {
		t.Error("a key was made without entropy")
	}
	if _, err := Generate(bytes.NewReader(bytes.Repeat([]byte{255}, 1000)), ""); err == nil {
		t.Error("a key was made of what is not random")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("kin_live_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp")
	f.Fuzz(func(t *testing.T, key string) {
		if Check(key) && (len(key) != 45 || key[39:] != checksum(key[9:39])) {
			t.Errorf("%q is accepted", key)
		}
	})
}
