"""``mhla.models.LM``: the language models of the program."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence

import torch

from mhla._classes import load_classes
from mhla._numbers import integer, integers

_WHITE_SPACE = " \t\n\r\v\f"


def _texts(values: object, name: str) -> list[str]:
    texts = [values] if isinstance(values, str) else list(values)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} holds {text!r}; it must be a text")
    return texts


class Tokenizer:
    """Text to tokens and back."""

    def __init__(self, model: object) -> None:
        self._model = model

    def __len__(self) -> int:
        return self._model.tokenizer_size()

    @property
    def begin(self) -> int:
        """The token that begins a text."""
        return self._model.begin_token()

    @property
    def end(self) -> int | None:
        """The token that ends a text, where there is one."""
        token = self._model.end_token()
        return None if token < 0 else token

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without special tokens."""
        return self._model.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; special tokens are nothing."""
        return self._model.decode(list(integers(ids, "ids")))


class LM:
    """A trained language model with its tokenizer."""

    def __init__(self, model: object, device: torch.device) -> None:
        self._model = model
        self.device = device
        self.tokenizer = Tokenizer(model)

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        device: str | torch.device = "cpu",
        beyond: str | None = None,
    ) -> LM:
        """The model in a folder of ``mhla train language`` or of transformers, or in a .safetensors file.

        ``tokenizer`` is needed where it is not beside the model. ``beyond`` is what MHLA does with more blocks than it
        was trained for: ``error``, ``clamp``, ``running-mean`` or ``interpolate``; None is the model's own.
        """
        load_classes()
        model = torch.classes.mhla.LanguageModel(
            os.fspath(path), "" if tokenizer is None else os.fspath(tokenizer), str(device), beyond or ""
        )
        return cls(model, torch.device(device))

    @property
    def config(self) -> dict:
        """Sizes and options of the model."""
        return json.loads(self._model.config())

    @property
    def max_length(self) -> int | None:
        """How many tokens the model reads, None where there is no limit."""
        longest = self._model.longest()
        return None if longest == 2**63 - 1 else longest

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of the token after each of ``ids``, int64 [B, T]: [B, T, vocabulary]."""
        return self._model.forward(ids)

    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        tokens: int = 100,
        count: int | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        seed: int = 0,
        past_end: bool = False,
    ) -> str | list[str] | list[list[str]]:
        """What the model goes on with, as ``mhla generate`` with the same options.

        A text for a text, a list for a list of prompts. With ``count`` there is a list of so many answers in place of
        each text.
        """
        answers, _ = self._model.generate(
            _texts(prompt, "prompt"),
            1 if count is None else integer(count, "count", 1),
            integer(tokens, "tokens"),
            float(temperature),
            integer(top_k, "top_k"),
            float(top_p),
            float(min_p),
            float(repetition_penalty),
            _texts(stop, "stop"),
            integer(seed, "seed", 0),
            bool(past_end),
        )
        if count is not None:
            answers = [answers[begin : begin + count] for begin in range(0, len(answers), count)]
        return answers[0] if isinstance(prompt, str) else answers

    def loglikelihood(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[float, bool]]:
        """For each (context, continuation): the sum of log-probabilities, and whether every token is the likeliest.

        Text is cut into tokens as lm-evaluation-harness does it: white space at the end of a context belongs to the
        continuation, and both are encoded together. The token that begins a text stands before them.
        """
        return [self._log_likelihood(context, continuation) for context, continuation in pairs]

    def _log_likelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        if not continuation:
            raise ValueError("continuation is empty; it must have at least one token")
        whole = context + continuation
        given = self.tokenizer.encode(context.rstrip(_WHITE_SPACE)) if context.rstrip(_WHITE_SPACE) else []
        ids = [self.tokenizer.begin, *self.tokenizer.encode(whole)]
        return self._model.log_likelihood(ids, 1 + len(given))
