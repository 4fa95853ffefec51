// Package e2e tests the built programs as their users run them: real guests,
// real containers, real packets, and nothing left behind. It has tests only.
package e2e
