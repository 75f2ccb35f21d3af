# make demo   a spec to a kernel, checked, in a fresh virtual environment
# make test   the whole suite;  make quick: without the slow tests
# make lint   ruff, black, mypy
# make site   the documentation, gallery and playground, as static files in build/site
# make browser  what the tests of the site need: Chromium and Node from Debian, selenium; without it they are skipped
# make fuzz   N=1000 drawn specs, SEED=0; findings go to build/fuzz

PYTHON ?= python3
BIN    := .venv/bin

.PHONY: demo test quick site browser fuzz lint clean

demo: .venv/installed
	$(BIN)/tritongen build specs/softmax.op -o build/demo
	cat build/demo/softmax.py
	$(BIN)/tritongen check specs/softmax.op

test: .venv/installed
	$(BIN)/python -m pytest -n 2 tests

quick: .venv/installed
	$(BIN)/python -m pytest -n 2 -m "not slow" tests

N    ?= 1000
SEED ?= 0

fuzz: .venv/installed
	$(BIN)/python -m tritongen.proof.fuzz --specs $(N) --seed $(SEED) --out build/fuzz

site: .venv/site website/playground/node_modules
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python website/playground/bundle.py build/site/play

browser: .venv/installed
	(command -v chromium && command -v chromedriver && command -v node && command -v npm) || \
	(apt-get update -qq && apt-get install -qq --no-install-recommends chromium chromium-driver nodejs npm)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser,site]'
	cd website/playground && npm ci --silent

lint: .venv/linters
	$(BIN)/ruff check tritongen tests benchmarks website
	$(BIN)/black --check tritongen tests benchmarks website
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

.venv/site: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	touch $@

website/playground/node_modules: website/playground/package-lock.json
	cd website/playground && npm ci --silent

.venv/linters: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
