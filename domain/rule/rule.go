// Package rule is the language in which clients say whom, or which events, they mean:
//
//	traits.plan == "pro" && traits.age > 30 && "jazz" in traits.likes
//
// It is CEL, the Common Expression Language (https://cel.dev). cel-go parses and checks
// a rule; this package judges it, by a logic of three values: what is missing is unknown,
// and so is what is compared with it.
package rule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kindred/domain/traits"
)

const (
	// MaxText is how long a rule may be.
	// limit: requests | a rule, such as a filter of users | {MaxText B} | 422 `invalid`
	MaxText = 4096
	// maxNodes and maxDepth bound what one judgement costs.
	// limit: requests | names, values and operators of a rule | {maxNodes} | 422 `invalid`
	// limit: requests | nesting of a rule | {maxDepth} | 422 `invalid`
	maxNodes, maxDepth = 1024, 48
	// maxPatterns bounds what the regular expressions of a rule take in memory: without it
	// 31 bytes of text make 7 MB, and 4 KiB a gigabyte.
	// limit: requests | regular expressions of a rule, in memory | {maxPatterns B} | 422 `invalid`
	maxPatterns = 128 << 10
	// maxSteps bounds one judgement, whatever stands in the traits: a step is a part of the
	// rule, each time that it is looked at, an element that is compared, or 32 bytes of a text.
	// It takes some 10 ns.
	// limit: requests | steps of a rule's judgement of one user | {maxSteps} | the rule does not name it
	maxSteps = 100_000
	// limit: requests | steps of a rule's judgement of one event, such as a webhook's filter | {maxEventSteps} | the event is not delivered
	maxEventSteps = 2_000 // 20 µs: a client has 100 filters
)

// Truth is what a rule says. Only a user that is surely in is in.
type Truth int8

// The three values of Kleene's logic.
const (
	Unknown Truth = iota
	False
	True
)

func truth(b bool) Truth {
	if b {
		return True
	}
	return False
}

func (t Truth) not() Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	default:
		return Unknown
	}
}

// Scope is what a rule is about.
type Scope int

const (
	// Users have traits, and user.external_id, user.created_at and user.updated_at.
	Users Scope = iota
	// Events have event_type and data, as webhooks carry them.
	Events
	// Pairs are users with a viewer, who has the same: the one they are matched with.
	Pairs
)

// Facts are what a rule judges. Values of Traits and Data are as encoding/json decodes
// them into an any.
type Facts struct {
	Traits               map[string]any
	ExternalID           string // "": none
	CreatedAt, UpdatedAt time.Time
	Client, ID           string    // what bucket hashes
	Now                  time.Time // of the judgement
	InSegment            func(segment string) bool
	Granted              func(layer string) bool       // now
	InCluster            func(cluster string) bool     // of the layer that the rule stands in
	Acts                 func(what string) []time.Time // interactions of a type, or impressions of a campaign; the oldest first
	Viewer               *Facts                        // of Pairs

	EventType string
	Data      map[string]any
}

// Error says what is wrong with a rule, and where.
type Error struct {
	Line, Column int // from 1, in characters
	Detail       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Detail)
}

// Rule is a rule that was checked. Any goroutine may use it.
type Rule struct {
	root        logic
	comparisons []comparison
	joins       []comparison // by &&: it is never true without them
	joined      bool         // it is nothing else
	most        int          // steps of a judgement
	reads
	traitParts     []string
	onlyTraitParts bool // it has no other parts
	touched        []string
	size           int
}

// Size is about how many bytes the rule takes in memory: 1 KiB, or some 270 at most.
func (r *Rule) Size() int { return r.size }

// reads are what a rule reads, each once, in order.
type reads struct {
	paths    []read
	origins  []origin
	compared []compared
	timeless []read // times of users beside a value that is none
	others   []read // "traits" as a whole, "user.…", "viewer.…", and the functions that are about users
	segments []string
	layers   []string
	clusters []string
	acts     []string
}

// read is what a rule reads, and where it does so first.
type read struct {
	name         string
	line, column int
}

func (r read) wrong(detail string) *Error { return &Error{r.line, r.column, detail} }

func note(reads []read, r read) []read {
	if !slices.ContainsFunc(reads, func(one read) bool { return one.name == r.name }) {
		reads = append(reads, r)
	}
	return reads
}

// Paths lists the traits that the rule reads, of whomever, or the members of an event's
// data: "home.city".
func (r *Rule) Paths() (paths []string) {
	for _, path := range r.paths {
		paths = append(paths, path.name)
	}
	return paths
}

