"""Text to token ids and back: how a base wants its prompts, turns and completions spelled.

Owns the two codecs behind `records.protocols.TextCodec`: `RawCodec` for a base that continues text, `ChatCodec` for one with a
chat template. Built by `open_codec`, driven by engines (prompts, answers) and by workers that render references.

Invariants
- Text is text: a special token spelled out in a question or a completion is encoded as its characters, never as the token.
- Chat: `encode_prompt(p) + encode_completion(c)` are the ids of the rendered conversation up to its end token, whenever `c` does
  not begin with white space (a policy writes its own first token, which no tokenizer may merge with the template's line break).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, final

from coharness.records.errors import PreflightError

_USER, _ASSISTANT, _NEXT = "coharnessquestion", "coharnessanswer", "coharnessfollowup"
_PROBE: Final = ("What is 12 + 30?", "12 + 30 = 42", "And 7?\nThink: first.")


class BaseCodec(Protocol):
    """A `TextCodec` that also says what its vocabulary holds."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special ones included."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text."""
        ...

    @property
    def eos_id(self) -> int:
        """The token that ends a completion."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """A user's prompt up to where the policy begins to write."""
        ...

    def encode_turn(self, text: str) -> list[int]:
        """A further user turn after the policy wrote its end token, up to where it writes again."""
        ...

    def encode_completion(self, text: str) -> list[int]:
        """A completion as the policy would have written it, end token included."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens left out."""
        ...


@final
class RawCodec:
    """Codec of a base that continues text.

    A prompt is its own tokens (with a begin token where the tokenizer adds one), a turn is a line break and its text.
    """

    def __init__(self, tokenizer: Any, eos_id: int) -> None:
        """`tokenizer` is a `tokenizers.Tokenizer`; it is copied, so the caller may change its own."""
        self._tokenizer = _as_text_tokenizer(tokenizer)
        self._eos_id = eos_id
        self._special_ids = _special_ids(tokenizer)
        if self.encode_prompt("1")[-1] in self._special_ids:
            raise PreflightError(
                "the tokenizer puts a special token behind a prompt, so a policy could not continue it; use a tokenizer of a "
                "causal language model"
            )

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text."""
        return self._special_ids

    @property
    def eos_id(self) -> int:
        """The token that ends a completion."""
        return self._eos_id

    def encode_prompt(self, text: str) -> list[int]:
        """Tokens of `text`, behind the begin token where the tokenizer adds one."""
        return list(self._tokenizer.encode(text, add_special_tokens=True).ids)

    def encode_turn(self, text: str) -> list[int]:
        """Tokens of a line break and `text`."""
        return list(self._tokenizer.encode("\n" + text, add_special_tokens=False).ids)

    def encode_completion(self, text: str) -> list[int]:
        """Tokens of `text` and the end token."""
        return [*self._tokenizer.encode(text, add_special_tokens=False).ids, self._eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What a chat template puts around one user text."""

    head: tuple[int, ...]
    "Ids up to the last special token before the text."
    before: str
    "Template text between that token and the user's."
    after: str
    "Template text between the user's and the next special token."
    tail: tuple[int, ...]
    "Ids from there to where the policy writes."


