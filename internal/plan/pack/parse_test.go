package pack

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse([]string{"requested=largest", "wasted=vm", "moving=container", "emptying=bought", "rounds=2", "effort=0"})
	if want := (Options{Requested: OfLargest, Wasted: OfVM, Moving: MoveByContainer, Emptying: AsBought, Rounds: 2}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"moving": "want KEY=VALUE with one of the keys requested,", "speed=1": `"speed=1" is unknown`, "moving=pod": "moving=pod: want one of vm, container",
		"rounds=-1": "rounds=-1: want a whole number from 0", "effort=": "want a whole number from 0",
	} {
		if _, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
