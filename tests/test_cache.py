"""Compiled programs are kept where nothing speaks against it, and nothing fails where something does."""

import logging
import os
import time
import warnings
from pathlib import Path

import platformdirs
import pytest

from nvil import compiling
from nvil.cli import cache

DIR = "JAX_COMPILATION_CACHE_DIR"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    monkeypatch.delenv(DIR)


def test_programs_are_kept_in_the_user_s_cache_folder(tmp_path):
    with cache.kept_programs():
        folder = Path(os.environ[DIR])
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path / "cache" / "compiled")


def test_a_folder_that_the_user_named_is_theirs(tmp_path, monkeypatch):
    monkeypatch.setenv(DIR, "mine")
    with cache.kept_programs():
        assert os.environ[DIR] == "mine"
    assert not (tmp_path / "cache").exists()


def test_where_no_folder_can_be_none_is_used(tmp_path):
    (tmp_path / "cache").write_text("a file in the way")
    with cache.kept_programs():
        assert DIR not in os.environ


def test_the_programs_not_used_for_longest_go_first(monkeypatch):
    monkeypatch.setattr(cache, "LARGEST", 250)
    folder = cache._folder()
    folder.mkdir(parents=True)
    for i, name in enumerate(("old", "older", "new")):
        path = folder / f"{name}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (time.time() - (500, 1000, 0)[i],) * 2)
    with cache.kept_programs():
        assert {path.name for path in folder.iterdir()} == {"old-cache", "new-cache"}


def test_a_program_that_cannot_be_read_does_not_stay_and_other_warnings_are_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with cache.kept_programs():
            damaged = Path(os.environ[DIR], "damaged-cache")
            damaged.write_bytes(b"cut off")
            warnings.warn("something else", stacklevel=1)
            assert damaged.exists()
            warnings.warn("Error reading persistent compilation cache entry for 'jit': ZstdError", stacklevel=1)
            warnings.warn("Error writing persistent compilation cache entry for 'jit': OSError", stacklevel=1)
            assert not damaged.exists()
    assert shown == ["something else"]


def test_what_is_compiled_is_said_where_it_takes_long(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "nvil")
    with compiling.compiling("nothing"):
        pass
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    with compiling.compiling("the training loop"):
        for _ in range(100):
            if caplog.messages:
                break
            time.sleep(0.05)
    assert caplog.messages == ["Compiling the training loop ..."]