@final
class ChatCodec:
    """Codec of a base with a chat template: one user message, then the policy writes as the assistant.

    The template is rendered once, at construction, and cut at the user's text; whatever it puts around that text (a default
    system prompt, role headers) is kept as ids.
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a transformers tokenizer with a chat template.

        Raises:
            PreflightError: the template drops or repeats a message, has no end token, or merges its text with the policy's.
        """
        self._special = tokenizer.backend_tokenizer
        self._text = _as_text_tokenizer(self._special)
        self._special_ids = _special_ids(self._special)
        prompt = _render(tokenizer, [_USER])
        answered = _render(tokenizer, [_USER, _ASSISTANT])
        followed = _render(tokenizer, [_USER, _ASSISTANT, _NEXT])
        if not answered.startswith(prompt + _ASSISTANT) or answered == prompt + _ASSISTANT:
            raise PreflightError(
                f"the chat template renders a conversation as {answered!r}, which does not continue its prompt {prompt!r} by the "
                "answer and an end token; use a template whose generation prompt is a prefix of the conversation"
            )
        end = self._special.encode(answered[len(prompt) + len(_ASSISTANT) :], add_special_tokens=False)
        if end.ids[0] not in self._special_ids:
            raise PreflightError(
                f"the chat template ends an answer with {end.tokens[0]!r}, which is not a special token; use a template with an "
                "end token"
            )
        self._eos_id = int(end.ids[0])
        up_to_end = prompt + _ASSISTANT + str(self._special.id_to_token(self._eos_id))
        if not followed.startswith(up_to_end):
            raise PreflightError(
                f"the chat template renders a second turn as {followed!r}, which does not continue {up_to_end!r}; use a template "
                "that keeps earlier turns as they were"
            )
        self._prompt = self._frame(prompt, _USER)
        self._turn = self._frame(followed[len(up_to_end) :], _NEXT)
        self._refuse_inexact(tokenizer)

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special ones included."""
        return int(self._text.get_vocab_size(with_added_tokens=True))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text."""
        return self._special_ids

    @property
    def eos_id(self) -> int:
        """The token that ends an assistant's message."""
        return self._eos_id

    def encode_prompt(self, text: str) -> list[int]:
        """The template around one user message, up to where the assistant begins to write."""
        return self._fill(self._prompt, text)

    def encode_turn(self, text: str) -> list[int]:
        """What follows the assistant's end token: the next user message, up to where the assistant writes again."""
        return self._fill(self._turn, text)

    def encode_completion(self, text: str) -> list[int]:
        """Tokens of `text` and the end token."""
        return [*self._text.encode(text, add_special_tokens=False).ids, self._eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens left out."""
        return str(self._text.decode(list(ids), skip_special_tokens=True))

    def _frame(self, rendered: str, marker: str) -> _Frame:
        before, found, after = rendered.partition(marker)
        if not found or marker in after:
            raise PreflightError(
                f"the chat template shows a user's message {rendered.count(marker)} times in {rendered!r}, expected once; use a "
                "template that renders each message once"
            )
        left = self._special.encode(before, add_special_tokens=False)
        right = self._special.encode(after, add_special_tokens=False)
        cut_left = max(
            (e for i, (_, e) in zip(left.ids, left.offsets, strict=True) if i in self._special_ids), default=0
        )
        cut_right = min(
            (s for i, (s, _) in zip(right.ids, right.offsets, strict=True) if i in self._special_ids),
            default=len(after),
        )
        return _Frame(
            head=tuple(self._special.encode(before[:cut_left], add_special_tokens=False).ids),
            before=before[cut_left:],
            after=after[:cut_right],
            tail=tuple(self._special.encode(after[cut_right:], add_special_tokens=False).ids),
        )

    def _fill(self, frame: _Frame, text: str) -> list[int]:
        middle = self._text.encode(frame.before + text + frame.after, add_special_tokens=False).ids
        return [*frame.head, *middle, *frame.tail]

    def _refuse_inexact(self, tokenizer: Any) -> None:
        question, answer, further = _PROBE
        rendered = _render(tokenizer, [question, answer, further])
        expected = list(self._special.encode(rendered, add_special_tokens=False).ids)
        got = self.encode_prompt(question) + self.encode_completion(answer) + self.encode_turn(further)
        if got != expected:
            raise PreflightError(
                f"the tokenizer does not encode a conversation piece by piece as it does in one go ({got} against {expected}); "
                "this base needs a codec of its own"
            )


def open_codec(path: Path, *, is_chat: bool) -> BaseCodec:
    """The codec of the base in folder `path`; only a chat base's loads transformers (its template needs it).

    Raises:
        PreflightError: the tokenizer names no end token, or its chat template cannot be used.
    """
    if is_chat:
        from transformers import AutoTokenizer

        return ChatCodec(AutoTokenizer.from_pretrained(path, local_files_only=True))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    config = path / "tokenizer_config.json"
    eos = json.loads(config.read_text(encoding="utf-8")).get("eos_token") if config.is_file() else None
    eos = eos["content"] if isinstance(eos, dict) else eos
    eos_id = tokenizer.token_to_id(eos) if eos else None
    if eos_id is None:
        raise PreflightError(
            f"the tokenizer in {path} names no end token (tokenizer_config.json: eos_token is {eos!r}); a policy could never "
            "stop: set eos_token to a token of tokenizer.json"
        )
    return RawCodec(tokenizer, int(eos_id))


def _render(tokenizer: Any, texts: Sequence[str]) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=messages[-1]["role"] == "user")
    )


def _as_text_tokenizer(tokenizer: Any) -> Any:
    copy = type(tokenizer).from_str(tokenizer.to_str())
    copy.encode_special_tokens = True  # a special token spelled out by a user or a policy stays plain text
    copy.no_padding()
    copy.no_truncation()
    return copy


def _special_ids(tokenizer: Any) -> frozenset[int]:
    added = tokenizer.get_added_tokens_decoder()
    return frozenset(int(i) for i, token in added.items() if token.special)
