package traits

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// likelySensitive tells by its name whether a path seems to hold data of a
// special category (GDPR articles 9 and 10). It errs towards yes: the client
// can allow a path, and cannot take back what was shown.
// By the rules of before, names in English are known alone.
func likelySensitive(path string, rules int) bool {
	named := words(path)
	joined := strings.Join(named, "")
	if rules >= formatsSince {
		plain := plainLetters().Replace(strings.Join(named, " "))
		together := strings.ReplaceAll(plain, " ", "")
		if slices.ContainsFunc(europeanStems(), func(stem string) bool { return strings.Contains(together, stem) }) ||
			slices.ContainsFunc(strings.Fields(plain), func(w string) bool { return slices.Contains(europeanWords(), w) }) {
			return true
		}
	}
	if rules >= pairsSince {
		if slices.ContainsFunc(laterStems(), func(stem string) bool { return strings.Contains(joined, stem) }) ||
			slices.ContainsFunc(named, func(w string) bool { return slices.Contains(laterWords(), w) }) {
			return true
		}
		for i, w := range named { // of sport
			if i > 0 && named[i-1] == "race" && slices.Contains([]string{"time", "times", "number", "day", "days"}, w) {
				named[i-1] = ""
			}
		}
	}
	return slices.ContainsFunc(sensitiveStems(), func(stem string) bool { return strings.Contains(joined, stem) }) ||
		slices.ContainsFunc(named, func(w string) bool { return slices.Contains(sensitiveWords(), w) })
}

// LikelySensitive tells so by the rules of today.
func LikelySensitive(path string) bool { return likelySensitive(path, Rules) }

