# Needs only make and Python 3.11 or newer. Without make: python tools/course.py book
PYTHON ?= python3
ARGS ?=

.PHONY: help book test student nbgrader clean

help:
	@echo "make book      install what is needed, build the book, say how to open it"
	@echo "make test      install what is needed, run every test (ARGS=\"-k gibbs\" for some)"
	@echo "make student   notebooks to work in, in student/; says how to open them"
	@echo "make nbgrader  assignments for nbgrader, in nbgrader/source/"
	@echo "make clean     remove what was built; student/ and nbgrader/ stay"

book:
	@$(PYTHON) tools/course.py book

test:
	@$(PYTHON) tools/course.py test -- $(ARGS)

student nbgrader:
	@$(PYTHON) tools/course.py $@

clean:
	@$(PYTHON) tools/course.py clean
