// Package kubetest starts parts of a Kubernetes cluster without nodes, for tests with the build tag
// kubernetes.
package kubetest
