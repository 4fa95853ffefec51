package isolation

import "github.com/google/nftables"

// left is what the table has in the kernel.
type left struct {
	chains []*nftables.Chain
	sets   []*nftables.Set // except those of the connections of ports that stay
}

// read reads what the table has for ports that stay. It reads no connections, however many there
// are.
func (t *Table) read(ports map[key]Port) (left, error) {
	c, err := t.conn.New()
	if err != nil {
		return left{}, err
	}
	var l left
	chains, err := c.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return left{}, err
	}
	for _, chain := range chains {
		if chain.Table.Name == table.Name {
			l.chains = append(l.chains, &nftables.Chain{Table: table, Name: chain.Name})
		}
	}
	sets, err := c.GetSets(table)
	if err != nil {
		return left{}, err
	}
	keep := map[string]bool{}
	for _, p := range ports {
		for _, s := range t.flows(p).all() {
			keep[s.Name] = true
		}
	}
	for _, s := range sets {
		if !keep[s.Name] && !s.Anonymous { // an anonymous one goes with its rule
			l.sets = append(l.sets, &nftables.Set{Table: table, Name: s.Name})
		}
	}
	return l, nil
}

// remove removes everything that was read, so that nothing uses the sets that stay.
func (l left) remove(c *nftables.Conn) {
	for _, chain := range l.chains {
		c.FlushChain(chain)
	}
	for _, s := range l.sets { // before the chains, to which elements lead
		c.DelSet(s)
	}
	for _, chain := range l.chains {
		c.DelChain(chain)
	}
}
