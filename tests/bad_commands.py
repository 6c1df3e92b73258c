"""A seeded generator of command lines that cannot be run, one fault each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

STREAM = ["stability", "sinusoid", "--period", "22", "--lr", "0.01", "--momentum", "0.9"]
MAP = ["map", "sinusoid", "--lr", "0.01", "--momentum", "0.1:0.9:2", "--period", "5:9:2"]
MAP += ["--out", "map.nc"]
REPRODUCE = ["reproduce", "problem-setting"]
SWEEP = ["sweep", "good.toml"]
CHECK = ["check", "good.csv", "--target", "y", "--lr", "0.01", "--momentum", "0.9"]
GOOD = [STREAM, MAP, REPRODUCE, SWEEP, CHECK]

FAULTS: list[Callable[[random.Random], list[str]]] = []


def fault(make: Callable[[random.Random], list[str]]) -> Callable[[random.Random], list[str]]:
    """Add a kind of fault."""
    FAULTS.append(make)
    return make


def bad_commands(count: int, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a fault and a command line that has it, every kind in turn."""
    rng = random.Random(seed)
    for number in range(count):
        make = FAULTS[number % len(FAULTS)]
        yield f"{number}: {make.__name__}", make(rng)


DIGITS = "9" * 400
NO_NUMBER = [
    "abc",
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1,5",
    "0x10",
    "1 2",
    "--",
    "½",
    "1e",
    ".",
]
NO_NUMBER += [
    DIGITS,
    "-" + DIGITS,
    "[red]",
    "\u202e1",
    "\x1b[31m",
    "$(ls)",
    "1.2.3",
    "None",
    "9" * 5000,
]
NUMBERS = {  # numbers out of range
    "--lr": ["0", "-1", "1e7"],
    "--momentum": ["1", "-0.1", "1.5"],
    "--dampening": ["1", "-1"],
    "--weight-decay": ["-1", "1e9"],
}
STREAM_NUMBERS = {
    **NUMBERS,
    "--noise": ["-1", "1e13"],
    "--period": ["0", "0.5", "-3", "1e6"],
    "--amplitude": ["-1", "1e7"],
    "--swing": ["-1", "21"],
    "--phase": ["1e7"],
}
WHOLE = {
    "--batch": ["0", "-1", "1.5", "1e13", "0.999999"],
    "--seed": ["-1", "0.5", "1e19", "2e30"],
}
STREAM_WHOLE = {
    **WHOLE,
    "--dim": ["0", "-1", "1.5", "1001", "1e9"],
    "--paths": ["0", "1", "-5", "1.5", "1e12"],
    "--steps": ["0", "15", "-5", "1.5", "1e15"],
}
CHECK_WHOLE = {**WHOLE, "--epochs": ["0", "-1", "1.5", "1e12"], "--grid": ["-1", "1.5", "1e9"]}


def replaced(line: list[str], option: str, value: str) -> list[str]:
    """Return a line with an option given once, as this."""
    if option in line:
        place = line.index(option)
        line = line[:place] + line[place + 2 :]
    return [*line, option, value]


@fault
def number_of_a_stream(rng):
    option = rng.choice([*STREAM_NUMBERS, *STREAM_WHOLE])
    return replaced(STREAM, option, rng.choice(NO_NUMBER))


@fault
def range_of_a_stream(rng):
    table = {**STREAM_NUMBERS, **STREAM_WHOLE}
    option = rng.choice(list(table))
    return replaced(STREAM, option, rng.choice(table[option]))


@fault
def number_of_a_check(rng):
    return replaced(CHECK, rng.choice([*NUMBERS, *CHECK_WHOLE]), rng.choice(NO_NUMBER))


@fault
def range_of_a_check(rng):
    table = {**NUMBERS, **CHECK_WHOLE}
    option = rng.choice(list(table))
    return replaced(CHECK, option, rng.choice(table[option]))


@fault
def list_of_numbers(rng):
    option = rng.choice(["--variance", "--direction"])
    values = ["a", "", "1,a", "1,,2", "nan", "inf", "1;2", DIGITS, "0,0", ",".join("1" * 2000)]
    return replaced(STREAM, option, rng.choice(values))


@fault
def basis(rng):
    values = ["splines", "", ":", "polynomial:0", "polynomial:9", "polynomial:x", "polynomial:1.5"]
    values += ["polynomial:" + DIGITS, "polynomial:²", "polynomial:-1", "fourier:x", "fourier:nan"]
    values += [
        "radial:inf",
        "fourier:1,,2",
        "linear:3",
        "polynomial:" + "9" * 5000,
        "fourier:" + DIGITS,
    ]
    line = rng.choice([STREAM, CHECK])
    return replaced(line, "--basis", rng.choice(values))


@fault
def width(rng):
    values = ["0", "-1", "1e9", "x", "nan"]
    return [*rng.choice([STREAM, CHECK]), "--basis", "radial:0", "--width", rng.choice(values)]


@fault
def range_of_a_map(rng):
    option = rng.choice(["--momentum", "--period", "--lr", "--amplitude", "--batch"])
    values = ["0.1:0.9", "a:b:c", "0.9:0.1:3", "0.1:0.9:0", "0.1:0.9:-3", "0.1:0.9:1e3", "::", ":"]
    values += [
        "0.1:0.9:2:lin",
        "0:0.9:2:log",
        "nan:1:3",
        "0.1:inf:3",
        "0.1:0.9:2:log:1",
        "1:2:" + DIGITS,
    ]
    values += ["0.1:0.9:1000000000", "0.1:0.9:1.5", "0.1:0.9:" + "9" * 5000]
    return replaced(MAP, option, rng.choice(values))


