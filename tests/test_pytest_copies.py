"""Tests in copies of a process: each is run once, and none that fails or ends its copy is lost."""

import os
import subprocess
import sys
from pathlib import Path

FILES = {
    "test_well.py": "import pytest\n@pytest.mark.parametrize('n', range(5))\ndef test_it(n): pass",
    "test_wrong.py": "def test_wrong(): print('a word'); assert 1 == 2\ndef test_after(): pass",
    "test_ends.py": "import os\ndef test_a(): pass\ndef test_ends(): os._exit(0)\ndef test_x(): 0",
    "test_later.py": "def test_later(): pass",
    "test_around.py": """
import pytest
@pytest.fixture
def before(): raise ValueError
@pytest.fixture
def after(): yield; raise ValueError
def test_before(before): pass
def test_after(after): pass
""",
}


def run(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "copies", "--copies", "2", "-c", os.devnull]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of other libraries take long to load
    }
    settings = {"capture_output": True, "text": True, "check": False, "cwd": folder}
    done = subprocess.run([*command, "-q", *options], env=environment, **settings)
    return done.returncode, done.stdout + done.stderr


def test_every_test_is_reported_once(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    status, said = run(tmp_path)
    assert status == 1
    # wrong, ends, and what should have come after it; and of the last file what is around a test
    assert "3 failed, 9 passed, 2 errors" in said
    assert "a word" in said
    assert said.count("the process ended that was to run this test") >= 2


def test_a_module_that_starts_a_thread_is_refused(tmp_path):
    (tmp_path / "test_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "def test_it(): pass"
    )
    status, said = run(tmp_path)
    assert status == 4
    assert "starts threads (" in said
