// Package agenttest lets the binary of a package's tests be an agent of its localhost cases.
package agenttest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"unnest.io/unnest/internal/check/localhost/agent"
)

// Main runs the tests, and returns the exit code of the process. If the binary is called with
// the argument "agent", or by an agent that starts a server, it acts as that instead.
func Main(m *testing.M) int {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "agent":
		err = agent.Execute(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = agent.RunServer(context.Background(), os.Args[2], os.Stdin, os.Stdout)
	default:
		return m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
