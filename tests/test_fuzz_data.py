"""Whatever someone gives as data ends in a data set or in one sentence, never in another exception."""

import functools
import gzip
import string

import numpy as np
import pandas
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

import nvil
from nvil import UsageError, training
from nvil.data import Stream, load
from nvil.rows import as_rows, as_source

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "values": st.sampled_from(["auto", "binary", "counts"]),
        "binarize": st.sampled_from(["none", "threshold", "stochastic"]),
        "threshold": st.sampled_from([0.5, 0.0, 1e30, -1.0, float("nan")]),
        "white": st.sampled_from([1.0, 255.0, 0.0, float("inf")]),
        "words": st.sampled_from([1, 3, 0, 10_000]),
        "stop_words": st.sampled_from(["english", "none", "french"]),
        "max_df": st.sampled_from([0.5, 1.0, 0.0, 2.0]),
        "drop_columns": st.sampled_from([(), ("0",), ("-1",), ("label",), "label", 0, ("0", "1", "2"), ("99",)]),
    },
)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ends_well(source, **choices):
    """A data set of the kind that it says, or one sentence."""
    try:
        data = load(source, **choices)
        train = as_source(data.train).first()
        assert train.shape[0] or data.train.width  # a stream without cases says so there
    except UsageError as error:
        message = str(error)
    else:
        message = None
    if message is not None:
        assert message
        assert "\n" not in message
        return
    parts = [train, *(as_rows(part) for part in (data.test, data.validation) if part is not None)]
    assert all(part.shape[0] >= 1 and part.shape[1] == train.shape[1] for part in parts)
    for part in parts:
        values = part.fixed().dense()
        if data.kind == "binary":
            assert np.all((values == 0) | (values == 1))
        else:
            assert np.all((values >= 0) & (values == np.round(values)) & (values < 2**24))


@functools.cache
def pairs(width):
    return nvil.sbn(width, (1,)), nvil.sbn(width, (1,), lengths=[2])


def trains_well(source):
    """What `nvil.fit` trains on is what the visible layer explains; else one sentence says why not."""
    for documents in (False, True):
        message = None
        try:
            shape = as_rows(source).shape
            pair = pairs(shape[1] if len(shape) == 2 and shape[1] else 3)[documents]
            source, _ = training.checked(pair, source, None)
        except UsageError as error:
            message = str(error)
        if message is not None:
            assert message
            assert "\n" not in message
            continue
        values = source.first().dense()
        assert values.shape[1:] == (pair.model.layers[0].units,)
        assert np.all((values >= 0) & (values == np.round(values)) & (values < (2**24 if documents else 2)))


DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(),
    arrays.complex_number_dtypes(),
    arrays.unicode_string_dtypes(max_len=3),
    arrays.byte_string_dtypes(max_len=3),
    arrays.datetime64_dtypes(),
    arrays.timedelta64_dtypes(),
)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
SMALL = st.sampled_from([0, 1, 2, 255, 0.5, -1, 1e300, float("nan"), float("inf")])


@pytest.mark.parametrize("dtype", [">i2", "<f2", ">f8", ">u4", "longdouble", "?"])
def test_types_that_not_all_libraries_know(dtype):
    array = np.asarray([[0, 1], [1, 0], [1, 1]], dtype)
    for values in ("binary", "counts"):
        ends_well(array, values=values)
        assert as_rows(load(array, values=values).train).dense().sum() in (2, 3, 4)
    trains_well(array)


@quick
@given(array=st.one_of(arrays.arrays(DTYPES, SHAPES), arrays.arrays(float, SHAPES, elements=SMALL)), choices=CHOICES)
def test_arrays_of_every_type_and_shape(array, choices):
    ends_well(array, **choices)
    trains_well(array)


@quick
@given(
    table=st.lists(st.lists(st.one_of(SMALL, st.none(), st.text(max_size=2), st.just([])), max_size=3), max_size=4),
    choices=CHOICES,
)
def test_lists_of_anything(table, choices):
    ends_well(table, **choices)
    ends_well(np.array([*table, None], object)[:-1], **choices)
    trains_well(table)


@pytest.mark.parametrize(
    "odd",
    [None, 3, 2.5, True, b"bytes", {}, {"a": [0, 1]}, {1, 2}, object(), int, ..., (), [], [[]], [None], "", "-x", "\0"],
)
def test_things_that_are_no_data(odd):
    with pytest.raises(UsageError):
        load(odd)


LAYOUTS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


