# Sluice. `make help` lists the targets.
export GOTOOLCHAIN := go1.27.3
# SM4 in constant time: gmsm reads it before main starts.
export FORCE_SM4BLOCK_AESNI := 1
# cgo is needed for PKCS#11.
export CGO_ENABLED := 1

DATA   ?= .sluice
LISTEN ?= 127.0.0.1:8440
# Of make bench-compare and make soak.
SCENARIO ?= encrypt
OUT      ?= bench/results/compared
TIME     ?= 10m
# What must be there when tests run: a missing part is a failure, not a skip.
SLUICE_REQUIRE ?= softhsm,openssl,nss,postgres,redis,hvac,poppler
export SLUICE_REQUIRE

VULNDB      := golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help run build deps test-deps test test-race test-chaos verify lint vulncheck wycheproof vault-clients alert-rules fuzz bench bench-compare soak bench-isolation sim sim-capacity bench-scale clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 17

run: deps build ## build and start `sluice dev`
	./bin/sluice dev --data-dir $(DATA) --listen $(LISTEN)

build: ## build bin/sluice
	go build -trimpath -o bin/sluice ./cmd/sluice

deps: ## install what running needs and is missing, from Debian packages, where that is allowed
	@./softhsm/install.sh softhsm2 gcc libc6-dev

test-deps: deps ## the same for what the tests need beside
	@./softhsm/install.sh openssl libssl-dev libnss3 postgresql redis-server python3-hvac poppler-utils

test: test-deps build lint ## everything that must hold, in its short form
	go test -timeout 40m ./...
	go test -timeout 10m -race ./kms ./scheduler ./quota ./audit ./watch ./keystore ./keystore/sqlite ./client
	$(MAKE) --no-print-directory wycheproof vault-clients alert-rules
	./fuzz.sh 2s

test-race: test-deps ## all tests under the race detector
	go test -timeout 60m -race ./...

test-chaos: test-deps build ## crash loops and load tests in full
	SLUICE_CHAOS=full go test -timeout 85m -count=1 ./...

verify: lint vulncheck ## static checks and known vulnerabilities

lint: ## gofmt, vet, staticcheck, arrows
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go test -run 'Arrows|Fence|JunkDrawer|Unreachable' .

wycheproof: test-deps ## Project Wycheproof's vectors through every driver (a module of its own)
	cd hsm/wycheproof && go test -timeout 40m ./...

vault-clients: test-deps ## real clients of HashiCorp Vault read provider secrets (a module of its own)
	cd api/vaultclients && go test -timeout 10m ./...

alert-rules: ## the alert rules in Prometheus' own engine, on recorded series (a module of its own)
	cd deploy/rulestest && go test -timeout 10m ./...

fuzz: ## ten seconds of each fuzz target, from the kept corpora
	./fuzz.sh 10s

vulncheck: ## govulncheck with a pinned copy of the vulnerability database
	./vulncheck.sh $(GOVULNCHECK) $(VULNDB)

bench: test-deps build ## every budget of performance in one run; writes bench/results and the README's table, ten minutes
	go run ./bench/report -sluice bin/sluice -out bench/results -readme README.md

# The token is in a file: what stands on a command line, every user can read.
bench-compare: deps build ## the same load on Sluice, the thin wrapper and, with URL= and TOKEN_FILE=, your Vault or OpenBao
	go run ./bench/compare -sluice bin/sluice -scenario $(SCENARIO) -out $(OUT) $(if $(URL),-url $(URL) -token-file $(TOKEN_FILE)) $(COMPARE_FLAGS)

soak: test-deps build ## a real server on failing tokens for TIME=: leaks, failures, ledger against journal
	go run ./bench/soak -sluice bin/sluice -time $(TIME)

bench-isolation: test-deps build ## victims beside a tenant at 10 times its share, on a real server; writes bench/results, four minutes
	go run ./bench/isolation -sluice bin/sluice -out bench/results

sim: ## the scheduler and what others do in its place, in simulated time; writes bench/results, a few minutes
	go test -count=1 -timeout 30m -v -run '^TestSim$$' ./bench/sim -sim.seconds 3 -sim.out $(CURDIR)/bench/results

sim-capacity: ## how the service grows to 100 HSM nodes and 1,000 API nodes, in simulated time; writes bench/results, a minute or two
	go test -count=1 -timeout 10m -v -run '^TestCapacity$$' ./bench/sim -sim.out $(CURDIR)/bench/results

bench-scale: test-deps ## 1,000,000 keys of 100,000 tenants: stores and the whole service; a quarter of an hour
	go test -run '^$$' -bench 'IdleTenants|Scale' -benchtime 1x -timeout 60m ./keystore ./keystore/sqlite ./keystore/postgres ./cmd/sluice/wire

clean: ## remove what was built, not the data
	rm -rf bin
