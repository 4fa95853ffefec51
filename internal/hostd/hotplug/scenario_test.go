package hotplug

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/hostd/attachment"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// A file in testdata consists of blocks: comments (#), one event, a line of dashes,
// then the resulting actions and the slots that are not free.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata (error %v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(want))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got, -update rewrites):\n%s", file, diff)
			}
		})
	}
}

// play runs a scenario and returns it with the actual results.
func play(text string) (string, error) {
	var out []string
	var state State
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, _, _ := strings.Cut(block+"\n", "\n----\n")
		head = strings.TrimSpace(head)
		lines := strings.Split(head, "\n")
		line := lines[len(lines)-1]
		if strings.HasPrefix(line, "#") {
			out = append(out, head)
			continue
		}
		result, err := playLine(&state, strings.Fields(line))
		if err != nil {
			return "", fmt.Errorf("line %q: %w", line, err)
		}
		out = append(out, head+"\n----\n"+result)
	}
	return strings.Join(out, "\n\n") + "\n", nil
}

func playLine(state *State, words []string) (string, error) {
	if words[0] == "config" {
		config, err := parseConfig(words[1:])
		if err != nil {
			return "", err
		}
		*state, err = New(config)
		return "ok", err
	}
	e, err := parseEvent(words)
	if err != nil {
		return "", err
	}
	next, actions := Step(*state, e)
	*state = next
	var out []string
	for _, a := range actions {
		out = append(out, a.String())
	}
	return strings.Join(append(out, describe(next)), "\n"), nil
}

// describe lists the slots that are not free, and how many warm NICs are wanted.
func describe(s State) string {
	var out []string
	for _, slot := range s.Slots() {
		if slot.Status != Free {
			device := slot.Device
			if device == "" {
				device = fmt.Sprintf("slot %d", slot.Slot)
			}
			text := fmt.Sprintf("%s %s", device, slot.Status)
			if slot.Key != (attachment.Key{}) {
				text += " " + named(slot.Key, slot.Record)
			}
			out = append(out, text)
		}
	}
	out = append(out, fmt.Sprintf("%d free", len(s.slots)-len(out)))
	if n := s.Deficit(); n > 0 {
		out = append(out, fmt.Sprintf("%d wanted", n))
	}
	if s.Draining() {
		out = append(out, "draining")
	}
	return "= " + strings.Join(out, ", ")
}

func parseConfig(words []string) (Config, error) {
	c := Config{MAC: [3]byte{2, 0, 1}}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch name {
		case "prefix":
			c.Prefix = value
		case "slots":
			c.Slots, err = strconv.Atoi(value)
		case "pool":
			c.Pool, err = strconv.Atoi(value)
		case "tries":
			c.UnplugTries, err = strconv.Atoi(value)
		case "timeout":
			c.UnplugTimeout, err = time.ParseDuration(value)
		case "shares":
			c.Shares = value == "yes"
		case "cooldown":
			c.Cooldown, err = time.ParseDuration(value)
		default:
			err = errors.New("unknown field " + name)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func parseEvent(words []string) (Event, error) {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	occupant, isOccupant := parseOccupant(arg(1), "")
	number, _ := strconv.Atoi(arg(1))
	key, more := parseKey(words[min(2, len(words)):])
	switch kind := words[0]; {
	case kind == "attach" && number > 0:
		a := Attach{Request: RequestID(number), Key: key}
		for _, w := range more {
			if w == "cold" {
				a.Cold = true
				continue
			}
			_, r, ok := attachment.ParseAlias("unnest:c/i " + w)
			if !ok || r.IsZero() {
				return nil, errors.New("unknown record " + w)
			}
			a.Record = r
		}
		return a, nil
	case kind == "detach" && number > 0:
		return Detach{Request: RequestID(number), Key: key}, nil
	case kind == "plugged" && isOccupant:
		return PlugSucceeded{occupant}, nil
	case kind == "plug-failed" && isOccupant:
		step, ok := map[string]PlugStep{"tap": StepTAP, "netdev": StepNetdev, "device": StepDevice}[arg(2)]
		if !ok {
			return nil, errors.New("unknown step " + arg(2))
		}
		return PlugFailed{Occupant: occupant, Step: step, Err: errors.New("injected error"), Uncertain: arg(3) == "uncertain"}, nil
	case kind == "connected" && isOccupant:
		return Connected{occupant}, nil
	case kind == "connect-failed" && isOccupant:
		return ConnectFailed{Occupant: occupant, Err: errors.New("injected error")}, nil
	case kind == "refill":
		return Refill{}, nil
	case kind == "drain":
		return Drain{}, nil
	case kind == "deleted":
		return DeviceDeleted{Device: arg(1)}, nil
	case kind == "refused":
		return UnplugRefused{Device: arg(1), Err: errors.New(strings.Join(words[min(2, len(words)):], " "))}, nil
	case kind == "timeout" && isOccupant:
		try, err := strconv.Atoi(arg(2))
		return UnplugTimedOut{Timer{occupant, try}}, err
	case kind == "rescan":
		return Rescan{}, nil
	case kind == "reset":
		return GuestReset{}, nil
	case kind == "observed":
		return parseObserved(words[1:])
	}
	return nil, errors.New("unknown event")
}

// parseKey reads "CONTAINER/INTERFACE", "endpoint CONTAINER/INTERFACE" or
// "volume.NAME.POD", and returns the words after it.
func parseKey(words []string) (k attachment.Key, more []string) {
	if len(words) > 1 && words[0] == "endpoint" {
		k.Kind, words = attachment.Endpoint, words[1:]
	}
	if len(words) == 0 {
		return k, nil
	}
	if rest, ok := strings.CutPrefix(words[0], "volume."); ok {
		k.Kind = attachment.Volume
		k.Name, k.Owner, _ = strings.Cut(rest, ".")
	} else {
		k.Owner, k.Name, _ = strings.Cut(words[0], "/")
	}
	return k, words[1:]
}

// parseObserved reads name=alias for a TAP, with + for a blank in the alias and !
// behind the name of an endpoint's, and id@slot for a device.
func parseObserved(words []string) (Event, error) {
	var o Observed
	for _, w := range words {
		if name, alias, ok := strings.Cut(w, "="); ok {
			name, endpoint := strings.CutSuffix(name, "!")
			t := ObservedTAP{Name: name, Warm: alias == attachment.WarmAlias}
			t.Key, t.Record, _ = attachment.ParseAlias(strings.ReplaceAll(alias, "+", " "))
			if endpoint {
				t.Key.Kind = attachment.Endpoint
			}
			o.TAPs = append(o.TAPs, t)
			continue
		}
		id, number, _ := strings.Cut(w, "@")
		slot, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("observation %s: %w", w, err)
		}
		d := ObservedDevice{ID: id, Slot: slot}
		if strings.HasPrefix(id, "volume.") {
			d.Key, _ = parseKey([]string{id})
		}
		o.Devices = append(o.Devices, d)
	}
	return o, nil
}
