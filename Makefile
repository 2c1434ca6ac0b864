GOLANGCI_LINT_VERSION := v2.15.0
LINT := .tools/golangci-lint-$(GOLANGCI_LINT_VERSION)

# buf's version is that of tools/go.mod; the generator's is that of the library's own protobuf.
BUF_VERSION := v1.75.0
BUF := .tools/buf-$(BUF_VERSION)
GENERATOR := .tools/protoc-gen-go
GRPC_GENERATOR_VERSION := v1.6.2
GRPC_GENERATOR := .tools/protoc-gen-go-grpc

# The commit that apidiff compares with.
BASE ?= origin/main
APIDIFF_VERSION := v0.0.0-20261113113407-e3970619a1a4

.PHONY: help test race lint fuzz examples tidy proto proto-check apidiff ci

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

proto: $(BUF) $(GENERATOR) $(GRPC_GENERATOR) ## the Go code of proto/, and the image that breaking changes are looked for against
	./internal/proto.sh write $(BUF)

proto-check: $(BUF) $(GENERATOR) $(GRPC_GENERATOR) ## lint proto/, and that nothing breaks and the committed code is what it says
	./internal/proto.sh check $(BUF)

$(BUF): tools/go.mod tools/go.sum
	mkdir -p .tools
	test "$$(go -C tools list -m -f '{{.Version}}' github.com/bufbuild/buf)" = $(BUF_VERSION)
	go -C tools build -o ../$(BUF) github.com/bufbuild/buf/cmd/buf

$(GENERATOR): go.mod
	mkdir -p .tools
	go build -o $(GENERATOR) google.golang.org/protobuf/cmd/protoc-gen-go
	touch $(GENERATOR)

$(GRPC_GENERATOR): Makefile
	mkdir -p .tools
	GOBIN=$(CURDIR)/.tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(GRPC_GENERATOR_VERSION)
	touch $(GRPC_GENERATOR)

apidiff: ## what changed in the public API since BASE
	./internal/apidiff.sh $(BASE) $(APIDIFF_VERSION)

ci: ## the gate
	.ci/run
