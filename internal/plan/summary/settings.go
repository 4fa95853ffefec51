package summary

import "hash/fnv"

// Settings are what the figures depend on besides the trace. Results with different
// settings cannot be merged.
type Settings struct {
	At        string  `json:"at,omitempty"`
	Owner     string  `json:"owner,omitempty"`
	Oversize  string  `json:"oversize"`
	Moving    string  `json:"moving"`
	Emptying  string  `json:"emptying"`
	Requested string  `json:"requested"`
	Wasted    string  `json:"wasted"`
	Rounds    int     `json:"rounds,omitempty"` // 0: until nothing changes
	Effort    int     `json:"effort,omitempty"` // 0: the default
	Host      string  `json:"host,omitempty"`
	Catalogue []Model `json:"catalogue"`

	// Where the catalogue is from. All empty: see Today.
	Catalogues   []string `json:"catalogues,omitempty"`
	Prices       []string `json:"prices,omitempty"`     // their sources and dates
	Term         string   `json:"price_term,omitempty"` // empty: on demand
	KubeReserved string   `json:"kube_reserved,omitempty"`
}

// result returns the settings that results depend on: not those that only say where the catalogue
// is from, which versions before lack.
func (s Settings) result() Settings {
	s.Catalogues, s.Prices, s.Term, s.KubeReserved = nil, nil, "", ""
	return s
}

// Model is a VM on sale, with what pods can have of it.
type Model struct {
	Name  string  `json:"name"`
	VCPU  float64 `json:"vcpu"`
	GiB   float64 `json:"memory_gib"`
	Price Dollars `json:"price"`
	Pods  int     `json:"pods,omitempty"` // 0: no limit
	Arch  string  `json:"arch,omitempty"` // empty: amd64
}

// Reading counts the rows of the files of one format.
type Reading struct {
	Format     string   `json:"format"`
	Files      int      `json:"files"`
	Unread     int      `json:"unread_files"` // they begin after the period
	Rows       int      `json:"rows"`
	Kept       int      `json:"kept"`
	Excluded   []Reason `json:"excluded"`
	Broken     int      `json:"broken"`
	Examples   []string `json:"broken_examples"`   // the first of them
	Notes      []Reason `json:"notes"`             // on rows that are kept
	Remarks    []string `json:"remarks,omitempty"` // sentences on what the figures assume or leave out
	Users      int      `json:"users"`
	Pods       int      `json:"pods"`
	Containers int      `json:"containers"`
}

// Reason is a number of rows, and why.
type Reason struct {
	Why  string `json:"why"`
	Rows int    `json:"rows"`
}

// Shard is one of Of parts of all users, by a hash of their names.
type Shard struct {
	Index int `json:"index"` // from 0
	Of    int `json:"of"`
}

// Has reports whether the user is in the shard. A nil shard has all users.
func (s *Shard) Has(user string) bool {
	if s == nil {
		return true
	}
	h := fnv.New64a()
	h.Write([]byte(user)) //nolint:errcheck // never fails
	return h.Sum64()%uint64(s.Of) == uint64(s.Index)
}
