#!/usr/bin/env python3
"""Breaks runs of `mhla train classify` and compares every result with those of a run that was never stopped, bit for
bit: kills at random moments; two trainings in one folder, of which one must refuse; and with --full-disk a disk that is
full at one call, for every call that writes (with strace).

    tools/robustness_runs.py --program build/release/bin/mhla --moments 50 --full-disk
"""

import argparse
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

SIDE = 16
TIMES = ("seconds", "images_per_second")


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[y * SIDE * 3 : (y + 1) * SIDE * 3] for y in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_images(folder):
    """Three classes told apart by their colour."""
    numbers = random.Random(1)
    for split, count in (("train", 14), ("val", 6), ("test", 6)):
        for label in range(3):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True)
            for i in range(count):
                pixels = bytes(numbers.randrange(128) + (127 if p % 3 == label else 0) for p in range(SIDE * SIDE * 3))
                (place / f"{i}.png").write_bytes(png(pixels))


def start(program, work, epochs=12, under=()):
    """In a folder of its own with the same arguments, so that the files may be the same to the last byte."""
    arguments = (
        "train classify --data ../images --out out --width 16 --depth 2 --heads 2 --image-size 16 --patch 4 "
        f"--blocks 2 2 --batch 14 --epochs {epochs} --device cpu --threads 1 --workers 1 --drop-path 0.1 --ema 0.9 "
        "--lr 5e-3 --log-every 3 --checkpoint-every 4"
    )
    work.mkdir(exist_ok=True)
    log = (work / "log").open("ab")
    return subprocess.Popen([*under, program, *arguments.split()], cwd=work, stdout=log, stderr=log)


def wait_for(process, file):
    while not file.exists() and process.poll() is None:
        time.sleep(0.002)


def run(program, work, epochs=12):
    """Returns the seconds since it took the folder."""
    process = start(program, work, epochs)
    wait_for(process, work / "out/lock")
    begin = time.monotonic()
    if process.wait() != 0:
        sys.exit(f"{work}: the run ended with {process.returncode}:\n{(work / 'log').read_text()}")
    return time.monotonic() - begin


def tensors(file):
    """All but the metadata, which hold times."""
    content = file.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:size])
    header.pop("__metadata__")
    return header, content[size:]


def results(work):
    rows = [json.loads(line) for line in (work / "out/metrics.jsonl").read_text().splitlines()]
    return {
        "weights": (work / "out/model.safetensors").read_bytes(),
        "checkpoint": tensors(max((work / "out/checkpoints").iterdir())),
        "metrics": [{key: value for key, value in row.items() if key not in TIMES} for row in rows],
        "files": sorted(p.name for p in (work / "out").iterdir()),
        "leftovers": [str(p) for p in (work / "out").rglob("*.unfinished")],
    }


def differences(whole, work):
    found = results(work)
    return [name for name, value in whole.items() if found[name] != value]


def kill(program, work, moments, seconds):
    """Returns the seconds from taking the folder to the kill; a run that had ended by then is started again."""
    while True:
        moment = moments.uniform(0, seconds)
        process = start(program, work)
        wait_for(process, work / "out/lock")
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            return moment
        shutil.rmtree(work)


def resume(program, work):
    """Returns where the run went on."""
    run(program, work)
    said = [line for line in (work / "log").read_text().splitlines() if line.startswith("resumed after step")]
    return f"resumed after step {said[-1].split()[3]}" if said else "began anew"


def two_in_one_folder(program, work):
    first = start(program, work)
    wait_for(first, work / "out/metrics.jsonl")
    first.send_signal(signal.SIGSTOP)
    second = subprocess.run([program, *first.args[1:]], cwd=work, capture_output=True, text=True, check=False)
    first.send_signal(signal.SIGCONT)
    if first.wait() != 0 or second.returncode != 1 or f"process {first.pid} on " not in second.stderr:
        sys.exit(f"two trainings in one folder: {first.returncode} and {second.returncode}: {second.stderr}")
    return second.stderr.strip()


def full_disk(program, folder, call):
    """Lets the first, the second, ... such call of a short run fail. Returns how many there were."""
    epochs = 3
    run(program, folder / call, epochs)
    whole = results(folder / call)
    for number in range(1, 10000):
        work = folder / f"{call}{number}"
        fault = f"inject={call}:error=ENOSPC:when={number}"
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", fault]
        code = start(program, work, epochs, strace).wait()
        said = (work / "log").read_text()
        if code == 0:
            return number - 1
        if code != 1 or "No space left on device" not in said:
            sys.exit(f"{call} number {number} failed, and the run ended with {code}:\n{said}")
        run(program, work, epochs)
        if different := differences(whole, work):
            sys.exit(f"{call} number {number} failed, and the resumed run has other {', '.join(different)}:\n{said}")
        shutil.rmtree(work)
    sys.exit(f"{call}: there is no end of failures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the mhla program")
    parser.add_argument("--moments", type=int, default=50, help="how many runs are killed")
    parser.add_argument("--full-disk", action="store_true", help="also let every call that writes fail, one by one")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    moments = random.Random(given.seed)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="mhla-robustness-runs-") as name:
        folder = Path(name)
        write_images(folder / "images")
        run(program, folder / "first")  # slower than the others
        seconds = run(program, folder / "whole")
        whole = results(folder / "whole")
        for i in range(given.moments):
            work = folder / f"killed{i}"
            moment = kill(program, work, moments, seconds)
            found = resume(program, work)
            different = differences(whole, work)
            failures += bool(different)
            what = f"other {', '.join(different)}" if different else "the same bits"
            print(f"killed at {moment:.3f} of {seconds:.3f} s, {found}: {what}", flush=True)
            shutil.rmtree(work)
        print(f"{given.moments - failures} of {given.moments} runs killed and resumed gave the same bits")
        print(f"two trainings in one folder: one ran, the other said: {two_in_one_folder(program, folder / 'shared')}")
        if different := differences(whole, folder / "shared"):
            sys.exit(f"the one that ran differs: {different}")
        for call in ("write", "fsync", "rename", "ftruncate") if given.full_disk else ():
            count = full_disk(program, folder, call)
            print(
                f"full disk at each of {count} calls of {call}: exit code 1 each, the same bits after resuming",
                flush=True,
            )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
