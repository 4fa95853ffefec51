# The tasks of this work tree. make without a target lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS = -X unnest/internal/cli/version.tag=$(VERSION) -X unnest/internal/cli/version.revision=$(REVISION)
FUZZ_TIME ?= 1h
CHAOS_TIME ?= 1h
GUESTS ?= 2
ROUNDS ?= 1000
RESTORES ?= 200

# The go in PATH, or the one that the target go gets.
export PATH := $(shell hack/go):$(PATH)

# The programs that make and measure guests. bin/unnest doctor checks the same ones.
PACKAGES := qemu-system-x86 mmdebstrap e2fsprogs xz-utils nftables iproute2 sockperf iperf3 \
	ca-certificates containernetworking-plugins kmod

# What the tests also need: a C compiler for the race detector, a second VMM, protoc, and
# guests of other architectures. Debian 13 has QEMU for s390x in a package of its own.
TEST_PACKAGES := gcc libc6-dev libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients \
	'virtiofsd|qemu-system-common' protobuf-compiler curl udhcpd unzip \
	qemu-system-arm 'qemu-system-s390x|qemu-system-misc' openssh-server openssh-client sqlite3

# The compiler of the trading application: OpenJDK 17 in Debian 12, 21 in Debian 13.
TRADE_PACKAGES := default-jdk-headless maven

# The compiler of the eBPF programs.
GENERATE_PACKAGES := clang llvm libbpf-dev linux-libc-dev

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do printf '%-14s %s\n' "$$target" "$$text"; done

.PHONY: deps
deps: ## install the Debian packages that are missing (root)
	@hack/deps $(PACKAGES)

.PHONY: test-deps
test-deps: deps ## install the packages that the tests also need (root)
	@hack/deps $(TEST_PACKAGES) $(TRADE_PACKAGES)

.PHONY: go
go: ## get the Go that go.mod wants into the user's cache, unless PATH has one
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
trade-bundle: trade ## pack bin/trade.tar for bench multilevel-application: the application, WildFly and JMeter (root)
	@hack/deps unzip
	@hack/trade

.PHONY: quickstart
quickstart: ## install what is missing, boot a guest, measure a container's network three ways, write a report (root)
	@hack/quickstart $(PACKAGES)

.PHONY: test
test: test-deps build bin/gotestsum ## run all tests, failed ones twice; fail if one is skipped (root)
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/ ./hack/testresult
	@go list -test -deps ./... >/dev/null # downloads modules: messages of hack/test would prevent the second run
	@hack/test-twice hack/test

RELEASES ?= bookworm trixie

.PHONY: test-hosts
test-hosts: deps ## run make quickstart and make test on the Debian releases RELEASES (bookworm trixie), in roots made of packages (root, hours)
	@hack/test-hosts $(RELEASES)

.PHONY: soak
soak: build ## add and delete 110 pods in one guest while the daemon is killed (root)
	UNNEST_PRIVILEGED=1 UNNEST_SOAK=1 go test -count=1 -timeout 30m -run '^TestChurn$$' -v ./internal/e2e

.PHONY: soak-hostlo
soak-hostlo: build ## make, use and leave ROUNDS (1000) segments over four guests while the daemon is killed (root)
	UNNEST_PRIVILEGED=1 UNNEST_ROUNDS=$(ROUNDS) UNNEST_HOSTLO_GUESTS=4 go test -count=1 -timeout 90m -run '^TestHostloRounds$$' -v ./internal/e2e

.PHONY: soak-restore
soak-restore: build ## restore RESTORES (200) guests, up to 8 at once, and kill some; write docs/results/restore-soak.md (root)
	UNNEST_PRIVILEGED=1 go test -tags chaos -count=1 -timeout 2h -run '^TestRestoreSoak$$' -v ./internal/e2e -restores $(RESTORES) -restore-report $(CURDIR)/docs/results/restore-soak.md

.PHONY: localhost
localhost: build ## check that a pod over GUESTS (2) guests has one localhost (root)
	UNNEST_PRIVILEGED=1 UNNEST_LOCALHOST=1 UNNEST_HOSTLO_GUESTS=$(GUESTS) go test -count=1 -timeout 90m -run '^TestHostlo$$' -v ./internal/e2e

