"""Two hundred bad requests for `resonax explore`, made by a generator with a fixed seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

PORT, TOKEN = 8999, "a-token-of-the-tests"
GOOD = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97, "batch": 20}
AXES = {
    "x": {"name": "period", "first": 10, "last": 60, "count": 4},
    "y": {"name": "momentum", "first": 0.9, "last": 0.99, "count": 4},
}
SETTINGS = ("verdict", "map", "spectrum", "safe", "runs")
KNOWN = {"x-resonax-token": TOKEN}
JUNK = (
    None,
    True,
    "",
    "x" * 5000,
    "NaN",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    [],
    {},
    [[[]]],
    {"a": {"b": []}},
    -1,
    1e308,
    -1e308,
    10**400,
    "\u202e\x00",
    [1, 2, 3],
    "__import__('os')",
)


@dataclass(frozen=True)
class Bad:
    """A request that must be refused."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: dict(KNOWN))


def _json(path: str, value: object, **more: str) -> Bad:
    return Bad("POST", f"/api/{path}", json.dumps(value).encode(), {**KNOWN, **more})


def _whole(path: str, setting: object) -> dict[str, object]:
    return {"setting": setting, **(AXES if path == "map" else {})}


def _wrong_values(rng: random.Random) -> list[Bad]:
    """Return settings with one wrong value: a type, a range, a name."""
    found = []
    for _ in range(70):
        path, name = rng.choice(SETTINGS), rng.choice([*GOOD, "amplitude", "dim", "basis"])
        junk = rng.choice([one for one in JUNK if not (one is True and name == "bias")])
        if name in ("period", "lr", "amplitude") and junk == 1e308:
            junk = -5
        found.append(_json(path, _whole(path, {**GOOD, name: junk})))
    return found


def _wrong_shapes(rng: random.Random) -> list[Bad]:
    """Return bodies that are no setting at all, and axes that are none."""
    found = [_json(rng.choice(SETTINGS), junk) for junk in JUNK]
    found += [_json(path, _whole(path, junk)) for path in SETTINGS for junk in (None, 3, [], "a")]
    for axis in ("x", "y"):
        for junk in (None, [], {"name": "colour"}, {"name": "period", "first": 1, "last": 2}):
            found.append(_json("map", {"setting": GOOD, **AXES, axis: junk}))
        for change in (
            {"count": 0},
            {"count": 10**9},
            {"count": 2.5},
            {"first": 60, "last": 10},
            {"log": True, "first": 0},
            {"log": "yes"},
        ):
            found.append(_json("map", {"setting": GOOD, **AXES, axis: {**AXES[axis], **change}}))
    found.append(_json("map", {"setting": GOOD, "x": AXES["x"], "y": AXES["x"]}))
    found += [_json("map", {"setting": GOOD, **AXES, "criterion": junk}) for junk in ("", 3, "no")]
    for name in ("steps", "runs", "seed"):
        found += [_json("runs", {"setting": GOOD, name: junk}) for junk in (-1, 10**9 + 0.5, "a")]
    return found


def _wrong_texts() -> list[Bad]:
    """Return bodies that are no JSON."""
    texts = (
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"NaN",
        b'{"setting": NaN}',
        b'{"setting": {"process": "iid", "lr": Infinity}}',
        b"[" * 100_000,
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b"9" * 5000,
        b"\x00" * 100,
        b"a" * 300_000,
    )
    return [Bad("POST", f"/api/{path}", text) for path in ("verdict", "map") for text in texts]


def _wrong_forms(rng: random.Random) -> list[Bad]:
    """Return broken forms for files and checks."""
    found = []
    kinds = (
        "multipart/form-data",
        "multipart/form-data; boundary=x",
        "application/json",
        "text/plain",
        "",
    )
    bodies = (
        b"",
        b"--x\r\n",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nhello\r\n--x--\r\n",
        bytes(rng.randrange(256) for _ in range(200)),
        b'--x\r\nContent-Disposition: form-data; name="other"; filename="a"\r\n\r\nx\r\n--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="lr"\r\n\r\nten\r\n--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="lr"\r\n\r\n\xff\xfe\r\n--x--\r\n',
    )
    for path in ("columns", "check"):
        found += [
            Bad("POST", f"/api/{path}", body, {**KNOWN, "content-type": kind})
            for body in bodies
            for kind in rng.sample(kinds, 2)
        ]
    return found


def _wrong_addresses() -> list[Bad]:
    """Return unknown paths, wrong methods, and requests of strangers."""
    host = f"127.0.0.1:{PORT}"
    paths = (
        "/nothing",
        "/api/nothing",
        "/api/jobs/none",
        "/api/jobs/none/events",
        "/api/results/none",
        "/api/results/..%2f..%2fetc/figure.png",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/app.py",
        "/app.py",
        "/api/results/none/cell?x=a&y=-1",
        "/index.html%00.js",
        "/style.css/",
    )
    found = [Bad("GET", path) for path in paths]
    found += [Bad(method, "/api/verdict") for method in ("GET", "PUT", "DELETE", "PATCH")]
    found += [Bad("POST", "/api/schema"), Bad("TRACE", "/"), Bad("DELETE", "/api/jobs/none")]
    strangers = (
        {},
        {"x-resonax-token": ""},
        {"x-resonax-token": TOKEN[:-1]},
        {"x-resonax-token": TOKEN + "x"},
        {"cookie": f"resonax_{PORT}=wrong"},
        {"cookie": "\x00;;=;"},
        {**KNOWN, "host": "example.com"},
        {**KNOWN, "host": f"evil.example:{PORT}"},
        {**KNOWN, "host": f"{host}.evil.example"},
        {**KNOWN, "origin": "https://evil.example"},
        {**KNOWN, "origin": "null"},
        {**KNOWN, "origin": f"https://{host}"},
    )
    found += [Bad("GET", "/api/schema", headers=dict(headers)) for headers in strangers]
    return [*found, Bad("GET", "/api/schema?token=wrong"), Bad("GET", "/?token=", headers={})]


def bad_requests(seed: int = 0) -> list[Bad]:
    """Return at least 200 requests; each must be answered by a JSON error of one sentence."""
    rng = random.Random(seed)
    parts = (_wrong_values(rng), _wrong_shapes(rng), _wrong_texts(), _wrong_forms(rng))
    return [bad for part in (*parts, _wrong_addresses()) for bad in part]
