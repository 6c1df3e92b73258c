"""Kept audits by the API of `resonax explore`: their own words and numbers, as text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import resonax as rx
from bad_requests import KNOWN, PORT, TOKEN
from damage import damage
from kept_audit import kept_audit
from resonax.core.errors import StoreError
from resonax.explore.app import build_app
from resonax.explore.security import Site
from resonax.explore.serve import check_source
from resonax.reports.audit import write_audit
from resonax.store.files import read_sealed, sealed_json


def keep(folder: Path) -> Path:
    """Keep an audit in a folder as both of its files, beside files that are none."""
    kept_audit().save(folder / "one.json")
    write_audit(kept_audit(), folder / "two.html", "resonax audit <train>:make")
    (folder / "claims.json").write_bytes(sealed_json({"claims": []}))
    (folder / "other.json").write_text('{"kind": "Audit"}')
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "gone.json").symlink_to(folder / "nothing")
    return folder


@pytest.fixture
def folder(tmp_path):
    return keep(tmp_path)


@pytest.fixture
def get(folder):
    app = build_app(Site(TOKEN, PORT, results=folder))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=KNOWN) as client:
        yield lambda path: client.get(f"/api/{path}")


def test_the_audits_of_a_folder_are_listed(get):
    found = get("results").json()
    assert [audit["name"] for audit in found["audits"]] == ["one.json", "two.html"]
    assert found["experiments"] == []


@pytest.mark.parametrize("name", ["one.json", "two.html"])
def test_an_audit_is_shown_as_its_report(get, name):
    audit, found = kept_audit(), get(f"audits/{name}").json()
    assert found["heading"] == "The order is not random, and harmful"
    assert found["harmful"]
    assert found["sentence"].startswith("ordered, harmful: ")
    assert found["cause"].startswith("momentum and the order together: ")
    answers = dict(found["answers"])
    assert answers.pop("lost steps") == "40 of 64"
    assert answers == {
        "order": "ordered", "harm": "harmful", "cause": "resonance", "period": "8 steps"
    }  # fmt: skip
    assert [cure.split(",")[0] for cure in found["cures"]] == ["a buffer"]
    assert found["runs"]["own"] == [2.3, 2.0, None]  # JSON has no infinity
    assert found["runs"]["mixed"] == [[2.3, 1.2, 1.0], [2.3, 1.1, 1.1]]
    assert found["runs"]["arrow"] == {"position": 24.0, "loss": 2.0, "text": "40 steps lost"}
    assert np.array_equal(found["batches"]["values"], audit.series.T)
    assert not {"\x1b", "\u202e"} & set(json.dumps(found, ensure_ascii=False))


def test_a_report_holds_the_audit_and_none_of_its_words_is_mark_up(folder):
    text = (folder / "two.html").read_text(encoding="utf-8")
    assert text.count("<script") == 1
    assert "alert(1)</script>" not in text
    found = rx.load(folder / "two.html")
    assert found.to_dict() == kept_audit().to_dict()
    assert found.own == kept_audit().own


@pytest.mark.parametrize("name", ["one.json", "two.html"])
def test_a_file_alone_is_opened_by_its_name(folder, name):
    assert check_source(folder / name) == (None, folder / name)
    app = build_app(Site(TOKEN, PORT, results=folder / name))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=KNOWN) as client:
        found = client.get("/api/results").json()
        assert (found["name"], found["audits"]) == (name, [{"name": name}])
        assert (found["claims"], found["claims_damaged"]) == ([], None)
        assert client.get(f"/api/audits/{name}").json()["harmful"]
        assert client.get("/api/audits/claims.json").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["other.json", "page.html", "gone.json", "nothing.json", "..%2fone.json", "%00", "x" * 300],
)
def test_what_is_no_audit_of_the_folder_is_not_found(get, name):
    answer = get(f"audits/{name}")
    assert answer.status_code == 404
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("name", ["one.json", "two.html"])
def test_a_damaged_audit_is_shown_as_it_was_or_refused_in_a_sentence(get, folder, name):
    rng, path = np.random.default_rng(0), folder / name
    whole, wanted = path.read_bytes(), get(f"audits/{name}").json()
    refused = 0
    for _ in range(40):
        path.write_bytes(damage(whole, rng))
        answer = get(f"audits/{name}")
        if answer.status_code == 200:  # the damage is in the pictures or words of the page
            assert name == "two.html"
            assert answer.json() == wanted
            continue
        refused += 1
        assert "\n" not in answer.json()["error"]
    assert refused


WRONG = {
    "order": "<b>",
    "cause": "witchcraft",
    "steps": "many",
    "work": None,
    "cures": [{"kind": "buffer"}],
    "marks": [[1]],
    "own": [],
    "mixed": [["x"]],
    "series": {"dtype": "O", "shape": [2], "values": [1]},
    "settings": [1],
    "lost_steps": {"steps": 1},
}


@pytest.mark.parametrize("field", WRONG)
def test_a_sealed_file_with_other_values_is_refused_in_a_sentence(folder, field):
    content = read_sealed((folder / "one.json").read_bytes())
    assert content is not None
    content["fields"][field] = WRONG[field]
    (folder / "one.json").write_bytes(sealed_json(content))
    with pytest.raises(StoreError, match=r"one.json is damaged, or not an? ") as caught:
        check_source(folder / "one.json")
    assert "\n" not in str(caught.value)


def test_another_result_is_refused_in_a_sentence(folder, cli):
    proof = rx.order_proof(rx.heavy_ball(lr=0.01, momentum=0.95), curvature=4.0)
    proof.save(folder / "proof.json")
    for name, said in (("proof.json", "holds no audit"), ("page.html", "is damaged, or not")):
        status, out, err = cli(f"explore --no-browser {folder / name}")
        assert (status, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1
