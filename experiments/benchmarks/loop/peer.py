"""TRL's side of one measurement, run as a script by the Python of its own environment: `GRPOTrainer` as its users start it.

    python peer.py SPEC.json

SPEC holds the base, the prompts in order, how long answers are, what rewards are, how many updates warm up and are measured, and
the settings that both sides share. Prints one JSON object. Nothing of the trainer is changed: lengths are forced by a logits
processor that goes into `generate`, and rewards that wait are awaited together, in a coroutine as TRL offers it.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Train, and read the window behind the warm-up."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import torch
    from datasets import Dataset  # type: ignore[import-not-found]
    from load import answer_length, latency_s, reward  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    torch.set_num_threads(spec["threads"])
    tokenizer = AutoTokenizer.from_pretrained(spec["base"], local_files_only=True)
    texts = [tokenizer.decode(ids) for ids in spec["prompts"]]
    if tokenizer(text=texts)["input_ids"] != spec["prompts"]:
        raise ValueError(
            "the tokenizer gives the prompts other ids than the other side has; the two would not do the same work"
        )
    model = AutoModelForCausalLM.from_pretrained(spec["base"], dtype=torch.float32, attn_implementation="sdpa")
    eos = tokenizer.eos_token_id
    num_tokens: list[int] = []
    "Tokens written, update by update."

    class Ends(LogitsProcessor):  # type: ignore[misc]
        """No end before its place, and nothing but the end there."""

        def __init__(self, width: int, lengths: torch.Tensor) -> None:
            self.width, self.lengths = width, lengths

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            last = self.lengths == input_ids.shape[1] - self.width + 1
            scores[:, eos] = -torch.inf
            scores[last] = -torch.inf
            scores[last, eos] = 0.0
            return scores

    if spec["lengths"] is not None:
        generate = model.generate

        def to_length(**given: Any) -> Any:
            ids, mask = given["input_ids"], given["attention_mask"].bool()
            wanted = [answer_length(spec["lengths"], row[seen].tolist()) for row, seen in zip(ids, mask, strict=True)]
            ends = LogitsProcessorList([Ends(ids.shape[1], torch.tensor(wanted))])
            return generate(**given, logits_processor=ends)

        model.generate = to_length

    def count(completion_ids: list[list[int]]) -> None:
        num_tokens.append(sum(map(len, completion_ids)))

    def number(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        count(completion_ids)
        return [reward(text) for text in completions]

    async def late(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        count(completion_ids)
        await asyncio.gather(*(asyncio.sleep(latency_s(text)) for text in completions))
        return [reward(text) for text in completions]

    def exact(completions: list[str], completion_ids: list[list[int]], expected: list[str], **_: Any) -> list[float]:
        count(completion_ids)
        return [
            float(text.strip() == right and ids[-1] == eos)
            for text, ids, right in zip(completions, completion_ids, expected, strict=True)
        ]

    marks: list[tuple[float, float]] = []
    "Wall clock and CPU seconds after each update."

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes when an update is done."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            marks.append((time.time(), time.process_time()))

    shared = spec["shared"]
    config = GRPOConfig(
        output_dir=spec["folder"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=shared["group_size"] * shared["groups_per_update"],
        num_generations=shared["group_size"],
        max_completion_length=spec["max_tokens"],
        max_steps=spec["warm_updates"] + spec["updates"],
        shuffle_dataset=False,
        temperature=1.0,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=shared["learning_rate"],
        lr_scheduler_type="constant",
        adam_beta1=shared["betas"][0],
        adam_beta2=shared["betas"][1],
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=spec["seed"],
    )
    rows: dict[str, Any] = {"prompt": texts}
    if spec["reward"] == "exact":
        rows["expected"] = spec["expected"]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs={"number": number, "late": late, "exact": exact}[spec["reward"]],
        args=config,
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    if spec["save_to"] is not None:
        trainer.save_model(spec["save_to"])
    warm, counted = spec["warm_updates"], spec["updates"]
    if len(marks) != warm + counted or len(num_tokens) != len(marks):
        raise ValueError(f"{len(marks)} updates and {len(num_tokens)} rewards, expected {warm + counted} of each")
    begin, end = (marks[warm - 1] if warm else marks[0]), marks[-1]
    return {
        "seconds": end[0] - begin[0],
        "cpu_s": end[1] - begin[1],
        "updates": counted,
        "trajectories": counted * shared["group_size"] * shared["groups_per_update"],
        "tokens": sum(num_tokens[warm:]),
        "all_updates": len(marks),
        "all_tokens": sum(num_tokens),
    }


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.sched_setaffinity(0, given["cores"])
    print(json.dumps(main(given)))
