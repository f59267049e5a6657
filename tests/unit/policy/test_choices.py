"""Reading choices: what an engine says of next tokens is what the model says of each prompt alone."""

from pathlib import Path

import pytest
import torch

from coharness.policy.bases import base_weights_ref
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.records.protocols import ChoiceRequest
from coharness.testing.toy_training import random_base

PROMPTS = ("copy abc=", "a", "reverse abcdefgh and then some more of it=", "1+1=")


def test_choices_are_the_models_own_probabilities_whatever_stands_beside_them(tmp_path: Path) -> None:
    base = random_base()
    weights = base_weights_ref(base)
    engine = TransformersGenerator(base, tmp_path, batch_size=3, max_adapters=1)
    asked = [
        ChoiceRequest(prompt_ids=tuple(base.codec.encode_prompt(text)), weights=weights, choices=choices)
        for text, choices in zip(PROMPTS, ((5, 6), (7,), (5, 9, 11), (6, 5)), strict=True)
    ]
    found = engine.read(asked)
    for request, logprobs in zip(asked, found, strict=True):
        with torch.no_grad():
            logits = base.model(input_ids=torch.tensor([request.prompt_ids])).logits[0, -1].double()
        expected = logits.log_softmax(-1)[list(request.choices)]
        assert logprobs == pytest.approx(expected.tolist(), abs=1e-5)
    assert engine.read([]) == []
    torch.testing.assert_close(engine.read(asked[::-1]), found[::-1], atol=1e-5, rtol=0)


def test_prompts_that_leave_no_room_are_refused(tmp_path: Path) -> None:
    base = random_base()
    engine = TransformersGenerator(base, tmp_path, batch_size=3, max_adapters=1)
    for ids in ((), (5,) * base.spec.max_context):
        with pytest.raises(ValueError, match="expected 1 to 255"):
            engine.read([ChoiceRequest(prompt_ids=ids, weights=base_weights_ref(base), choices=(5,))])
