// Command cluster prints the dump of a random cluster: cluster NODES SEED RULES, with numbers of kinds of
// rules, such as 0,2, or "all".
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/kubernetes"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("want NODES SEED RULES, such as 50 1 0,2")
	}
	nodes, err := strconv.Atoi(args[0])
	seed, errSeed := strconv.ParseUint(args[1], 10, 64)
	if err := errors.Join(err, errSeed); err != nil {
		return err
	}
	c := kubernetes.SyntheticCluster{Seed: seed, Nodes: nodes}
	if args[2] != "all" {
		for number := range strings.SplitSeq(args[2], ",") {
			kind, err := strconv.Atoi(number)
			if err != nil || kind < 0 || kind >= kubernetes.RuleKinds {
				return fmt.Errorf("rules %q: want numbers from 0 to %d, or all", args[2], kubernetes.RuleKinds-1)
			}
			c.Rules = append(c.Rules, kind)
		}
	}
	w := bufio.NewWriter(os.Stdout)
	return errors.Join(c.WriteDump(w), w.Flush())
}
