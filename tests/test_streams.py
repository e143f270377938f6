"""Learning online, from cases that come once."""

import io
import itertools
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse

import nvil
import nvil.report
from nvil import Stream, UsageError
from nvil.cli import main
from nvil.data import Choices
from nvil.data.lines import from_lines
from nvil.rows import as_rows, explained
from nvil.training import hold_out
from processes import plain_diagnose, plain_page

CASES = np.random.default_rng(0).integers(0, 2, (700, 6)).astype(np.uint8)


def fit(data, **more):
    settings = {"updates": 60, "validation": CASES[:10], "report_every": 20, **more}
    return list(nvil.fit(nvil.sbn(6, (3,), mean=CASES.mean(0)), data, nvil.Learner(batch_size=5), **settings))


def test_every_case_is_seen_once_in_order_and_the_windows_change_nothing(monkeypatch):
    """The same updates as on arrays that hold just the next minibatch."""
    reports = fit(iter(CASES))
    seen = []
    monkeypatch.setattr("nvil.data.streams.WINDOW_BYTES", 5 * 6 * 7)  # seven updates to a window
    other = fit(iter(CASES))
    assert [report.updates for report in reports] == [report.updates for report in other] == [20, 40, 60]
    for one, two in zip(jax.tree.leaves(reports[-1].best.pair), jax.tree.leaves(other[-1].best.pair), strict=True):
        np.testing.assert_array_equal(one, two)
    assert [report.bound for report in reports] == [report.bound for report in other]

    def recorded():
        for case in CASES:
            seen.append(case)
            yield case

    settings = {"updates": 28, "validation": CASES[:10], "report_every": 14}
    pair, learner = nvil.sbn(6, (3,), mean=CASES.mean(0)), nvil.Learner(batch_size=5)
    taken = [len(seen) for _ in nvil.fit(pair, recorded(), learner, **settings)]
    assert [*taken, len(seen)] == [14 * 5, 28 * 5, 28 * 5]  # no report waits for a case that it does not need


def test_a_stream_ends_with_a_report():
    reports = fit(iter(CASES[:128]), updates=1000)
    assert [report.updates for report in reports] == [20, 25]  # three cases do not fill a minibatch
    assert fit(iter(CASES[:100]), updates=1000)[-1].updates == 20
    with pytest.raises(UsageError, match="before it filled a minibatch of 5 cases"):
        fit(iter(CASES[:4]))
    with pytest.raises(UsageError, match="before its first case"):
        fit(iter([]))


class Windows:
    """A source of one's own: the five methods of `nvil.rows.Source`, and nothing of ours behind them."""

    def __init__(self, cases):
        self.cases = cases

    def case_shape(self):
        return self.cases.shape[1:]

    def check(self, domain):
        assert np.all(domain.allows(self.cases))

    def hold_out(self, count, seed):
        return Windows(self.cases[count:]), as_rows(self.cases[:count])

    def first(self):
        return as_rows(self.cases)

    def window(self, step, batch_size):
        return as_rows(self.cases).on_device(), 1000


def test_a_source_of_ones_own():
    """It draws as its rows do, so that updates are those of the same cases as an array."""
    own, array = fit(Windows(CASES)), fit(CASES)
    assert [report.bound for report in own] == [report.bound for report in array]
    assert own[-1].updates == 60


def test_validation_cases_are_the_first(monkeypatch):
    stream = Stream(iter(CASES))
    rest, held_out = hold_out(stream, 10, seed=0)
    np.testing.assert_array_equal(held_out.dense(), CASES[:10])
    np.testing.assert_array_equal(rest.take(3), CASES[10:13])
    assert rest.first().shape == (687, 6)
    np.testing.assert_array_equal(rest.take(2), CASES[13:15])


def test_making_a_run_loses_no_case(tmp_path):
    cases = (CASES[i % 700] for i in range(2000))
    _, _, train, held_out = nvil.Run.create(tmp_path / "run", nvil.sbn(6, (3,)), cases, validation=10).prepare()
    np.testing.assert_array_equal(held_out.dense(), CASES[:10])
    np.testing.assert_array_equal(train.take(2000), np.resize(CASES, (2000, 6))[10:])


def test_an_endless_stream_is_stopped_by_updates():
    reports = fit((CASES[i % 700] for i in itertools.count()), updates=40)
    assert reports[-1].updates == 40