.PHONY: test-kvm
test-kvm: test-deps build ## test on a host with KVM and vhost-net, which is a guest (root, half an hour)
	UNNEST_PRIVILEGED=1 go test -tags kvm -count=1 -timeout 90m -run '^TestOnKVM$$' -v ./internal/e2e

.PHONY: test-trade
test-trade: test-deps build trade-bundle ## load the trading application on this host, in containers of a host behind SSH, in guests of other architectures, and in domains of Xen (root)
	UNNEST_PRIVILEGED=1 go test -tags trade -count=1 -timeout 75m -run '^TestTrade(SSH|Foreign|Xen)?$$' -v ./internal/e2e

.PHONY: kubernetes
kubernetes: go ## build the programs of a Kubernetes cluster into the user's cache (11 minutes, once)
	@hack/kubernetes

.PHONY: helm
helm: go ## build helm into the user's cache (minutes, once)
	@hack/helm

.PHONY: manifest
manifest: helm ## render deploy/kubernetes/unnest.yaml from deploy/chart
	@hack/manifest

.PHONY: images
images: binaries ## write the container images of this project into bin/images, as OCI archives
	@go run ./hack/images bin bin/images

.PHONY: test-kubernetes
test-kubernetes: test-deps build kubernetes helm images ## test BrFusion on a Kubernetes cluster of two guests (root)
	go test -tags kubernetes -count=1 -timeout 10m -run '^TestRunOnAPIServer$$' -v ./internal/kube/policyclient
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 10m -run '^TestDNSServer$$' -v ./internal/testbed/cluster
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 45m -run '^TestKubernetes$$' -v ./internal/e2e

.PHONY: test-kubernetes-families
test-kubernetes-families: test-deps build kubernetes ## test clusters with IPv4 and IPv6, and with IPv6 only (root, 6 to 10 minutes)
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 30m -run '^TestKubernetes(DualStack|IPv6)$$' -v ./internal/e2e

RESULTS ?= runs/kubernetes-conformance

.PHONY: test-kubernetes-conformance
test-kubernetes-conformance: test-deps build kubernetes ## run upstream's tests of Kubernetes' network that have not passed yet according to RESULTS, write the page about them (root, hours)
	hack/kubernetes-e2e
	failed=0; UNNEST_PRIVILEGED=1 UNNEST_E2E_RESULTS=$(abspath $(RESULTS)) go test -tags kubernetes -count=1 -timeout 4h \
		-run '^TestKubernetesConformance(DualStack)?$$' -v ./internal/e2e || failed=$$?; go run ./hack/conformance $(RESULTS)/junit_*.xml; exit $$failed

.PHONY: test-kubernetes-disruption
test-kubernetes-disruption: test-deps build kubernetes images ## kill what serves pods of a Kubernetes cluster, and its nodes (root)
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 1h -run '^TestKubernetesDisruption$$' -v ./internal/e2e

.PHONY: test-kubernetes-multus
test-kubernetes-multus: test-deps build kubernetes ## test BrFusion as a further network of pods by Multus, whose thin plugin is the file MULTUS (root)
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 30m -run '^TestKubernetesMultus$$' -v ./internal/e2e $(if $(MULTUS),-multus $(abspath $(MULTUS)))

.PHONY: test-kafka
test-kafka: test-deps build ## load a Kafka broker in a guest, a container, a pod, a container of a host behind SSH, and guests of other architectures (root, a few minutes)
	UNNEST_PRIVILEGED=1 go test -tags kafka -count=1 -timeout 30m -run '^TestKafka(SSH|Foreign)?$$' -v ./internal/e2e

.PHONY: test-collocation
test-collocation: build ## test domains that run side by side, of which one is killed (root, 3 minutes)
	UNNEST_PRIVILEGED=1 go test -tags collocation -count=1 -timeout 30m -run '^TestCollocation$$' -v ./internal/e2e

