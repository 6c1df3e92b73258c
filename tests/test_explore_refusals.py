"""Bad requests to `resonax explore`: each a JSON error of one sentence, and the server lives on."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.testclient import TestClient

from bad_requests import GOOD, KNOWN, PORT, TOKEN, bad_requests
from resonax.explore import file_routes
from resonax.explore.app import build_app
from resonax.explore.security import Site

BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def client():
    with TestClient(build_app(Site(TOKEN, PORT)), base_url=BASE) as client:
        yield client


def test_every_bad_request_is_refused_in_one_sentence(client, capfd):
    bad = bad_requests()
    assert len(bad) >= 200
    for one in bad:
        client.cookies.clear()
        answer = client.request(one.method, one.path, content=one.body, headers=one.headers)
        assert 400 <= answer.status_code < 500, (one, answer.text)
        assert answer.headers["content-type"] == "application/json", (one, answer.text)
        told = answer.json()
        assert set(told) <= {"error", "name"}, one
        text = told["error"]
        assert text.endswith("."), (one, text)
        assert "\n" not in text, one
        assert 10 < len(text) < 1100, (one, text)
        assert "Traceback" not in text, one
    assert client.get("/api/schema", headers=KNOWN).status_code == 200
    output = capfd.readouterr()
    assert "Traceback" not in output.out + output.err


def test_only_the_own_page_is_answered(client):
    """Host, Origin and token, by header, by address and by cookie."""
    client.cookies.clear()
    assert client.get("/api/schema").status_code == 403
    assert client.get(f"/api/schema?token={TOKEN}").status_code == 200
    assert not client.cookies  # a cookie comes with the page alone
    for host, status in ((f"localhost:{PORT}", 200), ("localhost:80", 403), ("127.0.0.1", 403)):
        assert client.get("/api/schema", headers={**KNOWN, "host": host}).status_code == status
    for origin, status in ((BASE, 200), (f"http://localhost:{PORT}", 200), ("http://a.b", 403)):
        assert client.get("/api/schema", headers={**KNOWN, "origin": origin}).status_code == status
    page = client.get(f"/?token={TOKEN}")
    assert page.status_code == 200
    cookie = page.headers["set-cookie"]
    assert f"resonax_{PORT}={TOKEN}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/style.css").status_code == 200
    # A right cookie does not make a wrong token right.
    assert client.get("/api/schema", headers={"x-resonax-token": "no"}).status_code == 403
    client.cookies.clear()


def test_at_the_port_that_browsers_leave_out_the_own_page_is_answered():
    home = "http://127.0.0.1"
    with TestClient(build_app(Site(TOKEN, 80)), base_url=home) as client:
        for host in ("127.0.0.1", "localhost", "127.0.0.1:80"):
            own = {**KNOWN, "host": host, "origin": home}
            assert client.get("/api/schema", headers=own).status_code == 200
        assert client.get("/api/schema", headers={**KNOWN, "host": "a.b"}).status_code == 403


def test_names_of_any_length_are_taken_or_not_found(client):
    files = {"file": ("ä" * 300 + ".csv", b"a,b\n1,2\n")}
    answer = client.post("/api/columns", files=files, headers=KNOWN)
    assert answer.status_code == 200
    assert answer.json()["name"].endswith("ä.csv")
    assert client.get(f"/{'a' * 300}.js", headers=KNOWN).status_code == 404


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8\n  ", b"PK\x03\x04"]
)
@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet", "csv.gz"])
def test_a_damaged_file_is_refused_in_one_sentence(client, capfd, kind, content):
    files = {"file": (f"damaged.{kind}", content)}
    answer = client.post("/api/columns", files=files, headers=KNOWN)
    assert answer.status_code in (200, 400)  # of text anything can be a column
    assert kind == "csv" or answer.status_code == 400
    assert "Traceback" not in capfd.readouterr().err


def test_who_leaves_in_the_middle_of_a_request_is_not_told_as_a_defect(capfd):
    app = build_app(Site(TOKEN, PORT))
    head = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"x-resonax-token", TOKEN.encode())]
    kinds = {
        "/api/verdict": b"application/json",
        "/api/columns": b"multipart/form-data; boundary=x",
    }

    async def leave(path: str) -> None:
        parts = [{"type": "http.request", "body": b"--x\r\n", "more_body": True}]

        async def receive():
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message):
            pass

        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": b"", "headers": [*head, (b"content-type", kinds[path])]}
        await app(scope, receive, send)

    for path in kinds:
        asyncio.run(leave(path))
    assert capfd.readouterr().err == ""


def test_answers_wall_the_page_off(client):
    for path in ("/", "/api/schema", "/nothing"):
        headers = client.get(path, headers=KNOWN).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"


def test_the_page_has_nothing_from_elsewhere(client):
    page = client.get("/", headers=KNOWN)
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert links
    for link in links:
        assert "//" not in link
        if not link.startswith(("#", "data:")):
            assert client.get(f"/{link.lstrip('./')}", headers=KNOWN).status_code == 200
    plotly = client.get("/plotly.min.js", headers=KNOWN)
    assert plotly.headers["content-encoding"] == "gzip"
    assert b"plotly" in plotly.content[:500]
    again = {**KNOWN, "if-none-match": plotly.headers["etag"]}
    assert client.get("/plotly.min.js", headers=again).status_code == 304


def test_a_large_upload_is_refused(client, monkeypatch):
    monkeypatch.setitem(file_routes.LIMITS, "upload_bytes", 1000)
    for path in ("columns", "check"):
        files = {"file": ("a.csv", b"1,2\n" * 200_000)}
        answer = client.post(f"/api/{path}", files=files, headers=KNOWN)
        assert answer.status_code == 413
        assert "too large" in answer.json()["error"]

    def chunks():  # without a length that is told before
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
        for _ in range(100):
            yield b"1,2\n" * 2500

    headers = {**KNOWN, "content-type": "multipart/form-data; boundary=x"}
    assert client.post("/api/columns", content=chunks(), headers=headers).status_code == 413


def test_the_name_of_a_wrong_number_is_told(client):
    answer = client.post("/api/verdict", json={"setting": {**GOOD, "momentum": 1.5}}, headers=KNOWN)
    assert answer.json() == {
        "error": "momentum must be at least 0 and below 1, got 1.5.",
        "name": "momentum",
    }
