"""A client of `mhla serve`: every promise of the server, over loopback. Run by serve_test.cpp, with a small model of
random weights that knows 260 tokens: `serve_client.py --program build/release/bin/mhla --model FOLDER`.
"""

import argparse
import http.client
import json
import select
import signal
import socket
import subprocess
import threading
import unittest

TIMEOUT = 60  # seconds; far more than any answer takes


class Server:
    """A running server and its log."""

    def __init__(self, *options):
        command = [ARGUMENTS.program, "serve", "--model", ARGUMENTS.model, "--port", "0", "--device", "cpu", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line + self.process.stderr.read()
        self.port = int(line.split(" ")[0].rsplit(":", 1)[1])
        self.log = []
        self.logged = threading.Condition()
        self.reader = threading.Thread(target=self._read_log)
        self.reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            with self.logged:
                self.log.append(line)
                self.logged.notify_all()

    def count_in_log(self, text):
        with self.logged:
            return sum(text in line for line in self.log)

    def wait_for_log(self, text, count):
        """Until so many lines of the log have the text."""
        with self.logged:
            return self.logged.wait_for(lambda: sum(text in line for line in self.log) >= count, TIMEOUT)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def request(self, method, path, body=None, headers=None):
        connection = self.connection()
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    def post(self, body, path="/v1/completions", content_type="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response, content = self.request("POST", path, data, {"Content-Type": content_type})
        return response.status, json.loads(content)

    def text(self, **body):
        status, answer = self.post(body)
        assert status == 200, answer
        return answer["choices"][0]["text"]

    def stream(self, **body):
        """The events of an answer, without the last one, which says that it is done."""
        response, content = self.request(
            "POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"}
        )
        assert response.status == 200, content
        assert response.headers["Content-Type"] == "text/event-stream"
        events = content.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(TIMEOUT)
        self.reader.join(TIMEOUT)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--concurrent", "8", "--max-body", "20000", "--max-tokens", "50000")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def refused(self, body, status, field, words, **more):
        got, answer = self.server.post(body, **more)
        self.assertEqual(got, status, answer)
        self.assertEqual(answer["error"]["param"], field)
        self.assertIn(words, answer["error"]["message"])
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})

    def test_an_answer_has_the_members_that_clients_know(self):
        status, answer = self.server.post({"model": "small", "prompt": "the theme", "max_tokens": 7, "seed": 1})
        self.assertEqual(status, 200)
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["model"], "small")
        self.assertEqual(len(answer["choices"]), 1)
        self.assertIn(answer["choices"][0]["finish_reason"], ("length", "stop"))
        self.assertIsNone(answer["choices"][0]["logprobs"])
        usage = answer["usage"]
        self.assertLessEqual(usage["completion_tokens"], 7)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_the_stream_is_the_answer_part_by_part(self):
        asked = {"prompt": "then", "max_tokens": 40, "seed": 5}
        events = self.server.stream(**asked, stream_options={"include_usage": True})
        status, answer = self.server.post(asked)
        self.assertEqual(status, 200)
        texts = [event["choices"][0]["text"] for event in events[:-1]]
        self.assertGreater(len(texts), 3)
        self.assertEqual("".join(texts), answer["choices"][0]["text"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], answer["choices"][0]["finish_reason"])
        self.assertEqual(events[-1]["usage"], answer["usage"])

    def test_the_seed_decides_and_without_one_answers_differ(self):
        asked = {"prompt": "a", "max_tokens": 30}
        self.assertEqual(self.server.text(**asked, seed=3), self.server.text(**asked, seed=3))
        self.assertGreater(len({self.server.text(**asked) for _ in range(4)}), 1)

    def test_eight_clients_at_once_get_what_each_gets_alone(self):
        asked = [
            {
                "prompt": "the " * (1 + 5 * number),
                "max_tokens": 20 + number,
                "seed": number,
                "temperature": 0.3 * number,
            }
            for number in range(24)
        ]
        alone = [self.server.text(**one) for one in asked]
        together = [None] * len(asked)

        def client(first):
            for number in range(first, len(asked), 8):
                if number % 2:
                    together[number] = self.server.text(**asked[number])
                else:
                    events = self.server.stream(**asked[number])
                    together[number] = "".join(event["choices"][0]["text"] for event in events)

        clients = [threading.Thread(target=client, args=(first,)) for first in range(8)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(TIMEOUT)
        self.assertEqual(together, alone)

    def test_several_prompts_and_answers(self):
        asked = {"prompt": ["the", "a"], "n": 3, "max_tokens": 12, "seed": 9, "echo": True}
        status, answer = self.server.post(asked)
        self.assertEqual(status, 200)
        choices = answer["choices"]
        self.assertEqual([choice["index"] for choice in choices], list(range(6)))
        for choice in choices:
            self.assertTrue(choice["text"].startswith("the" if choice["index"] < 3 else "a"))
        self.assertEqual(len({choice["text"] for choice in choices[:3]}), 3)
        self.assertEqual(choices[3]["text"], self.server.text(prompt="a", max_tokens=12, seed=9, echo=True))
        streamed = [""] * 6
        for event in self.server.stream(**asked):
            streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
        self.assertEqual(streamed, [choice["text"] for choice in choices])

    def test_prompts_of_token_ids(self):
        one = self.server.text(prompt=[256, 257], max_tokens=9, seed=2)
        status, two = self.server.post({"prompt": [[256, 257], [3]], "max_tokens": 9, "seed": 2})
        self.assertEqual(status, 200)
        self.assertEqual(two["choices"][0]["text"], one)

    def test_a_stop_string_ends_the_answer_before_it(self):
        asked = {"prompt": "the", "max_tokens": 60, "seed": 4}
        whole = self.server.text(**asked)
        stop = whole[10:12]
        status, answer = self.server.post({**asked, "stop": ["not there", stop]})
        self.assertEqual(status, 200)
        self.assertEqual(answer["choices"][0]["text"], whole[: whole.index(stop)])
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_a_client_that_hangs_up_frees_its_row(self):
        for asked in ({"stream": True}, {}):
            body = json.dumps({"prompt": "the", "max_tokens": 50000, "ignore_eos": True, **asked}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            before = self.server.count_in_log("hung up")
            for _ in range(12):  # more than there are rows
                with socket.create_connection(("127.0.0.1", self.server.port), TIMEOUT) as connection:
                    connection.sendall(head.encode() + body)
                    connection.recv(20)  # the answer has begun
            self.assertTrue(self.server.wait_for_log("hung up", before + 12))
        self.assertNotEqual(self.server.text(prompt="the", max_tokens=5, seed=1), "")

    def test_malformed_bodies_are_refused(self):
        for body in (b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\xc3"}'):
            self.refused(body, 400, None, "the body")
        self.refused(b"[]", 400, None, "not a JSON object")
        self.refused({"prompt": "a"}, 415, None, "application/json", content_type="text/plain")
        self.refused({"prompt": "a"}, 415, None, "application/json", content_type="multipart/form-data; boundary=x")

    def test_fields_that_cannot_be_are_refused_by_name(self):
        good = {"prompt": "a"}
        self.refused({}, 400, "prompt", "missing")
        for field, value, words in (
            ("prompt", 7, "it must be a string"),
            ("prompt", [], "it must be a string"),
            ("prompt", [[]], "empty list"),
            ("prompt", [1, "a"], "token ids"),
            ("prompt", [260], "tokens may be 0 to 259"),
            ("prompt", [-1], "tokens may be 0 to 259"),
            ("max_tokens", 0, "an integer from 1 to 50000"),
            ("max_tokens", 1.5, "an integer"),
            ("max_tokens", 10**30, "an integer"),
            ("temperature", -1, "at least 0"),
            ("temperature", "hot", "a number"),
            ("top_p", 0, "more than 0"),
            ("top_k", -1, "an integer"),
            ("min_p", 2, "0 to 1"),
            ("repetition_penalty", 0, "more than 0"),
            ("seed", -1, "an integer"),
            ("n", 0, "an integer"),
            ("n", 1000, "an integer"),
            ("stop", [""], "empty string"),
            ("stop", 5, "a string"),
            ("stop", ["a"] * 17, "at most 16"),
            ("echo", 1, "true or false"),
            ("stream", "yes", "true or false"),
            ("stream_options", [], "an object"),
            ("logprobs", 3, "not supported"),
            ("best_off", 3, "not a field"),
        ):
            self.refused({**good, field: value}, 400, field, words)
        self.refused({**good, "model": "other"}, 404, "model", '"small"')
        self.assertEqual(self.server.post({**good, "stop": None, "seed": None, "user": "me"})[0], 200)

    def test_bodies_that_are_too_large_are_refused(self):
        self.refused({"prompt": "a" * 20000}, 413, None, "20000 bytes")
        connection = self.server.connection()
        chunks = iter([b'{"prompt": "' + b"a" * 15000, b"a" * 15000 + b'"}'])
        connection.request("POST", "/v1/completions", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
        self.assertEqual(connection.getresponse().status, 413)
        connection.close()

    def test_other_paths_and_methods(self):
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("GET", "/v1/completions", 405),
            ("DELETE", "/v1/models", 405),
            ("POST", "/", 405),
            ("GET", "/v1/models/other", 404),
        ):
            response, content = self.server.request(method, path)
            self.assertEqual(response.status, status, path)
            self.assertIn("message", json.loads(content)["error"])

    def test_models(self):
        _, content = self.server.request("GET", "/v1/models")
        models = json.loads(content)
        self.assertEqual(models["object"], "list")
        self.assertEqual([model["id"] for model in models["data"]], ["small"])
        _, content = self.server.request("GET", "/v1/models/small")
        self.assertEqual(json.loads(content), models["data"][0])

    def test_the_page_asks_for_nothing_from_elsewhere(self):
        response, content = self.server.request("GET", "/")
        self.assertEqual(response.status, 200)
        page = content.decode()
        self.assertIn("<textarea", page)
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)
        self.assertIn("default-src 'none'", response.headers["Content-Security-Policy"])

    def test_a_connection_serves_several_requests(self):
        connection = self.server.connection()
        for number in range(8):
            connection.request(
                "POST",
                "/v1/completions",
                json.dumps({"prompt": "the", "max_tokens": 3, "stream": number % 2 == 0}),
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
        connection.close()


class Limits(unittest.TestCase):
    def begin(self, server):
        """A connection whose answer has begun and takes long."""
        connection = server.connection()
        body = json.dumps({"prompt": "the", "max_tokens": 1000000, "ignore_eos": True, "stream": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        return connection, response

    def test_too_many_requests_are_refused_and_the_others_go_on(self):
        server = Server("--concurrent", "1", "--queue", "1", "--max-tokens", "1000000")
        running, response_of_running = self.begin(server)
        others = [server.connection() for _ in range(3)]
        for other in others:
            body = json.dumps({"prompt": "the", "max_tokens": 2})
            other.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        refused = []
        while len(refused) < 2:  # one waits
            readable, _, _ = select.select([other.sock for other in others if other not in refused], [], [], TIMEOUT)
            self.assertTrue(readable)
            refused += [other for other in others if other.sock in readable]
        for other in refused:
            response = other.getresponse()
            self.assertEqual(response.status, 429)
            self.assertIn("too many", json.loads(response.read())["error"]["message"])
            other.close()
        response_of_running.close()
        running.close()
        (waiting,) = [other for other in others if other not in refused]
        self.assertEqual(waiting.getresponse().status, 200)
        waiting.close()
        self.assertEqual(server.stop(signal.SIGINT), 0)

    def test_prompts_longer_than_the_model_reads_are_refused(self):
        server = Server("--beyond", "error")  # 32 tokens
        status, answer = server.post({"prompt": "a" * 40})
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        status, answer = server.post({"prompt": [5] * 20, "max_tokens": 20})
        self.assertEqual(status, 400)
        self.assertIn("20 tokens and max_tokens is 20; this model reads at most 32", answer["error"]["message"])
        self.assertEqual(server.post({"prompt": [5] * 20, "max_tokens": 13})[0], 200)
        self.assertEqual(server.post({"prompt": [5] * 20})[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_a_signal_ends_running_answers_properly(self):
        server = Server("--max-tokens", "1000000")
        connection, response = self.begin(server)
        server.process.send_signal(signal.SIGTERM)
        events = response.read().decode().split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        last = json.loads(events[-3].removeprefix("data: "))
        self.assertEqual(last["choices"][0]["finish_reason"], "abort")
        connection.close()
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", required=True)
    ARGUMENTS, others = parser.parse_known_args()
    unittest.main(argv=["serve_client.py", *others])
