"""Components that installed packages add: entry points of the groups `edge_federation.CONCEPT`.

A group's name has underscores where the concept has dashes: packaging tools refuse dashes there.

A package states, for instance:

    [project.entry-points."edge_federation.weighting"]
    by-battery = "mypackage.weightings:ByBattery"
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from inspect import Parameter

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """The components of one concept by name: those that ship, then those of installed packages.

    A shipped name cannot be replaced. A plugin is imported when it is looked up; `ConfigError` if that fails.
    """

    def __init__(self, concept: str, shipped: Mapping[str, T]) -> None:
        self.concept, self.shipped = concept, shipped

    def __getitem__(self, name: str) -> T:
        if name in self.shipped:
            return self.shipped[name]
        plugin = plugins(self.concept)[name]
        try:
            return cast(T, plugin.load())
        except Exception as error:
            raise ConfigError(f"{self.concept} '{name}' of {origin(plugin)}: {error!r}") from error

    def __contains__(self, name: object) -> bool:
        return name in self.shipped or name in plugins(self.concept)

    def __iter__(self) -> Iterator[str]:
        yield from self.shipped
        yield from (name for name in plugins(self.concept) if name not in self.shipped)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def origin(self, name: str) -> str:
        """The package that adds a component; empty for one that ships."""
        return "" if name in self.shipped else origin(plugins(self.concept)[name])


@cache
def options_of(factory: Callable[..., object]) -> "Mapping[str, Parameter]":
    """The arguments of a component's factory; a recipe makes some twenty components each time it is read."""
    # A board that only infers needs neither.
    from inspect import signature

    return signature(factory).parameters


class Traits:
    """What a component declares of itself, for checks, pages and tests: each concept has a frozen class.

    A value decorates the component, a class or a function; a component without one has the defaults.
    """

    def __call__(self, component: T) -> T:
        component.traits = self  # type: ignore[attr-defined]
        return component

    @classmethod
    def of(cls, component: object) -> Self:
        """The traits of a component, a class or an instance of it."""
        declared = getattr(component, "traits", None)
        return declared if isinstance(declared, cls) else cls()


F = TypeVar("F", bound=Traits)


class TraitRegistry(Registry[T], Generic[T, F]):
    """The components of a concept that declare traits."""

    def __init__(self, concept: str, kind: type[F], shipped: Mapping[str, T]) -> None:
        super().__init__(concept, shipped)
        self._kind = kind

    def traits(self, name: str) -> F:
        """What a component declares; the defaults for an unknown one."""
        return self._kind.of(self.get(name))

    def having(self, has: Callable[[F], object]) -> list[str]:
        """The names of the shipped components with a trait, sorted."""
        return sorted(name for name in self.shipped if has(self.traits(name)))


@lru_cache
def plugins(concept: str) -> "Mapping[str, EntryPoint]":
    """The entry points of a concept by name, in the order of their names."""
    from importlib.metadata import entry_points

    return {found.name: found for found in sorted(entry_points(group=group_of(concept)))}


def group_of(concept: str) -> str:
    """The entry point group of a concept: `edge_federation.torch_loss` of `torch-loss`."""
    return f"edge_federation.{concept.replace('-', '_')}"


def origin(plugin: "EntryPoint") -> str:
    """The package of an entry point, with its version."""
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist is not None else plugin.value
