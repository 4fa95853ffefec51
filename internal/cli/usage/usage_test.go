package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestError(t *testing.T) {
	err := fmt.Errorf("outside: %w", Errorf("read %s: %w", "x", fs.ErrNotExist))
	if _, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not a usage error, or does not wrap its cause", err)
	}
	if Wrap(nil) != nil {
		t.Error("Wrap(nil) is an error")
	}
	if _, ok := errors.AsType[*Error](Wrap(fs.ErrNotExist)); !ok {
		t.Error("Wrap does not return a usage error")
	}
}

func TestArgs(t *testing.T) {
	tests := []struct {
		names, args []string
		want        string
	}{
		{nil, nil, ""},
		{nil, []string{"a"}, `unexpected argument "a"`},
		{[]string{"A", "B"}, nil, "missing argument A B"},
		{[]string{"A", "B"}, []string{"a"}, "missing argument B"},
		{[]string{"A", "B"}, []string{"a", "b"}, ""},
		{[]string{"A", "B"}, []string{"a", "b", "c"}, `unexpected argument "c"`},
	}
	for _, tt := range tests {
		got := ""
		if err := Args(tt.names...)(&cobra.Command{}, tt.args); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Args(%q) of %q: got %q, want %q", tt.names, tt.args, got, tt.want)
		}
	}
}

func TestSome(t *testing.T) {
	for n, want := range []string{"missing argument A", "", ""} {
		got := ""
		if err := Some("A")(nil, make([]string, n)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d arguments: got %q, want %q", n, got, want)
		}
	}
}

func TestChoice(t *testing.T) {
	tests := []struct {
		args []string
		want string
		err  string
	}{
		{nil, "one", ""},
		{[]string{"--word", "two"}, "two", ""},
		{[]string{"--word", "three"}, "one", `invalid argument "three" for "--word" flag: want one of one, two`},
		{[]string{"--word="}, "one", `invalid argument "" for "--word" flag: want one of one, two`},
	}
	for _, tt := range tests {
		word := "one"
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.Var(Choice(&word, "one", "two"), "word", "")
		got := ""
		if err := flags.Parse(tt.args); err != nil {
			got = err.Error()
		}
		if word != tt.want || got != tt.err {
			t.Errorf("%v: got %q, error %q; want %q, %q", tt.args, word, got, tt.want, tt.err)
		}
	}
}

func TestCount(t *testing.T) {
	for word, want := range map[string]int{"1": 1, "12": 12, "0": 0, "-1": 0, "1.5": 0, "x": 0, "": 0, "99999999999999999999": 0} {
		n := 0
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.Var(Count(&n), "n", "")
		err := flags.Parse([]string{"--n=" + word})
		if n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v; want %d", word, n, err, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"boot", "hostlo", "hostlo-quick", "quickstart"}
	for name, want := range map[string]string{
		"quickstrat": ": did you mean -quickstart?", "hostlo-q": ": did you mean -hostlo or -hostlo-quick?", "bot": ": did you mean -boot?",
		"foo": "", "b": ": did you mean -boot?", "x": "", "xyzzy": "", "": "",
	} {
		if got := Suggest(name, "-", names); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