// AllTraits and UpdatedAt are what a rule reads that any change of traits changes.
const (
	AllTraits = "traits"
	UpdatedAt = "user.updated_at"
)

const trait = AllTraits + "."

// Trait names what a rule reads of a member of the traits. Names may hold dots, as paths do.
func Trait(member string) string {
	top, _, _ := strings.Cut(member, ".")
	return trait + top
}

// Members says which members of the traits are read, of what [Rule.Touched] lists and whatever
// else; nil: all.
func Members(touched []string) func(member string) bool {
	tops := map[string]bool{}
	for _, what := range touched {
		if top, is := strings.CutPrefix(what, trait); is {
			tops[top] = true
		} else if what == AllTraits {
			return nil
		}
	}
	return func(member string) bool {
		top, _, _ := strings.Cut(member, ".")
		return tops[top]
	}
}

// ReadsExternalID says whether the rule reads the user's external id.
func (r *Rule) ReadsExternalID() bool {
	return slices.ContainsFunc(r.others, func(other read) bool { return other.name == "user.external_id" })
}

// Touched lists what the rule reads that a change of a user's traits may change, each once:
// a [Trait] for each of its members, [AllTraits] and [UpdatedAt]. At one time the rule says
// the same of two users who do not differ in any of these.
func (r *Rule) Touched() []string { return r.touched }

func (r *reads) ofTraits() (touched []string) {
	for _, path := range r.paths {
		touched = once(touched, Trait(path.name))
	}
	for _, other := range r.others {
		if other.name == AllTraits || other.name == UpdatedAt {
			touched = once(touched, other.name)
		}
	}
	return touched
}

// Beyond is the first that the rule reads of users which is none of some paths, or below
// one; "" where there is nothing.
func (r *Rule) Beyond(paths []string) string {
	permit := traits.Permit(paths)
	for _, path := range r.paths {
		if !permit(path.name) {
			return "traits." + path.name
		}
	}
	if len(r.others) > 0 {
		return r.others[0].name
	}
	return ""
}

// Segments lists the ids of the segments that the rule names.
func (r *Rule) Segments() []string { return slices.Clone(r.segments) }

// Layers lists the ids of the consent layers of which it asks whether they are granted.
func (r *Rule) Layers() []string { return slices.Clone(r.layers) }

// Clusters lists the ids of the clusters that the rule names.
func (r *Rule) Clusters() []string { return slices.Clone(r.clusters) }

// Acts lists what users did that the rule asks for: types of interactions, and the ids of
// campaigns that they saw.
func (r *Rule) Acts() []string { return slices.Clone(r.acts) }

// Bounds are what a rule may read where it stands.
type Bounds struct {
	Layered bool            // in a consent layer
	Paths   []string        // which permits these
	Decided map[string]bool // paths that the client has said are sensitive, or are not
}

// Causes of a Breach.
const (
	PathOutside   = "path_outside_layer"
	PathSensitive = "path_sensitive"
	NoLayer       = "no_layer"     // in_cluster stands outside of any
	NoPath        = "beside_paths" // it reads what no path of the layer is
)

// Breach is what a rule reads beyond its bounds.
type Breach struct {
	Cause string
	Name  string // what is read: a path, or "user.created_at"
	at    read
}

// Breaches lists what the rule reads beyond some bounds.
func (r *Rule) Breaches(b Bounds) (found []Breach) {
	permit := traits.Permit(b.Paths)
	for _, path := range r.paths {
		if b.Layered && !permit(path.name) {
			found = append(found, Breach{PathOutside, path.name, path})
		}
	}
	for _, origin := range r.origins {
		for _, path := range origin.sensitive(b.Decided) {
			found = append(found, Breach{PathSensitive, path, origin.read})
		}
	}
	for _, other := range r.others {
		switch named := slices.Contains([]string{"in_segment", "granted", "in_cluster"}, other.name); {
		case b.Layered && !named:
			found = append(found, Breach{NoPath, other.name, other})
		case !b.Layered && other.name == "in_cluster":
			found = append(found, Breach{NoLayer, other.name, other})
		}
	}
	return found
}

// Check fails with an *Error where the rule reads beyond some bounds.
func (r *Rule) Check(b Bounds) error {
	if breaches := r.Breaches(b); len(breaches) > 0 {
		breach, detail := breaches[0], ""
		switch breach.Cause {
		case PathOutside:
			detail = "traits." + breach.Name + " is none of the paths that the consent layer permits."
		case PathSensitive:
			detail = "traits." + breach.Name + ` is sensitive. To allow it, set "sensitive": false for it in the trait schema.`
		case NoLayer:
			detail = "Who is in a cluster is known under its consent layer alone: in_cluster stands beside a consent_layer_id."
		case NoPath:
			detail = "Under a consent layer a rule reads the layer's paths, and granted, in_cluster, in_segment and bucket: " + breach.Name + " is none of these."
		}
		return breach.at.wrong(detail)
	}
	return nil
}

