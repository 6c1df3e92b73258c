"""A real SLURM on one machine: `--on slurm`, an array job with `--shard`, and both in one store.

    apt-get install slurm-wlm munge        # once, as root
    python benchmarks/slurm.py             # as root

Starts munged, slurmctld and slurmd of its own, in a folder of its own and on ports of its own, with
no accounting and no cgroups. Then it runs one sweep in four ways and compares the stores bit for
bit with that of one process:

- `resonax sweep --on slurm --workers 2`: dask-jobqueue submits the workers as jobs;
- `sbatch --array=1-4` of `resonax sweep --shard N/4`: no cluster software in the jobs;
- an array of which one job is cancelled on its way, after which `--on slurm` does what is missing;
- the same command once more, which finds all stored.

All daemons are ended in the end. The exit status is 1 if any store differs.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from same_bits import differences

SWEEP = """
id = "tongues"
process = { kind = "square", amplitude = 0.5, variance = 0.5 }
model = { kind = "linear" }
optimizer = { kind = "nesterov", lr = 0.02 }
train = { batch = 4, noise = 0.1 }
run = { runs = 16, steps = 20000, window = 1000 }
chunk = 4
axes.momentum = { first = 0.8, last = 0.98, count = 10 }
axes.period = { first = 10, last = 57, count = 48 }
"""
SLURM = """
ClusterName=bench
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName={host} CPUs={cpus} State=UNKNOWN
PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
JOBQUEUE = """
jobqueue:
  slurm:
    cores: 1
    processes: 1
    memory: 2GB
    job-directives-skip: [--mem]
    walltime: '00:20:00'
    log-directory: {folder}/workers
"""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run a SLURM of one node; give the environment in which its commands find it."""
    host, cpus = platform.node().partition(".")[0], os.cpu_count() or 1
    folder.chmod(0o755)
    for name in ("state", "spool", "workers", "config"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    config.write_text(SLURM.format(host=host, folder=folder, ports=free_ports(2), cpus=cpus))
    (folder / "config" / "jobqueue.yaml").write_text(JOBQUEUE.format(folder=folder))
    environment = {**os.environ, "SLURM_CONF": str(config), "DASK_CONFIG": str(folder / "config")}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    commands = (
        ["munged", "--foreground", "--force", *munge, f"--socket={folder}/munge.socket"],
        ["slurmctld", "-D", "-c", "-f", str(config)],
        ["slurmd", "-D", "-f", str(config)],
    )
    daemons = []
    try:
        with (folder / "daemons.log").open("w") as log:
            for command in commands:
                daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
                time.sleep(1.0)
        wait_until_idle(environment)
        yield environment
    except BaseException:
        for name in ("daemons", "slurmctld", "slurmd", "munge"):
            log = folder / f"{name}.log"
            print(
                f"--- {name}", *log.read_text().splitlines()[-15:] if log.exists() else "", sep="\n"
            )
        raise
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def wait_until_idle(environment: dict[str, str]) -> None:
    for _ in range(60):
        said = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True
        ).stdout
        if "idle" in said:
            return
        time.sleep(0.5)
    raise SystemExit("SLURM did not come up in 30 seconds")


def timed(words: str, command: list[str], environment: dict[str, str]) -> None:
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{words}: {time.perf_counter() - began:.1f} s", flush=True)


def same(reference: Path, found: Path) -> bool:
    differing = [words for counts, words in differences(reference, found) if counts]
    print(
        f"  {found.name} against {reference.name}: {differing or 'equal bit for bit'}", flush=True
    )
    return not differing


def main() -> None:
    parser = argparse.ArgumentParser(description="A real SLURM on one machine.")
    parser.add_argument("--keep", type=Path, help="a folder for logs and stores that is kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slurm-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        (folder / "tongues.toml").write_text(SWEEP)
        with slurm(folder) as environment:
            is_same = compare(folder, environment)
    raise SystemExit(not is_same)


def compare(folder: Path, environment: dict[str, str]) -> bool:
    resonax = [sys.executable, "-m", "resonax"]
    sweep = [*resonax, "sweep", str(folder / "tongues.toml"), "--yes"]
    said = subprocess.run(["slurmd", "-V"], capture_output=True, text=True).stdout.strip()
    names = ("dask-jobqueue", "distributed", "jax")
    print(", ".join([said, *(f"{name} {version(name)}" for name in names)]))
    timed("one process", [*sweep, "--out", str(folder / "serial")], environment)
    on_slurm = [*sweep, "--on", "slurm", "--workers", "2", "--out"]
    timed("--on slurm --workers 2", [*on_slurm, str(folder / "slurm")], environment)

    def array(out: str, *options: str) -> list[str]:
        shard = [*sweep, "--out", str(folder / out), "--shard", "$SLURM_ARRAY_TASK_ID/4"]
        script = f"#!/bin/bash\nexec {' '.join(shard)}\n"
        (folder / f"{out}.sh").write_text(script)
        log = f"--output={folder}/workers/{out}-%a.log"
        return ["sbatch", "--parsable", *options, log, str(folder / f"{out}.sh")]

    submit = array("array", "--array=1-4", "--wait")
    timed("--shard N/4, an array of 4 jobs", submit, environment)
    job = subprocess.run(
        array("mixed", "--array=1-2"), env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    markers = folder / "mixed" / "results" / "tongues.zarr" / "tasks"
    while not list(markers.glob("[0-9]*.json")):
        time.sleep(0.05)
    subprocess.run(["scancel", job], env=environment, check=True)
    time.sleep(2.0)
    before = {path: path.stat().st_mtime_ns for path in markers.glob("[0-9]*.json")}
    print(f"two jobs of an array, cancelled after {len(before)} of 12 tasks")
    status = [*resonax, "status", str(folder / "mixed")]
    print(" ", subprocess.run(status, capture_output=True, text=True).stdout.splitlines()[0])
    timed("--on slurm does the rest", [*on_slurm, str(folder / "mixed")], environment)
    kept = all(path.stat().st_mtime_ns == when for path, when in before.items())
    print(f"  markers that were there are {'as they were' if kept else 'NOT as they were'}")
    timed("and again, with all stored", [*on_slurm, str(folder / "mixed")], environment)
    found = [same(folder / "serial", folder / name) for name in ("slurm", "array", "mixed")]
    left = subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True).stdout
    print(f"jobs left in the queue: {len(left.splitlines())}")
    return all(found) and kept


if __name__ == "__main__":
    main()
