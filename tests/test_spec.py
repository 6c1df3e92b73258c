"""The tables of names against what they name, and the sentences that all users of them share."""

from __future__ import annotations

import inspect

import pytest

import resonax as rx
from resonax.core.errors import ArgumentError
from resonax.learners import Momentum
from resonax.learners.transforms import _OPTAX_NAMES
from resonax.spec.kinds import KINDS, check_kind, find_kind, kinds

ALL = [(family, name) for family, table in KINDS.items() for name in table]
READING = {"target", "features", "order_by", "drop_missing", "separator", "decimal", "standardise"}


@pytest.mark.parametrize(("family", "name"), ALL)
def test_a_kind_has_the_parameters_of_what_makes_it(family, name):
    kind = KINDS[family][name]
    takes = dict(inspect.signature(kind.load()).parameters)
    takes.pop("law", None)  # of iid: made by `shuffled`
    takes.pop("nesterov", None)  # of torch: a kind of its own here
    short = _OPTAX_NAMES if name.startswith("optax.") else {}
    fields = {short.get(key, key): kind.needs(key) for key in kind.names}
    if name == "recorded":  # the rest is for the reader of the file
        fields = {key: needed for key, needed in fields.items() if key not in READING}
    if name.startswith("optax.") or name in ("optax", "river"):  # some of what they take
        assert set(fields) <= set(takes)
        return
    needed = {key for key, item in takes.items() if item.default is item.empty}
    assert set(fields) == set(takes)
    assert {key for key, is_needed in fields.items() if is_needed} == needed


def test_what_a_recording_takes_is_what_the_reader_takes():
    from resonax.recordings.recording import read_recording

    own = set(KINDS["process"]["recorded"].names) - {"data", "repeat"}
    assert own == READING <= set(inspect.signature(read_recording).parameters)


def test_linear_optimizers_are_momentum_and_no_others_are():
    for name, kind in KINDS["optimizer"].items():
        numbers = {"lr": 0.1, "momentum": 0.5}
        given = {key: numbers[key] for key in numbers if key in kind.names}
        if not name.startswith("optax."):
            assert isinstance(kind.load()(**given), Momentum) == kind.is_linear
        assert ("stability" in kind.uses or "check" in kind.uses) == kind.is_linear


WRONG = {
    "unknown": (("optimizer", "nesterof", {}), "did you mean 'nesterov'"),
    "of another use": (
        ("optimizer", "adam", {}),
        "stability does not cover the optimizer adam, only heavy_ball, nesterov, sgd; for adam use",
    ),
    "unknown parameter": (("process", "iid", {"period": 3}), "period is not a parameter of iid"),
    "missing": (("optimizer", "sgd", {}), "lr is missing: sgd needs it, above 0"),
    "out of range": (("process", "ar2", {"period": 1.5}), "period must be at least 2"),
    "shape": (("process", "iid", {"variance": [1.0, 2.0]}), "variance must have 1 numbers for dim"),
    "flag": (("model", "linear", {"bias": 1}), "bias must be true or false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_has_one_sentence_however_it_is_spelled(case):
    (family, name, given), words = WRONG[case]
    with pytest.raises(ArgumentError) as plain:
        check_kind(family, name, given, use="stability")
    assert words in str(plain.value)
    with pytest.raises(ArgumentError) as shown:
        check_kind(family, name, given, use="stability", format_name=lambda key: f"--{key}")
    assert str(shown.value).replace("--", "") == str(plain.value)


def test_python_and_the_command_line_say_the_same(monkeypatch, tmp_path):
    from resonax.cli.app import _run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x\n" + "\n".join("1-" * 99)[:-1].replace("-", "-1"))
    for options in ({"optimizer": "sgd"}, {"optimizer": "heavy-ball"}):
        with pytest.raises(ArgumentError) as raised:
            rx.check([1.0, -1.0] * 99, lr=0.1, momentum=0.9, **options)
        line = f"check a.csv --lr 0.1 --momentum 0.9 --optimizer {options['optimizer']}"
        status, sentence = _run(line.split())
        assert status == 2
        assert sentence.replace("--", "").replace("-decay", "_decay") == str(raised.value)


def test_all_ways_in_say_the_same_of_a_number_out_of_its_range():
    from resonax.cli.app import _run
    from resonax.explore.questions import parse_setting
    from resonax.spec.sweep_checks import parse_sweep

    rule = "must be at least 0 and below 1, got 1.2"
    setting = {"process": "iid", "lr": 0.1, "momentum": 1.2}
    sweep = {
        "id": "tiny",
        "process": {"kind": "iid"},
        "optimizer": {"kind": "heavy_ball", "momentum": 1.2},
        "axes": {"lr": {"values": [0.1]}, "amplitude": {"values": [1]}},
    }
    assert _run(["stability", "iid", "--lr", "0.1", "--momentum", "1.2"]) == (
        2,
        f"--momentum {rule}",
    )
    for way, path in (
        (lambda: parse_sweep(sweep, where="a.toml"), "a.toml: optimizer.momentum"),
        (lambda: parse_setting({"setting": setting}), "momentum"),
        (lambda: rx.check([[1.0], [2.0]], lr=0.1, momentum=1.2), "momentum"),
        (lambda: rx.heavy_ball(lr=0.1, momentum=1.2), "momentum"),
    ):
        with pytest.raises(ArgumentError) as raised:
            way()
        assert str(raised.value) == f"{path} {rule}"


def test_a_form_has_text_and_a_program_has_numbers():
    from resonax.spec.checks import CheckOptions
    from resonax.spec.models import read

    given = {"lr": "0.01", "epochs": "3", "drop_missing": "true"}
    asked = read(CheckOptions, given, strict=False)
    assert (asked.lr, asked.epochs, asked.drop_missing) == (0.01, 3, True)
    for name, text in given.items():
        with pytest.raises(ArgumentError, match=f"^{name} must be .*, got '{text}'$"):
            read(CheckOptions, {name: text})


def test_every_use_has_kinds_and_every_kind_a_use():
    for family in KINDS:
        assert kinds(family, "stability")
        assert kinds(family, "sweep")
    assert all(kind.uses for table in KINDS.values() for kind in table.values())
    assert find_kind("model", "network", "sweep").load() is rx.Network
