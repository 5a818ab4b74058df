"""A recipe: everything that decides a training run except the data and the seed.

It is read from TOML (`read_recipe`), made in Python, or made from another (`with_changes`). An
invalid one is a ValueError in each case.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any

import torch
from torch import nn

from kinspace._core.samples import inputs_of
from kinspace.data.named_splits import SPLITS
from kinspace.losses import LOSSES
from kinspace.objective import Objective, Term, make_loss, make_regularizer
from kinspace.recipes.fields import (
    convert,
    convert_fields,
    default_options,
    require_choice,
    type_hints,
)
from kinspace.recipes.sections import (
    IndexConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    Range,
    RegularizerConfig,
    SamplerConfig,
    SamplesConfig,
    ScheduleConfig,
    SearchConfig,
    TestConfig,
    TransformConfig,
    ValidationConfig,
    WarmStartConfig,
)
from kinspace.regularizers import REGULARIZERS
from kinspace.samplers import SAMPLERS

__all__ = ["Recipe", "set_dotted", "to_toml"]

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # in TOML, others are quoted


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Loss, regularizers, sampler, model, optimizer and schedule of a run.

    data: the standard set of the printed result, or None.
    split: of the data, a function of `kinspace.data.splits`; "all": no test part; "auto":
        "zero_shot" for a standard or built-in set, but "official" where its parts test on classes
        of their own (sop, inshop, omniglot), and "random_classes" for other data.
    index: for the sampler "neighborhoods", and only for it.
    fine_tuning: for a dotted key its value where `with_changes` gives the backbone weights.
    tune: for a dotted key the values a search may try.

    >>> recipe = Recipe(name="mine", about="NRA, steeper", loss=LossConfig("nra", {"alpha": 6}))
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
    loss: LossConfig
    regularizers: tuple[RegularizerConfig, ...] = ()
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    transform: TransformConfig = field(default_factory=TransformConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    index: IndexConfig | None = None
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    test: TestConfig = field(default_factory=TestConfig)
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    tune: Mapping[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        _check_consistency(vars(self))
        for key, value in self.fine_tuning.items():
            _check_value(self, key, value, "fine_tuning")
        for key, values in self.tune.items():
            for value in values.choices or (values.low, values.high):
                _check_value(self, key, value, "tune")

    def to_dict(self) -> dict[str, Any]:
        """Plain values as in TOML and JSON, with the options beside the name."""
        table = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        if self.index is None:
            del table["index"]
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Recipe:
        """The recipe of a table from `to_dict` or TOML; missing keys have their defaults."""
        for key in table:
            require_choice(key, key, FIELDS, what="key")
        for key in ("name", "about", "loss"):
            if key not in table:
                raise ValueError(f"{key}: expected, and not there")
        return cls(**{key: _field(key, value) for key, value in table.items()})

    def to_toml(self) -> str:
        """TOML text; `read_recipe` reads the same recipe from it."""
        return to_toml(self.to_dict())

    def resolved(self) -> Recipe:
        """The same recipe with every option written out, defaults too.

        >>> recipe = Recipe(name="mine", about="", loss=LossConfig("nra", {"alpha": 6}))
        >>> dict(recipe.resolved().loss.options)["eps"]
        0.0001
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


FIELDS = tuple(each.name for each in fields(Recipe))
SECTIONS: dict[str, Callable[..., Any]] = {
    "loss": LossConfig,
    "sampler": SamplerConfig,
    "samples": SamplesConfig,
    "model": ModelConfig,
    "transform": TransformConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "index": IndexConfig,
    "warm_start": WarmStartConfig,
    "validation": ValidationConfig,
    "search": SearchConfig,
    "test": TestConfig,
}
# No other section depends on these.
INDEPENDENT = ("transform", "optimizer", "schedule", "warm_start", "validation", "search", "test")
# Options of these stand beside the keys of their own, as a user thinks of them: loss.beta.
WITH_OPTIONS = (LossConfig, RegularizerConfig, SamplerConfig)


