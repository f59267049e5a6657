"""A library: entries under names, one version, never changed; every operation gives another library.

Miniature: `Library.of("judge").added(skill)` has one entry and another digest; adding the same name again is an error, whatever
its kind, since a file would be overwritten or orphaned.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.reward.library.criterion import Criterion
from coharness.reward.library.entries import NAME, Entry, Kind

MAX_ENTRIES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One version.

    Raises:
        ConfigError: two entries of one name, or too many.
    """

    name: str
    entries: tuple[Entry, ...]
    "Sorted by name."
    status: str = "candidate"

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"library {self.name}: the names {', '.join(twice)} stand twice, expected each name once")
        if len(names) > MAX_ENTRIES:
            raise ConfigError(f"library {self.name}: got {len(names)} entries, expected {MAX_ENTRIES} at most")
        if names != sorted(names):
            raise ConfigError(f"library {self.name}: entries must be sorted by name; make it with Library.of")
        if NAME.fullmatch(self.name) is None:
            raise ConfigError(f"library: got the name {self.name!r:.80}, expected kebab case")

    @classmethod
    def of(cls, name: str, entries: Iterable[Entry] = (), status: str = "candidate") -> "Library":
        """A library of these entries, in any order."""
        return cls(name=name, entries=tuple(sorted(entries, key=lambda entry: entry.name)), status=status)

    @property
    def digest(self) -> str:
        """Hash of all entries, `l-` and 12 hex digits; name and status are no part of it."""
        return "l-" + content_hash([entry.to_json() for entry in self.entries], 12)

    @property
    def skills(self) -> tuple[Entry, ...]:
        """Entries that are skills."""
        return tuple(entry for entry in self.entries if entry.kind is Kind.SKILL)

    @property
    def tools(self) -> tuple[Entry, ...]:
        """Entries that are tools."""
        return tuple(entry for entry in self.entries if entry.kind is Kind.TOOL)

    @property
    def criteria(self) -> tuple[tuple[str, Criterion], ...]:
        """Names and criteria of the skills that have one."""
        return tuple((entry.name, entry.criterion) for entry in self.entries if entry.criterion is not None)

    def get(self, name: str) -> Entry | None:
        """The entry of this name, None where there is none."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def entry(self, name: str) -> Entry:
        """The entry of this name.

        Raises:
            ConfigError: there is none; the message names those that are there.
        """
        found = self.get(name)
        if found is None:
            known = ", ".join(entry.name for entry in self.entries) or "none"
            raise ConfigError(f"library {self.name} has no entry {name!r:.80}; it has {known:.400}")
        return found

    def added(self, entry: Entry) -> "Library":
        """With one more entry.

        Raises:
            ConfigError: its name is taken, by an entry of either kind.
        """
        if self.get(entry.name) is not None:
            raise ConfigError(
                f"library {self.name} has an entry {entry.name} already; update it, or choose another name"
            )
        return Library.of(self.name, (*self.entries, entry), self.status)

    def updated(self, entry: Entry) -> "Library":
        """With another content under a name.

        Raises:
            ConfigError: there is no such entry, or it is of the other kind.
        """
        old = self.entry(entry.name)
        if old.kind is not entry.kind:
            raise ConfigError(f"{entry.name} is a {old.kind}, got a {entry.kind} under its name; delete it first")
        return replace(self, entries=tuple(entry if one.name == entry.name else one for one in self.entries))

    def without(self, name: str) -> "Library":
        """Without an entry.

        Raises:
            ConfigError: there is no such entry.
        """
        gone = self.entry(name)
        return replace(self, entries=tuple(entry for entry in self.entries if entry is not gone))

    def reweighted(self, weights: dict[str, float]) -> "Library":
        """With other weights of some criteria, by the names of their skills."""
        entries = [
            replace(one, criterion=replace(one.criterion, weight=weights[one.name]))
            if one.criterion is not None and one.name in weights
            else one
            for one in self.entries
        ]
        return replace(self, entries=tuple(entries))
