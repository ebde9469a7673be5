# Two commands for a fresh machine with Go, git and make: make demo, make test.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export CGO_ENABLED ?= 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: help
help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build demo
build: ## Build bin/fencepost
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/fencepost ./cmd/fencepost
demo: build ## Run the main job on a SQLite file and a Stripe double, with a kill -9 in the middle
	bin/fencepost demo

.PHONY: test plugins
test: ## Run the tests (under the race detector where affordable)
	scripts/test.sh
plugins: ## The suites of plugins, over every carrier and in every language
	scripts/plugins.sh

.PHONY: faults soak
faults: ## Run the tests of builds that kill, stop and fail themselves (-tags faults)
	scripts/faults.sh
soak: ## The long ones among them: the production trace under kill -9, a swarm
	SOAK=1 scripts/faults.sh

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZ_TIME (10s) each
	scripts/fuzz.sh

.PHONY: lint
lint: ## Linters, formatting, vet, import direction, size budgets
	scripts/lint.sh

.PHONY: bench
bench: build ## Benchmarks, with their limits beside them (BENCH=regexp COUNT=n)
	scripts/bench.sh

.PHONY: generate generate-check
generate: ## Regenerate the wire code and the embedded Stripe module
	scripts/generate.sh
generate-check: ## Fail if generate would change a file
	scripts/generate-check.sh

.PHONY: model simulate
model: ## Check the outbox's state machine with spin
	scripts/spin.sh
simulate: ## Run SEEDS (480) worlds of faults through the outbox, or show the one of SEED
	go test -count=1 -timeout 0 -v -run '^TestSimulation$$' ./internal/simulation

.PHONY: vuln
vuln: ## Look for known vulnerabilities that our code can reach (works offline)
	scripts/vuln.sh

.PHONY: clean
clean: ## Remove what the build made (bin/tools too)
	rm -rf bin
