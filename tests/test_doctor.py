"""`resonax doctor`: what is installed and what computes, also where something is wrong."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from commands import run_command
from resonax.cli import doctor


def test_versions_devices_and_extras_are_those_of_this_environment(cli):
    status, out, errors = cli("doctor --json")
    assert (status, errors) == (0, "")
    found = json.loads(out)
    assert found["resonax"] == metadata.version("resonax")
    assert found["jax"]["devices"]
    assert found["parts"]["base"]["versions"]["jax"] == metadata.version("jax")
    assert found["parts"]["base"]["missing"] == []
    extras = set(metadata.metadata("resonax").get_all("Provides-Extra"))
    assert set(found["parts"]) == {"base", *extras} - {"all", "docs", "test"}
    assert "jax" not in found["parts"]["torch"]["versions"]


def test_the_line_that_adds_what_is_missing_or_too_old(cli, monkeypatch):
    true_version = metadata.version

    def version(name: str) -> str:
        if name in ("river", "torch"):
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "pyarrow" else true_version(name)

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = cli("doctor")
    assert status == 0
    lines = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    assert lines["devices of torch"] == "not installed"
    assert lines["river"].startswith("missing river>=")
    assert lines["river"].endswith('pip install "resonax[river]"')
    assert lines["parquet"].startswith("pyarrow 0.1, missing pyarrow>=")


@pytest.mark.parametrize(
    ("name", "value"), [("JAX_ENABLE_X64", "maybe"), ("XLA_FLAGS", "--no_such_flag")]
)
def test_a_fault_of_the_environment_is_said_and_all_else_too(tmp_path, name, value):
    found = run_command("doctor", "--json", XDG_CACHE_HOME=str(tmp_path), **{name: value})
    said = json.loads(found.stdout)
    assert found.returncode == 0
    assert said["jax"]["devices"] == []
    assert name in said["jax"]["fault"]
    assert said["parts"]["base"]["versions"]["numpy"] == metadata.version("numpy")


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    for home, kept in ((folder, None), (tmp_path / "own", str(tmp_path / "own" / "jax"))):
        named = {"RESONAX_CACHE": str(home), "JAX_COMPILATION_CACHE_DIR": "", "PJRT_NPROC": ""}
        found = run_command("doctor", "--json", **named)
        assert found.returncode == 0
        assert json.loads(found.stdout)["cache"] == kept