@fault
def map_without_two_ranges(rng):
    line = replaced(MAP, "--momentum", rng.choice(["0.9", "", "abc"]))
    return rng.choice([line, MAP[:-2], [*MAP, "--swing", "0:1:3"], replaced(MAP, "--lr", "1:2:2")])


@fault
def unknown_word(rng):
    word = rng.choice(["", "x", "Sinusoid", "a" * 3000, "[red]", "\x1b[31m", "-", "__class__", "0"])
    return rng.choice(
        [
            ["stability", word or "x", *STREAM[2:]],
            replaced(STREAM, "--optimizer", word),
            replaced(CHECK, "--optimizer", word),
            replaced(MAP, "--criterion", word),
            ["reproduce", word],
            [*REPRODUCE, "--scale", word],
            [*REPRODUCE, "--device", word],
            [*SWEEP, "--device", word],
            replaced(CHECK, "--target", word or "x"),
        ]
    )


@fault
def unknown_option(rng):
    option = rng.choice(
        ["--perod", "--x", "-z", "--lr2", "--", "--lr=", "--json=1", "--" + "x" * 999]
    )
    line = rng.choice(GOOD)
    return [*line, option, "extra"]


@fault
def option_without_value(rng):
    line, options = rng.choice(
        [
            (STREAM, ["--period", "--lr", "--seed", "--basis"]),
            (MAP, ["--criterion", "--out", "--plot"]),
            (REPRODUCE, ["--seed", "--out", "--scale"]),
            (SWEEP, ["--seed", "--out", "--device"]),
            (CHECK, ["--target", "--lr", "--html"]),
        ]
    )
    return [*line, rng.choice(options)]


@fault
def missing_option(rng):
    return rng.choice(
        [
            STREAM[:2],
            STREAM[:4],
            STREAM[:6],
            ["stability"],
            ["map"],
            MAP[:4],
            ["sweep"],
            ["check"],
            CHECK[:2],
            CHECK[:4],
            CHECK[:6],
            ["stability", "recorded", "--lr", "0.01", "--momentum", "0.9"],
        ]
    )


@fault
def unknown_command(rng):
    return [
        rng.choice(
            ["stabilty", "", " ", "maps", "help", "run", "--json", "-x", "x" * 3000, "[red]"]
        )
    ]


@fault
def seed_of_a_run(rng):
    values = [*NO_NUMBER, "-1", "0.5", "1e19", str(2**63)]
    return [*rng.choice([REPRODUCE, SWEEP]), "--seed", rng.choice(values)]


@fault
def place_of_a_file(rng):
    return rng.choice(
        [
            replaced(
                MAP, "--out", rng.choice(["map.txt", "map", "no/such/map.nc", ".", "/dev/full"])
            ),
            replaced(MAP, "--plot", rng.choice(["map.jpg", "no/such/map.png", "x" * 300 + ".png"])),
            [*CHECK, "--html", rng.choice(["report", "no/such/report.html", "report.txt"])],
            [*CHECK, "--plot", rng.choice(["a.gif", "no/such/a.png", "good.csv"])],
            [*REPRODUCE, "--out", rng.choice(["good.csv", "good.csv/out"])],
            [*SWEEP, "--out", rng.choice(["good.csv", "good.csv/out"])],
        ]
    )


@fault
def file_that_is_none(rng):
    name = rng.choice(
        ["none.csv", ".", "good.csv/none.csv", "good.toml", "x" * 300, "none.npy", "\x1b[31m"]
    )
    return rng.choice(
        [
            ["check", name, *CHECK[2:]],
            ["sweep", rng.choice(["none.toml", ".", "good.csv", "good.toml/x", "y" * 300])],
            ["stability", "recorded", "--data", name, *STREAM[4:]],
        ]
    )


@fault
def more_than_there_is_room_for(rng):
    return rng.choice(
        [
            replaced(STREAM, "--dim", rng.choice(["300", "1000"])),
            [*replaced(STREAM, "--dim", "7"), "--basis", "polynomial:8"],
            [*STREAM, "--paths", "1000000"],
            [*STREAM, "--steps", "1e10"],
            [*replaced(STREAM, "--batch", "1e7"), "--basis", "polynomial:2"],
            replaced(replaced(MAP, "--period", "5:9:100000"), "--momentum", "0:0.9:100000"),
            [*replaced(MAP, "--criterion", "mean_square"), "--dim", "300"],
        ]
    )


@fault
def option_of_another(rng):
    return rng.choice(
        [
            [*STREAM, "--innovation", "0.1"],
            [*STREAM, "--data", "good.csv"],
            [*STREAM, "--repeat"],
            ["stability", "iid", *STREAM[2:]],
            [*STREAM, "--width", "1"],
            [*STREAM, "--basis", "polynomial:2", "--no-bias"],
            replaced(STREAM, "--optimizer", "sgd"),
            [*replaced(STREAM, "--optimizer", "nesterov"), "--dampening", "0.5"],
            [*MAP, "--seed", "1"],
            [*REPRODUCE, "--lr", "0.1"],
            [*SWEEP, "--scale", "smoke"],
            [*CHECK, "--period", "22"],
        ]
    )
