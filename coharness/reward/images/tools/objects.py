"""Whether the objects that the instruction speaks of are as it wants them, and the others as they were."""

import math

import numpy as np

from coharness.reward.images.colours import PALETTE
from coharness.reward.images.locate import Found, find_all, named
from coharness.reward.images.pixels import Mask, Names, delta_e, grown, lab_of, share
from coharness.reward.images.spec import EditSpec, Operation
from coharness.reward.images.view import View

_NEAR = 0.13
"""Distance of centres, in shares of the image, within which two finds are one object."""


def colour(view: View) -> dict[str, float]:
    """Whether the object has the colour that is asked for; only where one is."""
    names = ("error", "progress", "cover", "evenness")
    spec, target = view.scene.spec, view.scene.target
    if spec.operation is not Operation.RECOLOR or target is None:
        return dict.fromkeys(names, math.nan)
    core = grown(target.mask, -1)
    core = core if core.any() else target.mask
    wanted = np.asarray(lab_of(spec.new_colour), dtype=np.float32)
    after = np.median(view.lab[core], axis=0)
    before = np.median(view.scene.lab[core], axis=0)
    error, start = float(np.linalg.norm(after - wanted)), float(np.linalg.norm(before - wanted))
    return {
        "error": error,
        "progress": 1.0 - error / max(start, 1.0),
        "cover": share(named(view.names, spec.new_colour), core),
        "evenness": float(view.lab[core].std(axis=0).sum()),
    }


def presence(view: View) -> dict[str, float]:
    """Confidence that the wanted object is at its place, and that the old one is no longer at its own."""
    wanted, (colour_, shape) = math.nan, wanted_object(view.scene.spec)
    place_error, anywhere, growth = math.nan, math.nan, math.nan
    place = view.scene.wanted_place
    if shape and place is not None:
        found = find_all(view.names, colour_, shape)
        anywhere = max((one.confidence for one in found), default=0.0)
        here = [one for one in found if _distance(one.centre, place) <= _NEAR]
        wanted = max((one.confidence for one in here), default=0.0)
        best = max(found, key=lambda one: one.confidence, default=None)
        place_error = 0.7 if best is None else _distance(best.centre, place)
        if best is not None and view.scene.target is not None:
            growth = abs(math.log(best.area / view.scene.target.area))
    return {"wanted": wanted, "anywhere": anywhere, "place_error": place_error, "growth": growth, "old": _old(view)}


def wanted_object(spec: EditSpec) -> tuple[str, str]:
    """Colour and shape of the object that should be there after the edit; empty where there is none to look for."""
    match spec.operation:
        case Operation.RECOLOR:
            return spec.new_colour, spec.shape
        case Operation.REPLACE:
            return spec.new_colour, spec.new_shape
        case Operation.ADD | Operation.MOVE:
            return spec.colour, spec.shape
    return "", ""


def blend(view: View) -> dict[str, float]:
    """Whether the place that an object left looks like what is around it."""
    names = ("distance", "residue", "texture")
    target = view.scene.target
    if target is None or view.scene.spec.operation not in (Operation.REMOVE, Operation.MOVE):
        return dict.fromkeys(names, math.nan)
    hole = target.mask
    ring = grown(hole, 5) & ~grown(hole, 2)
    if not ring.any():
        return dict.fromkeys(names, math.nan)
    around, own = view.lab[ring], view.lab[hole]
    old = np.median(view.scene.lab[hole], axis=0)
    still_old = delta_e(view.lab, old) < 0.5 * float(np.linalg.norm(np.median(around, axis=0) - old)) + 1.0
    return {
        "distance": float(np.linalg.norm(np.median(own, axis=0) - np.median(around, axis=0))),
        "residue": share(still_old, hole),
        "texture": abs(math.log((float(own[:, 0].std()) + 1.0) / (float(around[:, 0].std()) + 1.0))),
    }


def others(view: View) -> dict[str, float]:
    """Objects apart from the edited ones: the share of those in the source that is gone, and how many are new."""
    region = view.inside
    before = _bystanders(view.scene.names, region)
    if not before:
        return {"lost": math.nan, "recoloured": math.nan, "gained": math.nan}
    lost, recoloured = 0, 0.0
    for name, one in before:
        still = share(named(view.names, name), one.mask)
        lost += still < 0.5
        recoloured += float(np.median(view.change[one.mask]))
    after = _bystanders(view.names, region)
    fresh = sum(all(_distance(one.centre, old.centre) > _NEAR / 2 for _, old in before) for _, one in after)
    return {"lost": lost / len(before), "recoloured": recoloured / len(before), "gained": float(fresh)}


def _bystanders(names: Names, region: Mask) -> list[tuple[str, Found]]:
    found = []
    for name in PALETTE:
        if name in ("black", "white", "grey", "brown"):
            continue  # backgrounds are full of them
        found += [(name, one) for one in find_all(names, name, "") if share(region, one.mask) < 0.3]
    return found


def _old(view: View) -> float:
    target, spec = view.scene.target, view.scene.spec
    if target is None:
        return math.nan
    found = find_all(view.names, spec.colour, spec.shape)
    here = [one.confidence for one in found if _distance(one.centre, target.centre) <= _NEAR / 2]
    return max(here, default=0.0)


def _distance(one: tuple[float, float], two: tuple[float, float]) -> float:
    return math.hypot(one[0] - two[0], one[1] - two[1])
