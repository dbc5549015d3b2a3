package traits

import (
	"slices"
	"strings"
	"unicode"
)

// likelySensitive tells by its name whether a path seems to hold data of a
// special category (GDPR articles 9 and 10). It errs towards yes: the client
// can allow a path, and cannot take back what was shown.
func likelySensitive(path string) bool {
	named := words(path)
	joined := strings.Join(named, "")
	return slices.ContainsFunc(sensitiveStems(), func(stem string) bool { return strings.Contains(joined, stem) }) ||
		slices.ContainsFunc(named, func(w string) bool { return slices.Contains(sensitiveWords(), w) })
}

// sensitiveStems are long enough to be looked for anywhere in a name.
func sensitiveStems() []string {
	return []string{
		"health", "medical", "medication", "diagnos", "disease", "illness", "disabilit", "pregnan", "therapy", "bloodtype",
		"religio", "ethnic", "racial", "politic", "philosophicalbelief", "sexual", "orientation", "sexlife", "genderidentity",
		"tradeunion", "laborunion", "labourunion", "genetic", "biometric", "criminal", "conviction",
	}
}

// sensitiveWords are looked for as whole words alone: embrace is no race.
func sensitiveWords() []string {
	return []string{"race", "hiv", "faith", "church", "belief", "beliefs", "caste", "tribe", "dna", "gay", "lesbian", "lgbt", "lgbtq", "transgender", "vote", "voting", "voter", "allergy", "allergies", "disabled"}
}

// words splits a name at its case changes and at everything that is no letter.
func words(name string) []string {
	var spaced strings.Builder
	lower := false
	for _, c := range name {
		if !unicode.IsLetter(c) || lower && unicode.IsUpper(c) {
			spaced.WriteByte(' ')
		}
		if lower = unicode.IsLower(c); unicode.IsLetter(c) {
			spaced.WriteRune(unicode.ToLower(c))
		}
	}
	return strings.Fields(spaced.String())
}
