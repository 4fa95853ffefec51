package policy

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// Marshal writes the file of which Parse makes p. It has every key, but lists
// without elements. The error is Parse's own when that would refuse it.
func Marshal(p Policy) ([]byte, error) {
	content, err := yaml.MarshalWithOptions(p, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("write policy: %w", err)
	}
	if _, err := Parse("policy", content); err != nil {
		return nil, err
	}
	return content, nil
}
