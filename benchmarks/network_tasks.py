"""Small networks, and pairs of domains from what Python packages ship, for ``network_bands.py``."""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LEVELS = 64  # of a recording


def python_code() -> bytes:
    """Return the sources of the standard library."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return b"".join(file.read_bytes() for file in files)


def python_prose() -> bytes:
    """Return docstrings of numerical packages and of the standard library, each one once."""
    names = "numpy scipy.stats scipy.signal scipy.optimize scipy.linalg pandas optax jax.numpy"
    found: dict[str, None] = {}
    for name in names.split():
        for _, thing in sorted(
            vars(importlib.import_module(name)).items(), key=lambda pair: pair[0]
        ):
            if inspect.isroutine(thing) or inspect.isclass(thing):
                parts = [thing, *(vars(thing).values() if inspect.isclass(thing) else ())]
                found |= dict.fromkeys(filter(None, map(inspect.getdoc, parts)))
    prose = [line for text in found for line in text.splitlines() if not line.startswith(">>>")]
    return "\n".join(prose).encode()


def recording(name: str) -> np.ndarray:
    """Return the first column of a recording of the tests in levels of equal height."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    line = importlib.import_module("recordings").RECORDINGS[name]()[0][:, 0]
    scaled = np.clip((line - line.mean()) / line.std(), -3, 3)
    return ((scaled + 3) / 6 * (LEVELS - 1)).round().astype(np.uint8)


