// Package e2e tests the built binaries as users run them, with real guests, containers and
// packets. Each test also checks that nothing is left behind. The package has tests only.
package e2e
