package pack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// Scale says what requested or wasted resources are relative to.
type Scale string

// The scales.
const (
	OfVM      Scale = "vm"      // the VM itself
	OfLargest Scale = "largest" // the largest model, as the paper's Table 2 lists sizes
)

// Oversize says what happens to a pod that no model holds.
type Oversize string

// The treatments of oversize pods.
const (
	Drop   Oversize = "drop"   // leave it out
	Cut    Oversize = "cut"    // split it into pods that are as large as a model allows
	Apart  Oversize = "apart"  // split it into pods of one container
	Refuse Oversize = "refuse" // return an error
)

// Moving says how Hostlo goes through the containers. The paper says "moving containers to
// the VMs that have the most wasted resources, smallest containers first", but not from
// which VMs, nor which moves it keeps.
type Moving string

// The ways of moving.
const (
	// MoveByVM empties one VM after the other as far as possible, and undoes the moves
	// unless the VM is then dropped or shrunk.
	MoveByVM Moving = "vm"
	// MoveByContainer moves every container, the smallest first, to a VM that wastes more
	// than its own, and drops and shrinks VMs afterwards.
	MoveByContainer Moving = "container"
)

// Emptying is the order in which MoveByVM empties VMs.
type Emptying string

// The orders.
const (
	MostWastedFirst  Emptying = "wasted"   // the VM that wastes most
	LeastWastedFirst Emptying = "filled"   // the VM that wastes least
	CheapestFirst    Emptying = "cheapest" // then the one that wastes most
	AsBought         Emptying = "bought"
)

// Options are the paper's open choices and our additions. Comments name the default, which
// the zero value stands for.
type Options struct {
	Oversize  Oversize // drop
	Requested Scale    // of "most requested": vm, as in the Kubernetes policy
	Wasted    Scale    // of "most wasted": vm
	Moving    Moving   // vm
	Emptying  Emptying // wasted
	Rounds    int      // most rounds of moving; 0: until nothing changes, at most 100
	// Host is the capacity of a physical host; all fractions of a pod stay on one host.
	// Zero: no limit, all VMs of a user are on host 0.
	Host    cluster.Resources
	Effort  int   // of Best: items it looks at for each item of the user; 0: 1000
	Quick   bool  // of Best: no random search, which takes most of the time
	Floor   int64 // of Best and Improve: a cost that no plan is below; the search ends there
	Explain bool  // keep the steps
	Bundle  int   // most containers of a user before equal ones are planned as one; 0: no limit
}

// Defaults of Options.Effort and Options.Rounds.
const (
	DefaultEffort = 1000
	defaultRounds = 100
)

func (o Options) withDefaults(c cluster.Catalogue) (Options, error) {
	if len(c) == 0 {
		return o, fmt.Errorf("the catalogue is empty: want at least one model")
	}
	for _, err := range []error{
		choose("oversize", &o.Oversize, Drop, Cut, Apart, Refuse),
		choose("requested", &o.Requested, OfVM, OfLargest),
		choose("wasted", &o.Wasted, OfVM, OfLargest),
		choose("moving", &o.Moving, MoveByVM, MoveByContainer),
		choose("emptying", &o.Emptying, MostWastedFirst, LeastWastedFirst, CheapestFirst, AsBought),
	} {
		if err != nil {
			return o, err
		}
	}
	if o.Rounds < 0 || o.Effort < 0 {
		return o, fmt.Errorf("rounds %d, effort %d: want 0 or more", o.Rounds, o.Effort)
	}
	o.Rounds = cmp.Or(o.Rounds, defaultRounds)
	o.Effort = cmp.Or(o.Effort, DefaultEffort)
	for _, m := range c {
		if o.Host != (cluster.Resources{}) && !m.Taken().Fits(o.Host) {
			return o, fmt.Errorf("model %s is larger than a physical host: want a host of at least its size", m.Name)
		}
	}
	return o, nil
}

// choose replaces an empty choice by the first known one, and refuses unknown choices.
func choose[T ~string](name string, choice *T, known ...T) error {
	if *choice = cmp.Or(*choice, known[0]); slices.Contains(known, *choice) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: want one of %v", name, *choice, known)
}

// Parse returns options with choices such as moving=container or rounds=2.
func Parse(choices []string) (o Options, err error) {
	keys := []string{"requested", "wasted", "moving", "emptying", "rounds", "effort"}
	for _, text := range choices {
		key, value, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(keys, key) {
			return o, fmt.Errorf("%q is unknown: want KEY=VALUE with one of the keys %s", text, strings.Join(keys, ", "))
		}
		switch key {
		case "requested":
			o.Requested, err = parseChoice(key, value, OfVM, OfLargest)
		case "wasted":
			o.Wasted, err = parseChoice(key, value, OfVM, OfLargest)
		case "moving":
			o.Moving, err = parseChoice(key, value, MoveByVM, MoveByContainer)
		case "emptying":
			o.Emptying, err = parseChoice(key, value, MostWastedFirst, LeastWastedFirst, CheapestFirst, AsBought)
		case "rounds":
			o.Rounds, err = parseCount(key, value)
		case "effort":
			o.Effort, err = parseCount(key, value)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// parseChoice is choose without a default.
func parseChoice[T ~string](key, value string, known ...T) (T, error) {
	if !slices.Contains(known, T(value)) {
		return "", fmt.Errorf("%s=%s: want one of %s", key, value, strings.Trim(strings.ReplaceAll(fmt.Sprint(known), " ", ", "), "[]"))
	}
	return T(value), nil
}

func parseCount(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%s: want a whole number from 0", key, value)
	}
	return n, nil
}
