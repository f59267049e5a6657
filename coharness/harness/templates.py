"""Named prompt templates and hints: the vocabulary that the prompt genes choose from.

A gene holds a name, never text, so that every genome is readable and every prompt is reproducible. Raw bases (trained from
scratch, no chat template) continue after a format's cue; chat bases follow its instruction.
"""

TEMPLATES: dict[str, str] = {
    "bare": "{shots}{distractors}{hint}{question}{cue}",
    "cue_first": "{shots}{distractors}{hint}{cue}{question}{cue}",
    "twice": "{shots}{distractors}{hint}{question} {question}{cue}",
    "bracketed": "{shots}{distractors}{hint}({question}){cue}",
    "chat": "{shots}{hint}{distractors}{question}\n{instruction}",
    "chat_turns": "{hint}{distractors}{question}\n{instruction}",
    "chat_instruction_first": "{instruction}\n{shots}{hint}{distractors}{question}",
}
"""Name -> text with the fields shots, distractors, hint, question, cue, instruction."""

TURNS = "chat_turns"
"""The template that shows worked examples as turns of a conversation that went before."""

HINTS: dict[str, str] = {
    "none": "",
    "steps": "steps ",
    "fast": "fast ",
    "check": "check ",
    "think_step_by_step": "Think step by step. ",
    "be_brief": "Be brief. ",
}
"""Name -> text put before the question."""

DISTRACTOR_LETTERS = "ghijklmnopqrstuvwxyz"
"""Distractors are drawn from letters that the built-in questions do not use as data."""
