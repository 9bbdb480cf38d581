"""Random calls of everything that ``torch.ops.mhla`` and the package offer, each judged.

    python fuzz/dispatcher --count 100000 --processes 2 [--seed N] [--record FILE] [--write FILE]
    python fuzz/dispatcher --replay fuzz/corpus/dispatcher.jsonl
    python fuzz/dispatcher --show SEED/INDEX

A call may return what the formula in formula.py says, or raise an error that names one of its arguments. Anything else
is a finding: another result, a result where there is none, an error without a name, a crash, or ten seconds of silence.
The exit code is 0 if there was none. Findings are written as JSON lines, which ``--replay`` takes.
"""

import argparse
import json
import mmap
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

LIMIT_S = 10  # of processor time, or six times that of waiting: the machine may have other work
MEMORY = 3 << 30  # bytes of address space beyond what torch takes
# What torch itself says where the library does not see the call.
FOREIGN = (
    # A legal size that this machine has no memory for.
    r"can't allocate memory",
    # The projections of a layer, which are torch.nn.Linear.
    r"expected m1 and m2 to have the same dtype|is not on the expected device meta",
    r"reshape is not implemented for sparse",
    # Memory that an operator changes.
    r"a leaf Variable that requires grad is being used in an in-place operation|mutable TensorLists with negation",
    # Python values on their way to an operator.
    r"cannot be represented as a SymInt|Boolean value of Tensor",
)


def judge(case):
    """'right', 'refused', or what is wrong with the outcome of a case."""
    from families import CALLS
    from formula import Unspecified
    from tensors import make
    from wrong import Wrong

    call = CALLS[case["call"]]
    try:
        arguments = {name: make(value) for name, value in case["arguments"].items()}
    except Exception:
        return "no call"
    try:
        result = call.call(**arguments)
    except Unspecified:
        return "no call"
    except Wrong as wrong:
        return f"wrong: {wrong}"
    except MemoryError:
        return "refused"
    except Exception as error:
        text = str(error)
        names = "|".join(re.escape(name) for name in call.names.split())
        if re.search(rf"\b({names})\b", text) or any(re.search(known, text) for known in FOREIGN):
            return "refused"
        return f"unnamed: {type(error).__name__}: {text.splitlines()[0] if text else ''}"
    try:
        call.check(result, **arguments)
    except Unspecified as reason:
        return f"accepted: {reason}"
    except Wrong as wrong:
        return f"wrong: {wrong}"
    return "right"


def case_of(seed, index, calls):
    from families import CALLS, OFTEN
    from spoil import spoil

    rng = random.Random(f"{seed}/{index}")
    call = CALLS[rng.choice(calls or [*CALLS, *OFTEN])]
    arguments = call.arguments(rng)
    if rng.random() < 0.65:
        for name in rng.sample(sorted(arguments), min(len(arguments), rng.choice((1, 1, 1, 2, 3)))):
            if name not in ("through", "pieces", "return_state"):
                arguments[name] = spoil(arguments[name], rng)
    return {"call": call.name, "arguments": arguments}


