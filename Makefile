# Two commands: `make lab` and `make test`. All the work is in tools/bootstrap.py.
#   ARGS="..."      goes through to the program      make test ARGS="-k grid"
#   PYTHON=, VENV=  choose the interpreter and the place of the environment
export PYTHON VENV
RUN = @sh tools/bootstrap.sh run
# After a program that failed; 75 is a set-up that failed, and has said how to go on.
next = { [ $$? -ne 75 ] || exit 75; echo; echo "To go on:  $(1)"; exit 1; }

.DEFAULT_GOAL = help
.PHONY: help lab formgrader test build check fix hooks bench tables lock

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1	/p' Makefile

lab:  ## set everything up and open JupyterLab at the first notebook
	@sh tools/bootstrap.sh lab $(ARGS)

formgrader:  ## for instructors: JupyterLab on the whole course, with nbgrader's Formgrader
	@sh tools/bootstrap.sh formgrader $(ARGS)

# On all cores, each file in one process, in the order of folders: the long ones come first. Without the browser's and the
# campaign, minutes each, which CI runs too. What ARGS names runs in one process.
test:  ## set everything up and run the tests
	$(RUN) pytest $(or $(ARGS),-n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m "not browser and not campaign")

build:  ## build the student notebooks from solutions/
	$(RUN) autograder build $(ARGS)

# The quickest tests that cover the most: all that asks only for a schedule, the face, the rules of the house.
FAST = tests/test_types.py tests/test_environment.py tests/course/test_coverage.py \
    tests/autograder/test_exercise.py tests/autograder/test_predict.py \
    $(addprefix tests/unit/test_,$(addsuffix .py,architecture names docstrings schedule pipeline contract hazards \
        timeline hardware))

check:  ## before each commit, in half a minute: lint, types on the public face, the quickest tests
	$(RUN) ruff check || $(call next,make fix)
	$(RUN) mypy || $(call next,mend the lines above and run make check again)
	$(RUN) pytest -q --no-header $(FAST) $(ARGS)

fix:  ## mend what the linter can mend itself
	$(RUN) ruff check --fix || $(call next,mend the lines above by hand; then make check)

hooks:  ## run lint, types and `build --check` at each git commit (pre-commit)
	@test -x .venv-hooks/bin/pre-commit || { $${PYTHON:-python3} -m venv .venv-hooks && .venv-hooks/bin/pip install -q pre-commit; } \
	    || $(call next,mend what the lines above say and run make hooks again (PYTHON= chooses another Python))
	@.venv-hooks/bin/pre-commit install

bench:  ## measure the numbers that the README gives
	$(RUN) benchmarks $(ARGS)

tables:  ## measure again, and put the numbers into the README and docs
	$(RUN) benchmarks --write $(ARGS)

# uv makes one lock for all supported Pythons, which pip cannot. It has a folder of its own: only maintainers need it.
# Pins stay where they can; ARGS=--upgrade moves them all.
lock:  ## bring requirements.lock up to date with pyproject.toml
	@test -x .venv-lock/bin/uv || { $${PYTHON:-python3} -m venv .venv-lock && .venv-lock/bin/pip install -q uv; }
	@.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra course --extra test --no-annotate \
	    --custom-compile-command "make lock" $(ARGS) pyproject.toml --output-file requirements.lock