// Judge says what the rule makes of the facts.
func (r *Rule) Judge(facts *Facts) Truth {
	truth, _, _ := r.JudgeUntil(facts)
	return truth
}

// JudgeUntil is Judge. It also returns the earliest moment at which time alone may change
// the truth (zero: never; what other segments say is not counted), and the steps that it
// took.
func (r *Rule) JudgeUntil(facts *Facts) (truth Truth, until time.Time, steps int) {
	j := begin(facts, r.most)
	truth = r.root.judge(j)
	if j.steps > r.most {
		return Unknown, j.flipsAt, r.most // a window that decides sooner may spare steps
	}
	return truth, j.flipsAt, j.steps
}

// Comparison is one part of a rule, as it is of some facts.
type Comparison struct {
	Text    string
	Truth   Truth
	FlipsAt time.Time // when time alone changes it; zero: never
}

// Explain judges every comparison of the rule, in the order in which they stand, and says what
// that took, in steps.
func (r *Rule) Explain(facts *Facts) (all []Comparison, steps int) {
	all = make([]Comparison, len(r.comparisons))
	for i, c := range r.comparisons {
		j := begin(facts, r.most)
		all[i] = Comparison{Text: c.text, Truth: c.judge(j), FlipsAt: j.flipsAt}
		steps += j.steps
	}
	return all, steps
}

// judgement is one in progress.
type judgement struct {
	*Facts
	element any       // of the list that exists or all looks at
	flipsAt time.Time // the earliest moment at which a window ends or begins
	steps   int
	most    int   // steps
	args    []any // of the values that are being computed, each above those that it is one of
	few     [8]any
}

func begin(facts *Facts, most int) *judgement {
	j := &judgement{Facts: facts, most: most}
	j.args = j.few[:0]
	return j
}

// takes counts steps. Once there were too many, nothing is known any more.
func (j *judgement) takes(steps int) (done bool) {
	j.steps += steps
	return j.steps > j.most
}

// never is later than any time that can be told: RFC 3339 has years of four digits. It is the time of
// no event either.
var never = time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC)

// flips notes that the judgement is another one from a moment on.
func (j *judgement) flips(at time.Time) {
	if (j.flipsAt.IsZero() || at.Before(j.flipsAt)) && at.Before(never) {
		j.flipsAt = at
	}
}

// logic is a part of a rule that is true, false or unknown.
type logic interface {
	judge(j *judgement) Truth
}

type (
	// all is a conjunction, or with any a disjunction: it ends at the part that decides.
	all struct {
		parts []logic
		any   bool
	}
	not    struct{ of logic }
	choice struct{ condition, yes, no logic }
	// quantified asks each element of a list: all of them, or any.
	quantified struct {
		list value
		all
	}
	// surely is a part without logic in it, which is true, false or else unknown.
	surely value
	// comparison is a part that is explained by itself.
	comparison struct {
		text string
		look *look // nil: it takes more than that
		logic
	}
)

func (a all) judge(j *judgement) Truth {
	decides := truth(a.any)
	known := true
	for _, part := range a.parts {
		if j.takes(1) {
			return Unknown
		}
		switch part.judge(j) {
		case decides:
			return decides
		case Unknown:
			known = false
		}
	}
	if !known {
		return Unknown
	}
	return decides.not()
}

func (n not) judge(j *judgement) Truth { return n.of.judge(j).not() }

func (c choice) judge(j *judgement) Truth {
	switch c.condition.judge(j) {
	case True:
		return c.yes.judge(j)
	case False:
		return c.no.judge(j)
	default:
		return Unknown
	}
}

func (q quantified) judge(j *judgement) Truth {
	list, ok := q.list(j).([]any)
	if !ok {
		return Unknown
	}
	known := true
	for _, j.element = range list {
		if j.takes(1) {
			return Unknown
		}
		if j.element == nil {
			continue // null is missing
		}
		switch q.all.judge(j) {
		case truth(q.any):
			return truth(q.any)
		case Unknown:
			known = false
		}
	}
	if !known {
		return Unknown
	}
	return truth(!q.any)
}

func (s surely) judge(j *judgement) Truth {
	if b, ok := s(j).(bool); ok {
		return truth(b)
	}
	return Unknown
}