// Sensitive says whether a path is to be kept out of everything, where the client has
// decided so of some paths, or that they are not: else it is what is likely of it. It asks what was
// learnt for nothing.
func Sensitive(path string, likely bool, decided map[string]bool) bool {
	for above := path; ; {
		if sensitive, ok := decided[above]; ok {
			return sensitive
		}
		dot := strings.LastIndexByte(above, '.')
		if dot < 0 {
			return likely
		}
		above = above[:dot]
	}
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

// laterStems and laterWords are what the rules of before did not know.
func laterStems() []string {
	return []string{
		"cancer", "krebs", "blutgruppe", "bloodgroup", "bodymass",
		"diabet", "asthma", "epilep", "hypertens", "bloodpressure", "bloodsugar", "glucose", "cholesterol", "insulin", "psychiatr", "antidepress", "vaccinat", "vaccine",
		"symptom", "alcoholism", "alzheimer", "dementia", "arthritis", "hepatitis", "chemother", "surger", "hospitaliz", "hospitalis", "menstru", "menopaus", "contracept", "abortion",
		"hormone", "hispanic", "latinx", "skincolor", "skincolour", "indigenous", "aborigin", "partyaffiliation", "felony", "felonies",
		"recidiv", "prison", "arrest", "offender", "misdemean", "unionmember",
	}
}

func laterWords() []string {
	return []string{
		"smoker", "smokes", "smoking", "raucher", "nichtraucher", "bmi", "depression", "depressed", "anxiety", "adhd", "autism", "autistic", "tumor", "tumour", "ivf", "covid",
		"drugs", "racegrp", "racegroup", "racecode", "raceeth", "latino", "latina", "muslim", "christian", "jewish", "hindu", "buddhist", "catholic", "protestant", "atheist",
		"queer", "inmate", "parole",
	}
}

// isOfPages tells the orientation of a page or a screen from that of a person.
func (t Trait) isOfPages() bool {
	return t.Rules >= pairsSince && strings.Join(words(t.Path), "") == "orientation" && t.Distinct > 0 && t.Distinct == len(t.Levels) &&
		!slices.ContainsFunc(t.Levels, func(l Level) bool {
			return !slices.Contains([]string{"portrait", "landscape", "square"}, strings.ToLower(l.Name))
		})
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

// europeanStems are those of the other languages of the European Union, without
// accents.
func europeanStems() []string {
	return []string{
		// health
		"gesundheit", "krankheit", "erkrankung", "behinder", "schwanger", "medikament", "allergi", "maladie", "handicap", "grossesse", "medicament",
		"enfermedad", "discapacidad", "embaraz", "malatti", "disabilita", "gravidanza", "farmac", "doenca", "deficiencia", "gravidez", "gezondheid",
		"ziekte", "zwanger", "zdrowi", "zdrowot", "chorob", "niepelnosprawn", "sjukdom", "funktionshinder", "funktionsnedsattning", "gravid", "helbred",
		"sygdom", "terveys", "terveyd", "sairau", "raskau", "zdravot", "zdravie", "nemoc", "postizeni", "postihnut", "tehoten", "egeszseg", "betegseg",
		"fogyatekos", "terhes", "sanatate", "dizabilit", "zdravlj", "zdravj", "bolest", "bolezen", "invalidit", "invalidnost", "trudnoc", "tervis",
		"haigus", "rasedus", "veselib", "slimib", "grutniec", "sveikat", "neigal", "negali", "nestum", "slainte", "здрав", "болест", "увреждан",
		"бременн", "υγεια", "ασθενει", "αναπηρ", "εγκυ",
		// religion and belief
		"religi", "konfession", "croyance", "creencia", "crenca", "credenza", "geloof", "wyznani", "swiatopoglad", "trossamfund", "uskonto", "uskonno",
		"nabozen", "vyznani", "cirkev", "vallas", "felekezet", "vjeroisp", "veroizpoved", "ticiba", "tikyba", "creideamh", "usutunnist", "levensovertuig", "weltanschau",
		"религи", "вероизпов", "θρησκ",
		// ethnic origin
		"ethni", "etnic", "etnia", "etnisk", "etnisch", "etnin", "etnik", "hautfarbe", "abstammung", "narodnost", "nemzetiseg", "tautyb", "tautib", "rahvus",
		"eitne", "етнич", "εθνοτ", "εθνικοτ", "φυλετ",
		// politics
		"politi", "poliitt", "poliiti", "parteizugehor", "polaiti", "политич", "политическ", "πολιτικ",
		// sexual life and orientation
		"sexualit", "sexuell", "sexuel", "sexualni", "sessual", "seksual", "seksuel", "seksuaal", "szexual", "homosex", "bisexu", "orientierung", "orientacion",
		"orientamentosess", "orientacja", "gneas", "сексуал", "σεξουαλ",
		// trade unions
		"gewerkschaft", "sindica", "sindacat", "vakbond", "zwiazekzawodowy", "zwiazkizawodowe", "fackforening", "fackforbund", "fagforening", "ammattiliit",
		"odborov", "szakszervezet", "sindikat", "ametiuhing", "arodbiedr", "profesinesajung", "profsajung", "ceardchumann", "синдик", "профсъюз", "συνδικ",
		// genes, bodies, crimes
		"genetik", "genetyk", "genetiqu", "genetisch", "genetisk", "biometr", "генети", "биометр", "γενετ", "βιομετρ", "vorstraf", "straftat", "strafregister",
		"verurteil", "condamn", "casierjudiciaire", "antecedentespenal", "antecedentescriminais", "precedentipenali", "condanna", "strafblad", "veroordel",
		"karalno", "brottsregist", "straffeattest", "rikosrekis", "rejstriktrest", "trestniregist", "odsouzen", "buntetett", "cazier", "kaznjav", "kaznenie",
		"kaznovan", "kriminaal", "sodamib", "teistum", "съдимост", "ποινικ",
	}
}

// europeanWords are too short to be looked for within others.
func europeanWords() []string {
	return []string{
		"sante", "salud", "salute", "saude", "halsa", "zdravi", "boala", "puue", "sahha", "marda", "galar", "enceinte", "ciaza", "kirche", "glaube",
		"foi", "fe", "fede", "culto", "credo", "iglesia", "chiesa", "igreja", "kyrka", "kirke", "kirkko", "vera", "vjera", "viera", "usk", "twemmin", "vira",
		"rasse", "raza", "razza", "raca", "ras", "rasa", "hudfarve", "syndicat", "unjin", "schwul", "lesbisch", "condena", "parti", "partei", "partito", "partido",
	}
}

var plainLetters = sync.OnceValue(withoutAccents)

// withoutAccents writes letters without their marks, and in the small ones of Greek.
func withoutAccents() *strings.Replacer {
	return strings.NewReplacer(
		"ä", "a", "á", "a", "à", "a", "â", "a", "ã", "a", "å", "a", "ā", "a", "ą", "a", "ă", "a", "æ", "ae", "ç", "c", "č", "c", "ć", "c", "ċ", "c",
		"ď", "d", "đ", "d", "é", "e", "è", "e", "ê", "e", "ë", "e", "ě", "e", "ę", "e", "ē", "e", "ė", "e", "ģ", "g", "ġ", "g", "ħ", "h", "í", "i",
		"ì", "i", "î", "i", "ï", "i", "ī", "i", "į", "i", "ķ", "k", "ł", "l", "ļ", "l", "ľ", "l", "ñ", "n", "ń", "n", "ň", "n", "ņ", "n", "ó", "o",
		"ò", "o", "ô", "o", "ö", "o", "õ", "o", "ő", "o", "ø", "o", "ř", "r", "š", "s", "ś", "s", "ș", "s", "ş", "s", "ß", "ss", "ť", "t", "ț", "t",
		"ţ", "t", "ú", "u", "ù", "u", "û", "u", "ü", "u", "ů", "u", "ű", "u", "ū", "u", "ų", "u", "ý", "y", "ź", "z", "ž", "z", "ż", "z",
		"ά", "α", "έ", "ε", "ή", "η", "ί", "ι", "ό", "ο", "ύ", "υ", "ώ", "ω", "ϊ", "ι", "ϋ", "υ",
	)
}