def test_counts_and_sparse_rows_stream_too():
    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(0.5, (200, 6)))
    pair = nvil.sbn(6, (3,), lengths=(3,))
    rows = (counts[[i]] for i in range(200))
    reports = list(nvil.fit(pair, Stream(rows, "counts"), nvil.Learner(batch_size=5), updates=10, validation=20))
    assert reports[-1].updates == 10


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([[0, 1], [0, 1, 1]], "Case 2 of the stream has 3 values, not 2"),
        ([[0, 1], [0, 2]], "Case 2 of the stream holds 2; 0 and 1 are needed"),
        ([[0, np.nan]], "Case 1 of the stream holds nan"),
        ([["a", "b"]], "numbers are needed"),
        ([[]], "Case 1 of the stream"),
    ],
)
def test_bad_cases_are_refused_by_number(cases, message):
    with pytest.raises(UsageError, match=message):
        Stream(iter(cases)).first()


def test_every_case_is_checked_against_the_domain_of_the_model_as_well():
    """Of columns given others, which may hold any numbers, and of categories; also the cases known before."""
    conditional = nvil.sbn(4, (3,), given=2)
    good, bad = [0.5, -3, 1, 0], [0, 1, 0.5, 1]
    stream = explained(conditional, Stream(iter([good, good, bad]), "numbers"))
    np.testing.assert_array_equal(stream.take(2), [good, good])
    with pytest.raises(UsageError, match=r"Case 3 of the stream holds 0\.5; 0 and 1 are needed"):
        stream.take(1)
    stream = Stream(iter([good, good, bad]), "numbers")
    stream.take(1)
    stream.first()
    with pytest.raises(UsageError, match=r"Case 3 of the stream holds 0\.5; 0 and 1 are needed"):
        explained(conditional, stream)
    categorical = nvil.sbn(4, (3,), visibles="categorical", visible_categories=2)
    with pytest.raises(UsageError, match="Case 2 of the stream holds 1; a single 1 among every 2 columns"):
        explained(categorical, Stream([[0, 1, 1, 0], [1, 1, 0, 0]])).first()


def test_what_came_before_a_bad_case_is_trained_on_and_then_it_is_refused():
    """Far into a stream; among its first cases, before any update, at once."""

    def cases(bad):
        for i in range(2000):
            yield CASES[i % 700] if i != bad else CASES[0] + 7

    settings = {"updates": 1000, "validation": CASES[:10], "report_every": 20}
    reports = nvil.fit(nvil.sbn(6, (3,)), cases(1500), nvil.Learner(batch_size=5), **settings)
    assert [next(reports).updates for _ in range(15)] == [*range(20, 301, 20)]
    with pytest.raises(UsageError, match=r"Case 1501 of the stream holds [78]; 0 and 1 are needed"):
        next(reports)
    with pytest.raises(UsageError, match="Case 900 of the stream"):
        fit(cases(899))
    with pytest.raises(UsageError, match="Case 1501 of the stream"):  # all that came before it is for validation
        fit(cases(1500), validation=1600)

    def broken():
        yield from cases(None)
        raise ZeroDivisionError("of the user's own")

    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        fit(broken(), updates=1000)


def lines(text, **choices):
    given = Choices(**choices)
    return from_lines(io.StringIO(text), given, given.read_vocabulary())


def test_lines_of_numbers_pairs_and_text(tmp_path):
    np.testing.assert_array_equal(lines("0 1 1\n1,0,0\n\n1\t1\t0\n").first().dense(), [[0, 1, 1], [1, 0, 0], [1, 1, 0]])
    stream = lines("1:2 3:1\n-1 2:4\n\n", columns=3)
    assert stream.kind == "counts"
    np.testing.assert_array_equal(stream.first().dense(), [[2, 0, 1], [0, 4, 0]])
    np.testing.assert_array_equal(
        lines("0:1 2:1\n", columns=3, first_index=0, values="binary").first().dense(), [[1, 0, 1]]
    )
    np.testing.assert_array_equal(lines("3 200\n", binarize="threshold", threshold=100.0).first().dense(), [[0, 1]])
    np.testing.assert_array_equal(lines("0 255\n", binarize="stochastic", white=255.0).first().dense(), [[0, 1]])
    (tmp_path / "words.txt").write_text("cat\ndog\n")
    stream = lines("The dog, the DOG!\n\ncat\n", vocabulary=str(tmp_path / "words.txt"))
    np.testing.assert_array_equal(stream.first().dense(), [[0, 2], [0, 0], [1, 0]])


