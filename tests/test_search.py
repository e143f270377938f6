"""Binary codes: packed, searched by Hamming distance, kept in a file that is refused where it does not belong."""

import dataclasses
import io
import json
import shutil
import sys
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from nvil.cli import main
from nvil.codes import nearest, pack
from nvil.data.loading import load_cases, names_of
from nvil.runs import checkpoints
from nvil.runs.index import Index
from nvil.training import Best
from processes import plain_diagnose

TEXTS = {
    "train/space/1": "orbit moon orbit nasa launch",
    "train/space/2": "moon launch nasa",
    "train/faith/3": "god bible faith faith",
    "train/faith/4": "bible god church",
    "test/space/5": "nasa moon orbit",
    "test/faith/6": "church faith god",
}


def test_the_nearest_codes_are_those_with_the_fewest_other_bits():
    random = np.random.default_rng(0)
    codes, queries = random.random((50, 70)) < 0.5, random.random((4, 70)) < 0.5
    distances = (codes[None] != queries[:, None]).sum(axis=2)
    rows, found = nearest(pack(codes), pack(queries), 7)
    np.testing.assert_array_equal(rows, np.argsort(distances, axis=1, kind="stable")[:, :7])
    np.testing.assert_array_equal(found, np.take_along_axis(distances, rows, axis=1))
    assert nearest(pack(codes), pack(queries), 99)[0].shape == (4, 50)


def test_faiss_finds_codes_at_the_same_distances():
    pytest.importorskip("faiss", reason="faiss-cpu is an extra")
    random = np.random.default_rng(0)
    codes, queries = (pack(random.random((count, 70)) < 0.5) for count in (50, 4))
    np.testing.assert_array_equal(nearest(codes, queries, 7, by="faiss")[1], nearest(codes, queries, 7)[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on six short texts, after one update, with weights set by hand: unit 0 is for space, unit 1 for faith."""
    folder = tmp_path_factory.mktemp("search")
    for name, text in TEXTS.items():
        (folder / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "texts" / name).write_text(text)
    config = nvil.Config(data=str(folder / "texts"), hidden=(2,), updates=1, batch_size=2, validation=1)
    run = nvil.Run.from_config(folder / "run", config.resolved())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvil.Learner, "diagnose", plain_diagnose)
        list(run.fit())
    pair = run.load_best()
    space = np.isin(run.vocabulary, ["orbit", "moon", "nasa", "launch"])
    weights = jnp.asarray(np.stack([space, ~space], axis=1) - 0.5, jnp.float32)
    pair = eqx.tree_at(lambda pair: pair.inference.layers[0].logits.weights, pair, weights)
    checkpoints.save_best(folder / "run", Best(pair, 0.0, 1), "test")
    return run


def test_texts_are_indexed_and_found_from_the_command_line(run, capsys):
    texts = run.folder.parent / "texts"
    main(["index", str(run.folder), "--data", str(texts)])
    assert "6 cases, codes of 2 bits, 2 of them different" in capsys.readouterr().out
    main(["search", str(run.folder), "A launch to the MOON!", "--count", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines} == {name for name in TEXTS if "space" in name}
    assert {line.split()[0] for line in lines} == {"0"}
    main(["search", str(run.folder), "--like", "train/faith/3", "--count", "3", "--json"])
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert {hit["name"] for hit in hits} == {name for name in TEXTS if "faith" in name}
    main(["search", str(run.folder), "--data", str(texts), "--count", "1"])
    assert capsys.readouterr().out.splitlines()[0::2] == [f"case {i}" for i in range(6)]
    assert Index.build(run).names == Index.build(run, texts).names  # the run's own data
    streamed = dataclasses.replace(run, config=dataclasses.replace(run.config, data="-"))
    with pytest.raises(nvil.UsageError, match="was trained on a stream, which is not kept; give cases with `data`"):
        Index.build(streamed)


def test_the_cases_of_a_named_set_have_their_place_and_class_for_a_name():
    names, data = names_of("digits"), nvil.data.load("digits")
    assert {split: len(own) for split, own in names.items()} == {"train": 1500, "test": 297}
    assert names["test"][3] == f"test 3 ({data.labels['test'][3]})"
    cases = load_cases("digits", data.choices, visible=64, kind="binary")
    np.testing.assert_array_equal(cases, np.concatenate([data.train, data.test]))


def test_names_that_are_not_utf_8_are_shown_all_the_same(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.folder.parent / "texts", "texts")
    Path("texts/train/space/\udcff").write_text("moon nasa")  # the byte 255
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "utf-8"))
    main(["index", str(run.folder), "--data", "texts", "--out", "\udcff.npz"])
    main(["search", str(run.folder), "--index", "\udcff.npz", "--like", "train/space/1", "--count", "7"])
    main(["topics", str(run.folder), "--data", "texts", "--out", "topics.csv"])
    assert printed.getvalue().startswith(b"\xff.npz: 7 cases")
    assert "  train/space/\ufffd\n".encode() in printed.getvalue()
    assert "train/space/\ufffd" in Path("topics.csv").read_text(encoding="utf-8")


def test_a_short_text_counts_as_one_of_the_usual_length(run):
    """Twice the same words are the same code, in the index as in a query."""
    index = Index.build(run, run.folder.parent / "texts")
    once, twice = (index.search_text(run, "moon nasa god " * times, 6) for times in (1, 20))
    assert once == twice


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xylophone"], "No word of the query is one of the 8"),
        ([], "Say what to search for: a text, --data or --like, one of them"),
        (["moon", "--like", "x"], "Say what to search for"),
        (["--like", "x"], "The index has no case 'x'; its first is 'train/faith/3'"),
        (["moon", "--count", "0"], "--count must be at least 1, got 0"),
        (["moon", "--index", "none.npz"], " --out none.npz\n"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_a_sentence(run, words, said, capsys):
    Index.build(run, run.folder.parent / "texts").save(run.folder / "index.npz")
    with pytest.raises(SystemExit) as end:
        main(["search", str(run.folder), *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_an_index_of_other_parameters_or_of_nothing_is_refused(run, tmp_path):
    index = Index.build(run, run.folder.parent / "texts")
    path = tmp_path / "index.npz"
    index.save(path)
    assert Index.load(path, run).names == index.names
    stale = Index("another checksum", 1, index.codes, index.thresholds, index.names)
    stale.save(path)
    with pytest.raises(nvil.UsageError, match="was made with other parameters than"):
        Index.load(path, run)
    np.savez(path, codes=index.codes)
    with pytest.raises(nvil.UsageError, match="is not an index that nvil wrote"):
        Index.load(path, run)
    Index(index.parameters, 1, index.codes[:-1], index.thresholds, index.names).save(path)
    with pytest.raises(nvil.UsageError, match="is not an index that nvil wrote"):
        Index.load(path, run)
    path.write_bytes(b"no archive")
    with pytest.raises(nvil.UsageError, match="is not an index that nvil wrote"):
        Index.load(path, run)


def test_topics_from_the_command_line(run, tmp_path, capsys):
    main(["topics", str(run.folder), "--words", "4"])
    shown = capsys.readouterr().out
    assert "mean NPMI" in shown
    main(["topics", str(run.folder), "--out", str(tmp_path / "topics.csv")])
    assert "test/space/5" in (tmp_path / "topics.csv").read_text()
    main(["topics", str(run.folder), "--json"])
    topics = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(topics["topics"]) == 2
