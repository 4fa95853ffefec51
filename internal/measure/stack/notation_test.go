package stack

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/yamldoc"
)

// read parses the output of String, "BrFusion=vm/containerd:network=brfusion", to check
// that the notation is complete. The name is optional; a name alone is looked up with
// Named. It returns a valid configuration.
func read(text string) (Configuration, error) {
	if c, ok := Named(text); ok {
		return c, nil
	}
	name, notation, found := strings.Cut(text, "=")
	if !found || strings.ContainsAny(name, "/:") {
		name, notation = text, text
	}
	c := Configuration{Name: name}
	layers, options, hasOptions := strings.Cut(notation, ":")
	var err error
	if c.Stack, err = Parse(layers); err != nil {
		return c, err
	}
	for option := range strings.SplitSeq(options, ",") {
		if key, value, _ := strings.Cut(option, "="); hasOptions && err == nil {
			err = c.set(key, value)
		}
	}
	if err != nil {
		return c, err
	}
	if name == notation {
		c.Name = c.Notation()
	}
	return c, c.Validate()
}

func (c *Configuration) set(key, value string) (err error) {
	switch key {
	case "network":
		c.Network = Network(value)
	case "storage":
		c.Storage = Storage(value)
	case "drive":
		c.Drive = Drive(value)
	case "start":
		c.Start = Start(value)
	case "arch":
		c.Arch = Arch(value)
	case "release":
		c.Release = Release(value)
	case "vcpus":
		c.VCPUs, err = strconv.Atoi(value)
	case "memory":
		c.Memory, err = yamldoc.Bytes(value)
	case "vhost_poll":
		c.VHostPoll, err = time.ParseDuration(value)
	case "queues":
		c.Queues, err = strconv.Atoi(value)
	case "host":
		c.Host = value
	case "identity":
		c.Identity = value
	default:
		err = fmt.Errorf("unknown option %q", key)
	}
	return err
}
