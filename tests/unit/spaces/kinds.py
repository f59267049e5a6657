"""Domains of every kind for tests, and a strategy over them."""

from hypothesis import strategies as st

from coharness.spaces.discrete import Choice, Ordinal, Simplex
from coharness.spaces.domain import Domain
from coharness.spaces.ranges import Prior, Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree, When

TREE = Tree(
    fields={
        "rate": Real(low=1e-5, high=1e-1, scale=Scale.LOG),
        "optimizer": Choice(options=("sgd", "adam", "lion")),
        "momentum": When(field="optimizer", is_in=("sgd", "lion"), domain=Real(low=0.0, high=0.99)),
        "model": Tree(
            fields={
                "layers": Whole(low=1, high=6),
                "mix": Simplex(parts=3),
                "deep": When(field="layers", is_in=(5, 6), domain=Ordinal(levels=("pre", "post"))),
            }
        ),
    }
)


@st.composite
def domains(draw: st.DrawFn, *, depth: int = 1) -> Domain:
    kinds = ["linear", "log", "logit", "prior", "int", "logint", "ordinal", "choice", "simplex"] + ["tree"] * depth
    match draw(st.sampled_from(kinds)):
        case "int":
            low, high = sorted(draw(st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000))))
            return Whole(low=low, high=high)
        case "logint":
            low, high = sorted(draw(st.tuples(st.integers(1, 5000), st.integers(1, 5000))))
            return Whole(low=low, high=high, scale=Scale.LOG)
        case "ordinal":
            return Ordinal(
                levels=tuple(
                    draw(st.lists(st.integers(0, 99) | st.text(max_size=3), min_size=1, max_size=5, unique=True))
                )
            )
        case "choice":
            return Choice(
                options=tuple(draw(st.lists(st.booleans() | st.text(max_size=3), min_size=1, max_size=4, unique=True)))
            )
        case "simplex":
            return Simplex(parts=draw(st.integers(2, 6)))
        case "prior":
            center = draw(st.floats(1e-4, 1e-1))
            return Real(
                low=1e-4, high=1e-1, scale=Scale.LOG, prior=Prior(center=center, spread=draw(st.floats(0.1, 9)))
            )
        case "tree":
            names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True))
            return Tree(fields={name: draw(domains(depth=0)) for name in names})
        case kind:
            bounds = {"linear": (-1e6, 1e6), "log": (1e-9, 1e6), "logit": (1e-6, 1 - 1e-6)}[kind]
            low_f, high_f = sorted(draw(st.tuples(st.floats(*bounds), st.floats(*bounds))))
            return Real(low=low_f, high=high_f, scale=Scale(kind))
