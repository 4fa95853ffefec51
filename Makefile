# The tasks of this work tree. make without a target lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS = -X unnest.io/unnest/internal/cli/version.tag=$(VERSION) -X unnest.io/unnest/internal/cli/version.revision=$(REVISION)
FUZZ_TIME ?= 1h
CHAOS_TIME ?= 1h

# The go in PATH, or the one that the target go gets.
export PATH := $(shell hack/go):$(PATH)

# Say so before anything is compiled.
ifneq ($(filter test e2e test-attack test-hosts test-install chaos,$(MAKECMDGOALS)),)
ifneq ($(shell id -u),0)
$(error not root: run sudo make $(MAKECMDGOALS))
endif
endif

# The programs that make and measure guests. bin/unnest doctor checks the same ones.
PACKAGES := qemu-system-x86 mmdebstrap e2fsprogs xz-utils nftables iproute2 sockperf iperf3 \
	ca-certificates containernetworking-plugins kmod debian-archive-keyring gpg

# What the tests also need: a C compiler for the race detector, a second VMM, protoc, and
# guests of other architectures. Debian 13 has QEMU for s390x in a package of its own.
TEST_PACKAGES := gcc libc6-dev libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients \
	'virtiofsd|qemu-system-common' protobuf-compiler curl udhcpd unzip \
	qemu-system-arm 'qemu-system-s390x|qemu-system-misc' openssh-server openssh-client sqlite3 docker.io podman busybox \
	'docker-cli|docker.io'

# The compiler of the trading application: OpenJDK 17 in Debian 12, 21 in Debian 13.
TRADE_PACKAGES := default-jdk-headless maven

# The compiler of the eBPF programs.
GENERATE_PACKAGES := clang llvm libbpf-dev linux-libc-dev

.PHONY: help
help: # lists the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do printf '%-27s %s\n' "$$target" "$$text"; done

.PHONY: deps
deps: ## install the Debian packages that are missing (root)
	@hack/deps $(PACKAGES)

.PHONY: test-deps
test-deps: deps ## install the packages that the tests also need (root)
	@hack/deps $(TEST_PACKAGES) $(TRADE_PACKAGES)

.PHONY: go
go: # gets the Go that go.mod wants into the user's cache, unless PATH has one
	@hack/go get

.PHONY: build
build: bin/nerdctl binaries ## build bin/unnest and its guests' binaries, statically linked

# LDFLAGS have the revision. Go's own would fail if another user owns the work tree.
.PHONY: binaries
binaries: go
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/unnest
	@# Without a version, so that an image with these binaries need not change with every revision.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ ./cmd/unnest-cni ./cmd/cni-timer ./cmd/unnest-conformance ./cmd/unnest-load ./cmd/unnest-localhost ./cmd/unnest-volume

.PHONY: trade
trade: ## build and test the trading application, apps/trade/target/trade.war (root)
	@hack/deps $(TRADE_PACKAGES)
	mvn -B -ntp -q -f apps/trade/pom.xml verify

.PHONY: trade-bundle
trade-bundle: trade # packs bin/trade.tar for bench multilevel --suite application: the application, WildFly and JMeter (root)
	@hack/deps unzip
	@hack/trade

.PHONY: quickstart
quickstart: ## install what is missing, boot a guest, measure a container's network three ways, write a report (root)
	@hack/quickstart $(PACKAGES)

.PHONY: test
test: test-deps build bin/gotestsum ## run all tests, failed ones twice; fail if one is skipped (root)
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/ ./hack/testresult
	@go list -test -deps ./... >/dev/null # downloads modules: messages of hack/test would prevent the second run
	@go list -C tools/scheduler -test -deps . >/dev/null
	@go list -C tools/karpenter -test -deps . >/dev/null
	@hack/test-twice hack/test

.PHONY: e2e
e2e: test-deps build ## run the tests named TEST only, with ARGS as their flags: see CONTRIBUTING.md (root)
	@hack/e2e '$(TEST)' $(ARGS)

