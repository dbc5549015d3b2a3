# `make run` and `make test` need Go and, at most, root on Debian or Ubuntu: the rest they bring along.

GOLANGCI_LINT := v2.15.0

# Git may distrust a clone that somebody else owns; a build then goes without its revision.
BUILD := go build $(shell git status >/dev/null 2>&1 || echo -buildvcs=false)
# The race detector needs a C compiler. It also makes every process linger at its end, by default for 1 s. It watches
# this module and what synchronizes: decoders, drivers and the like took two thirds of the time of tests. They are not
# inlined, so that what synchronizes is watched in them, too.
RACE := $(if $(shell command -v "$$(go env CC)"),-race '-gcflags=all=-race=false -l' $(patsubst %,-gcflags=%=,kindred/... sync/... internal/sync context))
LINT := .tools/golangci-lint-$(GOLANGCI_LINT)
# What is compiled does not depend on where the clone lies: a new one finds it in the build cache.
export GOFLAGS := $(GOFLAGS) -trimpath

.PHONY: help run build test test-e2e recipes test-arm64 test-sdk test-browser screenshots first-webhook golden bench bench-compare bench-sdk bench-webhooks evaluate check lint vet generate generated fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' Makefile | expand -t 12

run: build ## build and serve, with a private PostgreSQL unless KINDRED_DATABASE_URL is set
	@test -n "$$KINDRED_DATABASE_URL" || scripts/install-postgres
	@exec env KINDRED_WEBHOOK_ALLOW_NETWORKS="$${KINDRED_WEBHOOK_ALLOW_NETWORKS-127.0.0.0/8,::1/128}" bin/kindred serve

build: ## build bin/kindred
	$(BUILD) -o bin/kindred ./cmd/kindred

test: PACKAGES := $$(go list ./... | grep -v /e2e$$) ## run the tests of all packages, with a PostgreSQL of their own unless KINDRED_TEST_DATABASE_URL is set
test-e2e: PACKAGES := ./e2e ## run the stories of e2e, which ask whole services, killed ones among them, from outside

# Nothing is vetted here: lint and vet do that. Without DWARF a test binary is linked in half the time. Four packages at a
# time, since they wait more than they compute.
test test-e2e:
	@scripts/install-postgres
	@scripts/install-pgbouncer
	@$(BUILD) -o bin/testpg ./scripts/testpg
	PATH="$(CURDIR)/.tools/bin:$$PATH" GORACE=atexit_sleep_ms=50 bin/testpg go test $(RACE) -vet=off -ldflags=-w -p 4 -timeout 30m $(PACKAGES)

recipes: ## follow all recipes of docs/recipes.md on a copy of this tree
	@scripts/install-postgres
	@$(BUILD) -o bin/testpg ./scripts/testpg
	KINDRED_TEST_RECIPES=all bin/testpg go test -vet=off -run=Recipes .

test-arm64: ## test under QEMU, from Debian, that clusters have the same bits on an arm64 as here
	@scripts/install-qemu
	PATH="$(CURDIR)/.tools/bin:$$PATH" GOARCH=arm64 CGO_ENABLED=0 go test -vet=off -exec qemu-aarch64 -run SameBits ./domain/clustering

test-sdk: ## test the SDKs, on a kindred of this tree; needs Node 20 and Python 3.11, and installs their packages under sdk and .tools
	@scripts/install-postgres
	@$(BUILD) -o bin/testpg ./scripts/testpg
	scripts/test-sdk

bench-sdk: ## read a list of 100,000 users through each SDK, beside the HTTP client of its language alone
	scripts/test-sdk bench

test-browser: build ## test the console in Chromium and Firefox ESR, on a kindred of this tree; needs Node 20, and both from Debian, which root gets
	@scripts/install-postgres
	@scripts/install-browser
	scripts/test-browser

screenshots: build ## make the pictures of docs/screenshots anew, of a console with made-up people
	@scripts/install-postgres
	@scripts/install-browser
	scripts/test-browser screenshots.js

first-webhook: ## follow the guide of an SDK, SDK=go, typescript or python, from nothing to a verified webhook
	@scripts/install-postgres
	scripts/first-webhook $(SDK)

golden: ## add what is new to golden/*.txt, the names and bytes that others rely on; nothing is taken away
	@scripts/install-postgres
	@$(BUILD) -o bin/testpg ./scripts/testpg
	go test -vet=off -count=1 -run 'NewestSample$$' ./domain/event -args -update # the samples, which others read
	bin/testpg go test -vet=off -count=1 -run 'Stay$$' $$(grep -rl --include=*_test.go '"kindred/golden"' . | xargs -n1 dirname | sort -u) -args -update

bench: build ## measure bin/kindred beside its ceilings; BENCH="--quick" for less
	@scripts/install-postgres
	@$(BUILD) -o bin/bench ./scripts/bench
	bin/bench $(BENCH)

bench-compare: ## show two results of bench side by side: A=before.json B=after.json
	@$(BUILD) -o bin/bench ./scripts/bench
	@bin/bench compare "$(A)" "$(B)"

bench-webhooks: build ## measure webhook deliveries for half an hour; FLAGS=-quick for less
	@scripts/install-postgres
	@$(BUILD) -o bin/benchwebhooks ./scripts/benchwebhooks
	bin/benchwebhooks $(FLAGS)

evaluate: ## how good matches, clusters, labels, drift and schemas are where the truth is known, each beside its goal; KINDRED_ADULT names census records, FLAGS="-only drift" a part
	@$(BUILD) -o bin/evaluate ./scripts/evaluate
	bin/evaluate $(FLAGS)

check: lint vet generated test test-e2e ## everything that has to pass: formats, linters, generated code, tests

vet:
	go vet ./...
	cd sdk/go && go vet ./...
	GOOS=darwin $(BUILD) -o /dev/null ./cmd/kindred

lint: $(LINT) ## check formats and the faults in comments, and run the linters
	$(LINT) fmt --diff
	go run ./scripts/faults -check
	$(LINT) run --allow-parallel-runners
	cd sdk/go && $(CURDIR)/$(LINT) run --allow-parallel-runners

generate: ## generate the server and the SDKs from httpapi/openapi.yaml, and from the code the faults in comments and docs/limits.md
	cd httpapi && go generate ./...
	go run ./sdk/generate
	go run ./scripts/faults
	go run ./scripts/limits

generated: ## check that the generated code is what httpapi/openapi.yaml says
	go run ./sdk/generate -check
	@mkdir -p .tools && cp httpapi/api.gen.go .tools/
	@$(MAKE) --no-print-directory generate
	@diff -u .tools/api.gen.go httpapi/api.gen.go

fmt: $(LINT) ## format the code
	$(LINT) fmt

clean: ## remove what was built; data stays
	rm -rf bin .tools

# Built outside of the module, so that go.mod knows nothing of it.
$(LINT):
	GOBIN="$(CURDIR)/.tools" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv .tools/golangci-lint $@
