"""The command `resonax explore`, as a process: its address, its end, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from subprocess import PIPE
from urllib.parse import parse_qs, urlsplit

import pytest

from resonax.explore import serve
from resonax.explore.api_docs import PATHS

PAGE = Path(__file__).parent.parent / "docs" / "explore-api.md"


def _run_page(home: str, token: str, folder: Path) -> list[str]:
    """Run the `curl` lines of the page on the API; return what they printed."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    said, names = [], {"HOME": home, "TOKEN": token, "JOB": "none"}
    for line in lines:
        run = subprocess.run(
            ["bash", "-c", line.replace("curl ", "curl -m 60 ")],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env=os.environ | names,
        )
        said.append(run.stdout)
        if '"job"' in run.stdout:
            names["JOB"] = json.loads(run.stdout)["job"]
            job = f"{home}/api/jobs/{names['JOB']}?token={token}"  # else its events take long
            subprocess.run(["curl", "-s", "-X", "DELETE", job], check=True)
    return said


def test_the_docs_name_every_path():
    table = dict(re.findall(r"^\| [A-Z]+ \| `([^`]+)` \| (.*) \|$", PAGE.read_text(), re.M))
    assert {path.path for path in PATHS} == table.keys()


# A verdict follows fewer and shorter paths, as in the tests of the page.
SERVER = """
import functools
from resonax.cli.start import main
from resonax.explore import theory
theory._PATHS, theory.verdict = 8, functools.partial(theory.verdict, steps=512)
main()
"""


def test_the_server_says_where_it_is_answers_and_ends(tmp_path):
    """The first line is the address; Ctrl-C ends it without a word, and nothing is left behind."""
    command = [sys.executable, "-c", SERVER, "explore", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True)
    try:
        address = urlsplit(server.stdout.readline().strip())
        assert address.hostname == "127.0.0.1"
        (token,) = parse_qs(address.query)["token"]
        assert len(token) >= 32
        request = urllib.request.Request(
            f"http://{address.netloc}/api/schema", headers={"X-Resonax-Token": token}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
            assert "server" not in {name.lower() for name in answer.headers}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{address.netloc}/api/schema", timeout=60)
        assert refused.value.code == 403
        refused.value.close()
        verdict, _, events, _, wrong = _run_page(f"http://{address.netloc}", token, tmp_path)
        assert json.loads(verdict)["verdict"] == "diverges"
        assert "event: cancelled" in events
        assert json.loads(wrong)["error"].startswith("period is missing")
    finally:
        server.send_signal(signal.SIGINT)
        said = server.communicate(timeout=60)
    assert (server.returncode, *said) == (0, "", "")


def test_a_port_in_use_is_one_sentence(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = cli(f"explore --no-browser --port {port}")
    assert (status, out) == (2, "")
    assert err == f"resonax: --port {port} is in use: name another, or 0 for any free one\n"


def test_a_missing_extra_is_one_sentence(cli, monkeypatch):
    found = serve.find_spec
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    status, out, err = cli("explore --no-browser")
    assert (status, out) == (2, "")
    assert err == 'resonax: resonax explore needs uvicorn: pip install "resonax[explore]"\n'


def test_what_is_explored_must_be_there(cli, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for words, said in (
        ("nothing.csv", "there is no file or folder"),
        ("empty", "holds no results"),
        ("--port 99999", "port must be at least 0 and at most 65535"),
        ("--port x", "must be a whole number"),
    ):
        status, _, err = cli(f"explore --no-browser {words}")
        assert status == 2
        assert said in err
    monkeypatch.setenv(serve.TOKEN_VARIABLE, "short")
    assert "16 to 200" in cli("explore --no-browser --port 0")[2]
