"""Files, text and arrays as cases; what is ambiguous is asked, what is damaged is refused."""

import dataclasses
import functools
import gzip
import hashlib
import importlib.util
import io
import os
import struct
import tarfile
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import dump_svmlight_file, load_digits

import nvil
from nvil import UsageError
from nvil.data import Choices, Grey, SparseRows, load, load_cases, readers, registry, save_matrix
from nvil.data.corpora import lewis_tokens, reuters_stories
from nvil.data.matrices import write_documents
from nvil.data.readers import READ_ERRORS, read
from nvil.data.registry import NAMED, PREPARED, prepare_newsgroups, prepare_reuters
from nvil.data.sparse import stored_rows
from nvil.rows import as_rows, dense_blocks
from nvil.runs.cases import load_run_cases

SHARED = Path(__file__).parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data is not on this machine")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NVIL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def bits(rows=30, columns=16):
    return np.random.default_rng(0).integers(0, 2, (rows, columns)).astype(np.uint8)


def counts(rows=30, columns=16):
    return np.random.default_rng(0).poisson(0.7, (rows, columns))


def dense(rows):
    return np.concatenate(list(dense_blocks(rows, 1000)))


def all_of(path, **choices):
    (rows,) = read(Path(path), Choices(**choices)).splits.values()
    return dense(rows)


def write_bytes(path, content):
    Path(path).write_bytes(gzip.compress(content) if path.endswith(".gz") else content)


def write_idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    write_bytes(path, header + array.astype(np.uint8).tobytes())


def write_table(path, array, delimiter):
    text = "\n".join(delimiter.join(map(str, row)) for row in array.tolist()) + "\n"
    write_bytes(path, text.encode())


def write_docword(path, array):
    rows, columns = np.nonzero(array)
    lines = [*map(str, (*array.shape, len(rows)))]
    lines += [f"{r + 1} {c + 1} {array[r, c]}" for r, c in zip(rows, columns, strict=True)]
    Path(path).write_text("\n".join(lines) + "\n")
    Path(path.replace("docword", "vocab")).write_text("".join(f"word{i}\n" for i in range(array.shape[1])))


