"""A recipe: all that decides a training run but the data and the seed.

Read from TOML (`read_recipe`), made in Python, or changed (`changed`); what is wrong with one is
a ValueError wherever it came from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any

import torch
from torch import nn

from kinspace.losses import LOSSES
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.recipes.dotted_keys import set_dotted
from kinspace.recipes.field_types import fitted, known
from kinspace.recipes.fields import typed_fields
from kinspace.recipes.model_sections import (
    IndexPart,
    LossPart,
    ModelPart,
    RegularizerPart,
    SamplerPart,
    TransformPart,
    WarmStartPart,
)
from kinspace.recipes.options import default_options
from kinspace.recipes.run_sections import (
    OptimizerPart,
    Range,
    SchedulePart,
    TestPart,
    ValidationPart,
)
from kinspace.recipes.toml import to_toml
from kinspace.regularizers import REGULARIZERS
from kinspace.samplers import SAMPLERS

__all__ = ["Recipe"]

SPLITS = ("zero_shot", "official", "stratified", "all")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train.

    data: the standard set it was printed for, or None. split: of the data, a function of
    `kinspace.data.splits`. index: for the sampler "neighborhoods", and only for it. fine_tuning:
    for a dotted key its value where `changed` gives the backbone weights. tune: for a dotted key
    the values a search may try.

    >>> recipe = Recipe(name="mine", about="NRA, steeper", loss=LossPart("nra", {"alpha": 6}))
    >>> Recipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.to_toml().splitlines()[:2]
    ['name = "mine"', 'about = "NRA, steeper"']
    """

    name: str
    about: str
    source: str = ""
    data: str | None = None
    split: str = "zero_shot"
    loss: LossPart
    regularizers: tuple[RegularizerPart, ...] = ()
    sampler: SamplerPart = field(default_factory=SamplerPart)
    model: ModelPart = field(default_factory=ModelPart)
    transform: TransformPart = field(default_factory=TransformPart)
    optimizer: OptimizerPart = field(default_factory=OptimizerPart)
    schedule: SchedulePart = field(default_factory=SchedulePart)
    index: IndexPart | None = None
    warm_start: WarmStartPart = field(default_factory=WarmStartPart)
    validation: ValidationPart = field(default_factory=ValidationPart)
    test: TestPart = field(default_factory=TestPart)
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    tune: Mapping[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed_fields(self)
        if self.data is not None:
            known("data", self.data, _data_sets(), what="data set")
        known("split", self.split, SPLITS, what="split")
        if (self.sampler.name == "neighborhoods") != (self.index is not None):
            raise ValueError(
                f"index: expected {'a table' if self.index is None else 'none'} with the sampler "
                f"{self.sampler.name!r}, got {self.index}; it is for 'neighborhoods' alone"
            )
        learners = getattr(_built(self.loss, self.regularizers), "groups", None)
        if learners is not None and learners != self.model.groups:
            raise ValueError(
                f"model.groups: expected the learners of the loss {self.loss.name!r}, "
                f"{learners}, got {self.model.groups}; set loss.groups and model.groups alike"
            )
        for key, value in self.fine_tuning.items():
            _check_value(self, key, value, "fine_tuning")
        for key, values in self.tune.items():
            for value in values.choices or (values.low, values.high):
                _check_value(self, key, value, "tune")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as TOML and JSON have them: the options beside the name."""
        table = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        if self.index is None:
            del table["index"]
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Recipe:
        """What `to_dict` gave or TOML has; what is missing has its default."""
        given = dict(table)
        for key in given:
            known(key, key, [each.name for each in fields(cls)], what="key")
        for key in ("name", "about", "loss"):
            if key not in given:
                raise ValueError(f"{key}: expected, and not there")
        for key, part in PARTS.items():
            if given.get(key) is not None:
                given[key] = _part(key, part, given[key])
        given["regularizers"] = _regularizers(given.get("regularizers", []))
        given["tune"] = _ranges(given.get("tune", {}))
        return cls(**given)

    def to_toml(self) -> str:
        """TOML that `read_recipe` reads as exactly this recipe."""
        return to_toml(self.to_dict())

    def resolved(self) -> Recipe:
        """The same with every option written out, also those that have their default.

        >>> recipe = Recipe(name="mine", about="", loss=LossPart("nra", {"alpha": 6}))
        >>> dict(recipe.resolved().loss.options)
        {'alpha': 6.0, 'eps': 0.0001, 'detach_range': False, 'reduction': 'mean'}
        """

        def full(part: Any, registry: Mapping[str, Callable[..., Any]]) -> Any:
            options = {**default_options(registry[part.name]), **part.options}
            return replace(part, options=options)

        return replace(
            self,
            loss=full(self.loss, LOSSES),
            regularizers=tuple(full(part, REGULARIZERS) for part in self.regularizers),
            sampler=full(self.sampler, SAMPLERS),
        )


PARTS: dict[str, Callable[..., Any]] = {
    "loss": LossPart,
    "sampler": SamplerPart,
    "model": ModelPart,
    "transform": TransformPart,
    "optimizer": OptimizerPart,
    "schedule": SchedulePart,
    "index": IndexPart,
    "warm_start": WarmStartPart,
    "validation": ValidationPart,
    "test": TestPart,
}
# Their options stand beside their own keys, as the user thinks of them: loss.beta.
OPEN = (LossPart, RegularizerPart, SamplerPart)


def _plain(value: Any) -> Any:
    if isinstance(value, OPEN):
        own = {key: each for key, each in asdict(value).items() if key != "options"}
        return {**own, **deepcopy(dict(value.options))}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Range):
        ends = {"low": value.low, "high": value.high, "log": value.log}
        return ends if value.choices is None else {"choices": list(value.choices)}
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def _part(key: str, cls: Any, table: Any) -> Any:
    table = fitted(key, table, Mapping[str, Any])
    own = [each.name for each in fields(cls) if cls not in OPEN or each.name != "options"]
    if missing := [e.name for e in fields(cls) if _required(e) and e.name not in table]:
        raise ValueError(f"{key}.{missing[0]}: expected, and not there")
    given = {name: value for name, value in table.items() if name in own}
    rest = {name: value for name, value in table.items() if name not in own}
    if cls in OPEN:
        given["options"] = rest
    for name in () if cls in OPEN else rest:
        known(f"{key}.{name}", name, own, what="key")
    try:
        return cls(**given)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def _required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _regularizers(tables: Any) -> tuple[RegularizerPart, ...]:
    tables = fitted("regularizers", tables, tuple[Mapping[str, Any], ...])
    return tuple(
        _part(f"regularizers.{table.get('name', number)}", RegularizerPart, table)
        for number, table in enumerate(tables)
    )


def _ranges(tables: Any) -> dict[str, Range]:
    tables = fitted("tune", tables, Mapping[str, Any])
    return {key: _part(f"tune.{key}", Range, table) for key, table in tables.items()}


def _check_value(recipe: Recipe, key: str, value: Any, where: str) -> None:
    """The key of a recipe may have this value."""
    table = recipe.to_dict() | {"tune": {}, "fine_tuning": {}}
    try:
        set_dotted(table, key, value)
        Recipe.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{where}.{key}: {error}") from None


def _built(loss: LossPart, regularizers: tuple[RegularizerPart, ...]) -> nn.Module:
    """Build them once, to find what only they can tell: values out of range, no proxies.

    The loss is given back.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they warn again where they are used
        try:
            module = make_loss(loss.name, loss.options, num_classes=2, dim=2)
        except ValueError as error:
            raise ValueError(f"loss.{error}") from None
        terms = []
        for part in regularizers:
            try:
                groups = part.options.get("groups")  # sizes say the dimension, where it matters
                dim = sum(groups) if isinstance(groups, tuple) else 2
                term = make_regularizer(part.name, part.options, num_classes=2, dim=dim)
            except ValueError as error:
                raise ValueError(f"regularizers.{part.name}.{error}") from None
            terms.append(Term(part.name, term, part.weight, part.centers))
        try:
            Objective(module, terms)
        except ValueError as error:
            raise ValueError(f"regularizers: {error}") from None
    return module


def _data_sets() -> list[str]:
    from kinspace.data.load import BUILT_IN
    from kinspace.data.standard import STANDARD_SETS

    return [*STANDARD_SETS, *BUILT_IN]
