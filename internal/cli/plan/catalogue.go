package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// takeOffer reads what is on sale.
func (c *command) takeOffer() (err error) {
	if c.offer, err = readOffer(c.opts.Catalogues); err != nil {
		return err
	}
	if c.setting.Models, err = c.offer.Allocatable(); err != nil {
		return err
	}
	c.setting.OwnDaemons, c.setting.Packing.Host = c.offer.OwnDaemons, c.offer.Host
	_, err = pack.Kubernetes(cluster.User{}, c.setting.Models, c.setting.Packing) // checks the options
	return err
}

// readOffer reads catalogues, and the offer of a YAML file among them.
func readOffer(names []string) (catalogue.Offer, error) {
	offer := catalogue.Offer{BillingMinimum: catalogue.BillingMinimum}
	read, dirs := "", map[string]string{}
	for _, name := range names {
		if extension := filepath.Ext(name); extension != ".yaml" && extension != ".yml" {
			offer.Catalogues = append(offer.Catalogues, catalogue.Table{Name: name})
			continue
		}
		if read != "" {
			return offer, usage.Errorf("--catalogue %s and %s: want one YAML file: write all into it", read, name)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return offer, fmt.Errorf("catalogue: %w", err)
		}
		read = name
		before := offer.Catalogues
		if offer, err = catalogue.ParseOffer(name, data); err != nil {
			return offer, err
		}
		for _, t := range offer.Catalogues {
			dirs[t.Name] = filepath.Dir(name)
		}
		offer.Catalogues = append(before, offer.Catalogues...)
	}
	for i, t := range offer.Catalogues {
		if err := readTable(&offer.Catalogues[i], dirs[t.Name]); err != nil {
			return offer, err
		}
	}
	return offer, nil
}

// readTable reads a catalogue that is not built in. A name in a YAML file is relative to dir.
func readTable(t *catalogue.Table, dir string) error {
	if slices.Contains(catalogue.Names(), t.Name) {
		return nil
	}
	if dir != "" && !filepath.IsAbs(t.Name) && strings.ContainsAny(t.Name, "./") {
		t.Name = filepath.Join(dir, t.Name)
	}
	data, err := os.ReadFile(t.Name)
	switch {
	case os.IsNotExist(err):
		_, err = catalogue.Builtin(t.Name) // which says what is built in
		return err
	case err != nil:
		return fmt.Errorf("catalogue: %w", err)
	}
	t.CSV = append([]byte{}, data...)
	return nil
}