.PHONY: test-attack
test-attack: test-deps ## run what tenants, guests and pods do to harm others: the tests named TestAttack (root)
	UNNEST_PRIVILEGED=1 go test -count=1 -v -run '^TestAttack' ./internal/...

.PHONY: test-hosts
test-hosts: deps ## run make quickstart and make test on the Debian releases RELEASES (bookworm trixie), in roots made of packages (root, hours)
	@hack/test-hosts $(or $(RELEASES),bookworm trixie)

.PHONY: kubernetes
kubernetes: go ## build the programs of a Kubernetes cluster into the user's cache (11 minutes, once)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ ./cmd/unnest-kube
	@hack/kubernetes

.PHONY: helm
helm: go # builds helm into the user's cache, in minutes, once
	@hack/helm

.PHONY: manifest
manifest: helm # renders deploy/kubernetes/unnest.yaml from deploy/chart
	@hack/manifest

.PHONY: images
images: binaries ## write the container images of this project into bin/images, as OCI archives
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o bin/ ./cmd/unnest-kube
	@go run ./hack/images bin bin/images "$$(go env GOARCH)"

.PHONY: dist
dist: bin/nfpm ## build packages, tarballs, images, SBOMs and checksums of a release into dist/
	@VERSION='$(VERSION)' REVISION='$(REVISION)' hack/dist dist

.PHONY: test-install
test-install: deps dist # installs dist's package in a root of packages of each of RELEASES (bookworm trixie noble), and runs a short quickstart on the first (root)
	@hack/test-install $(or $(RELEASES),bookworm trixie noble)

RESULTS ?= runs/kubernetes-conformance

.PHONY: test-kubernetes-conformance
test-kubernetes-conformance: test-deps build kubernetes ## run upstream's tests of Kubernetes' network that have not passed yet according to RESULTS, write the page about them (root, hours)
	hack/kubernetes-e2e
	failed=0; UNNEST_PRIVILEGED=1 UNNEST_E2E_RESULTS=$(abspath $(RESULTS)) go test -tags kubernetes -count=1 -timeout 4h \
		-run '^TestKubernetesConformance(DualStack)?$$' -v ./internal/e2e || failed=$$?; go run ./hack/conformance $(RESULTS)/junit_*.xml; exit $$failed

.PHONY: test-upgrade
test-upgrade: ## test that the daemon takes over what that of the commit FROM has left (root)
	@hack/test-upgrade

.PHONY: fuzz
fuzz: go ## fuzz each target until it has had FUZZ_TIME (1h) in all; some need root
	@FUZZ_TIME=$(FUZZ_TIME) hack/fuzz

.PHONY: chaos
chaos: build ## let everything fail at random under load for CHAOS_TIME (1h); write docs/results/chaos.md (root)
	CHAOS_TIME=$(CHAOS_TIME) UNNEST_PRIVILEGED=1 go test -tags chaos -count=1 -timeout 24h -run '^TestChaos$$' -v ./internal/e2e -chaos-report $(CURDIR)/docs/results/chaos.md

.PHONY: soak
soak: go # simulate slots, segments and addresses of guests with random seeds for SOAK_TIME (10m) each; SOAK_SEED replays one
	SOAK_TIME=$${SOAK_TIME:-10m} go test -count=1 -timeout 24h -v -run '^(TestModel|TestSharesAtRandom|TestSegmentsAtRandom)$$' ./internal/hostd/...

.PHONY: soak-lost-del
soak-lost-del: build # start 10,000 pods in a guest, lose the DEL of every fifth, kill the daemon, unnest-reclaim and the plugin; write docs/results/lost-dels.md (root, an hour or more)
	@TIMEOUT=24h hack/e2e TestLostDELs -lost-pods 10000 -lost-report $(CURDIR)/docs/results/lost-dels.md

