# setup           Install the development environment into .venv.
# demo            Train a model, vary its number of latent tokens, and draw the curve. Needs no extra.
# test            Run the fast tests.
# test-all        Run all tests, those of core and network with checks of shapes. Then compare speed ratios with
#                 those in benchmarks/bench.py.
# check           Format, lint and type checks, also of the text of pages and docstrings, and of web/ if npm is
#                 installed. Known vulnerabilities are printed and do not fail it.
# docs            Build the manual in site/. A broken link fails.
# drill           Interrupt a training run hundreds of times. Its weights must stay equal. Takes minutes.
# fuzz            Pass damaged input to every reader. Each must refuse it in one line. Takes minutes.
# page            Write the page as a web site with all bundled models to OUT.
# release-models  Train and evaluate the bundled 6x6 models again, and write the files that depend on them.
#                 DEMO=smoke replaces them by untrained ones in a minute, to try it in a copy of the repository.
# space           Write the files of a static Hugging Face Space to OUT.
# CI runs check, docs and test-all (.ci/run).
DEMO ?= full
OUT ?= runs/demo
RUN = .venv/bin/latent-tokens
PYTHON = .venv/bin/python
BASE = .venv/.base
READY = .venv/.ready
MANUAL = .venv/.manual
NODE_MODULES = web/node_modules/.package-lock.json
NPM := $(shell command -v npm)
NO_NPM = npm is missing: web/ was not checked
PARALLEL = -n 2 --dist loadfile --no-loadscope-reorder

# Else each process compiles the package and its tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo release-models test test-all check lint types check-page page drill fuzz docs space

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x .venv/bin/python || python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $(READY)

$(BASE): pyproject.toml constraints.txt
	test -x .venv/bin/python || python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -e . -c constraints.txt
	touch $(BASE)

demo: $(if $(wildcard $(READY)),$(READY),$(BASE))
	rm -rf $(OUT)
	$(RUN) demo --out $(OUT) --scale $(DEMO)

release-models: OUT = runs/release
release-models: setup
	rm -rf $(OUT)
	$(RUN) demo --out $(OUT) --every-method --precision fp32 --scale $(DEMO)
	.venv/bin/python scripts/release_models.py $(OUT)/bundled/sudoku-6-*
	.venv/bin/python scripts/page_examples.py --scale $(DEMO)

test: setup
	.venv/bin/pytest $(PARALLEL) -m "not slow"

test-all: $(if $(NPM),$(NODE_MODULES)) setup
	CHECK_SHAPES=1 .venv/bin/pytest $(PARALLEL) -m shapes
	.venv/bin/pytest $(PARALLEL) -m "not shapes"
	OMP_NUM_THREADS=1 $(PYTHON) benchmarks/bench.py --check --max-drop 0.5

check: lint types check-page

types: setup
	.venv/bin/mypy

lint: setup
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/lint-imports
	.venv/bin/python scripts/lint_docs.py
	-@.venv/bin/pip-audit --skip-editable --progress-spinner off --timeout 5 2>&1 \
		| awk '/could not be audited/ { unknown++; next } { print } END { if (unknown) print unknown, "packages could not be looked up" }'

# With NEEDS_NODE, as in .ci/run, a missing npm is an error.
check-page: $(if $(NPM)$(NEEDS_NODE),$(NODE_MODULES))
	@$(if $(NPM)$(NEEDS_NODE),cd web && npm run --silent check && npm test --silent,echo "$(NO_NPM)")

$(NODE_MODULES): web/package-lock.json
	cd web && npm ci --silent

drill: setup
	OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= PYTHONPATH=tests .venv/bin/python -m faults.drill

fuzz: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests .venv/bin/python -m faults.fuzz

docs: $(MANUAL)
	rm -rf site
	.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going -b html -c docs . site

$(MANUAL): $(READY)
	.venv/bin/pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	touch $(MANUAL)

page: OUT = runs/page
space: OUT = runs/space
page space: $(if $(wildcard $(READY)),$(READY),$(BASE))
	rm -rf $(OUT)
	$(PYTHON) scripts/site.py $(OUT)
	$(if $(filter space,$@),cp space/README.md $(OUT))