@pytest.mark.parametrize(
    ("text", "choices", "message"),
    [
        ("", {}, "before its first case"),
        ("0 1\na b\n", {}, "Line 2 of the stream is not numbers"),
        ("1:1\n", {}, "give `columns`"),
        ("1:1\n4:1\n", {"columns": 3}, "Line 2 of the stream has a column 4, but there are only 3"),
        ("1:1\n1:x\n", {"columns": 3}, "column:count is needed"),
        ("3 4\n", {"binarize": "threshold"}, "give `threshold`"),
        ("3 4\n", {"binarize": "stochastic"}, "give `white`"),
        ("0 nan\n", {"binarize": "threshold", "threshold": 0.5}, "cannot be made binary"),
        ("0 7\n", {"binarize": "stochastic", "white": 1.0}, "cannot be made binary"),
        ("1:1\n", {"columns": 3, "binarize": "threshold", "threshold": 1.0}, "`binarize` is for lines of numbers"),
        ("1:1 junk\n", {"columns": 3}, "column:count is needed"),
        ("a b\n", {"vocabulary": "nowhere.txt"}, "Cannot read the vocabulary nowhere.txt"),
    ],
)
def test_bad_lines_get_one_clear_sentence(text, choices, message):
    with pytest.raises(UsageError, match=message):
        lines(text, **choices).first()


def test_a_pipe_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nvil.report, "write_report", plain_page)  # test_report has one of a stream
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)  # other tests here have those of a stream
    monkeypatch.chdir(tmp_path)
    text = "".join(" ".join(map(str, case)) + "\n" for case in CASES)

    def train(text, *more):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        settings = ("--hidden", "3", "--batch-size", "5", "--validation", "20", "--report-every", "50")
        main(["train", "--data", "-", *settings, "--out", "run", *more])
        return capsys.readouterr()

    out, err = train(text)
    assert "the first 20 for validation" in err
    assert "every case seen once" in err
    assert "best validation bound" in out
    assert "nats per case, over 136 updates" in out
    updates = [json.loads(line)["updates"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert updates == [50, 100, 136]
    # the same folder goes on with another stream
    train(text)
    updates = [json.loads(line)["updates"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert updates == [50, 100, 136, 150, 200, 250, 272]
    before = Path("run/metrics.jsonl").read_bytes()
    with pytest.raises(SystemExit):
        train("\n".join(text.splitlines()[:22]))  # 20 of them for validation
    assert "before it filled a minibatch" in capsys.readouterr().err
    assert Path("run/metrics.jsonl").read_bytes() == before
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", "run"])
    assert caught.value.code == 2
    assert "was trained on a stream, which is not kept; give cases with --data instead" in capsys.readouterr().err
    np.save("cases.npy", CASES[:50])
    main(["evaluate", "run", "--data", "cases.npy", "--json"])
    assert json.loads(capsys.readouterr().out)["cases"] == 50
    out, err = train(text, "--validation", "0", "--out", "all")
    assert "none for validation" in err
    assert out.startswith("bound of minibatches ")
    assert "nats per case, over 140 updates" in out
    # a bad line costs nothing of what came before it: 2980 of 3000 cases, five an update
    many = [*text.splitlines() * 5]
    many[3000] = "0 1 what"
    with pytest.raises(SystemExit) as caught:
        train("\n".join(many), "--out", "cut")
    assert caught.value.code == 2
    sentence = "Line 3001 of the stream is not numbers: '0 1 what'. What came before it is trained on and saved, at"
    assert capsys.readouterr().err.splitlines()[-1] == f"nvil: {sentence} update 596."
    last = json.loads(Path("cut/metrics.jsonl").read_text().splitlines()[-1])
    assert last["updates"] == 596
    main(["evaluate", "cut", "--data", "cases.npy"])
    with pytest.raises(SystemExit):
        train("\n".join(["0 1 0 1 0 1", *many[2990:]]), "--out", "none")
    assert "Line 12 of the stream" in capsys.readouterr().err
    assert not Path("none").exists()
