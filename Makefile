# Each target sets up what it needs in .venv. `make` without a target lists them.
PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
# Two simultaneous installs would break .venv.
.NOTPARALLEL:
# Images with Python often set this. Each of the hundreds of programs that the tests start would compile
# the project again, and each process of pytest would rewrite the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo demo-spark test versions coverage check docs dist constraints browser pictures bench growth soak spark-matrix hostile jepsen clients damage mutants upstream protos clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/cli.stamp ## publish, deliver and verify real records (FILE=lines.txt: your own)
	@$(BIN)/python samples/demo.py $(if $(FILE),--file "$(FILE)")

demo-spark: .venv/cli,delta.stamp ## by Spark: a Delta table with its lag, and windows of time
	@$(BIN)/python samples/spark_table.py
	@$(BIN)/python samples/spark_windows.py

# Three processes run the Spark tests, and all share the others. They wait as long as they compute.
test: .venv/dev.stamp .venv/spark-classes.jsa ## run the whole test suite (ARGS="-k lease": part of it)
	@$(BIN)/python -m pytest --numprocesses 6 --dist loadgroup $(ARGS)

# Each version has its environment in build/. The tests of Spark are skipped for Python 3.10.
versions: ## run the suites with other versions of Python (PYTHONS="python3.10 python3.13")
	@test -n "$(PYTHONS)" || { echo 'make versions PYTHONS="python3.10 python3.13"'; exit 2; }
	@set -e; for python in $(PYTHONS); do \
		version=$$($$python -c 'import platform; print(platform.python_version())'); \
		echo "== Python $$version"; \
		test -x build/python-$$version/bin/pip || $$python -m venv build/python-$$version; \
		build/python-$$version/bin/python $(PIP_INSTALL) --editable '.[test,interop]'; \
		build/python-$$version/bin/python -m pytest --numprocesses 2 --dist loadgroup $(ARGS); \
	done

coverage: .venv/dev.stamp ## measure how much of the central folders their own tests cover (ARGS="-k lease")
	@$(BIN)/python -m tests.covered $(ARGS)

check: .venv/dev.stamp ## run the linters, the formatter's check and the type checker
	$(BIN)/ruff check
	$(BIN)/python -m tests.identifiers
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: .venv/dev.stamp ## build the documentation site in build/site; warnings are errors
	@$(BIN)/python docs/generate.py
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

