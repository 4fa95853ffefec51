package volumedriver

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// published is a volume of the host that is published at a path, or about to be.
type published struct {
	Pod    string `json:"pod"`
	Name   string `json:"name"`
	Target string `json:"target"`
}

// volume is the volume without its target.
func (p published) volume() published { return published{Pod: p.Pod, Name: p.Name} }

// records is a directory with a file for each volume that is published.
type records string

func (r records) path(id string) string {
	return filepath.Join(string(r), fmt.Sprintf("%x.json", sha256.Sum256([]byte(id))))
}

// read returns an error that wraps os.ErrNotExist for a volume without a record.
func (r records) read(id string) (published, error) { return readRecord(r.path(id)) }

func readRecord(path string) (p published, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &p)
	}
	return p, err
}

// use reports whether a record other than that of the volume ID is of the same volume of the host.
func (r records) use(p published, id string) (bool, error) {
	all, err := r.all()
	delete(all, filepath.Base(r.path(id)))
	for _, other := range all {
		if other.Pod == p.Pod && other.Name == p.Name {
			return true, err
		}
	}
	return false, err
}

// all returns the records by the names of their files.
func (r records) all() (map[string]published, error) {
	entries, err := os.ReadDir(string(r))
	if os.IsNotExist(err) {
		return nil, nil
	}
	all := map[string]published{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		p, err := readRecord(filepath.Join(string(r), e.Name()))
		if err != nil && !os.IsNotExist(err) { // a call may have removed it meanwhile
			return nil, err
		}
		all[e.Name()] = p
	}
	return all, err
}