def set_dotted(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a value in a table of `Recipe.to_dict()` by its dotted key; missing tables are made.

    A regularizer has its name in place of its number.

    >>> table = {"loss": {"name": "almn", "beta": 3.0}, "regularizers": [{"name": "density"}]}
    >>> set_dotted(table, "loss.beta", 2)
    >>> set_dotted(table, "regularizers.density.weight", 5)
    >>> table
    {'loss': {'name': 'almn', 'beta': 2}, 'regularizers': [{'name': 'density', 'weight': 5}]}
    """
    *path, last = key.split(".")
    target = table
    if path and path[0] == "regularizers":
        target, path = _regularizer_table(table, key), path[2:]
    for name in path:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise ValueError(f"{key}: unknown key; {name} is a value, not a table")
    target[last] = value


def _regularizer_table(table: dict[str, Any], key: str) -> dict[str, Any]:
    by_name: dict[str, dict[str, Any]] = {each["name"]: each for each in table["regularizers"]}
    _, name, *rest = key.split(".")
    if name not in by_name or not rest:
        there = ", ".join(by_name) or "none"
        raise ValueError(
            f"{key}: expected regularizers.NAME.OPTION with one of the recipe's own, got {name!r}; "
            f"there is: {there}; --regularizer NAME:WEIGHT puts others in"
        )
    return by_name[name]


def _plain(value: Any) -> Any:
    if isinstance(value, WITH_OPTIONS):
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


def _section(key: str, cls: Any, table: Any) -> Any:
    table = convert(key, table, Mapping[str, Any])
    own = [each.name for each in fields(cls) if cls not in WITH_OPTIONS or each.name != "options"]
    if missing := [e.name for e in fields(cls) if _required(e) and e.name not in table]:
        raise ValueError(f"{key}.{missing[0]}: expected, and not there")
    given = {name: value for name, value in table.items() if name in own}
    rest = {name: value for name, value in table.items() if name not in own}
    if cls in WITH_OPTIONS:
        given["options"] = rest
    for name in () if cls in WITH_OPTIONS else rest:
        require_choice(f"{key}.{name}", name, own, what="key")
    try:
        return cls(**given)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def _required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _regularizers(tables: Any) -> tuple[RegularizerConfig, ...]:
    tables = convert("regularizers", tables, tuple[Mapping[str, Any], ...])
    return tuple(
        _section(f"regularizers.{table.get('name', number)}", RegularizerConfig, table)
        for number, table in enumerate(tables)
    )


def _ranges(tables: Any) -> dict[str, Range]:
    tables = convert("tune", tables, Mapping[str, Any])
    return {key: _section(f"tune.{key}", Range, table) for key, table in tables.items()}


def _field(key: str, value: Any) -> Any:
    """A field of a recipe from its plain value."""
    if key in SECTIONS and value is not None:
        return _section(key, SECTIONS[key], value)
    if key == "regularizers":
        return _regularizers(value)
    return _ranges(value) if key == "tune" else value


def _check_value(recipe: Recipe, key: str, value: Any, where: str) -> None:
    """Check that a key may have this value, by building its section and no other."""
    name = key.partition(".")[0]
    try:
        require_choice(key, name, FIELDS, what="key")
        old = _plain(getattr(recipe, name))
        table = {} if old is None else {name: old}
        set_dotted(table, key, value)
        new = convert(name, _field(name, table[name]), type_hints(Recipe)[name])
        if name not in INDEPENDENT:
            _check_consistency({**vars(recipe), name: new})
    except ValueError as error:
        raise ValueError(f"{where}.{key}: {error}") from None


def _check_consistency(recipe: Mapping[str, Any]) -> None:
    """Check the fields of a recipe against each other and against the data sets there are."""
    if recipe["data"] is not None:
        require_choice("data", recipe["data"], _data_sets(), what="data set")
    require_choice("split", recipe["split"], SPLITS, what="split")
    sampler, index = recipe["sampler"], recipe["index"]
    if (sampler.name == "neighborhoods") != (index is not None):
        raise ValueError(
            f"index: expected {'a table' if index is None else 'none'} with the sampler "
            f"{sampler.name!r}, got {index}; it is for 'neighborhoods' alone"
        )
    loss, model = recipe["loss"], recipe["model"]
    module = _build_modules(loss, recipe["regularizers"])
    for option in recipe["samples"].options:
        _check_takes(module, option, loss.name)
    learners = getattr(module, "groups", None)
    if learners is not None and learners != model.groups:
        raise ValueError(
            f"model.groups: expected the learners of the loss {loss.name!r}, "
            f"{learners}, got {model.groups}; set loss.groups and model.groups alike"
        )


def _check_takes(module: nn.Module, option: str, name: str) -> None:
    """Check that a loss takes an option of samples, by a call on a batch of two."""
    value = {"weights": torch.ones(2), "ignore_label": 1, "singletons": "skip"}[option]
    wrong = ValueError(
        f"samples: expected no {option} with the loss {name!r}, which takes none; leave it out, or "
        "take another loss"
    )
    if option not in inputs_of(module.forward):
        raise wrong
    try:
        module.eval()(torch.eye(2), torch.tensor([0, 1]), **{option: value})
    except ValueError:
        raise wrong from None


def _build_modules(loss: LossConfig, regularizers: tuple[RegularizerConfig, ...]) -> nn.Module:
    """The loss. Building finds what types do not: values out of range and missing proxies."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same warnings appear where they are used
        try:
            module = make_loss(
                loss.name,
                loss.options,
                num_classes=2,
                dim=2,
                virtual_points=loss.virtual_points,
            )
        except ValueError as error:
            raise ValueError(f"loss.{error}") from None
        terms = []
        for part in regularizers:
            try:
                groups = part.options.get(
                    "groups"
                )  # where there are sizes, the dimension is their sum
                dim = sum(groups) if isinstance(groups, tuple) else 2
                term = make_regularizer(part.name, part.options, num_classes=2, dim=dim)
            except ValueError as error:
                raise ValueError(f"regularizers.{part.name}.{error}") from None
            terms.append(Term(part.name, term, part.weight, part.centers, part.share))
        try:
            Objective(module, terms)
        except ValueError as error:
            raise ValueError(f"regularizers: {error}") from None
    return module


def _data_sets() -> list[str]:
    from kinspace.data.in_memory import BUILT_IN_SETS
    from kinspace.data.standard import STANDARD_SETS

    return [*STANDARD_SETS, *BUILT_IN_SETS]


def to_toml(table: Mapping[str, Any]) -> str:
    """The table as TOML: values first, then tables, without empty ones. None is written "none".

    >>> print(to_toml({"name": "a", "loss": {"beta": 3.0, "x": None}, "terms": [{"eta": 0.5}]}))
    name = "a"
    <BLANKLINE>
    [loss]
    beta = 3.0
    x = "none"
    <BLANKLINE>
    [[terms]]
    eta = 0.5
    <BLANKLINE>
    """
    return "\n".join(_blocks(table, header="", path=""))


def _blocks(table: Mapping[str, Any], *, header: str, path: str) -> list[str]:
    """The text of a table's own values, then one text for each table in it."""
    own, below = header, []
    for key, value in table.items():
        full = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            below += _blocks(value, header=f"[{full}]\n", path=full) if value else []
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for entry in value:
                below += _blocks(entry, header=f"[[{full}]]\n", path=full)
        else:
            own += f"{_key(key)} = {_value(value)}\n"
    return [own, *below] if own != header or header.startswith("[[") else below


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, except for the one control character that JSON leaves as it is
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise ValueError(f"expected a text, a number, true, false or a list of them, got {value!r}")
