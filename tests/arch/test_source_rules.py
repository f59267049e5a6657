import ast

from tests.arch.source import calls, imports, imports_at_load, is_of, modules, under

MODULES = modules()

SEES_THE_CLOCK = {
    "coharness/loop/build.py",
    "coharness/loop/clock.py",
    "coharness/loop/engine.py",
    "coharness/loop/export.py",
    "coharness/loop/jobs.py",
    "coharness/loop/journal.py",
    "coharness/loop/local_fleet.py",
    "coharness/loop/local_run.py",
    "coharness/loop/preflight.py",
    "coharness/loop/replay.py",
    "coharness/loop/replay_segments.py",
    "coharness/loop/replay_store.py",
    "coharness/loop/run_dir.py",
    "coharness/loop/sealed.py",
    "coharness/loop/status.py",
    "coharness/loop/worker.py",
    "coharness/tune/engine.py",
    "coharness/tune/pool.py",
    "coharness/tune/worker.py",
}
"""Modules around the cores, which may. All others of these two decide, and time enters a run's decision as a Tick event alone."""
NEW_NUMPY_RANDOM = {"default_rng", "Generator", "Philox", "PCG64", "PCG64DXSM", "SFC64", "SeedSequence", "BitGenerator"}


def found(rule: list[str]) -> None:
    assert not rule, "\n".join(rule)


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 50


PEERS = {"experiments/benchmarks/population/ray_tune_baseline.py"}
"""Programs that a study runs in a peer's own interpreter; they may do what the peer does."""


def test_ray_is_imported_in_actors_and_clusters_alone() -> None:
    found(
        [
            f"{path}:{line} imports {name}"
            for path, tree in MODULES.items()
            if not under(path, "actors", "clusters") and path not in PEERS
            for name, line in imports(tree)
            if is_of(name, "ray")
        ]
    )


def test_torch_is_imported_where_weights_are_and_elsewhere_inside_the_functions_that_need_it() -> None:
    heavy = ("torch", "transformers", "peft")
    inside_functions = ("actors", "coharness/cli/base.py", "coharness/loop/build.py", "experiments")
    anywhere = ("coharness/policy", "coharness/evolution/merging")
    found(
        [
            f"{path}:{line} imports {name}"
            for path, tree in MODULES.items()
            if not under(path, *anywhere)
            for name, line in (imports_at_load(tree) if under(path, *inside_functions) else imports(tree))
            if is_of(name, *heavy)
        ]
    )


def test_only_the_composition_root_imports_the_fleets_and_inside_functions() -> None:
    compose = "coharness/cli/compose.py"
    found(
        [
            f"{path}:{line} imports {name}"
            for path, tree in MODULES.items()
            if under(path, "coharness")
            for name, line in (imports_at_load(tree) if path == compose else imports(tree))
            if is_of(name, "actors", "clusters", "experiments")
        ]
    )


def test_ray_is_started_in_one_place() -> None:
    found(
        [
            f"{path}:{call.lineno} calls ray.init"
            for path, tree in MODULES.items()
            if path != "actors/session.py" and path not in PEERS
            for name, call in calls(tree)
            if name == "ray.init"
        ]
    )


def test_what_decides_never_sees_the_clock() -> None:
    layers = ("evolution", "harness", "spaces", "stats", "loop", "tune")
    deciding = tuple(f"coharness/{layer}" for layer in layers)
    found(
        [
            f"{path}:{line} imports {name}"
            for path, tree in MODULES.items()
            if under(path, *deciding) and path not in SEES_THE_CLOCK
            for name, line in imports(tree)
            if is_of(name, "time", "datetime")
        ]
    )


def draws_globally(name: str) -> bool:
    match name.split("."):
        case ["random", function]:
            return function not in ("Random", "SystemRandom")
        case ["np" | "numpy", "random", function]:
            return function not in NEW_NUMPY_RANDOM
        case ["torch", "manual_seed" | "seed"] | ["torch", "random", "manual_seed" | "seed"]:
            return True
        case _:
            return False


def restores_the_generator(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any("fork_rng" in ast.unparse(item) for item in node.items)


def test_no_global_random_numbers() -> None:
    drawn = []
    for path, tree in MODULES.items():
        forked = {id(call) for node in ast.walk(tree) if restores_the_generator(node) for _, call in calls(node)}
        drawn += [
            f"{path}:{call.lineno} calls {name}"
            for name, call in calls(tree)
            if draws_globally(name) and id(call) not in forked
        ]
    found(drawn)


def test_nothing_is_unpickled_but_what_a_conformance_suite_pickled_itself() -> None:
    def is_unsafe(path: str, name: str, call: ast.Call) -> bool:
        arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        match name.split("."):
            case ["pickle" | "cloudpickle", "loads"]:
                return not (under(path, "coharness/testing") and "dumps(" in ast.unparse(call))
            case ["pickle" | "cloudpickle" | "joblib", "load" | "Unpickler"]:
                return True
            case ["torch", "load"]:
                return arguments.get("weights_only") != "True"
            case ["np" | "numpy", "load"]:
                return "allow_pickle" in arguments
            case _:
                return False

    found(
        [
            f"{path}:{call.lineno} calls {name}"
            for path, tree in MODULES.items()
            for name, call in calls(tree)
            if is_unsafe(path, name, call)
        ]
    )


def test_no_command_goes_through_a_shell() -> None:
    found(
        [
            f"{path}:{call.lineno} calls {name}"
            for path, tree in MODULES.items()
            for name, call in calls(tree)
            if name in ("os.system", "os.popen")
            or any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in call.keywords)
        ]
    )


def test_the_library_does_not_print() -> None:
    found(
        [
            f"{path}:{call.lineno} prints"
            for path, tree in MODULES.items()
            if not under(path, "coharness/cli", "experiments")
            for name, call in calls(tree)
            if name == "print"
        ]
    )


def test_yaml_is_read_with_a_safe_loader() -> None:
    found(
        [
            f"{path}:{call.lineno} calls {name}"
            for path, tree in MODULES.items()
            for name, call in calls(tree)
            if name in ("yaml.full_load", "yaml.unsafe_load")
            or (name == "yaml.load" and "StrictLoader" not in ast.unparse(call))
        ]
    )


def test_every_module_says_what_it_is() -> None:
    found([path for path, tree in MODULES.items() if not (ast.get_docstring(tree) or "").strip()])