.PHONY: lint
lint: bin/golangci-lint ## check style, imports between packages, what the documentation names, the limits of size, and go.mod
	bin/golangci-lint run ./...
	go test -count=1 -v ./hack/house
	go mod tidy -diff

.PHONY: vulnerabilities
vulnerabilities: bin/govulncheck ## look for known vulnerabilities in what we call; offline: list outdated modules
	@hack/vulnerabilities

.PHONY: generate
generate: test-deps go ## generate code again; fail if it was out of date
	@hack/deps $(GENERATE_PACKAGES)
	@hack/generate

.PHONY: bench-decisions
bench-decisions: build ## run the quickstart RUNS (10) times, and add what each decides to docs/results/quickstart-decisions.md (root)
	@hack/decisions

.PHONY: bench-plan
bench-plan: go ## measure how fast traces are read and planned, and how good the plans are; set UNNEST_GOOGLE2011 for real data
	go test -run '^$$' -bench 'Read|Google2011' -benchtime 1x -count 5 ./internal/plan/trace
	go test -run '^$$' -bench Costs -benchtime 1x ./internal/plan/costing
	go test -run '^$$' -bench 'Plan/(piece|file)' -benchtime 1x -count 5 -timeout 1h ./internal/cli/plan
	go test -run '^$$' -bench 'Plan/(owner|equal|scale)' -benchtime 1x -timeout 4h ./internal/cli/plan
	CGO_ENABLED=0 go test -C tools/karpenter -trimpath -count=1 -timeout 12h -v -run '^TestClusters$$' . -clusters 100 -publish

.PHONY: test-plan-scheduler
test-plan-scheduler: go ## judge the plans of 10,000 random clusters, and of up to 500 nodes, by kube-scheduler's plugins (an hour)
	CGO_ENABLED=0 go test -C tools/scheduler -trimpath -count=1 -timeout 12h -v . -rapid.nofailfile -rapid.checks 10000 -nodes 500

RUNS_OF_PAPERS ?= runs/papers

.PHONY: reproduce
reproduce: test-deps build # measures what the claims of the papers need, into RUNS_OF_PAPERS, and goes on where it was stopped (root, 7 hours)
	bin/unnest papers --run $(RUNS_OF_PAPERS)

.PHONY: publish
publish: build ## keep the samples of RUN in docs/results/runs/NAME and write docs/results/NAME.md; without both, write all such pages again
	@hack/publish $(NAME) $(RUN)

.PHONY: site
site: ## build the site of all pages, bin/site/html/index.html, by mkdocs-material from PyPI (root)
	@hack/deps python3-venv
	@hack/site

.PHONY: clean
clean: ## remove built files
	rm -rf bin dist

# The command line of the guests' container engine. Debian 12 has no package of it, so
# the module deploy/nerdctl pins its version.
bin/nerdctl: deploy/nerdctl/go.mod deploy/nerdctl/go.sum | go
	CGO_ENABLED=0 go build -C deploy/nerdctl -trimpath -ldflags '-s -w' -o ../../bin/ github.com/containerd/nerdctl/cmd/nerdctl
	@touch $@

# The tools have their own module, which keeps their dependencies out of ours.
bin/golangci-lint: TOOL = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/gotestsum: TOOL = gotest.tools/gotestsum
bin/govulncheck: TOOL = golang.org/x/vuln/cmd/govulncheck
bin/golangci-lint bin/gotestsum bin/govulncheck: tools/go.mod tools/go.sum | go
	go build -C tools -trimpath -o ../bin/ $(TOOL)
	@touch $@

# nfpm has a module of its own: with it in that of the tools, golangci-lint would have other dependencies.
bin/nfpm: tools/nfpm/go.mod tools/nfpm/go.sum | go
	CGO_ENABLED=0 go build -C tools/nfpm -trimpath -o ../../bin/ github.com/goreleaser/nfpm/v2/cmd/nfpm
	@touch $@
