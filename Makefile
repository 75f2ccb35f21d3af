# make demo   a spec to a kernel, checked, in a fresh virtual environment
# make test   the whole suite;  make quick: without the slow tests
# make lint   ruff, black, mypy
# make fuzz   N=1000 drawn specs, SEED=0; findings go to build/fuzz

PYTHON ?= python3
BIN    := .venv/bin

.PHONY: demo test quick fuzz lint clean

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

lint: .venv/linters
	$(BIN)/ruff check tritongen tests benchmarks
	$(BIN)/black --check tritongen tests benchmarks
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

.venv/linters: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
