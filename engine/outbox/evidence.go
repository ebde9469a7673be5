package outbox

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Grade says who vouches for what is known about an exchange.
type Grade string

// The grades of evidence.
const (
	GradeHost   Grade = "host"   // every request passes the host, which saw it
	GradePlugin Grade = "plugin" // the plugin has its own way out: it is its word
	GradeNone   Grade = "none"   // nobody
)

// Grades lists them all.
var Grades = [...]Grade{GradeHost, GradePlugin, GradeNone}

// ClassNone is the host class of an item that no request covered.
const ClassNone exporter.HostClass = ""

// Said is what a plugin's answer says of one item: an outcome, or one of the
// ways to say nothing that can be used.
type Said string

// What a plugin can say beyond the outcomes of the contract.
const (
	// SaidNothing: no answer for the item, or one of unknown kind; also a
	// trap, a passed deadline and an answer that does not parse.
	SaidNothing Said = "nothing"
	// SaidTwice: more than one answer for the item, equal or not.
	SaidTwice Said = "twice"
	// SaidElsewhere: no answer for the item, while the batch holds answers
	// for items that are not in it: its answer may have gone there.
	SaidElsewhere Said = "elsewhere"
)

// AllSaid lists everything a plugin can say, in the order of the documentation.
func AllSaid() []Said {
	all := make([]Said, 0, len(exporter.OutcomeKinds)+3)
	for _, k := range exporter.OutcomeKinds {
		all = append(all, Said(k))
	}
	return append(all, SaidNothing, SaidTwice, SaidElsewhere)
}

// AllClasses lists everything a host can have seen, "no request" first.
func AllClasses() []exporter.HostClass {
	return append([]exporter.HostClass{ClassNone}, exporter.HostClasses[:]...)
}

// Seen is what all exchanges of one item in one attempt amount to.
type Seen struct {
	Class exporter.HostClass
	// OpenBefore is set if an earlier exchange of the same attempt may have
	// had an effect: a plugin that sends twice must not pass its own
	// duplicate off as foreign. A duplicate answer proves that its request had
	// none.
	OpenBefore bool
	Mendable   bool
	Breaker    bool
	// Last is the exchange that decided; zero when there was none.
	Last exporter.Exchange
}

// Look reduces the exchanges of one item, in the order in which they began, to
// what they prove together. Exchanges that sent nothing count only if no other
// did. A refusal or a rate limit proves nothing about a request before it that
// may have been taken: both together are indefinite. A duplicate answer proves
// that the identifier was taken by then: of what follows it, only a success says
// more, and whatever else it says is about a repeat.
func Look(exchanges []exporter.Exchange) Seen {
	var s Seen
	for _, x := range exchanges {
		s.Breaker = s.Breaker || x.Breaker
		switch {
		case x.Class == exporter.ClassNotSent:
			if s.Class == ClassNone {
				s.Class, s.Last = x.Class, x
			}
			continue
		case s.Class == exporter.ClassDuplicateOwn && x.Class != exporter.ClassSuccess:
			continue
		case s.Class == exporter.ClassSuccess, s.Class == exporter.ClassIndefinite:
			s.OpenBefore = true
		}
		s.Class, s.Last, s.Mendable = known(x.Class), x, x.Mendable
	}
	if s.OpenBefore && (s.Class == exporter.ClassRefused || s.Class == exporter.ClassThrottled) {
		s.Class, s.Mendable = exporter.ClassIndefinite, false
	}
	return s
}

// known maps a class that this version does not know to the one that claims
// nothing.
func known(c exporter.HostClass) exporter.HostClass {
	for _, k := range exporter.HostClasses {
		if c == k {
			return c
		}
	}
	return exporter.ClassIndefinite
}

// Answer is what one plugin call answered for one item.
type Answer struct {
	Said        Said
	Mendable    bool
	ProviderRef string
	RetryAfter  time.Duration
	Code        string
	Message     string
}

// Answers sorts a plugin's outcomes by item. Only ids of the batch count;
// foreign is how many answers named another. Every id of the batch has an entry.
func Answers(ids []string, outcomes []exporter.ItemOutcome) (byID map[string]Answer, foreign int) {
	byID = make(map[string]Answer, len(ids))
	for _, id := range ids {
		byID[id] = Answer{}
	}
	for _, o := range outcomes {
		a, ours := byID[o.ItemID]
		switch {
		case !ours:
			foreign++
		case a.Said != "":
			byID[o.ItemID] = Answer{Said: SaidTwice}
		default:
			byID[o.ItemID] = answer(o)
		}
	}
	silent := SaidNothing
	if foreign > 0 {
		silent = SaidElsewhere
	}
	for id, a := range byID {
		if a.Said == "" {
			byID[id] = Answer{Said: silent}
		}
	}
	return byID, foreign
}

func answer(o exporter.ItemOutcome) Answer {
	a := Answer{
		Said: SaidNothing, Mendable: o.Mendable, ProviderRef: o.ProviderRef,
		RetryAfter: o.RetryAfter, Code: o.Code, Message: o.Message,
	}
	for _, k := range exporter.OutcomeKinds {
		if o.Kind == k {
			a.Said = Said(k)
		}
	}
	return a
}
