"""lm-evaluation-harness asks what `mhla eval language` asks, and counts the answers the same way.

`make peers` runs this with a Python of its own, which has the package lm_eval beside those of .venv. The tasks of the
harness want data sets from the network; here they are small local files with the harness's own templates, in its own
format of data and in ours.
"""

import json
import os
import pathlib
import subprocess

import pytest

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"

import datasets  # noqa: E402
import lm_eval.tasks  # noqa: E402
import yaml  # noqa: E402
from lm_eval import evaluator  # noqa: E402
from lm_eval.api.model import LM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MHLA_PROGRAM", ROOT / "build/release/bin/mhla"))
HARNESS = pathlib.Path(lm_eval.tasks.__file__).parent
WORDS = ["river", "stone", "a green house", "the road ", "café", "bread", "no", "old dog"]


def question(number):
    """A question with two to four choices."""
    choices = [WORDS[(number * 3 + k) % len(WORDS)] for k in range(2 + number % 3)]
    return {
        "query": f"What comes after number {number} in the town",
        "choices": choices,
        "label": number % len(choices),
    }


def ours(task):
    """Questions of a task in our format."""
    for number in range(12):
        item = question(number)
        if task == "lambada_openai":
            yield {
                "context": f"They went to the {item['choices'][0].strip()} and saw",
                "target": " " + ["the", "a"][number % 2],
            }
            continue
        if task in ("piqa", "winogrande", "boolq"):
            item["choices"], item["label"] = item["choices"][:2], number % 2
        if task == "winogrande":
            item["query"] = f"The man gave _ the book number {number}, because it was old."
        if task == "boolq":
            item["choices"], item["passage"] = ["no", "yes"], f"There are {number} houses."
        if task == "social_iqa":
            item["choices"] = [WORDS[(number + k) % len(WORDS)] for k in range(3)]
            item["label"] = number % 3
        if task in ("openbookqa", "mmlu"):
            item["choices"] = [WORDS[(number + k) % len(WORDS)] for k in range(4)]
            item["label"] = number % 4
        if task == "mmlu":
            item["subject"] = "abstract_algebra"
        yield item


def theirs(task, item):
    """The same question in the harness's format."""
    letters = [chr(ord("A") + k) for k in range(len(item.get("choices", [])))]
    match task:
        case "piqa":
            return {
                "goal": item["query"],
                "sol1": item["choices"][0],
                "sol2": item["choices"][1],
                "label": item["label"],
            }
        case "arc_easy" | "arc_challenge":
            return {
                "question": item["query"],
                "choices": {"text": item["choices"], "label": letters},
                "answerKey": letters[item["label"]],
            }
        case "openbookqa":
            return {
                "question_stem": item["query"],
                "choices": {"text": item["choices"], "label": letters},
                "answerKey": letters[item["label"]],
            }
        case "boolq":
            return {"passage": item["passage"], "question": item["query"], "label": item["label"]}
        case "winogrande":
            option1, option2 = item["choices"]
            return {"sentence": item["query"], "option1": option1, "option2": option2, "answer": str(item["label"] + 1)}
        case "social_iqa":
            context, _, rest = item["query"].partition(" ")
            answers = dict(zip(("answerA", "answerB", "answerC"), item["choices"], strict=True))
            return {"context": context, "question": rest, "label": str(item["label"] + 1)} | answers
        case "mmlu":
            return {
                "question": item["query"],
                "choices": item["choices"],
                "answer": item["label"],
                "subject": item["subject"],
            }
        case "lambada_openai":
            return {"text": item["context"] + item["target"]}
    raise ValueError(task)


CONFIGS = {
    "piqa": "piqa/piqa.yaml",
    "arc_easy": "arc/arc_easy.yaml",
    "arc_challenge": "arc/arc_challenge.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml",
    "boolq": "super_glue/boolq/default.yaml",
    "winogrande": "winogrande/default.yaml",
    "social_iqa": "siqa/siqa.yaml",
    "mmlu": "mmlu/default/mmlu_abstract_algebra.yaml",
    "lambada_openai": "lambada/lambada_openai.yaml",
}