.PHONY: test-xen
test-xen: build ## test domains of Xen on a host that the test boots (root, minutes; needs 4 GiB of memory)
	UNNEST_PRIVILEGED=1 go test -tags xen -count=1 -timeout 60m -run '^Test(Domains|HVM)$$' -v ./internal/testbed/xen
	UNNEST_PRIVILEGED=1 go test -tags xen -count=1 -timeout 60m -run '^TestXen(Restart|Cost)$$' -v ./internal/measure/study/scripts ./internal/measure/study/domains
	UNNEST_PRIVILEGED=1 go test -tags xen -count=1 -timeout 90m -run '^TestXen(Host)?$$' -v ./internal/e2e

.PHONY: test-upgrade
test-upgrade: ## test that the daemon takes over what that of the commit FROM has left (root)
	@hack/test-upgrade

.PHONY: profile-hostlo
profile-hostlo: build ## profile a round trip between two fractions; write docs/results/hostlo-latency.md (root)
	UNNEST_PRIVILEGED=1 go test -tags profile -count=1 -timeout 15m -run '^TestHostloProfile$$' -v ./internal/e2e -profile-report $(CURDIR)/docs/results/hostlo-latency.md

.PHONY: bench-poll
bench-poll: test-deps build ## measure polling by vhost-net on a host with KVM, which is a guest; write docs/results/poll.md (root, 15 minutes)
	UNNEST_PRIVILEGED=1 UNNEST_ON_KVM='^poll$$' go test -tags kvm -count=1 -timeout 40m -run '^TestOnKVM$$' -v ./internal/e2e -poll-blocks 12 -poll-report $(CURDIR)/docs/results/poll.md

.PHONY: bench-loopback
bench-loopback: ## compare round trips and short connections with Hostlo's programs of the commit FROM and of today, interleaved (root, a minute)
	git show $(FROM):internal/cni/loopback/loopback_bpfel.o >bin/loopback-from.o
	UNNEST_PRIVILEGED=1 go test -tags profile -count=1 -timeout 15m -run '^TestComparePrograms$$' -v ./internal/cni/loopback -old-programs $(CURDIR)/bin/loopback-from.o

.PHONY: bench-connections
bench-connections: ## compare rates of short connections in a pod of two fractions and in an ordinary namespace, interleaved (root, a minute)
	UNNEST_PRIVILEGED=1 go test -tags profile -count=1 -timeout 15m -run '^TestConnectionRates$$' -v ./internal/cni/loopback

.PHONY: localhost-large
localhost-large: ## run the localhost cases of load in full size, in network namespaces (root, minutes)
	UNNEST_PRIVILEGED=1 UNNEST_LOCALHOST_LARGE=1 go test -count=1 -timeout 60m -run '^TestLocalhostCases$$' -v ./internal/cni/loopback

.PHONY: test-hostlo-large
test-hostlo-large: build ## run the localhost cases of load in full size, over GUESTS (2) guests (root, an hour where guests are emulated)
	UNNEST_PRIVILEGED=1 UNNEST_HOSTLO_GUESTS=$(GUESTS) go test -tags chaos -count=1 -timeout 4h -run '^TestHostloLarge$$' -v ./internal/e2e

.PHONY: fuzz
fuzz: go ## fuzz each target until it has had FUZZ_TIME (1h) in all; some need root
	@FUZZ_TIME=$(FUZZ_TIME) hack/fuzz

.PHONY: chaos
chaos: build ## let everything fail at random under load for CHAOS_TIME (1h); write docs/results/chaos.md (root)
	CHAOS_TIME=$(CHAOS_TIME) UNNEST_PRIVILEGED=1 go test -tags chaos -count=1 -timeout 24h -run '^TestChaos$$' -v ./internal/e2e -chaos-report $(CURDIR)/docs/results/chaos.md

.PHONY: lint
lint: bin/golangci-lint ## check style, imports between packages, and go.mod
	bin/golangci-lint run ./...
	go mod tidy -diff

.PHONY: vulnerabilities
vulnerabilities: bin/govulncheck ## look for known vulnerabilities in what we call; offline: list outdated modules
	@hack/vulnerabilities

.PHONY: generate
generate: test-deps go ## generate code again; fail if it was out of date
	@hack/deps $(GENERATE_PACKAGES)
	@hack/generate

.PHONY: bench-harness
bench-harness: build ## measure the overhead of the harness (root)
	bin/unnest bench harness