dist: .venv/release.stamp ## build and check the source distribution and the wheel, and run the wheel's broker
	@rm -rf dist build/wheel-venv
	@$(BIN)/python -m build --quiet
	@$(BIN)/python -m twine check --strict dist/*
	@$(PYTHON) -m venv build/wheel-venv
	@build/wheel-venv/bin/python $(PIP_INSTALL) "$$(ls dist/*.whl)[emulator]"
	@build/wheel-venv/bin/python -m pullstream_emulator --help >/dev/null
	@build/wheel-venv/bin/pullstream --version

constraints: ## write .ci/constraints.txt, with the newest versions that pyproject.toml allows
	@$(PYTHON) -m venv --clear build/constraints-venv
	@PIP_CONSTRAINT= build/constraints-venv/bin/python $(PIP_INSTALL) --editable '.[dev]'
	@sed -i.old '/^[^#]/d' .ci/constraints.txt && rm .ci/constraints.txt.old
	@build/constraints-venv/bin/python -m pip freeze --exclude-editable >> .ci/constraints.txt

browser: .venv/dev.stamp ## open every screen of the console in Chromium at three widths, light and dark (ARGS="--out DIR")
	@$(BIN)/python -m tests.emulator.console.screenshots $(ARGS)

pictures: .venv/dev.stamp ## write the pictures of the console in docs/
	@$(BIN)/python -m tests.emulator.console.screenshots --docs

bench: .venv/dev,bench.stamp ## measure the SDK beside the official client (ARGS="--case '10 per'": a part)
	@$(BIN)/python -m tests.bench.run $(ARGS)

growth: .venv/dev.stamp ## measure how CPU and memory grow with everything that users have more of, an hour (ARGS="--only keys": a part)
	@$(BIN)/python -m tests.growth.run $(ARGS)

soak: .venv/dev.stamp ## ten minutes on a broker with faults (ARGS="--seconds 60": less), two of publishing, then Spark killed again and again, five minutes for each table (TABLE_ARGS="--seconds 60 --require"), and a quarter of an hour with three receivers (RECEIVER_ARGS="--spool s3")
	@$(BIN)/python -m tests.soak.run $(ARGS)
	@$(BIN)/python -m tests.soak.publish $(ARGS)
	@$(BIN)/python -m tests.soak.spark $(SPARK_ARGS)
	@$(BIN)/python -m tests.soak.receiver_starts
	@$(BIN)/python -m tests.soak.tables $(TABLE_ARGS)
	@$(BIN)/python -m tests.soak.receivers $(RECEIVER_ARGS)

spark-matrix: .venv/dev.stamp ## run other versions of Spark, read our tables with Delta's and Iceberg's own jars, and write the table of versions into the docs (ARGS=--missing: only what it lacks)
	@$(BIN)/python -m tests.spark_matrix.run $(ARGS)

clients: .venv/dev.stamp ## run Google's clients in Go, Java, Node and Python, and Apache Beam on this broker and on Google's (ARGS="--only 'go/*'")
	@$(BIN)/python -m tests.clients.run $(ARGS)

hostile: .venv/dev.stamp ## run the SDK for ten minutes on a server whose answers are wrong in every form (ARGS="--seconds 60": less)
	@$(BIN)/python -m tests.hostile.run $(ARGS)

jepsen: .venv/dev.stamp ## kill and stop every process, ten minutes for each durability class (ARGS="--durability disk": one)
	@$(BIN)/python -m tests.jepsen.run $(ARGS)

damage: .venv/dev.stamp ## damage a data directory in 2,550 ways: none may go unnoticed (ARGS="--seed 7")
	@$(BIN)/python -m tests.soak.damage $(ARGS)

mutants: .venv/dev.stamp ## change single tokens of the rules for ordering keys: the tests must fail (ARGS="streaming/failed_key.py --count 60")
	@$(BIN)/python -m tests.mutants.run $(ARGS)

upstream: .venv/dev.stamp .venv-upstream/suites.stamp ## run Google's own Python suites on the broker (UPSTREAM=path of their source)
	@$(BIN)/python -m tests.upstream.run "$(UPSTREAM)" --python "$(CURDIR)/.venv-upstream/bin/python" $(ARGS)

protos: .venv-protos/compiler.stamp ## generate protocol/pullstream_protocol/messages/*_pb2.* from the .proto files
	@.venv-protos/bin/python protocol/pullstream_protocol/messages/generate.py

clean: ## remove everything that the other targets created
	rm -rf .venv .venv-protos .venv-upstream tests/interop/node/node_modules build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find protocol subscriber emulator tests samples docs -name __pycache__ -prune -exec rm -rf {} +

# .venv/NAME.stamp: the project with its extra NAME was installed after the last change of pyproject.toml.
.venv/%.stamp: pyproject.toml
	@echo "Setting up .venv with pullstream[$*] ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP_INSTALL) --editable '.[$*]'
	@touch $@

# Tests that start Spark start it more quickly with an archive of its classes, and run without it, too.
.venv/spark-classes.jsa: .venv/dev.stamp
	-@$(BIN)/python -m tests.quick_java

# A separate environment, because the compiler is older than the packages in .venv. generate.py states
# its version.
.venv-protos/compiler.stamp: protocol/pullstream_protocol/messages/generate.py
	@echo "Setting up .venv-protos ..."
	@test -x .venv-protos/bin/pip || $(PYTHON) -m venv .venv-protos
	@.venv-protos/bin/python $(PIP_INSTALL) \
		"grpcio-tools==$$(sed -n 's/^COMPILER_VERSION = "\(.*\)"/\1/p' $<)"
	@touch $@

# A separate environment: Google's suites need other versions, and clients of other clouds.
.venv-upstream/suites.stamp: tests/upstream/requirements.txt
	@echo "Setting up .venv-upstream ..."
	@test -x .venv-upstream/bin/pip || $(PYTHON) -m venv .venv-upstream
	@.venv-upstream/bin/python $(PIP_INSTALL) --requirement $<
	@touch $@