class Loader(yaml.SafeLoader):
    """Functions in task files by their place."""


Loader.add_constructor("!function", lambda loader, node: ("!function", loader.construct_scalar(node)))


def harness_config(path):
    config = yaml.load(path.read_text(), Loader)
    if "include" in config:
        config = harness_config(path.parent / config.pop("include")) | config
    return config


class Dumper(yaml.SafeDumper):
    """The same back."""


Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_scalar(*value))


def local_task(task, folder):
    """The harness's own task with a local file for its data."""
    config = harness_config(HARNESS / CONFIGS[task])
    data = folder / f"{task}-harness.json"
    data.write_text("\n".join(json.dumps(theirs(task, item)) for item in ours(task)))
    for name in ("training_split", "validation_split", "fewshot_split", "fewshot_config", "tag", "group", "task_alias"):
        config.pop(name, None)
    config |= {
        "task": f"local_{task}",
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "num_fewshot": 0,
    }
    source = (HARNESS / CONFIGS[task]).parent
    for script in source.glob("*.py"):
        (folder / script.name).write_bytes(script.read_bytes())
    (folder / f"{task}.yaml").write_text(yaml.dump(config, Dumper=Dumper))
    return f"local_{task}"


class Recorded(LM):
    """Log-likelihoods as `mhla eval language --answers` wrote them. What it was not asked is an error."""

    def __init__(self, answers):
        super().__init__()
        self.answers = {
            (choice["context"], choice["continuation"]): (choice["log_likelihood"], choice["greedy"])
            for line in answers.read_text().splitlines()
            for choice in json.loads(line)["choices"]
        }

    def loglikelihood(self, requests, disable_tqdm=False):
        return [self.answers[request.args] for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError


@pytest.fixture(scope="module")
def model():
    """A folder with a language model; any does."""
    path = os.environ.get("MHLA_LANGUAGE_MODEL")
    assert path, "MHLA_LANGUAGE_MODEL must be the folder of a language model; `make peers` makes one"
    return path


def evaluate(model, tasks, folder):
    command = [PROGRAM, "eval", "language", "--device", "cpu", "--model", model, "--tasks", folder / "ours"]
    command += ["--json", folder / "ours.json", "--answers", folder / "answers.jsonl"]
    subprocess.run(command, check=True, capture_output=True)
    return {row["task"]: row for row in json.loads((folder / "ours.json").read_text())["tasks"]}


def test_the_harness_counts_the_same(model, tmp_path):
    datasets.config.HF_DATASETS_CACHE = str(tmp_path / "cache")
    (tmp_path / "ours").mkdir()
    for task in CONFIGS:
        file = "mmlu_test" if task == "mmlu" else task
        (tmp_path / "ours" / f"{file}.jsonl").write_text("\n".join(json.dumps(item) for item in ours(task)))
    ours_scores = evaluate(model, CONFIGS, tmp_path)
    names = [local_task(task, tmp_path) for task in CONFIGS]
    results = evaluator.simple_evaluate(
        model=Recorded(tmp_path / "answers.jsonl"),
        tasks=names,
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=1000,
    )["results"]
    for task in CONFIGS:
        row, theirs_row = ours_scores[task], results[f"local_{task}"]
        for metric in ("acc", "acc_norm", "perplexity"):
            assert (metric in row) == (f"{metric},none" in theirs_row), (task, metric)
            if metric in row:
                assert row[metric]["value"] == pytest.approx(theirs_row[f"{metric},none"], rel=1e-9), (task, metric)
        assert row["acc"]["error"] == pytest.approx(theirs_row["acc_stderr,none"], rel=1e-9), task
        print(f"{task}: acc {row['acc']['value']:.4f}, the harness {theirs_row['acc,none']:.4f}")