def prepare(path: Path) -> None:
    """Write the data of all networks to a file."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    texts = [np.frombuffer(text[:2_000_000], np.uint8) for text in (python_code(), python_prose())]
    recordings = [recording(name) for name in ("victoria", "san-francisco")]
    arrays: dict[str, Any] = {"digits": found.images.astype(np.uint8), "labels": found.target}
    arrays |= {f"text{place}": text for place, text in enumerate(texts)}
    arrays |= {f"recordings{place}": line for place, line in enumerate(recordings)}
    np.savez_compressed(path, **arrays)
    print(f"{path}: {[len(text) for text in texts]} bytes, {[len(r) for r in recordings]} values")


class Domains(NamedTuple):
    """Two domains: ``draw(key, domain of each row) -> (x, y)``, and what y can be."""

    draw: Callable[[Array, Array], tuple[Array, Array]]
    classes: int
    rows: int = 1  # of a batch, times those of the scale


def sequences(lines: list[np.ndarray], classes: int, length: int = 64) -> Domains:
    """Return windows of two long lines, of which each next value is to be said."""
    least = min(map(len, lines))
    data = jnp.asarray(np.stack([line[:least] for line in lines]))

    def draw(key: Array, domain: Array) -> tuple[Array, Array]:
        start = jax.random.randint(key, domain.shape, 0, least - length - 1)
        rows = data[domain[:, None], start[:, None] + jnp.arange(length + 1)].astype(jnp.int32)
        return rows[:, :-1], rows[:, 1:]

    return Domains(draw, classes)


def digits(images: np.ndarray, labels: np.ndarray) -> Domains:
    """Return noisy digits, dark on bright and upright, or bright on dark and turned."""
    upright = images / 16.0
    both = jnp.asarray(np.stack([upright, 1 - np.rot90(upright, axes=(1, 2))]), jnp.float32)
    known = jnp.asarray(labels, jnp.int32)

    def draw(key: Array, domain: Array) -> tuple[Array, Array]:
        which, how = jax.random.split(key)
        index = jax.random.randint(which, domain.shape, 0, len(known))
        noise = 0.15 * jax.random.normal(how, (*domain.shape, 8, 8))
        return both[domain, index] + noise, known[index]

    return Domains(draw, 10, rows=2)


# Networks: pairs of functions over dictionaries of arrays.

Params = dict[str, Any]


def dense(key: Array, inputs: int, outputs: int, gain: float = 1.0) -> Params:
    weights = gain / np.sqrt(inputs) * jax.random.normal(key, (inputs, outputs))
    return {"w": weights, "b": jnp.zeros(outputs)}


def use(layer: Params, x: Array) -> Array:
    return x @ layer["w"] + layer["b"]


def normalized(x: Array, scale: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return scale * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


class Network(NamedTuple):
    """A network: ``init(key) -> parameters`` and ``apply(parameters, x) -> logits``."""

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def embedded(key: Array, classes: int, width: int, is_text: bool, patch: int) -> Params:
    if is_text:
        return {"w": 0.1 * jax.random.normal(key, (classes, width))}
    return dense(key, patch, width)


def transformer(width: int, layers: int, classes: int, is_text: bool, heads: int = 4) -> Network:
    """Return a transformer: of bytes, or of the patches of an image."""

    def init(key: Array) -> Params:
        keys = iter(jax.random.split(key, 4 * layers + 3))
        gain = 1 / np.sqrt(2 * layers)
        block = lambda: {  # noqa: E731
            "qkv": dense(next(keys), width, 3 * width),
            "out": dense(next(keys), width, width, gain),
            "up": dense(next(keys), width, 4 * width),
            "down": dense(next(keys), 4 * width, width, gain),
            "scales": jnp.ones((2, width)),
        }
        return {
            "in": embedded(next(keys), classes, width, is_text, 4),
            "places": 0.1 * jax.random.normal(next(keys), (64 if is_text else 16, width)),
            "blocks": [block() for _ in range(layers)],
            "scale": jnp.ones(width),
            "head": dense(next(keys), width, classes, 0.1),
        }

    def apply(params: Params, x: Array) -> Array:
        if is_text:
            x = params["in"]["w"][x]
        else:
            rows = x.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3).reshape(-1, 16, 4)
            x = use(params["in"], rows)
        x = x + params["places"]
        count, length, _ = x.shape
        past = jnp.tril(jnp.ones((length, length), bool)) if is_text else True
        for block in params["blocks"]:
            qkv = use(block["qkv"], normalized(x, block["scales"][0]))
            q, k, v = jnp.moveaxis(qkv.reshape(count, length, 3, heads, width // heads), 2, 0)
            score = jnp.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(width // heads)
            share = jax.nn.softmax(jnp.where(past, score, -1e9), axis=-1)
            seen = jnp.einsum("nhqk,nkhd->nqhd", share, v).reshape(x.shape)
            x = x + use(block["out"], seen)
            inner = jax.nn.gelu(use(block["up"], normalized(x, block["scales"][1])))
            x = x + use(block["down"], inner)
        x = normalized(x, params["scale"])
        return use(params["head"], x if is_text else x.mean(1))

    return Network(init, apply)


def convolutional(width: int, layers: int, classes: int, is_text: bool) -> Network:
    """Return residual convolutions, causal and ever wider over bytes, 3 x 3 over images.

    A convolution is a product with the shifted values side by side: with weights of its own for
    each run, a library's convolution would be a slow grouped one.
    """
    taps, width = (3, width) if is_text else (9, 2 * width // 3)
    blocks = layers + 3 if is_text else 2 * layers

    def shifted(x: Array, spread: int) -> Array:
        if is_text:
            padded = jnp.pad(x, ((0, 0), (2 * spread, 0), (0, 0)))
            places = range(0, 3 * spread, spread)
            return jnp.concatenate([padded[:, i : i + x.shape[1]] for i in places], -1)
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        pairs = itertools.product(range(3), range(3))
        return jnp.concatenate([padded[:, i : i + 8, j : j + 8] for i, j in pairs], -1)

    def init(key: Array) -> Params:
        keys = iter(jax.random.split(key, 2 * blocks + 2))
        block = lambda: {  # noqa: E731
            "wide": dense(next(keys), taps * width, width),
            "out": dense(next(keys), width, width, 1 / np.sqrt(blocks)),
            "scale": jnp.ones(width),
        }
        return {
            "in": embedded(next(keys), classes, width, is_text, 9),
            "blocks": [block() for _ in range(blocks)],
            "scale": jnp.ones(width),
            "head": dense(next(keys), width, classes, 0.1),
        }

    def apply(params: Params, x: Array) -> Array:
        x = params["in"]["w"][x] if is_text else use(params["in"], shifted(x[..., None], 1))
        for place, block in enumerate(params["blocks"]):
            wide = shifted(normalized(x, block["scale"]), 2**place if is_text else 1)
            x = x + use(block["out"], jax.nn.gelu(use(block["wide"], wide)))
        x = normalized(x, params["scale"])
        return use(params["head"], x if is_text else x.mean((1, 2)))

    return Network(init, apply)


def recurrent(width: int, layers: int, classes: int, is_text: bool) -> Network:
    """Return a gated recurrent unit over bytes."""
    hidden, _ = 5 * width // 2, (layers, is_text)

    def init(key: Array) -> Params:
        keys = iter(jax.random.split(key, 4))
        return {
            "in": embedded(next(keys), classes, width, True, 0),
            "seen": dense(next(keys), width, 3 * hidden),
            "kept": dense(next(keys), hidden, 3 * hidden),
            "head": dense(next(keys), hidden, classes, 0.1),
        }

    def apply(params: Params, x: Array) -> Array:
        seen = use(params["seen"], params["in"]["w"][x]).swapaxes(0, 1)

        def step(state: Array, row: Array) -> tuple[Array, Array]:
            forget, reset, new = jnp.split(row, 3, -1)
            kept_forget, kept_reset, kept_new = jnp.split(use(params["kept"], state), 3, -1)
            gate = jax.nn.sigmoid(forget + kept_forget)
            new = jnp.tanh(new + jax.nn.sigmoid(reset + kept_reset) * kept_new)
            state = gate * state + (1 - gate) * new
            return state, state

        start = jnp.zeros((x.shape[0], hidden))
        states = jax.lax.scan(step, start, seen)[1].swapaxes(0, 1)
        return use(params["head"], states)

    return Network(init, apply)


def combinations(path: Path, width: int, layers: int) -> Iterator[tuple[str, Network, Domains]]:
    """Yield the networks and the domains that each is trained on."""
    with np.load(path) as data:
        text = sequences([data["text0"], data["text1"]], 256)
        curves = sequences([data["recordings0"], data["recordings1"]], LEVELS)
        styles = digits(data["digits"], data["labels"])
    of = {"transformer": transformer, "convolutional": convolutional, "recurrent": recurrent}
    for name, make in of.items():
        second = ("recordings", curves) if name == "recurrent" else ("digits", styles)
        for domains, given in (("text", text), second):
            is_text = domains != "digits"
            yield (
                f"{name}-{domains}",
                make(width, layers, given.classes, is_text),
                given,
            )
