# setup: the environment for development.  demo: train, vary the number of latent tokens, draw the curve. It needs no extra.
# test: the fast tests.  test-all: also browsers, builds, process groups and a short drill.  CI runs check, docs and test-all.
# test-all ends with the ratios of speeds, alone: none may have lost half of what src/latent_tokens/bench/ratios.json stores.
# drill: breaks a training run hundreds of times, which must end as if nothing had been; minutes.
# release-models: train and evaluate the bundled 6x6 models again, and write all that depends on them.
# check also says which of what is installed has a known weakness, where a network can tell; that fails nothing.
# fuzz: every reader is given what it must refuse, for minutes.  docs: the manual as a site in site/; a broken link fails.
# page-sources: the generated files of the page, from web/. check also checks web/, if npm is installed.
# page: the page without a server, as a site in dist/page and as one file, dist/latent-tokens.html.
# space: what a Hugging Face Space of the app holds, in OUT.
DEMO ?= full
OUT ?= runs/demo
RUN = .venv/bin/latent-tokens
BASE = .venv/.base
READY = .venv/.ready
MANUAL = .venv/.manual
NODE_MODULES = web/node_modules/.package-lock.json
NPM := $(shell command -v npm)
NO_NPM = npm is missing: web/ was not checked
PARALLEL = -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo release-models test test-all check check-page page page-sources drill fuzz docs space

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
	$(RUN) demo --out $(OUT) --every-method --precision fp32
	.venv/bin/python scripts/release_models.py $(OUT)/shipped/sudoku-6-*
	.venv/bin/python scripts/examples.py

test: setup
	.venv/bin/pytest $(PARALLEL) -m "not slow"

test-all: setup $(if $(NPM),$(NODE_MODULES))
	.venv/bin/pytest $(PARALLEL) --ignore tests/test_compiling.py
	CHECK_SHAPES= .venv/bin/pytest tests/test_compiling.py  # torch.compile cannot trace checks of shapes
	OMP_NUM_THREADS=1 $(RUN) bench --check --max-drop 0.5

check: setup check-page
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	-@.venv/bin/pip-audit --skip-editable --progress-spinner off --timeout 5 2>&1 \
		| awk '/could not be audited/ { unknown++; next } { print } END { if (unknown) print unknown, "packages could not be looked up" }'

# With NEEDS_NODE, as in .ci/run, a missing npm is an error.
check-page: $(if $(NPM)$(NEEDS_NODE),$(NODE_MODULES))
	@$(if $(NPM)$(NEEDS_NODE),cd web && npm run --silent check && npm test --silent,echo "$(NO_NPM)")

page-sources: $(NODE_MODULES)
	cd web && npm run --silent build

page: setup
	.venv/bin/python scripts/static_page.py

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

space: OUT = runs/space
space:
	rm -rf $(OUT)
	mkdir -p $(OUT)
	cp -r space/. pyproject.toml constraints.txt LICENSE src $(OUT)
	find $(OUT) -name __pycache__ -prune -exec rm -rf {} +