.PHONY: bench-load
bench-load: build ## compare the load generator with httperf and wrk on one server (root)
	@hack/deps httperf wrk
	bin/unnest bench generators

.PHONY: bench-latency
bench-latency: build ## compare the latency of BrFusion and of no container (root)
	bin/unnest bench latency

.PHONY: bench-hostlo
bench-hostlo: build ## compare the networks between two containers of a pod, on one VM and on two (root)
	bin/unnest bench hostlo-quick

.PHONY: bench-boot
bench-boot: build ## compare guests that are booted and restored: times, and memory of four; REPETITIONS of each (10) (root)
	dir=runs/$$(date +%Y%m%d-%H%M%S)-boot; bin/unnest bench boot $(if $(REPETITIONS),--repetitions $(REPETITIONS)) -o $$dir >/dev/null && bin/unnest report $$dir

.PHONY: bench-restored
bench-restored: build ## compare what booted and restored guests measure (root)
	bin/unnest bench restored
	bin/unnest bench restored-suites

.PHONY: bench-startup
bench-startup: build ## measure how long containers take to start, 100 in each network (root)
	bin/unnest bench startup

.PHONY: bench-kubernetes-pods
bench-kubernetes-pods: test-deps build kubernetes ## start 100 pods on a node at once, with BrFusion and with the bridge, REPETITIONS (6) times each; write docs/results/kubernetes-pods.md (root, half an hour to five hours where nodes are emulated)
	UNNEST_PRIVILEGED=1 go test -tags kubernetes -count=1 -timeout 6h -run '^TestKubernetesPods$$' -v ./internal/e2e -pods-rounds $(or $(REPETITIONS),6) -pods-report $(CURDIR)/docs/results/kubernetes-pods.md

.PHONY: bench-sched
bench-sched: go ## measure what the program that counts domains costs; write docs/results/sched-cost.md (root)
	UNNEST_PRIVILEGED=1 go test -count=1 -timeout 10m -run '^TestCost$$' ./internal/measure/sched -cost $(CURDIR)/docs/results/sched-cost.md

.PHONY: bench-xen-cost
bench-xen-cost: build ## measure what counting domains of Xen costs them; write docs/results/xen-cost.md (root)
	UNNEST_PRIVILEGED=1 go test -tags xen -count=1 -timeout 60m -run '^TestXenCost$$' ./internal/measure/study/domains -xen-cost $(CURDIR)/docs/results/xen-cost.md

.PHONY: bench-aa
bench-aa: build ## measure how often equal configurations are reported as different (root)
	bin/unnest bench aa

.PHONY: bench-decisions
bench-decisions: build ## run the quickstart RUNS (10) times, and add what each decides to docs/results/quickstart-decisions.md (root)
	@hack/decisions

.PHONY: bench-plan
bench-plan: go ## measure how fast traces are read and planned, and how good the plans are; set UNNEST_GOOGLE2011 for real data
	go test -run '^$$' -bench 'Read|Google2011' -benchtime 1x -count 5 ./internal/plan/trace
	go test -run '^$$' -bench Costs -benchtime 1x ./internal/plan/costing
	go test -run '^$$' -bench 'Plan/(piece|file)' -benchtime 1x -count 5 -timeout 1h ./internal/cli/plan
	go test -run '^$$' -bench 'Plan/(owner|equal|scale)' -benchtime 1x -timeout 4h ./internal/cli/plan

.PHONY: publish
publish: build ## keep the samples of RUN in docs/results/runs/NAME and write docs/results/NAME.md; without both, write all such pages again
	@hack/publish $(NAME) $(RUN)

.PHONY: calibration
calibration: go ## simulate 20,000 reports of each kind and rewrite the tables of docs/explanation/statistics.md
	go test -count=1 -timeout 30m -run '^TestCalibration$$' ./internal/measure/stats -calibrate

.PHONY: advice-calibration
advice-calibration: go ## let advice predict held-back blocks, and rewrite the tables of docs/advise.md
	go test -count=1 -timeout 30m -run '^TestHeldBack$$' ./internal/measure/advice -publish

.PHONY: clean
clean: ## remove built files
	rm -rf bin

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
