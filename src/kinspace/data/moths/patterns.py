"""How each kind of pattern is laid out on a species' wings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kinspace.data.moths.species import Band, Eyespot, Pattern, Spot, Traits

__all__ = ["FRINGES", "PATTERNS", "fore_pattern", "hind_pattern"]

FRINGES = ("plain", "checkered", "pale", "dark")
WAVES = ("straight", "wavy", "zigzag", "scalloped")
DISCAL = ("dot", "kidney", "bar", "crescent", "ring", "wedge")
RINGS = (
    ("dark", "accent", "dark", "white"),
    ("pale", "dark", "accent", "dark"),
    ("accent", "dark", "blue", "white"),
    ("dark", "pale", "dark", "accent", "white"),
)


def _line(traits: Traits, name: str, low: float, high: float, *, tone: str = "dark") -> Band:
    """A cross line whose place, width, form and slope differ between species."""
    return Band(
        place=traits.between(f"{name} place", low, high),
        width=traits.between(f"{name} width", 0.014, 0.032),
        tone=tone,
        wave=traits.pick(f"{name} wave", WAVES),
        amplitude=traits.between(f"{name} amplitude", 0.02, 0.045),
        waves=traits.between(f"{name} waves", 2.0, 5.0),
        tilt=traits.between(f"{name} tilt", -0.1, 0.12),
    )


def _discal(traits: Traits, *, tone: str = "dark", size: float = 0.06) -> Spot:
    return Spot(
        along=traits.between("discal along", 0.46, 0.6),
        across=traits.between("discal across", 0.26, 0.4),
        size=traits.between("discal size", size, 1.7 * size),
        shape=traits.pick("discal shape", DISCAL),
        tone=tone,
    )


def _finish(traits: Traits, pattern: Pattern) -> Pattern:
    """The small things every species has: fringe, edge dots, costal dots, veins."""
    return replace(
        pattern,
        fringe=traits.pick("fringe", FRINGES),
        edge_spots=traits.pick("edge spots", ("", "dark", "pale", "")),
        costal_spots=traits.pick("costal spots", (0, 3, 5, 2)),
        veins=max(pattern.veins, traits.between("veins", 0.0, 0.45)),
    )


def banded(traits: Traits) -> Pattern:
    """Cross lines, two to four, with a discal spot between the inner and the outer one."""
    bands = [
        _line(traits, "inner", 0.26, 0.42),
        _line(traits, "outer", 0.62, 0.80),
    ]
    if traits.pick("third line", (False, True, False, True)):
        bands.append(_line(traits, "edge line", 0.87, 0.92, tone="pale"))
    if traits.pick("shadow line", (True, False, False, True)):
        middle = _line(traits, "shadow", 0.44, 0.6)
        bands.append(replace(middle, width=2.2 * middle.width, tone="shade", strength=0.9))
    return Pattern(bands=tuple(bands), spots=(_discal(traits, tone="pale"),), mottle=0.45)


def eyespotted(traits: Traits) -> Pattern:
    """One large eyespot, and cross lines on both sides of it."""
    eye = Eyespot(
        along=traits.between("eye along", 0.46, 0.66),
        across=traits.between("eye across", 0.32, 0.52),
        size=traits.between("eye size", 0.07, 0.125),
        rings=traits.pick("eye rings", RINGS),
    )
    inner = _line(traits, "inner", 0.22, 0.34)
    outer = _line(traits, "outer", 0.78, 0.88)
    edge = replace(_line(traits, "edge line", 0.93, 0.95, tone="pale"), tilt=0.0)
    return Pattern(bands=(inner, outer, edge), eyespots=(eye,), mottle=0.3)


def speckled(traits: Traits) -> Pattern:
    """Dots all over, and rows of larger ones."""
    row = traits.between("row place", 0.6, 0.82)
    count = traits.pick("row count", (3, 4, 5, 6))
    size = traits.between("row size", 0.022, 0.04)
    slope = traits.between("row slope", -0.16, 0.16)
    spots = [
        Spot(row + slope * (i / (count - 1) - 0.5), 0.12 + 0.74 * i / (count - 1), size)
        for i in range(count)
    ]
    spots.append(_discal(traits, size=0.035))
    base = range(traits.pick("base dots", (1, 2, 3, 0)))
    spots += [Spot(0.26 + 0.03 * i, 0.2 + 0.24 * i, 0.8 * size) for i in base]
    density = traits.between("speckles", 0.02, 0.16)
    return Pattern(spots=tuple(spots), speckles=density, mottle=0.12)


def blotched(traits: Traits) -> Pattern:
    """A few large blotches in the accent or a pale color."""
    tone = traits.shared_pick("blotch tone", ("accent", "pale", "dark"))
    count = traits.pick("blotch count", (3, 4, 5, 6))
    places = ((0.34, 0.3), (0.62, 0.28), (0.82, 0.42), (0.42, 0.7), (0.68, 0.72), (0.86, 0.16))
    shape = traits.pick("blotch shape", ("dot", "bar", "wedge", "kidney"))
    spots = tuple(
        Spot(
            along + traits.between(f"blotch along {i}", -0.06, 0.06),
            across + traits.between(f"blotch across {i}", -0.06, 0.06),
            traits.between(f"blotch size {i}", 0.055, 0.105),
            shape,
            tone,
            traits.between("blotch aspect", 0.75, 1.4),
        )
        for i, (along, across) in enumerate(places[:count])
    )
    return Pattern(spots=spots, veins=traits.between("blotch veins", 0.0, 0.7), mottle=0.15)


def striped(traits: Traits) -> Pattern:
    """Streaks along the veins and one slanting line from the apex to the rear edge."""
    count = traits.pick("streak count", (1, 2, 3, 4))
    first = traits.between("streak across", 0.18, 0.36)
    gap = traits.between("streak gap", 0.13, 0.2)
    reach = traits.between("streak reach", 0.5, 0.85)
    streaks = tuple((first + gap * i, 0.12 + 0.08 * i, reach + 0.04 * i) for i in range(count))
    slant = Band(
        place=traits.between("slant place", 0.62, 0.78),
        width=traits.between("slant width", 0.016, 0.04),
        tone=traits.pick("slant tone", ("dark", "pale", "dark", "shade")),
        tilt=traits.between("slant tilt", -0.5, -0.2),
        wave=traits.pick("slant wave", ("straight", "wavy", "straight", "scalloped")),
        amplitude=0.02,
    )
    return Pattern(
        bands=(slant,),
        streaks=streaks,
        streak_tone=traits.pick("streak tone", ("dark", "pale", "shade", "dark")),
        spots=(_discal(traits, size=0.035),),
        mottle=0.3,
    )


def plain(traits: Traits) -> Pattern:
    """One clear color, one or two fine lines and a discal spot."""
    tone = traits.shared_pick("plain tone", ("pale", "dark"))
    lines = [_line(traits, "outer", 0.6, 0.8, tone=tone)]
    if traits.pick("second line", (True, False, True, False)):
        lines.append(_line(traits, "inner", 0.26, 0.42, tone=tone))
    tone = traits.pick("discal tone", ("pale", "dark", "accent", "dark"))
    return Pattern(bands=tuple(lines), spots=(_discal(traits, tone=tone, size=0.045),), mottle=0.15)


def marbled(traits: Traits) -> Pattern:
    """Cross lines on a clouded ground with a bright discal mark and a shaded field."""
    field = Band(
        place=traits.between("field place", 0.3, 0.72),
        width=traits.between("field width", 0.05, 0.11),
        tone=traits.pick("field tone", ("dark", "shade", "pale", "shade")),
        tilt=traits.between("field tilt", -0.2, 0.2),
        strength=0.6,
    )
    lines = (_line(traits, "inner", 0.24, 0.38), _line(traits, "outer", 0.66, 0.82))
    return Pattern(
        bands=(field, *lines),
        spots=(_discal(traits, tone=traits.pick("discal tone", ("white", "pale", "accent"))),),
        mottle=0.9,
    )


def windowed(traits: Traits) -> Pattern:
    """Clear membrane between dark veins, crossed by one bar."""
    bar = Band(
        place=traits.between("bar place", 0.46, 0.66),
        width=traits.between("bar width", 0.025, 0.06),
        tone=traits.pick("bar tone", ("dark", "accent", "dark", "ground")),
        tilt=traits.between("bar tilt", -0.12, 0.12),
        strength=1.0,
    )
    return Pattern(
        bands=(bar,),
        window=traits.between("window", 0.7, 0.88),
        veins=0.9,
        vein_tone="dark",
        mottle=0.1,
    )


PATTERNS: dict[str, Callable[[Traits], Pattern]] = {
    "banded": banded,
    "eyespotted": eyespotted,
    "speckled": speckled,
    "blotched": blotched,
    "striped": striped,
    "plain": plain,
    "marbled": marbled,
    "windowed": windowed,
}


def fore_pattern(traits: Traits, kind: str) -> Pattern:
    """A forewing of that kind with the finishing touches."""
    return _finish(traits, PATTERNS[kind](traits))


def hind_pattern(traits: Traits, kind: str, fore: Pattern, *, similar: bool) -> Pattern:
    """A hindwing that goes with that forewing: its lines go on, or it has a border of its own."""
    finish = replace(Pattern(), fringe=fore.fringe, veins=0.7 * fore.veins, mottle=0.15)
    if kind == "windowed":
        return replace(finish, window=fore.window, veins=0.8, vein_tone="dark")
    if similar:
        lines = tuple(
            replace(band, place=min(band.place - 0.04, 0.9), tilt=0.3 * band.tilt)
            for band in fore.bands[:3]
        )
        eyes = tuple(
            replace(eye, along=eye.along - 0.02, size=eye.size * scale)
            for eye in fore.eyespots
            for scale in traits.pick("hind eye", ((1.0,), (1.3,), (0.75,), ()))
        )
        spots = fore.spots[-1:] if traits.pick("hind discal", (True, False)) else ()
        edge_spots = fore.edge_spots
        return replace(
            finish,
            bands=lines,
            eyespots=eyes,
            spots=spots,
            edge_spots=edge_spots,
            mottle=fore.mottle,
        )
    bands: tuple[Band, ...] = ()
    if traits.pick("hind band", (True, False, True, False)):
        bands = (replace(_line(traits, "hind", 0.42, 0.62), width=0.045, wave="wavy"),)
    edge = traits.pick("hind edge", (0.2, 0.0, 0.12, 0.28))
    return replace(finish, bands=bands, edge=edge)
