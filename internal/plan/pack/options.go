package pack

import (
	"fmt"

	"unnest/internal/plan/cluster"
)

// Scale is what requested or wasted resources are relative to.
type Scale string

// The scales.
const (
	OfVM      Scale = "vm"      // the VM that they are on
	OfLargest Scale = "largest" // the largest model, as the paper's Table 2 lists sizes
)

// Oversize is what becomes of a pod that no model can hold.
type Oversize string

// The treatments of oversize pods.
const (
	Drop   Oversize = "drop"   // it is left out
	Cut    Oversize = "cut"    // it becomes several pods, each as large as a VM may be
	Apart  Oversize = "apart"  // each of its containers becomes a pod
	Refuse Oversize = "refuse" // it is an error
)

// Moving is how Hostlo goes through the containers. The paper says "moving
// containers to the VMs that have the most wasted resources, smallest containers
// first", not from which VMs, nor when a move counts.
type Moving string

// The ways of moving.
const (
	// MoveByVM empties one VM after the other as far as it goes, and undoes that
	// unless the VM is then dropped or shrunk.
	MoveByVM Moving = "vm"
	// MoveByContainer moves every container, smallest of all first, to a VM that
	// wastes more than its own, and drops and shrinks VMs afterwards.
	MoveByContainer Moving = "container"
)

// Emptying is in which order MoveByVM takes the VMs.
type Emptying string

// The orders.
const (
	MostWastedFirst  Emptying = "wasted"   // the VM that wastes most
	LeastWastedFirst Emptying = "filled"   // the VM that wastes least
	CheapestFirst    Emptying = "cheapest" // then the one that wastes most
	AsBought         Emptying = "bought"
)

// Options are the paper's open choices, and what goes beyond it. The zero value of
// each is its default.
type Options struct {
	Oversize  Oversize // drop
	Requested Scale    // of "most requested"; vm, as the Kubernetes policy has it
	Wasted    Scale    // of "most wasted"; vm
	Moving    Moving   // vm
	Emptying  Emptying // wasted
	Rounds    int      // of moving at most; 0: until nothing changes, at most 100
	// Keep lets moves that save nothing stay, in the hope that a later round saves, so
	// that all rounds are made. Emptying VMs undoes them otherwise.
	Keep bool
	// Host is the capacity of a physical host. Zero: no limit, all VMs of a user are
	// on host 0. Else fractions of a pod are only put on VMs of the same host.
	Host    cluster.Resources
	Effort  int  // of Best: units looked at for each unit of the user; 0: 1000
	Explain bool // keep the steps
}

// defaultEffort is Options.Effort when that is 0.
const defaultEffort = 1000

// mostRounds bounds moving where Options.Rounds does not.
const mostRounds = 100

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
	if o.Rounds == 0 {
		o.Rounds = mostRounds
	}
	if o.Effort == 0 {
		o.Effort = defaultEffort
	}
	for _, m := range c {
		if o.Host != (cluster.Resources{}) && !m.Taken().Fits(o.Host) {
			return o, fmt.Errorf("model %s is larger than a physical host: want a host of at least its size", m.Name)
		}
	}
	return o, nil
}

// choose sets an empty choice to the first of the known ones, and refuses unknown
// ones.
func choose[T ~string](name string, choice *T, known ...T) error {
	if *choice == "" {
		*choice = known[0]
	}
	for _, k := range known {
		if *choice == k {
			return nil
		}
	}
	return fmt.Errorf("%s %q is unknown: want one of %v", name, *choice, known)
}