@quick
@given(
    array=arrays.arrays(
        st.sampled_from([bool, np.int8, np.uint16, np.int64, np.float32, np.float64, complex]),
        arrays.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5),
        elements=st.sampled_from([0, 0, 1]),
        fill=st.just(0),
    ),
    layout=st.sampled_from(LAYOUTS),
    old=st.booleans(),
    odd=st.sampled_from([None, 0.5, -1.0, float("nan"), 2.0**40]),
    choices=CHOICES,
)
def test_sparse_matrices_of_every_format(array, layout, old, odd, choices):
    if odd is not None and array.size and array.dtype.kind == "f":
        array[-1, -1] = odd
    if 0 in array.shape and layout in ("dia", "bsr"):
        layout = "csr"  # SciPy does not make them
    array = array * 3 if odd == 2.0**40 else array
    matrix = (scipy.sparse.coo_matrix if old else scipy.sparse.coo_array)(array).asformat(layout)
    ends_well(matrix, **choices)
    trains_well(matrix)


def test_sparse_vectors_and_cubes_are_refused():
    for odd in (scipy.sparse.coo_array(np.arange(3)), scipy.sparse.coo_array(np.zeros((2, 2, 2)))):
        with pytest.raises(UsageError):
            load(odd)


COLUMNS = st.sampled_from(
    [
        [0, 1, 0, 1],
        [True, False, True, True],
        [0.5, 0.1, 1.0, 0.0],
        [1, 2, 3, 4],
        [7, 3, 7, 0],
        ["cat", "dog", "cat", "cow"],
        ["0", "1", "0", "1"],
        [None, 1, 0, 1],
        [float("nan"), 1.0, 0.0, 1.0],
        [[], {}, None, object],
        pandas.Categorical(["a", "b", "a", "b"]),
        pandas.Categorical([0, 1, 0, 1]),
        pandas.array([1, None, 0, 1], "Int64"),
        pandas.array([True, None, False, True], "boolean"),
        pandas.to_datetime(["2020-01-01"] * 4),
        pandas.arrays.SparseArray([0, 1, 0, 1]),
        [1j, 0, 0, 0],
    ]
)
NAMES = st.sampled_from(["label", "a", "b", "", 0, 1, ("x", "y"), None])


@quick
@given(columns=st.lists(st.tuples(NAMES, COLUMNS), max_size=5), choices=CHOICES)
def test_data_frames_of_anything(columns, choices):
    frame = pandas.DataFrame({i: pandas.Series(values) for i, (_, values) in enumerate(columns)})
    frame.columns = pandas.Index([name for name, _ in columns], dtype=object)
    ends_well(frame, **choices)
    trains_well(frame)
    if columns:
        ends_well(frame.iloc[:, 0], **choices)


CELL = st.one_of(
    st.sampled_from(["0", "1", "7", "-1", "0.5", "nan", "", "label", '"0"', "1e400", "NA", "\ufeff", "é", "0x1"]),
    st.text(string.printable, max_size=3),
)


@quick
@given(
    rows=st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=6),
    name=st.sampled_from(["a.csv", "a.tsv", "a.amat", "a.csv.gz"]),
    choices=CHOICES,
)
def test_tables_of_anything(rows, name, choices, tmp_path):
    separator = {"a.tsv": "\t", "a.amat": " "}.get(name, ",")
    content = "\n".join(separator.join(row) for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    ends_well(name, **choices)


def png(shape, folder):
    path = folder / "made.png"
    Image.fromarray(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)).save(path)
    content = path.read_bytes()
    path.unlink()
    return content


FILES = [
    "a.txt",
    "b",
    "c.png",
    "d.jpg",
    "e.csv",
    "f-idx3-ubyte",
    "train/g.txt",
    "test/h.png",
    "x/y/z",
    ".hidden",
    "i.npy",
]
IDX = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02" + bytes(8)


@quick
@given(
    files=st.dictionaries(
        st.sampled_from(FILES),
        st.sampled_from(
            ["words", "", "latin", "zero", "png", "wide", "cut", "idx", "packed", "folder", "link", "loop"]
        ),
        max_size=5,
    ),
    choices=CHOICES,
)
def test_folders_of_anything(files, choices, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    picture = png((3, 4), folder)
    contents = {
        "words": b"some words of a text",
        "": b"",
        "latin": "caf\xe9 noir".encode("latin-1"),
        "zero": b"a\0b",
        "png": picture,
        "wide": png((3, 5), folder),
        "cut": picture[:40],
        "idx": IDX,
        "packed": gzip.compress(IDX),
    }
    for name, kind in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir(exist_ok=True)
        elif kind in ("link", "loop"):
            path.symlink_to(folder if kind == "loop" else folder / "nowhere")
        elif not path.is_dir():
            path.write_bytes(contents[kind])
    ends_well(folder, **choices)


@quick
@given(
    cases=st.lists(
        st.one_of(st.lists(SMALL, max_size=3), SMALL, st.text(max_size=2), st.none(), st.just([[0], [1, 2]])),
        max_size=4,
    )
)
def test_streams_of_anything(cases):
    for source in (iter(cases), Stream(iter(cases), "counts")):
        ends_well(source)
