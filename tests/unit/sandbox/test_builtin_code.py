"""References of the built-in functions pass tests whose values were found another way, in the sandbox that a run uses."""

from coharness.config.sandbox import BUILTIN_LEVELS, CodeTasks, SandboxSection
from coharness.records.task import Task
from coharness.reward.sandbox import Sandbox
from coharness.reward.verify import VerifierRouter
from coharness.tasks.code_builtin import BuiltinCodeSource
from coharness.tasks.code_pieces import CONDITIONS, FOLDS, NUMBERS
from coharness.tasks.formats import FORMATS

PIECES = {piece.name for piece in (*NUMBERS, *CONDITIONS)} | {fold.name for fold in FOLDS}
SOURCE = BuiltinCodeSource(CodeTasks(type="code", levels=BUILTIN_LEVELS))


def checked(router: VerifierRouter, task: Task, answer: str) -> tuple[bool, float]:
    found = router.check(task.verifier, task.question, task.answer, answer)
    return found.correct, found.partial


def test_every_piece_does_what_its_code_does(sandbox: Sandbox) -> None:
    router = VerifierRouter(sandbox=SandboxSection(timeout_s=60.0))
    seen = set[str]()
    for level in (1, 3, 4):
        for seed in range(40):
            task = SOURCE.make("code", level, seed)
            assert checked(router, task, task.answer) == (True, 1.0), task.question
            seen |= {name for name in PIECES if f"{name}_" in task.question}
    router.close()
    assert seen == PIECES


def test_what_each_format_reads_from_its_reference_passes_and_nearly_right_code_does_not(sandbox: Sandbox) -> None:
    router = VerifierRouter(sandbox=SandboxSection(timeout_s=60.0))
    for level in range(1, BUILTIN_LEVELS + 1):
        task = SOURCE.make("code", level, 3)
        for name, reference in task.references.items():
            read = FORMATS[name].extract(reference)
            assert read is not None
            assert checked(router, task, read) == (True, 1.0), (level, name)
        body = task.references["body"]
        value = body.removeprefix("return ")
        returns = task.question.partition(" -> ")[2].partition(":")[0]
        wrong = f"return {value} + {'[1]' if returns == 'list[int]' else '1'}"
        assert not checked(router, task, wrong)[0]
    router.close()
