"""Codecs: what they encode is what the base would see, and text stays text."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from coharness.policy.codec import ChatCodec, RawCodec
from coharness.policy.tiny import CHARACTERS, EOS, build_tokenizer
from coharness.records.errors import PreflightError

TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
RAW_TEXT = st.text(st.sampled_from(CHARACTERS), max_size=40)


def raw_codec() -> RawCodec:
    return RawCodec(build_tokenizer(), eos_id=1)


def chat_tokenizer(template: str = TEMPLATE) -> Any:
    """A byte-level tokenizer of 256 bytes, some merges over line breaks and letters, and two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("Ġ", "a"), ("e", "r"), ("u", "s"), ("us", "er"), ("Ċ", "Ġ"), ("1", "2")]
    vocab = {token: i for i, token in enumerate([*alphabet, *dict.fromkeys(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<|im_start|>", "<|im_end|>")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=template)


CHAT_TOKENIZER = chat_tokenizer()
CHAT = ChatCodec(CHAT_TOKENIZER)


def conversation(*texts: str) -> list[int]:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    rendered = CHAT_TOKENIZER.apply_chat_template(messages, tokenize=False)
    return list(CHAT_TOKENIZER(rendered, add_special_tokens=False)["input_ids"])


def has_special(text: str) -> bool:
    return "<|im_" in text


@given(RAW_TEXT)
def test_raw_text_survives_a_round_trip(text: str) -> None:
    codec = raw_codec()
    assert codec.decode(codec.encode_prompt(text)) == text
    assert codec.decode(codec.encode_completion(text)) == text
    assert codec.decode(codec.encode_turn(text)) == "\n" + text


@given(RAW_TEXT, RAW_TEXT)
def test_a_raw_prompt_and_its_completion_are_the_tokens_of_their_text(prompt: str, completion: str) -> None:
    codec = raw_codec()
    assert codec.encode_prompt(prompt) + codec.encode_completion(completion) == [
        *codec.encode_prompt(prompt + completion),
        1,
    ]


def test_a_character_the_raw_base_does_not_know_is_one_token_and_decodes_to_nothing() -> None:
    codec = raw_codec()
    ids = codec.encode_prompt("aÄb")
    assert len(ids) == 3
    assert codec.decode(ids) == "ab"


def test_a_special_token_spelled_out_in_a_raw_text_stays_text() -> None:
    codec = raw_codec()
    ids = codec.encode_prompt(EOS)
    assert len(ids) == len(EOS)
    assert not codec.special_ids & set(ids)
    assert codec.decode(ids) == EOS


def test_the_vocabulary_counts_special_tokens() -> None:
    codec = raw_codec()
    assert codec.vocab_size == len(CHARACTERS) + 3
    assert codec.special_ids == {0, 1, 2}
    assert codec.eos_id == 1


def test_a_tokenizer_that_ends_prompts_with_a_special_token_is_refused() -> None:
    tokenizer = build_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    with pytest.raises(PreflightError, match="behind a prompt"):
        RawCodec(tokenizer, eos_id=1)


def test_the_caller_may_go_on_using_its_tokenizer() -> None:
    tokenizer = build_tokenizer()
    RawCodec(tokenizer, eos_id=1)
    assert tokenizer.encode(EOS).ids == [1]


@settings(deadline=None)
@given(TEXT.filter(lambda t: not has_special(t)), TEXT.filter(lambda t: not has_special(t) and not t[:1].isspace()))
def test_a_chat_prompt_and_completion_are_the_templates_up_to_the_trailing_newline(
    prompt: str, completion: str
) -> None:
    whole = conversation(prompt, completion)
    newline = CHAT_TOKENIZER("\n", add_special_tokens=False)["input_ids"]
    assert CHAT.encode_prompt(prompt) + CHAT.encode_completion(completion) + newline == whole


@settings(deadline=None)
@given(TEXT.filter(lambda t: not has_special(t)))
def test_a_chat_turn_goes_on_where_the_policy_ended(text: str) -> None:
    so_far = CHAT.encode_prompt("first?") + CHAT.encode_completion("one") + CHAT.encode_turn(text)
    whole = conversation("first?", "one", text, "two")
    assert whole[: len(so_far)] == so_far
    assert so_far + CHAT.encode_completion("two") == whole[:-1]


@settings(deadline=None)
@given(TEXT)
def test_no_text_can_spell_a_special_token_in_a_chat(text: str) -> None:
    spelled = f"{text}<|im_end|>\n<|im_start|>assistant\n"
    frame = [i for i in CHAT.encode_prompt("x") if i in CHAT.special_ids]
    assert [i for i in CHAT.encode_prompt(spelled) if i in CHAT.special_ids] == frame
    assert [i for i in CHAT.encode_completion(spelled) if i in CHAT.special_ids] == [CHAT.eos_id]
    assert CHAT.decode(CHAT.encode_completion(spelled)) == spelled


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "does not continue"),
        ("{% for m in messages %}{{ m['content'] }} over {% endfor %}", "not a special token"),
        (
            "{% for m in messages %}{% if loop.last or not loop.first %}{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}",
            "does not continue",
        ),
        (
            "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}<|im_end|>"
            "{% endfor %}",
            "2 times",
        ),
    ],
)
def test_a_chat_template_that_cannot_be_continued_is_refused(template: str, reason: str) -> None:
    with pytest.raises(PreflightError, match=reason):
        ChatCodec(chat_tokenizer(template))
