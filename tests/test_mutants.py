"""The list of mutants does not rot: `make mutants` runs them, this only sees that each can still be made."""

import re

import pytest

from mutants import MUTANTS, PACKAGE, ROOT, verdict


def test_there_are_many_and_each_is_its_own():
    assert len(MUTANTS) >= 45
    assert len({mutant.name for mutant in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_names_tests_that_exist(mutant):
    text = (ROOT / PACKAGE / mutant.file).read_text()
    assert mutant.applied(text) != text
    assert mutant.tests
    for test in mutant.tests:
        file, function = re.fullmatch(r"(tests/\w+\.py)::(\w+)(?:\[.*\])?", test).groups()
        assert f"\ndef {function}(" in (ROOT / file).read_text(), test


@pytest.mark.parametrize(
    ("code", "output", "killed"),
    [
        (1, "FAILED tests/test_a.py::test_b[1] - assert 1 == 2", True),
        (1, "FAILED tests/test_a.py::test_b - AssertionError: \nMore", True),
        (1, "FAILED tests/test_a.py::test_b - Failed: DID NOT RAISE <class 'X'>", True),
        (1, "FAILED tests/test_a.py::test_b - NameError: name 'x' is not defined", False),
        (1, "ERROR tests/test_a.py::test_b - AssertionError", False),
        (2, "ERROR tests/test_a.py", False),
        (4, "not found", False),
        (0, "1 passed", False),
        (-14, "", False),  # it did not end in time
    ],
)
def test_only_a_failed_assertion_kills(code, output, killed):
    assert verdict(code, output)[0] == killed
