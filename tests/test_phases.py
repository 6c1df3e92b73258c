"""Products with curvatures, of torch and jax, against explicit Jacobians; verdicts of both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.flatten_util import ravel_pytree
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import resonax as rx
from resonax.jax.phases import make_phases
from resonax.jax.phases import phases as jax_phases
from resonax.torch import phases as torch_phases
from resonax.torch.phases import _Products

torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(3, 12)

    def forward(self, x):
        q, k, v = self.q(x.reshape(2, -1, 3)).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v).sum((1,))[:, :3]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit, self.head = nn.LSTM(3, 2, batch_first=True), nn.Linear(2, 3)

    def forward(self, x):
        return self.head(self.unit(x.reshape(2, -1, 3))[0][:, -1])


MODELS = {
    "dense": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)),
    "layers": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.5), nn.Linear(4, 3)
    ),
    "attention": Attention,
    "recurrent": Recurrent,
}


def batch(seed: int, rows: int, labels: int):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=draw)
    return x, torch.randint(3, (labels,), generator=draw)


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian"])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_those_of_explicit_jacobians(name, curvature):
    torch.manual_seed(0)
    model = MODELS[name]()
    x, y = batch(1, 8, 2 if name in ("attention", "recurrent") else 8)
    named = dict(model.named_parameters())
    products = _Products(model, cross_entropy, named, curvature)
    with products.at_rest():
        count = sum(one.numel() for one in named.values())
        columns = np.concatenate([products.of(unit, [(x, y)]) for unit in np.eye(count)])
    model.eval()
    sizes = [one.shape for one in named.values()]

    def outputs(flat):
        parts = torch.split(flat, [size.numel() for size in sizes])
        given = {n: p.reshape(s) for n, p, s in zip(named, parts, sizes, strict=True)}
        return torch.func.functional_call(model, given, (x,))

    flat = torch.cat([one.detach().flatten() for one in named.values()])
    if curvature == "hessian":
        expected = torch.autograd.functional.hessian(lambda w: cross_entropy(outputs(w), y), flat)
    else:
        jacobian = torch.autograd.functional.jacobian(outputs, flat).reshape(-1, count)
        shares = torch.softmax(outputs(flat), -1)
        inner = torch.block_diag(*(torch.diag(p) - torch.outer(p, p) for p in shares)) / len(y)
        expected = jacobian.T @ inner @ jacobian
    np.testing.assert_allclose(columns, expected.detach().numpy(), atol=2e-6)


def test_nothing_of_model_and_optimizer_changes():
    torch.manual_seed(0)
    model = MODELS["layers"]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for seed in range(3):
        x, y = batch(seed, 8, 8)
        cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        found = torch_phases(
            model,
            cross_entropy,
            optimizer,
            {"a": [batch(1, 8, 8)], "b": [batch(2, 8, 8)]},
            steps=4,
            momenta=[0.9],
            periods=[8],
        )
    assert found.names == ("a", "b")
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    for name, one in model.state_dict().items():
        assert torch.equal(one, before[name])


def test_a_compiled_model_gives_what_it_gives_eagerly():
    torch.manual_seed(0)
    model = MODELS["dense"]()
    batches = {"a": [batch(1, 8, 8)], "b": [batch(2, 8, 8)]}
    found = []
    for one in (model, torch.compile(model, backend="eager")):
        sgd = torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)
        few = {"steps": 4, "momenta": [0.9], "periods": [8]}
        found.append(torch_phases(one, cross_entropy, sgd, batches, **few).rate)
    assert found[0] == pytest.approx(found[1], abs=1e-7)


def test_torch_and_jax_agree():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    adamw = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1, betas=(0.8, 0.99))
    pairs = {}
    for name, scale in (("a", 0.5), ("b", 2.0)):
        xs = [scale * batch(seed, 8, 8)[0] for seed in range(3)]
        pairs[name] = [(x, x[:, :1]) for x in xs]
    for k in range(20):
        x, y = pairs["ab"[k % 2]][k % 3]
        adamw.zero_grad()
        mse_loss(model(x), y).backward()
        adamw.step()
    options = {"steps": (4, 6), "momenta": [0.5, 0.8], "periods": [4, 10], "follow_square": True}
    options["length"] = 100
    one = torch_phases(model, mse_loss, adamw, pairs, **options)

    linear = [module for module in model if isinstance(module, nn.Linear)]
    params = [{"w": m.weight.detach().numpy(), "x": m.bias.detach().numpy()} for m in linear]
    squares = [
        {
            name: (adamw.state[p]["exp_avg_sq"] / (1 - 0.99**20)).numpy()
            for name, p in (("w", m.weight), ("x", m.bias))
        }
        for m in linear
    ]

    def apply(params, x):
        inner = jnp.tanh(x @ params[0]["w"].T + params[0]["x"])
        return inner @ params[1]["w"].T + params[1]["x"]

    def loss(outputs, y):
        return ((outputs - y) ** 2).mean()

    plain = {n: [(x.numpy(), y.numpy()) for x, y in some] for n, some in pairs.items()}
    optimizer = rx.adamw(lr=0.05, beta1=0.8, beta2=0.99, weight_decay=0.1)
    two = jax_phases(apply, loss, params, optimizer, plain, square=squares, **options)
    assert one.verdict == two.verdict
    assert one.rate == pytest.approx(two.rate, abs=1e-5)
    assert one.alone == pytest.approx(two.alone, abs=1e-5)
    np.testing.assert_allclose(one.dataset.rate, two.dataset.rate, atol=1e-5)
    np.testing.assert_allclose(one.dataset.excess_settled, two.dataset.excess_settled, rtol=2e-2)


def test_products_of_jax_are_those_of_explicit_matrices():
    def apply(params, x):
        return jnp.tanh(x @ params["a"]) @ params["b"]

    def loss(outputs, y):
        return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()

    keys = jax.random.split(jax.random.key(0), 3)
    params = {"a": jax.random.normal(keys[0], (3, 4)), "b": jax.random.normal(keys[1], (4, 3))}
    x, y = jax.random.normal(keys[2], (8, 3)), jnp.arange(8) % 3
    batches = {"one": [(x, y)], "two": [(2 * x, y)]}
    weights, shaped = ravel_pytree(params)
    hessian = jax.jit(jax.hessian(lambda w: loss(apply(shaped(w), x), y)))(weights)
    jacobian = jax.jit(jax.jacobian(lambda w: apply(shaped(w), x)))(weights)
    bent = jax.jit(jax.vmap(jax.hessian(lambda z, y: loss(z[None], y[None]))))
    inner = bent(apply(params, x), y) / 8
    newton = jnp.einsum("rip,rij,rjq->pq", jacobian, inner, jacobian)
    for name, expected in (("hessian", hessian), ("gauss-newton", newton)):
        phase = make_phases(apply, loss, params, batches, (1, 1), name)[0]
        found = np.concatenate([phase.product(e) for e in np.eye(len(weights), dtype="f4")])
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_bad_input_is_refused_in_a_sentence():
    model = nn.Linear(3, 3)
    adam, good = (
        torch.optim.Adam(model.parameters()),
        {"a": [batch(1, 4, 4)], "b": [batch(2, 4, 4)]},
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.SGD(nn.Linear(3, 3).parameters(), lr=0.1)
    decayed = torch.optim.Adam(model.parameters(), weight_decay=0.1)
    for change, words in (
        ({"model": 3}, "must be a torch.nn.Module"),
        ({"model": nn.ReLU()}, "no parameter"),
        ({"optimizer": adam}, "after some steps"),
        ({"optimizer": other}, "all parameters of the model"),
        ({"optimizer": decayed}, "use AdamW"),
        ({"optimizer": torch.optim.Adagrad(model.parameters())}, "must be SGD"),
        ({"batches_by_phase": [1, 2]}, "a dictionary of two phases"),
        ({"batches_by_phase": {"a": [], "b": []}}, "at least one batch"),
        ({"batches_by_phase": {"a": [1], "b": [2]}}, "must be a pair"),
        ({"loss_fn": lambda z, _: z}, "must return one number"),
        ({"steps": (1, 2, 3)}, "one for each phase"),
        ({"curvature": "fisher"}, "unknown curvature"),
    ):
        given = {"model": model, "loss_fn": cross_entropy, "optimizer": sgd}
        given |= {"batches_by_phase": good, "steps": 4, **change}
        with pytest.raises(rx.ArgumentError, match=words) as caught:
            torch_phases(**given)
        assert "\n" not in str(caught.value)
    with pytest.raises(rx.ArgumentError, match="same structure"):
        jax_phases(
            lambda p, x: p * x,
            lambda z, _: z.mean(),
            jnp.ones(2),
            rx.adam(lr=0.1),
            {"a": [(jnp.ones(2), 0.0)], "b": [(jnp.ones(2), 0.0)]},
            steps=1,
            square={"no": 1},
        )
