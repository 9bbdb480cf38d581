#!/usr/bin/env python3
"""Loads `mhla serve` on loopback and checks every answer: it must equal that of the same prompt and seed alone.

    tools/serve_load.py --model FOLDER --clients 64 --seconds 120

Starts the server, asks one client alone, then many at once with the same requests in other orders, and stops it.
Prompts have random token ids. Ends by itself; the exit code is 1 if an answer differed or was lost.
"""

import argparse
import http.client
import json
import pathlib
import random
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 300  # seconds for one answer
MOST_REQUESTS = 100_000


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/mhla", help="the program; default %(default)s")
    parser.add_argument("--model", required=True, help="model to serve")
    parser.add_argument("--vocabulary", type=int, default=256, help="token ids of prompts are below; default 256")
    parser.add_argument("--clients", type=int, default=64, help="default 64")
    parser.add_argument("--requests", type=int, default=64, help="different requests; default 64")
    parser.add_argument("--longest", type=int, default=2000, help="tokens of a prompt, at most; default 2000")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer, at most; default 64")
    parser.add_argument("--seconds", type=float, default=120, help="of the load; default 120")
    parser.add_argument("--beyond", default="running-mean", help="policy for long prompts; default running-mean")
    parser.add_argument("--concurrent", type=int, default=64, help="sequences answered together; default 64")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def requests_of(arguments):
    """Lengths of prompts from 1 to the longest, evenly on a logarithmic scale."""
    numbers = random.Random(arguments.seed)
    requests = []
    for number in range(arguments.requests):
        length = round(arguments.longest ** (number / max(1, arguments.requests - 1)))
        requests.append(
            {
                "prompt": [numbers.randrange(arguments.vocabulary) for _ in range(length)],
                "max_tokens": numbers.randint(1, arguments.tokens),
                "temperature": numbers.choice([0, 0.7, 1, 1.3]),
                "seed": numbers.randrange(1 << 30),
                "ignore_eos": True,
            }
        )
    return requests


class Client:
    """One connection and what came over it."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.tokens = 0

    def ask(self, request, stream):
        body = json.dumps({**request, "stream": stream, "stream_options": {"include_usage": True}})
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {content[:200]!r}")
        if not stream:
            answer = json.loads(content)
            text, usage = answer["choices"][0]["text"], answer["usage"]
        else:
            events = content.decode().split("\n\n")
            if events[-2:] != ["data: [DONE]", ""]:
                raise RuntimeError("the stream has no end")
            parts = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
            text, usage = "".join(part["choices"][0]["text"] for part in parts[:-1]), parts[-1]["usage"]
        self.tokens += usage["total_tokens"]
        return text


class Load:
    """Many clients that ask until the time is over."""

    def __init__(self, arguments, port, requests, right):
        self.arguments, self.port, self.requests, self.right = arguments, port, requests, right
        self.lock = threading.Lock()
        self.sent = self.answered = self.different = self.tokens = 0
        self.errors = []

    def client(self, number, end):
        client, order = Client(self.port), random.Random(1000 + number)
        while time.monotonic() < end and self.sent < MOST_REQUESTS:
            place = order.randrange(len(self.requests))
            with self.lock:
                self.sent += 1
            try:
                text = client.ask(self.requests[place], stream=order.random() < 0.5)
            except Exception as error:  # noqa: BLE001 - whatever went wrong is counted
                with self.lock:
                    self.errors.append(repr(error))
                client = Client(self.port)
                continue
            with self.lock:
                self.answered += 1
                self.different += text != self.right[place]
        with self.lock:
            self.tokens += client.tokens

    def run(self):
        start = time.monotonic()
        end = start + self.arguments.seconds
        clients = [threading.Thread(target=self.client, args=(number, end)) for number in range(self.arguments.clients)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        return time.monotonic() - start


def main():
    arguments = parse()
    command = [str(arguments.program), "serve", "--model", arguments.model, "--port", "0", "--device", "cpu"]
    command += ["--beyond", arguments.beyond, "--concurrent", str(arguments.concurrent)]
    command += ["--queue", str(max(128, arguments.clients))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        if not line.startswith("http://127.0.0.1:"):
            sys.exit("the server did not start")
        print(line.strip())
        port = int(line.split(" ")[0].rsplit(":", 1)[1])
        requests = requests_of(arguments)
        client, start = Client(port), time.monotonic()
        right = [client.ask(request, stream=False) for request in requests]
        alone = time.monotonic() - start
        load = Load(arguments, port, requests, right)
        together = load.run()
    finally:
        server.terminate()
        code = server.wait(TIMEOUT)
    rate_alone, rate = client.tokens / alone, load.tokens / together
    answers_alone, answers = len(requests) / alone, load.answered / together
    print(
        f"one client: {len(requests)} answers in {alone:.1f} s, {answers_alone:.2f} answers/s, "
        f"{rate_alone:.0f} tokens/s"
    )
    print(
        f"{arguments.clients} clients: {load.answered} answers in {together:.1f} s, {answers:.2f} answers/s, "
        f"{rate:.0f} tokens/s"
    )
    print(
        f"ratio: {answers / answers_alone:.2f} in answers/s, {rate / rate_alone:.2f} in tokens/s of prompts and answers"
    )
    lost = load.sent - load.answered
    print(f"sent {load.sent}, lost {lost}, different {load.different}; the server ended with {code}")
    for error in load.errors[:5]:
        print(f"  {error}")
    return 1 if lost or load.different or code else 0


if __name__ == "__main__":
    sys.exit(main())
