GOLANGCI_LINT_VERSION := v2.15.0
LINT := .tools/golangci-lint-$(GOLANGCI_LINT_VERSION)

# The commit that apidiff compares with.
BASE ?= origin/main
APIDIFF_VERSION := v0.0.0-20261113113407-e3970619a1a4

.PHONY: help test race lint fuzz examples tidy apidiff ci

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

test: ## all tests
	go test ./...

race: ## all tests under the race detector
	go test -race ./...

lint: $(LINT) ## formatting, vet and lint
	test -z "$$(gofmt -l .)"
	go vet ./...
	$(LINT) run

$(LINT):
	mkdir -p .tools
	GOBIN=$(CURDIR)/.tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv .tools/golangci-lint $(LINT)

fuzz: ## every fuzz target for FUZZTIME (default 30s) each
	./internal/fuzz.sh $(or $(FUZZTIME),30s)

examples: ## the walk-through
	go run ./examples

tidy: ## go.mod and go.sum
	go mod tidy

apidiff: ## what changed in the public API since BASE
	./internal/apidiff.sh $(BASE) $(APIDIFF_VERSION)

ci: ## the gate
	.ci/run