WRITERS = {
    "a.npy": np.save,
    "a.npz": lambda path, array: np.savez(path, array),
    "a.csv": lambda path, array: write_table(path, array, ","),
    "a.csv.gz": lambda path, array: write_table(path, array, ","),
    "a.tsv": lambda path, array: write_table(path, array, "\t"),
    "a.amat": lambda path, array: write_table(path, array, " "),
    "a-idx2-ubyte": write_idx,
    "a-idx2-ubyte.gz": write_idx,
    "a.svmlight": lambda path, array: dump_svmlight_file(
        array.astype(float), np.zeros(len(array)), path, zero_based=False
    ),
    "a.mtx": lambda path, array: scipy.io.mmwrite(path, scipy.sparse.coo_array(array)),
    "sparse.npz": lambda path, array: scipy.sparse.save_npz(path, scipy.sparse.csr_array(array)),
    "docword.a.txt": write_docword,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_back_what_was_written(name):
    for array in (bits(), counts()):
        WRITERS[name](name, array)
        np.testing.assert_array_equal(all_of(name), array)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_scipy_saves_matrices_in_several_layouts(layout):
    matrix = counts(16, 16)
    scipy.sparse.save_npz("a.npz", scipy.sparse.coo_array(matrix).asformat(layout))
    np.testing.assert_array_equal(all_of("a.npz"), matrix)
    scipy.sparse.save_npz("b.npz", scipy.sparse.dia_array(matrix))
    with pytest.raises(UsageError, match="layout 'dia'"):
        load("b.npz")


def test_sparse_values_become_binary_by_a_threshold_and_stay_sparse():
    matrix = counts()
    scipy.sparse.save_npz("a.npz", scipy.sparse.csr_array(matrix))
    data = load("a.npz", binarize="threshold", threshold=2.0, test=None)
    assert isinstance(data.train, SparseRows)
    np.testing.assert_array_equal(dense(data.train), load(matrix, binarize="threshold", threshold=2.0).train)
    middle = load("a.npz", binarize="threshold")
    assert middle.choices.threshold == matrix.max() / 2
    grey = load("a.npz", binarize="stochastic", white=float(matrix.max()))
    np.testing.assert_array_equal(grey.train.values, load(matrix, values="counts").train.matrix().toarray())


def test_counts_too_large_to_be_exact_are_refused():
    huge = scipy.sparse.csr_array(np.array([[2**32 + 1, 1], [1, 2]], np.int64))
    with pytest.raises(UsageError, match="holds one of 4"):
        load(huge)
    Path("docword.a.txt").write_text("2\n2\n2\n1 1 4294967298\n2 2 1\n")
    with pytest.raises(UsageError, match="holds one of 4"):
        load("docword.a.txt")


def test_other_words_are_not_taken_for_the_models():
    write_docword("docword.a.txt", counts())
    data = load("docword.a.txt")
    words = data.vocabulary
    assert load_cases("docword.a.txt", data.choices, visible=16, kind="counts", vocabulary=words).shape == (30, 16)
    Path("vocab.a.txt").write_text("".join(f"other{i}\n" for i in range(16)))
    with pytest.raises(UsageError, match="counts other words"):
        load_cases("docword.a.txt", data.choices, visible=16, kind="counts", vocabulary=words)
    assert load("docword.a.txt").fingerprint != data.fingerprint


@pytest.mark.parametrize("choices", [{"words": 3}, {"stop_words": "english"}, {"max_df": 0.5}, {"values": "counts"}])
def test_what_is_fixed_in_a_named_set_is_not_silently_ignored(choices):
    with pytest.raises(UsageError, match="of the data set 'digits' are"):
        load("digits", **choices)


def test_choices_of_words_are_refused_where_there_is_no_text_to_choose_them_from():
    write_docword("docword.a.txt", counts())
    write_table("a.csv", counts(), ",")
    save_matrix("matrix", scipy.sparse.csr_array(counts()), [f"w{i}" for i in range(16)])
    save_pictures("pictures", {f"{i}.png": picture for i, picture in enumerate(grey_pictures())})
    Path("words.txt").write_text("cat\ndog\n")
    Path("text.txt").write_text("cat\ndog\n" * 5)
    made = {"words": 3, "stop_words": "english", "max_df": 0.5, "vocabulary": "words.txt"}
    sources = {"docword.a.txt": "auto", "a.csv": "counts", "matrix": "auto", "pictures": "numbers"}
    for name, value in made.items():
        for source, values in sources.items():
            with pytest.raises(UsageError, match=rf"{source} is not text, so .* leave `{name}` out"):
                load(source, values=values, **{name: value})
        with pytest.raises(UsageError, match=rf"The data is not text, so .* leave `{name}` out"):
            load(counts(), values="counts", **{name: value})
        load("text.txt", **{name: 1.0 if name == "max_df" else value})
        if name != "vocabulary":
            with pytest.raises(UsageError, match=rf"words of a stream are those of `vocabulary`; leave `{name}` out"):
                load(iter(bits()), **{name: value})
    with pytest.raises(UsageError, match="leave `words` and `max_df` out"):
        load("a.csv", values="counts", words=3, max_df=0.5)
    data = load("a.csv", values="counts")
    assert load("a.csv", data.choices).choices == data.choices  # as a run has them written


def test_a_damaged_archive_without_a_published_checksum(monkeypatch, tmp_path):
    monkeypatch.setenv("NVIL_DATA", str(tmp_path))
    Path("reuters21578.tar.gz").write_bytes(b"no archive" * 100)
    with pytest.raises(UsageError, match="files of the data set 'reuters-21578' cannot be read"):
        load("reuters-21578")


def test_patterns_and_names_in_capitals():
    Path("p.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 1\n3 2\n")
    np.testing.assert_array_equal(all_of("p.mtx"), [[1, 0, 0], [0, 0, 0], [0, 1, 0]])
    write_bytes("A.CSV.gz", b"0,1\n1,0\n")
    Path("A.CSV.gz").rename("A.CSV.GZ")
    np.testing.assert_array_equal(all_of("A.CSV.GZ"), [[0, 1], [1, 0]])


def test_pictures_in_idx_files_are_flattened():
    write_idx("pictures-idx3-ubyte", bits(20, 16).reshape(20, 4, 4))
    data = load("pictures-idx3-ubyte")
    assert (data.train.shape, data.test.shape, data.image) == ((18, 16), (2, 16), (4, 4))


def test_what_is_inferred_is_said():
    np.save("bits.npy", bits())
    assert load("bits.npy").note == "binary: every value is 0 or 1"
    scipy.sparse.save_npz("counts.npz", scipy.sparse.csr_array(counts()))
    assert load("counts.npz").note == "word counts"
    np.save("grey.npy", np.arange(160, dtype=np.uint8).reshape(10, 16))
    assert "grey levels up to 255" in load("grey.npy", binarize="stochastic").note
    assert "at least 79.5" in load("grey.npy", binarize="threshold").note
    assert "at least 100" in load("grey.npy", binarize="threshold", threshold=100.0).note


@pytest.mark.parametrize(
    ("array", "choices", "message"),
    [
        (
            counts(),
            {},
            '`binarize="threshold"` or `binarize="stochastic"`, or, if they are word counts, say `values="counts"`',
        ),
        (bits() / 2, {}, '`binarize="threshold"` or `binarize="stochastic"`.'),
        (scipy.sparse.csr_array(bits()), {}, 'say `values="binary"` .* or `values="counts"`'),
        (counts() - 1, {"binarize": "stochastic"}, "values from -1"),
        (counts() - 1, {"values": "counts"}, "whole numbers from 0 up"),
        (counts() + 0.5, {"values": "counts"}, "whole numbers from 0 up"),
        (np.zeros((30, 3)), {"values": "counts"}, "is empty"),
        (bits(1), {}, "a single case"),
        (bits(), {"threshold": 3.0}, '`threshold` needs `binarize="threshold"`'),
        (bits(), {"white": 3.0}, '`white` needs `binarize="stochastic"`'),
        (bits(), {"values": "count"}, "did you mean 'counts'"),
        (bits(), {"binarize": "stochastik"}, "did you mean 'stochastic'"),
        (bits(), {"values": "counts", "binarize": "threshold"}, "do not go together"),
        (counts() + 0.5, {"values": "categories"}, "whole numbers from 0 up, but has [0-9.]+ at row 0, column 0"),
        (counts() - 1, {"values": "categories"}, "whole numbers from 0 up, but has -1 at row"),
        (np.zeros((30, 4)), {"values": "categories"}, "a single category, and nothing to model"),
        (np.eye(30) * 1000, {"values": "categories", "given": "5"}, 'Column 5 .* holds 1000, .* `drop_columns="5"`'),
        (counts(), {"values": "categories", "binarize": "threshold"}, "leave one out"),
        (iter(counts()), {"values": "categories"}, 'A stream is of bits or counts; `values="categories"` needs a file'),
        (np.full((30, 4), np.nan), {}, "not a finite number, at row 0, column 0"),
        (np.full((30, 4), np.inf), {"binarize": "threshold"}, "not a finite number"),
        (scipy.sparse.csr_array(np.eye(4) * 0.5), {"values": "binary"}, "values other than 0 and 1"),
    ],
)
def test_what_is_ambiguous_or_impossible_is_asked(array, choices, message):
    with pytest.raises(UsageError, match=message):
        load(array, **choices)


def test_arrays_frames_matrices_and_lists_are_data_too():
    frame = pandas.DataFrame(bits())
    mixed = frame.astype({0: bool, 1: "Int64"})
    for source in (bits(), bits().tolist(), frame, mixed):
        np.testing.assert_array_equal(load(source).train, load(bits()).train)
    sparse = load(scipy.sparse.csc_matrix(bits()), values="binary")
    assert isinstance(sparse.train, SparseRows)
    np.testing.assert_array_equal(dense(sparse.train), load(bits()).train)
    assert load(counts(), values="counts").documents
    given_test = load(bits(), test=bits(5))
    assert (given_test.train.shape, given_test.test.shape) == ((30, 16), (5, 16))
    for named in ("digits", Path("x.npy"), iter(bits())):
        with pytest.raises(UsageError, match="`test` is for training cases that are an array"):
            load(named, test=bits(5))
    both = load(counts(), Choices(values="numbers", drop_columns=("0",)), values="counts", given=1)
    assert both.choices == load(counts(), values="counts", drop_columns=0, given=1).choices
    with pytest.raises(UsageError, match="same number of them in every case"):
        load([[0, 1], [1, "a", None]])
    with pytest.raises(UsageError, match="must have one case per row"):
        load(np.zeros(3))
    for odd in ([["a", "b"], ["c", "d"]], np.zeros((3, 3), complex)):
        with pytest.raises(UsageError, match="numbers are needed"):
            load(odd)
    assert load(iter(bits())).test is None


def test_grey_levels_are_binarized_anew_at_every_draw_and_once_for_the_test():
    import jax

    grey = np.tile(np.asarray([0, 51, 255], np.uint8), (500, 1))
    data = load(grey, binarize="stochastic", white=255.0)
    assert isinstance(data.train, Grey)
    rows = data.train.on_device()
    picked = jax.numpy.arange(450)
    one, two = (np.asarray(rows.take(picked, jax.random.key(seed))) for seed in (0, 1))
    assert not np.array_equal(one, two)
    for draw in (one, two, data.test):
        assert set(np.unique(draw)) <= {0, 1}
        assert np.all(draw[:, 0] == 0)
        assert np.all(draw[:, 2] == 1)
        rate = draw[:, 1].mean()
        assert abs(rate - 0.2) / np.sqrt(0.16 / len(draw)) < 5
    np.testing.assert_array_equal(data.test, load(grey, binarize="stochastic", white=255.0).test)
    np.testing.assert_allclose(data.train.mean(), [0, 0.2, 1])


PIXELS = np.random.default_rng(1).random((40, 16)).round(3)
LABELS = np.random.default_rng(2).integers(0, 10, 40)


@pytest.mark.parametrize(
    ("column", "place", "scale", "why"),
    [
        (LABELS, 0, 1, "whole numbers up to 9, where no other value is above"),
        (LABELS, 16, 1, "whole numbers up to 9, where no other value is above"),
        (LABELS, 0, 255, "beside a square of 16"),  # as in the usual tables of MNIST, but smaller
        (np.arange(40), 0, 255, "it counts the cases"),
        (np.arange(1, 41), 16, 255, "it counts the cases"),
    ],
)
def test_a_label_or_an_index_is_noticed(column, place, scale, why, caplog):
    table = np.insert(np.ceil(PIXELS * scale) if scale > 1 else PIXELS, place, column, axis=1)
    for binarize, name in (("threshold", "threshold"), ("stochastic", "white")):
        with pytest.raises(UsageError, match=rf'{why}.*`drop_columns="{place}"`; if it is data .* give `{name}`'):
            load(table, binarize=binarize)
    with pytest.raises(UsageError, match=why):
        load(table)
    dropped = load(table, binarize="threshold", drop_columns=place)
    assert dropped.train.shape == (36, 16)
    assert dropped.image == (4, 4)
    assert load(table, binarize="threshold", threshold=scale / 2).train.shape == (36, 17)  # it is data, the user says
    assert f"column {place} is unlike the rest" in caplog.text


def test_a_header_names_the_columns_below_it():
    lines = "1,0,1,0\n0,1,1,0\n1,1,0,1\n" * 5
    Path("quoted.csv").write_text(f'a,"b, c",d,e\n{lines}')
    assert load("quoted.csv").names == ("a", "b, c", "d", "e")
    assert load("quoted.csv", given=("d",)).names == ("d", "a", "b, c", "e")
    np.testing.assert_array_equal(
        load("quoted.csv", drop_columns=("b, c",)).train, load("quoted.csv").train[:, [0, 2, 3]]
    )
    Path("numbered.csv").write_text(f"0,1,2,3,4\n{lines.replace(chr(10), ',1' + chr(10))}")
    assert load("numbered.csv").names is None
    Path("short.csv").write_text(f"a,b,c\n{lines}")
    with pytest.raises(UsageError, match=r"short\.csv.*its header has 3 names for 4 columns"):
        load("short.csv")
    Path("returns.csv").write_bytes(f"a,b,c,d\n{lines}".replace("\n", "\r").encode())
    assert load("returns.csv").names == ("a", "b", "c", "d")
    Path("endless.csv").write_text('"' + "a" * 200_000 + "\n1\n0\n")
    with pytest.raises(UsageError, match=r"Cannot read endless\.csv: field larger than field limit"):
        load("endless.csv")


def test_tables_as_spreadsheets_and_frames_write_them():
    """Quoted numbers, True and False in any case, and semicolons or tabs in the place of commas."""
    frame = pandas.DataFrame(bits(columns=5), columns=["a", "b, c", "d", "e", "f; g"])
    mixed = frame.astype({"a": bool, "f; g": bool})
    for case in ("True False", "TRUE FALSE", "true false"):
        for table in (frame, mixed, frame.astype(bool)):
            for how in ({}, {"quoting": 1}, {"header": False}, {"header": False, "quoting": 1}):
                for sign in (",", ";", "\t", ", "):
                    text = table.to_csv(index=False, sep=sign[0], **how).replace(sign[0], sign)
                    text = text.replace("b,  c", "b, c").replace("f;  g", "f; g")
                    for old, new in zip(("True", "False"), case.split(), strict=True):
                        text = text.replace(old, new)
                    for name in ("a.csv", "a.tsv"):
                        Path(name).write_text(text)
                        contents = read(Path(name))
                        np.testing.assert_array_equal(contents.splits["all"], frame.to_numpy())
                        assert contents.names == (None if "header" in how else tuple(frame.columns))
    Path("names.csv").write_text("False,True\n0,1\n1,0\n1,0\n")  # as dummies of a column of truths are called
    assert load("names.csv").names == ("False", "True")
    assert read(Path("names.csv")).splits["all"].shape == (3, 2)
    Path("text.csv").write_text('id;"said; by";a;b\n1; "x; true";1;True\n2;"y ""z""";0;False\n')
    np.testing.assert_array_equal(all_of("text.csv", drop_columns=("id", "said; by")), [[1, 1], [0, 0]])


def test_numbers_that_may_name_the_columns_of_bits_are_asked_about():
    lines = "".join(",".join(map(str, row)) + "\n" for row in bits(columns=4).tolist())
    Path("years.csv").write_text(f"2019,2020,2021,2022\n{lines}")
    for choices in ({}, {"binarize": "threshold"}, {"values": "counts"}):
        with pytest.raises(UsageError, match=r"first line of years\.csv \(2019, 2020, 2021, \.\.\.\) is unlike the 0s"):
            load("years.csv", **choices)
    Path("named.csv").write_text(f"y2019,y2020,y2021,y2022\n{lines}")
    assert read(Path("named.csv")).splits["all"].shape == (30, 4)
    for first in ("3,4,4,5", "3,4,0,5", "2.5,3,4,5"):  # repeated, among the values below, no whole number
        Path("case.csv").write_text(f"{first}\n{lines}")
        assert read(Path("case.csv")).splits["all"].shape == (31, 4)
    Path("case.csv").write_text(f"a,b,c,d\n2019,2020,2021,2022\n{lines}")
    assert read(Path("case.csv")).splits["all"].shape == (31, 4)
    Path("counts.csv").write_text(f"2,3,4,5\n{lines}0,0,2,0\n")
    assert read(Path("counts.csv")).splits["all"].shape == (32, 4)


def test_columns_with_names_of_their_own_are_no_picture():
    bits = np.random.default_rng(0).integers(0, 2, (40, 9))
    for names, image in (
        ([f"pixel{i}" for i in range(9)], (3, 3)),
        ([f"{i}x{j}" for i in range(3) for j in range(3)], (3, 3)),
        (["fever", "cough", "rash", "ache", "chills", "nausea", "cramp", "itch", "sweat"], None),
    ):
        np.savetxt("a.csv", bits, "%d", delimiter=",", header=",".join(names), comments="")
        assert load("a.csv").image == image
        np.savetxt("b.csv", np.c_[bits[:, 0], bits], "%d", delimiter=",", header=",".join(["on", *names]), comments="")
        assert load("b.csv", given=("on",)).image == image
    assert load("a.csv").names == tuple(names)
    counts = load("a.csv", values="counts")
    assert counts.vocabulary == counts.names == tuple(names)
    assert load("b.csv", given=("fever",), drop_columns=("itch",)).names == (
        *("fever", "on", "cough", "rash", "ache", "chills", "nausea", "cramp", "sweat"),
    )


def test_a_label_beside_bits_is_told_from_grey_levels():
    table = np.column_stack([bits(), np.arange(30) % 7])
    with pytest.raises(UsageError, match=r'column 16 is unlike the rest .*`drop_columns="16"`; the others are 0 and 1'):
        load(table)
    np.testing.assert_array_equal(load(table, drop_columns=-1).train, load(bits()).train)


@pytest.mark.parametrize("scale", [1, 255, 7.5])
def test_pictures_and_answers_are_not_taken_for_labels(scale):
    """Nor are answers from 1 to 5 to 17 questions, a square and one."""
    assert load(PIXELS * scale, binarize="threshold").train.shape == (36, 16)
    answers = np.random.default_rng(0).integers(1, 6, (200, 17))
    assert load(answers, binarize="threshold").train.shape == (180, 17)


def test_columns_are_dropped_by_name_or_place_from_tables_and_frames():
    frame = pandas.DataFrame(bits(), columns=[f"v{i}" for i in range(16)])
    frame.insert(0, "kind", ["cat", "dog"] * 15)
    frame.insert(3, "weight", frame["v0"] * 0.5)
    frame.to_csv("plain.csv", index=False)
    frame.to_csv("with_index.csv")
    frame.to_csv("tabs.tsv", index=False, sep="\t")
    expected = load(bits()).train
    for source, drop in (
        (frame, ("kind", "weight")),
        (frame, (0, 3)),
        ("plain.csv", ("weight", "kind")),
        ("plain.csv", ("0", "3")),
        ("with_index.csv", ("0", "kind", "weight")),
        ("tabs.tsv", ("kind", "-15")),
    ):
        np.testing.assert_array_equal(load(source, drop_columns=drop).train, expected)
    np.save("array.npy", np.column_stack([bits(), bits()[:, 0] / 2]))
    np.testing.assert_array_equal(load("array.npy", drop_columns=["-1"]).train, expected)
    np.savetxt("spaces.amat", np.column_stack([bits()[:, 0] / 2, bits()]))
    np.testing.assert_array_equal(load("spaces.amat", drop_columns=["0"]).train, expected)
    # a frame without names counts its columns, and that is a header
    pandas.DataFrame(bits()).to_csv("counted.csv", index=False)
    np.testing.assert_array_equal(load("counted.csv").train, expected)
    for source, drop, message in (
        ("plain.csv", (), "'cat' in line 2, column 'kind', is not a number, .* leave it out with `drop_columns` kind"),
        (frame, (), "The column 'kind' of the data does not hold numbers.*`drop_columns=\"kind\"`"),
        ("plain.csv", ("kinds",), "no column 'kinds' to drop; its columns are kind, v0, v1, weight, v2"),
        ("plain.csv", ("18",), "no column 18 to drop; it has 18, the first is 0"),
        ("array.npy", ("label",), "its columns have no names, only places from 0"),
        ("array.npy", tuple(map(str, range(17))), "leaves nothing of the 17 columns"),
        ("digits", ("0",), "The columns of the data set 'digits' are fixed"),
        (scipy.sparse.csr_array(bits()), ("0",), "there are no columns to drop"),
        (iter(bits()), ("0",), "A stream's columns cannot be dropped"),
    ):
        with pytest.raises(UsageError, match=message):
            load(source, drop_columns=drop)
    Path("ragged.csv").write_text("label,a,b\n1,0,1\n1,0\n")
    with pytest.raises(UsageError, match="line 3 has 2 columns, not 3"):
        load("ragged.csv", drop_columns="label")


def test_columns_of_other_tables_are_found_by_their_names(tmp_path):
    """Not by their places: a table of the same cases with its columns in another order is the same data."""
    draw = np.random.default_rng(0)
    names = ["rain", "sun", "wind", "snow", "fog"]
    frame = pandas.DataFrame(draw.integers(0, 2, (60, 5)), columns=names)
    moved, other = frame[names[::-1]], frame.rename(columns={"snow": "hail"})
    frame.to_csv("plain.csv", index=False)
    moved.to_csv("moved.csv", index=False)
    other.to_csv("other.csv", index=False)
    np.savetxt("bare.csv", frame.to_numpy(), fmt="%d", delimiter=",")
    for first, kind in (((), "binary"), (("wind", "sun"), "binary"), ((), "categories"), (("fog",), "numbers")):
        config = nvil.Config(data="plain.csv", hidden=(2,), given=first, values=kind)
        made = nvil.Run.from_config(tmp_path / f"run-{kind}-{len(first)}", config)
        made.write_config()
        run = nvil.Run.open(made.folder)
        assert run.facts.names == (*first, *(name for name in names if name not in first))
        wanted = as_rows(load_run_cases(run, "plain.csv")).dense()
        unnamed = (frame.to_numpy(), "bare.csv", frame.set_axis(range(5), axis=1))  # taken by their places
        for source in ("moved.csv", moved, frame, *(() if first else unnamed)):
            np.testing.assert_array_equal(as_rows(load_run_cases(run, source)).dense(), wanted)
        for source in ("other.csv", other):
            with pytest.raises(UsageError, match="does not have the column 'snow', which the model knows: rename"):
                load_run_cases(run, source)
    both = load(frame, test=moved)
    np.testing.assert_array_equal(both.test, frame.to_numpy())
    with pytest.raises(UsageError, match="The test data does not have the column 'snow'"):
        load(frame, test=other)
    own = nvil.Run.create(tmp_path / "own", nvil.sbn(5, (2,)), frame, updates=1)
    assert own.facts.names == tuple(names)
    assert nvil.Run.create(tmp_path / "bare", nvil.sbn(5, (2,)), frame.to_numpy(), updates=1).facts.names is None


def test_a_threshold_that_leaves_nothing_to_learn_is_refused(caplog):
    grey = np.random.default_rng(0).random((50, 40))
    grey[:, 20] *= 1000
    with pytest.raises(
        UsageError, match=r"With a threshold of [45]\d\d.*, 39 of the 40 variables of The data are the same"
    ):
        load(grey, binarize="threshold")
    load(grey, binarize="threshold", threshold=400.0)  # as asked, but it is said
    assert "39 of the 40 variables of The data are the same in every case" in caplog.text
    with pytest.raises(UsageError, match="40 of the 40 variables"):
        load(grey, binarize="threshold", threshold=2000.0)


def test_independent_variables_at_their_training_means():
    train, test = bits(20, 3), bits(7, 3)
    train[:, 2] = 0  # never on in training, on in the test
    on = (train.sum(axis=0) + 0.5) / 21
    likelihood = np.prod(np.where(test == 1, on, 1 - on), axis=1)
    for rows in (test, scipy.sparse.csr_array(test)):
        np.testing.assert_allclose(nvil.data.independent_bound(train, rows), np.log(likelihood).mean())


def test_categories_are_one_hot_and_their_independent_variables():
    table = np.array([[0, 2], [1, 0], [1, 1], [1, 2]])
    data = load(table, test=table[:2], values="categories", given="1")
    assert (data.kind, data.categories, data.context) == ("categories", 3, 3)
    np.testing.assert_array_equal(data.test, [[0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 1, 0]])
    rate = (np.array([1, 3, 0]) + 0.5) / (4 + 1.5)
    np.testing.assert_allclose(
        nvil.data.independent_bound(data.train, data.test, 3, 3), (np.log(rate[0]) + np.log(rate[1])) / 2
    )
    np.testing.assert_allclose(
        nvil.data.factorial_bound(data.train, 0, 3),  # the entropies of (1/4, 3/4) and (1/4, 1/4, 1/2)
        0.25 * np.log(0.25) + 0.75 * np.log(0.75) + 0.5 * np.log(0.25) + 0.5 * np.log(0.5),
    )


def test_new_cases_are_made_what_the_training_cases_were():
    np.save("grey.npy", np.arange(160, dtype=np.uint8).reshape(10, 16))
    np.save("new.npy", np.full((3, 16), 90, np.uint8))  # on its own it would be all on
    choices = load("grey.npy", binarize="threshold").choices
    assert load_cases("new.npy", choices, visible=16, kind="binary").sum() == 48
    choices = load("grey.npy", binarize="threshold", threshold=100.0).choices
    assert load_cases("new.npy", choices, visible=16, kind="binary").sum() == 0
    choices = load("grey.npy", binarize="stochastic").choices
    drawn = load_cases("new.npy", choices, visible=16, kind="binary")
    assert 0 < drawn.mean() < 1
    with pytest.raises(UsageError, match="has 16 columns, but the model was trained on 9"):
        load_cases("new.npy", choices, visible=9, kind="binary")


def test_svmlight_counts_from_one_unless_told():
    matrix = counts()
    dump_svmlight_file(matrix, np.zeros(30), "zero.svm", zero_based=True)
    with pytest.raises(UsageError, match="say `first_index=0`"):
        load("zero.svm")
    np.testing.assert_array_equal(all_of("zero.svm", first_index=0), matrix)
    # a narrower file is as wide as the model expects
    Path("one.svm").write_text("0 2:3\n")
    cases = load_cases("one.svm", Choices(), visible=16, kind="counts")
    assert cases.shape == (1, 16)
    assert dense(cases)[0, 1] == 3


def write_texts(folder, texts):
    for name, text in texts.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


TEXTS = {
    "train/a/1.txt": "The cat saw the dog; the dog ran.",
    "train/b/2.txt": "A dog, a dog!",
    "test/a/3.txt": "cat zebra",
    "test/b/4.txt": "Über caf\xe9".encode("latin-1"),
}


def test_folders_archives_and_lines_of_text(tmp_path):
    write_texts("corpus", TEXTS)
    with tarfile.open("corpus.tar.gz", "w:gz") as archive:
        archive.add("corpus", "corpus")
    for source in ("corpus", "corpus.tar.gz"):
        data = load(source, stop_words="none")
        assert data.vocabulary == ("cat", "dog", "ran", "saw", "the")
        np.testing.assert_array_equal(dense(data.train), [[1, 2, 1, 1, 3], [0, 2, 0, 0, 0]])
        np.testing.assert_array_equal(dense(data.test), [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
        assert "1 documents with bytes that are not UTF-8" in data.note
        assert data.labels == {"train": ("a", "b"), "test": ("a", "b")}
    assert load("corpus", words=2, stop_words="none").vocabulary == ("dog", "the")
    default = load("corpus")
    assert default.vocabulary == ("cat", "dog", "ran", "saw")
    assert (default.choices.stop_words, default.choices.max_df) == ("english", 1.0)
    Path("lines.txt").write_text("one cat\ntwo dogs\n" * 10)
    data = load("lines.txt", stop_words="none")
    assert data.train.shape == (18, 4)
    # new text is counted in the run's own words
    Path("new.txt").write_text("cat cat unknown\n")
    cases = load_cases("new.txt", data.choices, visible=4, kind="counts", vocabulary=data.vocabulary)
    np.testing.assert_array_equal(dense(cases), [[2, 0, 0, 0]])
    for name, text in (("empty.txt", ""), ("numbers.txt", "1 2 3\n4\n")):
        Path(name).write_text(text)
        with pytest.raises(UsageError, match="holds no words"):
            load(name)
    Path("nothing").mkdir()
    with pytest.raises(UsageError, match="holds no words"):
        load("nothing")


def save_pictures(folder, arrays, **options):
    for name, array in arrays.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path, **options)


def grey_pictures(count=12, shape=(5, 4)):
    return np.random.default_rng(0).integers(0, 256, (count, *shape)).astype(np.uint8)


def test_a_folder_of_pictures_is_grey_levels():
    pictures = grey_pictures()
    names = [f"{'ab'[i % 2]}/{i:02}.{'PNG' if i % 3 else 'png'}" for i in range(12)]  # folders of classes
    save_pictures("pictures", dict(zip(names, pictures, strict=True)))
    Path("pictures/.DS_Store").write_bytes(b"\0")
    (rows,) = read(Path("pictures")).splits.values()
    np.testing.assert_array_equal(rows, pictures[np.argsort(names)].reshape(12, 20))
    data = load("pictures", binarize="stochastic")
    assert (data.train.shape, data.test.shape, data.image, data.choices.white) == ((11, 20), (1, 20), (5, 4), 255)
    with pytest.raises(
        UsageError, match='`binarize="stochastic"`, or, to model them as they are, say `values="numbers"`'
    ):
        load("pictures")
    cases = load_cases("pictures", data.choices, visible=20, kind="binary")
    assert cases.shape == (12, 20)
    # splits by folder, as texts have them
    save_pictures("split", {f"{'test' if i < 3 else 'train'}/{i}.png": picture for i, picture in enumerate(pictures)})
    data = load("split", binarize="threshold")
    np.testing.assert_array_equal(data.test, pictures[:3].reshape(3, 20) >= data.choices.threshold)
    # colours become grey, what is transparent white, and JPEG is near enough
    colour = np.zeros((2, 5, 4, 4), np.uint8)
    colour[1, :, :, :3], colour[1, :, :, 3] = 100, 255
    save_pictures("colour", {"0.png": colour[0], "1.png": colour[1]})
    np.testing.assert_array_equal(all_of("colour"), np.repeat([[255], [100]], 20, axis=1))
    smooth = np.add.outer(np.arange(8), np.arange(8)).astype(np.uint8) * 9
    save_pictures("jpeg", {"a.jpg": smooth, "b.JPEG": smooth}, quality=95)
    np.testing.assert_allclose(all_of("jpeg")[0], smooth.ravel(), atol=5)


def test_what_does_not_belong_in_a_folder_is_named():
    pictures = grey_pictures()
    save_pictures("sizes", {"0.png": pictures[0], "1.png": pictures[1], "2.png": pictures[2].T, "3.png": pictures[3].T})
    save_pictures("mixed", {f"{i}.png": picture for i, picture in enumerate(pictures)})
    Path("mixed/notes.txt").write_text("not a picture")
    save_pictures("deep", {"0.png": pictures[0].astype(np.uint16) * 256})
    save_pictures("damaged", {"0.png": pictures[0], "1.png": pictures[1]})
    Path("damaged/1.png").write_bytes(Path("damaged/1.png").read_bytes()[:60])
    write_texts("lies", {"0.png": b"no picture"})
    write_texts("texts", {**TEXTS, "train/a/logo.bin": b"\x7fELF\x01\0\0", "train/a/z.pdf": b"%PDF-1.4"})
    write_texts("packed", {**TEXTS, "train/a/0.gz": gzip.compress(b"a text")})
    write_texts("tables", {"a.txt": "some text", "b.csv": "0,1\n"})
    save_pictures("few", {"0.png": pictures[0]})
    write_texts("few", TEXTS)
    with tarfile.open("few.tar.gz", "w:gz") as archive:
        archive.add("few", "few")
    Path("binary.txt").write_bytes(b"one line\nanother\0line\n")
    for source, message in {
        "sizes": r"sizes/2.png is a picture of 5x4, and sizes/0.png of 4x5; all must be of one size",
        "mixed": r"mixed/notes.txt is not a picture",
        "deep": r"deep/0.png has more than 8 bits per pixel",
        "damaged": r"The picture damaged/1.png cannot be read",
        "lies": r"The picture lies/0.png cannot be read",
        "texts": r"texts/train/a/logo.bin is not text",
        "packed": r"packed/train/a/0.gz is not text",
        "tables": r"tables/b.csv is a file of data, not a text among texts",
        "few": r"few/0.png is not text",
        "few.tar.gz": r"few.tar.gz, few/0.png is not text",
        "binary.txt": r"binary.txt is not text",
    }.items():
        with pytest.raises(UsageError, match=message):
            load(source, binarize="threshold" if source in ("sizes", "mixed", "deep", "damaged", "lies") else None)


def test_a_folder_of_idx_files_is_pictures_with_their_test_set():
    pictures = grey_pictures(20)
    Path("raw").mkdir()
    write_idx("raw/train-images-idx3-ubyte", pictures[:15])
    write_idx("raw/train-images-idx3-ubyte.gz", pictures[:15])  # torchvision leaves both
    write_idx("raw/train-labels-idx1-ubyte.gz", np.arange(15))
    Path("raw/README.md").write_text("of where it is from")
    contents = read(Path("raw"))
    assert {name: rows.shape for name, rows in contents.splits.items()} == {"all": (15, 20)}
    write_idx("raw/t10k-images-idx3-ubyte.gz", pictures[15:])
    write_idx("raw/t10k-labels-idx1-ubyte.gz", np.arange(5))
    data = load("raw", binarize="threshold")
    assert (data.train.shape, data.test.shape, data.image) == ((15, 20), (5, 20), (5, 4))
    np.testing.assert_array_equal(data.test, pictures[15:].reshape(5, 20) >= data.choices.threshold)
    assert data.labels == {"train": tuple(map(str, range(15))), "test": tuple("01234")}
    write_idx("raw/more-images-idx3-ubyte", pictures)
    with pytest.raises(
        UsageError, match=r"raw must hold the idx file of one set .* it holds more-images-idx3-ubyte, t10k"
    ):
        load("raw", binarize="threshold")


def test_labels_stay_with_their_cases_and_no_file_is_refused_for_them():
    whole = (np.arange(30)[:, None] >> np.arange(5) & 1).astype(np.uint8)  # a case is the number of its row
    for i, case in enumerate(whole):
        Path(f"pictures/class{i % 3}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(255 * case[None]).save(f"pictures/class{i % 3}/{i}.png")
    data = load("pictures", binarize="threshold")
    for split in ("train", "test"):
        numbers = getattr(data, split) @ (1 << np.arange(5))
        assert data.labels[split] == tuple(f"class{number % 3}" for number in numbers)
    digits, (ink, target) = load("digits"), load_digits(return_X_y=True)
    known = {case.tobytes(): set() for case in (ink >= 8)}
    for case, digit in zip(ink >= 8, target, strict=True):
        known[case.tobytes()].add(str(digit))
    assert all(label in known[case.tobytes()] for case, label in zip(digits.test, digits.labels["test"], strict=True))
    parts = {"train": whole[:20], "test": whole[20:]}
    places = {"train_labels": np.arange(20) % 2, "test_labels": np.arange(10) % 2}
    np.savez("a.npz", **parts, **places, groups=np.array(["odd", "even"]))
    assert load("a.npz").labels["test"][:3] == ("odd", "even", "odd")
    for wrong in (np.arange(3), np.array([None] * 10), np.full(10, 7)):  # too few, objects, no such group
        np.savez("a.npz", **parts, **places | {"test_labels": wrong}, groups=np.array(["odd", "even"]))
        assert load("a.npz").labels is None


@needs_shared
def test_a_folder_with_the_raw_digits_of_mnist():
    Path("mnist").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        Path("mnist", name).symlink_to(SHARED / name)
    data = load("mnist/", binarize="threshold")
    assert (data.train.shape, data.test.shape, data.image) == ((60_000, 784), (10_000, 784), (28, 28))


def test_the_words_of_text_are_those_that_tell_documents_apart():
    """Not the header of every post, nor what one binary file posted as text repeats."""
    topics = ("hockey goal", "orbit moon", "windows driver")
    lines = [f"Subject: the {topics[i % 3]}\n" for i in range(120)]
    lines[7] = "Subject: " + "axq " * 5000 + "\n"
    Path("posts.txt").write_text("".join(lines))
    data = load("posts.txt", words=6)
    assert data.vocabulary == ("driver", "goal", "hockey", "moon", "orbit", "windows")
    assert "6 words, those in most documents" in data.note
    assert "English stop words and words in more than 50% of the documents left out" in data.note
    assert "; 214 of 5,429 tokens kept" in data.note  # of training: two in each of 107, of 4 in each of 107 and 5001
    assert (data.choices.stop_words, data.choices.max_df) == ("english", 0.5)
    again = load("posts.txt", data.choices)
    assert (again.vocabulary, again.fingerprint) == (data.vocabulary, data.fingerprint)
    assert {"subject", "the"} <= set(load("posts.txt", stop_words="none", max_df=1.0).vocabulary)
    for refused in (0.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="`max_df` must be above 0 and at most 1"):
            load("posts.txt", max_df=refused)
    Path("same.txt").write_text("the\nand\n" * 5)
    with pytest.raises(UsageError, match="no words to count but those that `stop_words` or `max_df` leave out"):
        load("same.txt")
    # what is not text has none, as runs have it written
    assert load(bits()).choices.stop_words == "none"


def test_the_words_of_text_without_a_split_are_those_of_its_training_documents():
    """Neither which words there are, nor which are in too many documents, is known from the tenth that is the test."""
    held_out = np.argmax(load(np.eye(40)).test, axis=1)
    texts = {f"{i:02}.txt": f"cat{' dog' if i % 2 else ' emu'}" for i in range(40)}
    texts |= {f"{i:02}.txt": "zebra cat dog" for i in held_out}
    write_texts("corpus", texts)
    with tarfile.open("corpus.tar", "w") as archive:
        archive.add("corpus", "corpus")
    Path("corpus.txt").write_text("".join(f"{text}\n" for text in texts.values()))
    in_training = [text.split() for i, text in enumerate(texts.values()) if i not in held_out]
    share = sum("dog" in text for text in in_training) / len(in_training)  # 4 more of 40 hold it with the test
    for source in ("corpus", "corpus.tar", "corpus.txt"):
        data = load(source)
        assert data.vocabulary == ("cat", "dog", "emu")
        np.testing.assert_array_equal(dense(data.test), [[1, 1, 0]] * 4)
        assert data.train.shape == (36, 3)
        assert load(source, max_df=share).vocabulary == ("dog", "emu")
    Path("last.txt").write_text("".join("words\n" if i in held_out else "1 2\n" for i in range(40)))
    with pytest.raises(UsageError, match=r"Every training document of last\.txt is empty"):
        load("last.txt")


def test_a_run_keeps_the_words_that_it_was_trained_on(tmp_path):
    """Also where they would now be chosen otherwise, as those of all documents once were."""
    Path("corpus.txt").write_text("".join(f"cat {'dog' if i % 2 else 'emu'}\n" for i in range(40)))
    Path("words.txt").write_text("cat\ndog\nzebra\n")
    dataset = load("corpus.txt", vocabulary="words.txt")
    chosen = dataclasses.replace(dataset.choices, vocabulary=None, max_df=1.0)
    then = dataclasses.replace(dataset, choices=chosen).loaded_from("corpus.txt")
    made = nvil.Run.from_config(tmp_path / "run", nvil.Config(data="corpus.txt", hidden=(2,)), then)
    made.write_config()
    again = nvil.Run.open(made.folder).resumed()[1]
    assert (again.vocabulary, again.fingerprint) == (dataset.vocabulary, dataset.fingerprint)
    assert (again.choices, again.source) == (chosen, str(Path("corpus.txt").resolve()))
    Path("corpus.txt").write_text("cat\n" * 40)
    with pytest.raises(UsageError, match="its contents changed"):
        nvil.Run.open(made.folder).dataset()


@pytest.mark.parametrize("name", ["../outside.txt", "/absolute.txt", "a/../../b.txt"])
def test_an_archive_whose_paths_leave_the_folder_is_refused(name, tmp_path):
    with tarfile.open("bad.tar", "w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))
    with pytest.raises(UsageError, match="leaves its folder"):
        load("bad.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar"]


def test_a_matrix_on_disk_is_mapped_and_split_without_a_copy():
    matrix = scipy.sparse.csr_array(counts(200, 7))
    classes = [f"class {i % 4}" for i in range(200)]
    save_matrix("matrix", matrix, [f"w{i}" for i in range(7)], test=[3, 5], labels=classes)
    data = load("matrix")
    assert isinstance(data.train.values, np.memmap)
    assert data.train.values is data.test.values or np.shares_memory(data.train.values, data.test.values)
    rest = [i for i in range(200) if i not in (3, 5)]
    np.testing.assert_array_equal(dense(data.train), matrix.toarray()[rest])
    np.testing.assert_array_equal(dense(data.test), matrix.toarray()[[3, 5]])
    assert data.labels == {"train": tuple(classes[i] for i in rest), "test": ("class 3", "class 1")}
    np.testing.assert_array_equal(as_rows(data.test).row_sums(), matrix.toarray()[[3, 5]].sum(1))
    np.testing.assert_array_equal(as_rows(data.train).column_sums(), matrix.toarray()[rest].sum(0))
    with pytest.raises(UsageError, match="not an empty folder"):
        save_matrix("matrix", matrix, ["w"] * 7)
    with pytest.raises(UsageError, match="among the 200 rows"):
        save_matrix("large", matrix, [f"w{i}" for i in range(7)], test=[200])
    with pytest.raises(UsageError, match=r"one label, without line breaks, per row \(200\), got 3"):
        save_matrix("large", matrix, ["w"] * 7, labels=["a", "b", "c"])
    with pytest.raises(UsageError, match=r"count of 0\.5"):
        save_matrix("large", matrix * 0.5, ["w"] * 7)
    with pytest.raises(UsageError, match="0 to 65535"):
        save_matrix("large", matrix * 100_000, ["w"] * 7)
    assert not Path("large").exists()
    assert not list(Path().glob(".large*"))
    np.save("matrix/columns.npy", np.load("matrix/columns.npy") + 7)
    with pytest.raises(UsageError, match="not in its vocabulary"):
        load("matrix")


def test_a_matrix_of_more_entries_than_can_be_counted_in_32_bits_is_refused():
    entries = np.broadcast_to(np.uint8(1), 2**31)  # a single byte
    with pytest.raises(UsageError, match="has 2147483648 entries; at most 2147483647 can be trained on"):
        stored_rows(entries, entries, np.array([0, 2**31]), 2)


TOKENS = b""".I 2286
.W
recov recov recov excit
bring mexic

.I 2287
.W
excit zebr

.I 2288
.W

"""


def test_the_token_files_of_rcv1():
    Path("one.dat").write_bytes(TOKENS)
    write_bytes("two.dat.gz", TOKENS.replace(b"zebr", b"bring"))
    documents = list(lewis_tokens([Path("one.dat"), Path("two.dat.gz")]))
    assert documents[:3] == [["recov", "recov", "recov", "excit", "bring", "mexic"], ["excit", "zebr"], []]
    write_documents(Path("counts"), lambda: iter(documents), words=3, test=1)
    contents = read(Path("counts"))
    assert contents.vocabulary == ("recov", "excit", "bring")
    together = np.concatenate([dense(contents.splits["train"]), dense(contents.splits["test"])])
    assert sorted(together.tolist()) == sorted([[3, 1, 1], [0, 1, 0], [0, 0, 0], [3, 1, 1], [0, 1, 1], [0, 0, 0]])
    Path("bad.dat").write_bytes(b"recov\n" + TOKENS)
    with pytest.raises(UsageError, match="line 1: a document must begin"):
        list(lewis_tokens([Path("bad.dat")]))


STORIES = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="1">
<DATE>26-FEB-1987</DATE><TOPICS><D>cocoa</D></TOPICS>
<TEXT>&#2;<TITLE>COCOA &amp; TEA</TITLE><DATELINE> BAHIA - </DATELINE><BODY>Showers continued
in the zone. &#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="NO" LEWISSPLIT="TRAIN" NEWID="2"><TEXT><BODY>left out</BODY></TEXT></REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="NOT-USED" NEWID="3"><TEXT><BODY>left out</BODY></TEXT></REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TEST" NEWID="4"><TEXT><TITLE>Showers</TITLE></TEXT></REUTERS>
"""


def test_the_stories_of_reuters():
    (train, topic, story), (test, none, title) = reuters_stories(STORIES)
    assert (train, topic) == ("train", "cocoa")
    assert (test, none, title) == ("test", "no topic", "Showers")
    assert story.startswith("COCOA & TEA Showers continued\nin the zone.")
    with tarfile.open("reuters.tar.gz", "w:gz") as archive:
        for name in ("reut2-000.sgm", "lewis.dtd"):
            info = tarfile.TarInfo(name)
            info.size = len(STORIES)
            archive.addfile(info, io.BytesIO(STORIES.encode()))
    prepare_reuters(Path("counts"), Path("reuters.tar.gz"))
    contents = read(Path("counts"))
    assert contents.vocabulary == ("cocoa", "continued", "showers", "tea", "zone")
    assert contents.splits["train"].shape[0] == contents.splits["test"].shape[0] == 1
    assert contents.labels == {"train": ("cocoa",), "test": ("no topic",)}
    written = b"".join(path.name.encode() + path.read_bytes() for path in sorted(Path("counts").iterdir()))
    # Other bytes need another number, or whoever prepared the set before is left with the old ones.
    assert (PREPARED, hashlib.sha256(written).hexdigest()[:16]) == ("prepared-2", "7322becb5dc3cc4d")


def test_a_split_is_a_function_of_the_seed():
    """The held-out tenth of one's own file; a change here changes everybody's splits."""
    data = load(np.eye(40))
    assert sorted(np.argmax(data.test, axis=1).tolist()) == [4, 11, 24, 27]


@functools.cache
def valid_files():
    """One good file of every format, as bytes."""
    folder = Path("valid")
    folder.mkdir()
    contents = {}
    for name, write in WRITERS.items():
        write(str(folder / name), counts(6, 4))
        contents[name] = (folder / name).read_bytes()
    with tarfile.open(folder / "a.tar", "w") as archive:
        info = tarfile.TarInfo("a.txt")
        info.size = 9
        archive.addfile(info, io.BytesIO(b"some text"))
    contents["a.tar"] = (folder / "a.tar").read_bytes()
    contents["a.tar.gz"] = gzip.compress(contents["a.tar"])
    contents["a.txt"] = b"one document\nanother one\n"
    return contents


def ends_well(name, content):
    """Reading ends in rows of numbers or in one clear sentence."""
    Path(name).write_bytes(content)
    try:
        data = load(name, values="counts")
    except UsageError as error:
        message = str(error)
    else:
        assert data.train.shape[0] + data.test.shape[0] >= 2
        assert np.all(np.isfinite(as_rows(data.train).column_sums()))
        return
    assert "\n" not in message.strip()


def test_an_encrypted_archive_is_called_so():
    content = bytearray(valid_files()["a.npz"])
    flags = content.index(b"PK\x01\x02") + 8  # of its entry in the list at the end
    content[flags] |= 1
    Path("a.npz").write_bytes(content)
    with pytest.raises(UsageError, match=r"Cannot read a\.npz: it is encrypted\."):
        load("a.npz")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_never_end_in_a_traceback(data):
    name, content = data.draw(st.sampled_from(sorted(valid_files().items())))
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "garbage"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        content = content[:place]
    elif kind == "flip":
        content = content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :]
    elif kind == "insert":
        more = data.draw(st.sampled_from([b"nan", b"-7", b"1e999", b"9" * 30, b"\n\n", b"\0", b"\xff\xfe", b","]))
        content = content[:place] + more + content[place:]
    else:
        content = data.draw(st.binary(max_size=200))
    ends_well(name, content)


CELLS = ["0", "1", "7", "-1", "0.5", "nan", "inf", "1e400", "9" * 25, "", "a", "1:2"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["a.csv", "a.tsv", "a.amat", "a.svm", "a.mtx", "docword.b.txt"]),
    lines=st.lists(st.lists(st.sampled_from(CELLS), max_size=5), max_size=6),
)
def test_ragged_empty_and_huge_tables_never_end_in_a_traceback(name, lines):
    separator = {"a.csv": ",", "a.tsv": "\t"}.get(name, " ")
    header = {"a.mtx": "%%MatrixMarket matrix coordinate real general\n", "docword.b.txt": ""}.get(name, "")
    ends_well(name, (header + "\n".join(separator.join(line) for line in lines)).encode())


def npy(header, content=b""):
    text = repr(header).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


HOSTILE = {
    "object.npy": npy({"descr": "|O", "fortran_order": False, "shape": (2, 2)}, b"cos\nsystem\n(S'touch owned'\ntR."),
    "huge.npy": npy({"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)}),
    "negative.npy": npy({"descr": "<f8", "fortran_order": False, "shape": (-1, 4)}),
    "magic.npy": b"\x93NUMPX" + npy({"descr": "<f8", "fortran_order": False, "shape": (1, 1)})[6:],
    "code.npy": npy("__import__('os').system('touch owned')"),
    "huge.mtx": b"%%MatrixMarket matrix coordinate real general\n1000000000 1000000000 99999999999\n1 1 1\n",
    "huge_array.mtx": b"%%MatrixMarket matrix array real general\n1000000 1000000\n1\n",
    "complex.mtx": b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n",
    "huge.svm": b"0 999999999999999:1\n1 1:1\n",
    "docword.huge.txt": b"999999999 999999999 99999999999\n1 1 1\n",
    "wrong-idx3-ubyte": b"\0\0\x08\x03" + struct.pack(">3I", 2**31, 2**31, 2**31),
    "magic-idx3-ubyte": b"\1\0\x08\x03" + struct.pack(">3I", 1, 1, 1) + b"\0",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_and_nothing_is_executed(name, tmp_path):
    Path(name).write_bytes(HOSTILE[name])
    with pytest.raises(UsageError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    assert not Path("owned").exists()


def test_archives_that_unpack_to_more_than_memory_are_refused(monkeypatch):
    """The same files are read where there is memory enough."""
    table = (np.arange(100_000).reshape(1000, 100) % 2).astype(np.uint8)
    np.savez_compressed("bomb.npz", table)
    idx = struct.pack(">HBB2I", 0, 8, 2, 1000, 100) + table.tobytes()
    Path("bomb-idx2-ubyte.gz").write_bytes(gzip.compress(idx))
    lines = "".join(",".join(map(str, row)) + "\n" for row in table.tolist())
    Path("bomb.csv.gz").write_bytes(gzip.compress(lines.encode()))
    Path("bomb.amat.gz").write_bytes(gzip.compress(lines.replace(",", "  ").encode()))
    np.save("bomb.npy", table)
    Path("bomb.npy.gz").write_bytes(gzip.compress(Path("bomb.npy").read_bytes()))
    names = ("bomb.npz", "bomb-idx2-ubyte.gz", "bomb.csv.gz", "bomb.amat.gz", "bomb.npy.gz")
    for name in names:
        assert Path(name).stat().st_size < 5000
        assert load(name).train.shape == (900, 100)
    monkeypatch.setattr(readers, "physical_memory", lambda: 80_000)
    for name in names:
        with pytest.raises(UsageError, match=f"Cannot read {name}: it claims to hold more than fits in memory"):
            load(name)


def test_errors_of_the_libraries_are_known():
    """Were these caught as one broad Exception, a mistake of ours would look like the user's."""
    assert Exception not in READ_ERRORS


@needs_shared
def test_the_prepared_newsgroups():
    data = load(SHARED / "20news_nvdm2000.npz")
    assert (data.train.shape, data.test.shape) == ((11_268, 2000), (7505, 2000))
    np.testing.assert_allclose(
        [as_rows(data.train).row_sums().mean(), as_rows(data.test).row_sums().mean()], [100.2, 96.1], atol=0.05
    )
    data = load(SHARED / "20news_porter2000.npz")
    assert (data.train.shape, data.test.shape) == ((11_314, 2000), (7532, 2000))
    assert [int(np.sum(as_rows(part).row_sums() == 0)) for part in (data.train, data.test)] == [24, 23]


@pytest.mark.slow
@needs_shared
def test_the_raw_newsgroups():
    prepare_newsgroups(Path("counts"), SHARED / "20news-bydate.tar.gz")
    contents = read(Path("counts"))
    assert {name: rows.shape for name, rows in contents.splits.items()} == {
        "train": (11_314, 2000), "test": (7532, 2000)
    }  # fmt: skip
    assert {"god", "windows", "hockey"} <= set(contents.vocabulary)
    assert len(set(contents.labels["train"])) == 20
    hockey = np.array(contents.labels["test"]) == "rec.sport.hockey"
    column = dense(contents.splits["test"])[:, contents.vocabulary.index("hockey")]
    assert column[hockey].mean() > 20 * column[~hockey].mean()
    assert not {"the", "and"} & set(contents.vocabulary)


@pytest.mark.slow
@needs_shared
def test_the_archive_of_the_newsgroups_packed_anew_is_known_by_its_posts(monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(SHARED))
    assert NAMED["20newsgroups"].here()
    assert NAMED["20newsgroups"].paths()[0] == SHARED / "20news-bydate.tar.gz"


DEBIAN = Path("/usr/share/datasets")


@pytest.mark.skipif(
    not (DEBIAN / "fashion-mnist").is_dir(), reason="Debian's package dataset-fashion-mnist is not on this machine"
)
def test_fashion_mnist_as_debian_packs_it(monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(DEBIAN))
    data = load("fashion-mnist")
    assert (data.train.shape, data.test.shape) == ((60_000, 784), (10_000, 784))
    np.testing.assert_allclose(as_rows(data.train).column_sums().sum() / 60_000 / 784, 0.2860, atol=5e-5)


@needs_shared
def test_the_raw_digits_of_mnist(monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(SHARED))  # packed anew: known by their content
    data = load("mnist")
    assert (data.train.shape, data.test.shape, data.image) == ((60_000, 784), (10_000, 784), (28, 28))
    assert data.choices.binarize == "stochastic"
    np.testing.assert_allclose(as_rows(data.train).column_sums().sum() / 60_000 / 784, 0.1307, atol=5e-5)
    assert not NAMED["fashion-mnist"].here()  # the files of MNIST by the same names are not its own
    assert load("mnist", binarize="threshold").choices.threshold == 127.5


def canonical(folder, split, expected):
    """A published file of the fixed binarization, written from the packed one."""
    with np.load(SHARED / "binarized_mnist_packed.npz") as packed:
        rows = np.unpackbits(packed[split], axis=1)
    text = np.full((len(rows), 2 * 784), ord(" "), np.uint8)
    text[:, 0::2] = rows + ord("0")
    text[:, -1] = ord("\n")
    assert hashlib.sha256(text.tobytes()).hexdigest() == expected
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"binarized_mnist_{split}.amat").write_bytes(text.tobytes())


@needs_shared
def test_binarized_mnist_from_the_canonical_files(monkeypatch, tmp_path):
    for file in NAMED["binarized-mnist"].files:
        canonical("canonical", file.name.split("_")[-1].removesuffix(".amat"), file.sha256)
    monkeypatch.setenv("NVIL_DATA", str(tmp_path / "canonical"))
    data = load("binarized-mnist-50k")
    parts = (data.train, data.validation, data.test)
    assert [part.shape for part in parts] == [(50_000, 784), (10_000, 784), (10_000, 784)]
    assert [round(float(part.mean()), 5) for part in parts] == [0.13056, 0.13113, 0.13251]
    paper = load("binarized-mnist")
    assert paper.train.shape == (60_000, 784)
    assert paper.validation is None
    np.testing.assert_array_equal(paper.test, data.test)
    damaged = Path("canonical/binarized_mnist_valid.amat")
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(UsageError, match=r"binarized_mnist_valid.amat is not the published .* its checksum differs"):
        load("binarized-mnist")


def test_omniglot_from_a_file_of_the_published_kind(monkeypatch, tmp_path):
    pictures = np.random.default_rng(0).random((5, 28, 28))
    columns = pictures.transpose(0, 2, 1).reshape(5, 784).T  # a column a drawing, column after column of pixels
    folder = tmp_path / "own" / "omniglot"
    folder.mkdir(parents=True)
    scipy.io.savemat(folder / "chardata.mat", {"data": columns, "testdata": columns[:, :2]})
    content = (folder / "chardata.mat").read_bytes()
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    entry = NAMED["omniglot"]
    file = nvil.data.registry.dataclasses.replace(entry.files[0], git_blob=blob)
    monkeypatch.setitem(NAMED, "omniglot", nvil.data.registry.dataclasses.replace(entry, files=(file,)))
    monkeypatch.setenv("NVIL_DATA", str(tmp_path / "own"))
    data = load("omniglot")
    assert (data.train.shape, data.test.shape) == ((5, 784), (2, 784))
    np.testing.assert_allclose(data.train.values.reshape(5, 28, 28), pictures, rtol=1e-6)
    os.truncate(folder / "chardata.mat", len(content) - 1)
    with pytest.raises(UsageError, match="checksum differs"):
        load("omniglot")


def test_the_digits_are_those_of_scikit_learn(monkeypatch):
    """Read without importing it, which takes a second; where its file is elsewhere, it is asked."""
    ink, digits = registry._inks()
    wanted, classes = load_digits(return_X_y=True)
    np.testing.assert_array_equal(ink, wanted)
    np.testing.assert_array_equal(digits, classes)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    np.testing.assert_array_equal(registry._inks()[0], wanted)


def test_a_cell_that_is_not_a_number_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("named.csv").write_text("a,b,c\n1,0,1\n1,foo,0\n")
    Path("plain.csv").write_text("1,0,1\n1,0,foo\n")
    Path("semicolons.csv").write_text("0,5;1\n0;1,5\n")
    Path("points.csv").write_text("a;b\n1;2\n0,5;1\n")
    Path("words.csv").write_text("a;b\n1;true\n0;not true\n")
    Path("minus.csv").write_text("a,b\n1,True\n0,-True\n")
    Path("open.csv").write_text('1,0\n1,"0\n0,1\n')
    Path("empty.csv").write_text('"a","b"\n"1","True"\n"0",""\n')
    Path("short.csv").write_text("a,b\n1,0,foo\n")
    Path("missing.csv").write_text("a,b,c\n1,0,1\n1,,0\n")
    Path("spaces.csv").write_text("a,big b,c\n1,0,1\n1,foo,0\n")
    for source, drop, message in (
        ("named.csv", (), "'foo' in line 3, column 'b', is not a number, .* `drop_columns` b"),
        ("named.csv", ("a",), "'foo' in line 3, column 'b'"),
        ("plain.csv", (), "'foo' in line 2, column 2, is not a number, .* `drop_columns` 2"),
        ("semicolons.csv", (), "its values are separated by semicolons, so it must have no commas"),
        ("points.csv", (), "'0,5' in line 3, column 'a', has a decimal comma, which must be a point"),
        ("words.csv", (), "'not true' in line 3, column 'b', is not a number"),
        ("minus.csv", (), "'-True' in line 3, column 'b', is not a number"),
        ("open.csv", (), "a quote in line 2, column 1, is not closed"),
        ("empty.csv", (), "line 3 has no value in column 'b'"),
        ("short.csv", (), "'foo' in line 2, column 2, is not a number"),
        ("missing.csv", (), "line 3 has no value in column 'b', and what is missing must be filled in"),
        ("spaces.csv", (), "'foo' in line 3, column 'big b', .* `drop_columns` 'big b'"),
    ):
        with pytest.raises(nvil.UsageError, match=message):
            nvil.data.load(source, drop_columns=drop)