def prepare():
    import torch

    from families import CALLS  # noqa: F401  loads the library

    torch.set_num_threads(1)
    torch.ones(2, device="meta").clamp(0, 1)  # the first such call imports for seconds
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Worker:
    """A child that judges every n-th case from `first` on and says on a shared page where it is."""

    def __init__(self, options, first):
        self.page = mmap.mmap(-1, 24)
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115  open as long as the child
        self._stand(first, 0.0)
        self.id = os.fork()
        if self.id == 0:
            code = 1
            try:
                self._work(options, first)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)

    def _stand(self, index, processor_time):
        self.page[:24] = struct.pack("qdd", index, time.time(), processor_time)

    def _work(self, options, first):
        counts = Counter()
        for index in range(first, options.count, options.processes):
            self._stand(index, time.process_time())
            case = case_of(options.seed, index, options.call)
            verdict = judge(case)
            counts[case["call"] + " " + verdict.split(":")[0]] += 1
            if ":" in verdict:
                self._say({"verdict": verdict, "index": index})
            if counts.total() >= 500:
                self._say({"counts": counts})
                counts.clear()
        self._say({"counts": counts})
        self._stand(-1, time.process_time())

    def _say(self, line):
        self.output.write(json.dumps(line) + "\n")
        self.output.flush()

    def ended(self):
        """(index, how) where it crashed or hangs, (-1, "") where it is done, None while it works."""
        done, status = os.waitpid(self.id, os.WNOHANG)
        index, since, used = struct.unpack("qdd", self.page[:24])
        if not done and (time.time() - since > 6 * LIMIT_S or self._processor_time() - used > LIMIT_S):
            os.kill(self.id, signal.SIGKILL)
            os.waitpid(self.id, 0)
            return index, f"hang: {LIMIT_S} s"
        if not done:
            return None
        return index, "" if index < 0 else f"crash: {os.waitstatus_to_exitcode(status)}"

    def _processor_time(self):
        fields = Path(f"/proc/{self.id}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lines(self):
        self.output.seek(0)
        return [json.loads(line) for line in self.output]


def where():
    """Date, commit and processor."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return (
        f"{time.strftime('%F', time.gmtime())}, commit {commit}, {processor[1] if processor else 'unknown processor'}"
    )


def run(options):
    counts, findings, begin = Counter(), [], time.time()

    def collect(worker):
        for line in worker.lines():
            counts.update(line.get("counts", {}))
            if "verdict" in line:
                findings.append((line["index"], line["verdict"]))

    prepare()
    workers = [Worker(options, first) for first in range(options.processes)]
    while workers:
        time.sleep(0.02)
        for worker in list(workers):
            end = worker.ended()
            if end is None:
                continue
            collect(worker)
            workers.remove(worker)
            index, how = end
            if index >= 0:
                findings.append((index, how))
                if index + options.processes < options.count:
                    workers.append(Worker(options, index + options.processes))
    summary = [f"{name:32} {count:9}" for name, count in sorted(counts.items())]
    summary.append(f"{options.count} calls, {len(findings)} findings, {time.time() - begin:.0f} s, seed {options.seed}")
    print("\n".join(summary))
    if options.write:
        with open(options.write, "a") as file:
            file.write("\n".join([where(), *summary, ""]))
    kinds = Counter()
    for index, verdict in findings:
        case = case_of(options.seed, index, options.call)
        kind = case["call"] + " " + re.sub(r"[-\d.e+]+", "#", verdict)[:100]
        kinds[kind] += 1
        if kinds[kind] <= 2:
            print(f"{options.seed}/{index} {case['call']}: {verdict}")
            if options.record:
                with open(options.record, "a") as file:
                    file.write(json.dumps({"verdict": verdict, **case}) + "\n")
    return 1 if findings else 0


def replay(path):
    """Each case of a file of JSON lines, in children, so that a crash ends only one of them."""
    prepare()
    lines = Path(path).read_text().splitlines()
    bad = 0
    for number, line in enumerate(lines, 1):
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT_S)
            verdict = judge(json.loads(line))
            if ":" in verdict:
                print(f"{path}:{number}: {verdict}", flush=True)
            os._exit(1 if ":" in verdict else 0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        bad += code != 0
        if code < 0:
            print(f"{path}:{number}: {'hang' if code == -signal.SIGALRM else 'crash'}: signal {-code}", flush=True)
    print(f"{len(lines)} recorded calls, {bad} findings")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(prog="fuzz/dispatcher")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--call", action="append", help="only these calls")
    parser.add_argument("--record", help="file that findings are added to")
    parser.add_argument("--write", help="file that the counts are added to")
    parser.add_argument("--replay", help="file of recorded cases")
    parser.add_argument("--show", help="SEED/INDEX of a case")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    if options.show:
        if not re.fullmatch(r".+/\d+", options.show):
            parser.error(f"--show is {options.show}; it must be SEED/INDEX, such as 1/4711")
        seed, index = options.show.rsplit("/", 1)
        case = case_of(seed, int(index), options.call)
        print(json.dumps(case))
        print(judge(case))
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
