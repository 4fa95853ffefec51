# Everything that is done with this work tree; plain make lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS = -X unnest/internal/cli/version.tag=$(VERSION) -X unnest/internal/cli/version.revision=$(REVISION)
FUZZTIME ?= 10s

# What guests are made with and measured by; bin/unnest doctor checks the same.
PACKAGES := qemu-system-x86 mmdebstrap e2fsprogs xz-utils nftables iproute2 sockperf iperf3 \
	ca-certificates containernetworking-plugins

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do printf '%-14s %s\n' "$$target" "$$text"; done

.PHONY: deps
deps: ## install the Debian packages that are missing (root)
	@hack/deps $(PACKAGES)

.PHONY: build
build: bin/nerdctl ## build bin/unnest and the programs of its guests, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/unnest
	@# Without a version: an image that holds the plugin need not change with every revision.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ ./cmd/unnest-cni

.PHONY: quickstart
quickstart: deps build ## boot a guest, measure a container's network three ways, report (root)
	bin/unnest bench quickstart

.PHONY: test
test: deps build bin/gotestsum ## run every test, none skipped (root)
	@bin/gotestsum --format pkgname-and-test-fails --jsonfile bin/test.json --raw-command -- hack/test
	@hack/no-skips bin/test.json

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME, 10s
	@hack/fuzz $(FUZZTIME)

.PHONY: lint
lint: bin/golangci-lint ## check style, the arrows between packages, and go.mod
	bin/golangci-lint run ./...
	go mod tidy -diff

.PHONY: generate
generate: ## generate code anew; fails when it was out of date
	@hack/generate

.PHONY: bench-harness
bench-harness: build ## measure what the harness itself adds (root)
	bin/unnest bench harness

.PHONY: bench-boot
bench-boot: build ## measure how long guests take to boot (root)
	bin/unnest bench boot

.PHONY: clean
clean: ## remove what was built
	rm -rf bin

# The command line of the guests' container engine, which Debian 12 has no
# package of. A module of its own pins it.
bin/nerdctl: deploy/nerdctl/go.mod deploy/nerdctl/go.sum
	CGO_ENABLED=0 go build -C deploy/nerdctl -trimpath -ldflags '-s -w' -o ../../bin/ github.com/containerd/nerdctl/cmd/nerdctl
	@touch $@

# The tools have a module of their own, so that theirs are no dependencies of ours.
bin/golangci-lint: TOOL = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/gotestsum: TOOL = gotest.tools/gotestsum
bin/golangci-lint bin/gotestsum: tools/go.mod tools/go.sum
	go build -C tools -trimpath -o ../bin/ $(TOOL)
	@touch $@
