package domain_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/quick"

	"kindred/domain"
)

func TestSlugs(t *testing.T) {
	for name, want := range map[string]string{
		"Acme":                          "acme",
		" Acme  & Sons, Inc. ":          "acme-sons-inc",
		"Zürich 24":                     "zurich-24",
		"ACMÉ, Việt Nam":                "acme-viet-nam",
		"株式会社":                          "client",
		"---":                           "client",
		strings.Repeat("a", 60):         strings.Repeat("a", 48),
		strings.Repeat("a", 47) + " bc": strings.Repeat("a", 47),
	} {
		if got := domain.Slug(name); got != want {
			t.Errorf("%q gives %q, want %q", name, got, want)
		}
	}
}

func TestEveryNameGivesASlug(t *testing.T) {
	slug := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	if err := quick.Check(func(name string) bool {
		s := domain.Slug(name)
		return slug.MatchString(s) && len(s) <= 48 && domain.Slug(s) == s
	}, nil); err != nil {
		t.Error(err)
	}
}

func TestEmailAddresses(t *testing.T) {
	for _, email := range []string{"ada@example.com", " ada+x@example.co.uk ", "o'hara@example.com", "josé@example.com"} {
		if got, err := domain.CheckEmail(email); err != nil || got != strings.TrimSpace(email) {
			t.Errorf("%q: %q, %v", email, got, err)
		}
	}
	for _, email := range []string{
		"", "ada", "@example.com", "ada@", "a b@example.com", "Ada <ada@example.com>", "ada@example.com, bob@example.com",
		"ada@exam\nple.com", "ada@example.com\x00", "a\u200bda@example.com", "\ufeffada@example.com", "a\u202eda@example.com", "ada@exam\u00adple.com", `"a b"@example.com`, strings.Repeat("a", 250) + "@example.com",
	} {
		if got, err := domain.CheckEmail(email); err == nil {
			t.Errorf("%q is taken for the address %q", email, got)
		}
	}
	if domain.EmailKey(" Ada@Example.COM ") != domain.EmailKey("ada@example.com") {
		t.Error("addresses that differ in case are two")
	}
	if domain.EmailKey("jose\u0301@example.com") != domain.EmailKey("JOSÉ@example.com") {
		t.Error("addresses that differ in how an é is written are two")
	}
}

func TestExternalIDs(t *testing.T) {
	for _, external := range []string{"1", "user/42 ü", strings.Repeat("ü", 256), "a:b", " a", "\u00a0\u00e9", "👩"} {
		if err := domain.CheckExternalID(external); err != nil {
			t.Errorf("%q: %v", external, err)
		}
	}
	for _, external := range []string{"", strings.Repeat("ü", 257), "a\x00", "a\nb", "\x7f", "a\u0085", "a\xff", " ", "  \u00a0 ", "\u200b", "\u2800"} {
		if err := domain.CheckExternalID(external); err == nil {
			t.Errorf("%q is taken for an external id", external)
		}
	}
}
