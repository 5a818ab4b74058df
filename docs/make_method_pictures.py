"""Draw docs/methods/NAME.svg: what a method does to points in the plane.

The real module runs by gradient descent on the points themselves, alone, with its default options.
Four classes of eight points start mixed. Methods of unit vectors start on a circle and stay on one;
the circle is drawn the larger the later it is, so that time runs outward. A method that looks at
centers has eight of them; one of two tables has two points a row; one of learners has two groups of
two dimensions, each drawn by itself.

    python docs/make_method_pictures.py            # every method
    python docs/make_method_pictures.py nra magnet
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from kinspace.losses import LOSSES, PAIRED_LOSSES
from kinspace.regularizers import REGULARIZERS

Call = Callable[[Tensor], tuple[Tensor, ...]]
FOLDER = Path(__file__).with_name("methods")
REGISTRIES: dict[str, type[nn.Module]] = {**LOSSES, **PAIRED_LOSSES, **REGULARIZERS}
# Meant for embeddings of any length, or clearer there; all others are of unit vectors.
IN_THE_PLANE = {
    *("almn", "fixed_margin", "center", "ncm", "softmax", "sphereface"),
    *("n_pair", "nra", "magnet", "cluster_nca", "nca", "contrastive", "triplet"),
    *("lifted_structure", "clustering", "barlow_twins", "vicreg"),
    *("relational_distance", "relational_angle"),
}
WITH_TEACHER = {"relational_distance", "relational_angle"}
CLASSES, SAMPLES, ROWS = 4, 8, 12
STEPS, LARGEST_STEP, FIRST_STEP = 200, 0.05, 0.02
DRAWN = 14  # positions of a path that are drawn
SIZE = 320.0
INNER = 0.55  # radius of the first circle; the last has 1
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")


@dataclass
class Paths:
    """Positions over time of the points, the parameters in the plane and what stays in place."""

    colors: Tensor  # of each point, an index
    points: list[Tensor] = field(default_factory=list)  # (points, dim) a step
    proxies: list[Tensor] = field(default_factory=list)  # (proxies, dim) a step
    proxy_colors: Tensor | None = None
    fixed: Tensor | None = None
    second: int = 0  # from this point on they belong to the second table


def follow(name: str) -> Paths:
    """Let a method move points for STEPS steps."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module = _module(name)
    learners = "groups" in inspect.signature(REGISTRIES[name]).parameters
    points, paths, arguments = _start(name, learners, generator)
    proxies, others = _parameters(module)
    scale: float | None = None
    for _ in range(STEPS + 1):
        given = _normalized(name, points, learners).requires_grad_()
        paths.points.append(given.detach().clone())
        if proxies is not None or hasattr(module, "class_centers"):
            _remember_proxies(name, module, proxies, paths)
        loss = module(*arguments(given))
        module.zero_grad()
        loss.backward()
        assert given.grad is not None
        gradient = given.grad
        if scale is None:
            scale = FIRST_STEP / max(float(gradient.norm(dim=1).mean()), 1e-12)
        points = given.detach() - _limited(scale * gradient)
        with torch.no_grad():
            for parameter in [*([] if proxies is None else [proxies]), *others]:
                if parameter.grad is not None:
                    rows = parameter.grad.reshape(-1, parameter.shape[-1] if parameter.dim() else 1)
                    parameter -= _limited(scale * rows).view_as(parameter)
    return paths


def _module(name: str) -> nn.Module:
    sizes: dict[str, object] = {"num_classes": CLASSES, "dim": 2, "groups": 2, "centers": 2}
    if name == "adversarial":
        sizes |= {"dim": 4, "width": 8}
    if name == "hdc":
        sizes["shares"] = (1.0, 0.5)
    accepted = inspect.signature(REGISTRIES[name]).parameters
    return REGISTRIES[name](**{key: value for key, value in sizes.items() if key in accepted})


def _start(name: str, learners: bool, generator: torch.Generator) -> tuple[Tensor, Paths, Call]:
    """Points, empty paths, and how the module is called on the points."""
    labels = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    takes = getattr(REGISTRIES[name], "takes", "embeddings")
    if name in PAIRED_LOSSES:
        first = 0.7 * torch.randn(ROWS, 2, generator=generator)
        second = first + 0.5 * torch.randn(ROWS, 2, generator=generator)
        colors = torch.arange(ROWS) % len(COLORS)
        if name in WITH_TEACHER:
            angle = torch.arange(ROWS) * 2 * torch.pi / ROWS
            teacher = torch.stack([angle.cos(), angle.sin()], dim=1)
            return first, Paths(colors, fixed=teacher), lambda x: (x, teacher)
        paths = Paths(colors.repeat(2), second=ROWS)
        return torch.cat([first, second]), paths, lambda x: x.chunk(2)
    if takes == "centers":
        angles = torch.rand(2 * CLASSES, generator=generator) * 2.4
        centers = torch.stack([angles.cos(), angles.sin()], dim=1)
        return centers, Paths(torch.arange(2 * CLASSES)), lambda x: (x, torch.arange(2 * CLASSES))
    angles = (torch.arange(CLASSES) * 2 * torch.pi / CLASSES).repeat_interleave(SAMPLES)
    angles = angles + 0.7 * torch.randn(len(angles), generator=generator)
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    if name in IN_THE_PLANE:
        points = points + 0.25 * torch.randn(points.shape, generator=generator)
    if learners:
        points = points.repeat(1, 2) + 0.2 * torch.randn(len(points), 4, generator=generator)
    if takes == "clusters":  # the two halves of each class are two clusters
        clusters = torch.arange(2 * CLASSES).repeat_interleave(SAMPLES // 2)
        points = points + torch.tensor([[0.9, 0.0]]) * (clusters % 2)[:, None]
        cluster_labels = torch.arange(CLASSES).repeat_interleave(2)
        return points, Paths(labels), lambda x: (x, labels, clusters, cluster_labels)
    return points, Paths(labels), lambda x: (x, labels)


def _parameters(module: nn.Module) -> tuple[Tensor | None, list[Tensor]]:
    """Parameters that are places in the plane, and the others."""
    places = None
    others = []
    for parameter in module.parameters():
        rows = parameter.dim() >= 2 and parameter.shape[-1] == 2 and len(parameter) == CLASSES
        if rows and places is None:
            places = parameter
        else:
            others.append(parameter)
    return places, others


def _remember_proxies(name: str, module: nn.Module, proxies: Tensor | None, paths: Paths) -> None:
    places = module.class_centers.centers if proxies is None else proxies  # type: ignore[union-attr]
    each = places.numel() // (2 * CLASSES)
    places = places.detach().reshape(-1, 2).clone()  # type: ignore[union-attr, operator]
    paths.proxy_colors = torch.arange(CLASSES).repeat_interleave(each)
    paths.proxies.append(_normalized(name, places, learners=False))


def _normalized(name: str, points: Tensor, learners: bool) -> Tensor:
    if name in IN_THE_PLANE:
        return points.detach().clone()
    groups = points.view(len(points), -1, 2) if learners else points[:, None]
    return nn.functional.normalize(groups, dim=2).reshape(points.shape).detach()


def _limited(steps: Tensor) -> Tensor:
    """No row moves farther than LARGEST_STEP."""
    lengths = steps.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return steps * (LARGEST_STEP / lengths).clamp_max(1)


def svg(name: str, paths: Paths) -> str:
    """The picture: a panel, or one for each learner."""
    panels = paths.points[0].shape[1] // 2
    width = SIZE * panels
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {SIZE:.0f}" '
        f'role="img" aria-label="{name} moves points in the plane">'
    ]
    for panel in range(panels):
        parts += _panel(name, paths, panel)
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, paths: Paths, panel: int) -> list[str]:
    columns = slice(2 * panel, 2 * panel + 2)
    points = torch.stack(paths.points)[:, :, columns]  # (steps, points, 2)
    proxies = torch.stack(paths.proxies)[:, :, columns] if paths.proxies else None
    on_circle = name not in IN_THE_PLANE
    if on_circle:  # time runs outward
        radius = torch.linspace(INNER, 1, len(points))[:, None, None]
        points, proxies = points * radius, None if proxies is None else proxies * radius
    shown = [t.reshape(-1, 2) for t in (points, proxies, paths.fixed) if t is not None]
    everything = torch.cat(shown)
    low, high = everything.min(0).values, everything.max(0).values
    if on_circle:
        low, high = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0])
    middle, scale = (low + high) / 2, (SIZE - 40) / float((high - low).max())
    shift = torch.tensor([SIZE * panel + SIZE / 2, SIZE / 2])

    def place(t: Tensor) -> Tensor:
        return (t - middle) * scale * torch.tensor([1.0, -1.0]) + shift

    parts = []
    if on_circle:
        x, y = place(torch.zeros(2)).tolist()
        parts += [
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius_of * scale:.0f}" fill="none" '
            'stroke="#888" stroke-opacity=".35"/>'
            for radius_of in (INNER, 1.0)
        ]
    if paths.fixed is not None:
        corners = " ".join(f"{x:.0f},{y:.0f}" for x, y in place(paths.fixed).tolist())
        parts.append(f'<polygon points="{corners}" fill="none" stroke="#888" stroke-opacity=".6"/>')
    parts += _trails(place(points), paths.colors, paths.second)
    if proxies is not None and paths.proxy_colors is not None:
        parts += _trails(place(proxies), paths.proxy_colors, 0, shape="diamond")
    return parts


def _trails(places: Tensor, colors: Tensor, second: int, shape: str = "circle") -> list[str]:
    """A line from start to end for each point, an open mark and a filled one."""
    times = torch.linspace(0, 1, DRAWN).square() * (len(places) - 1)  # denser at the start
    times = times.round().long().unique()
    parts = []
    for number, color in enumerate(colors.tolist()):
        kind = "square" if second and number >= second else shape
        path = [f"{x:.0f},{y:.0f}" for x, y in places[times, number].tolist()]
        path = [point for i, point in enumerate(path) if i == 0 or point != path[i - 1]]
        stroke = f'stroke="{COLORS[color]}"'
        if len(path) > 1:
            line = " ".join(path)
            parts.append(f'<polyline points="{line}" fill="none" {stroke} stroke-opacity=".4"/>')
        start, end = places[0, number].tolist(), places[-1, number].tolist()
        parts.append(_mark(kind, start, 2.5, f'fill="none" {stroke}'))
        parts.append(_mark(kind, end, 4.5, f'fill="{COLORS[color]}" stroke="#fff"'))
    return parts


def _mark(kind: str, place: list[float], size: float, style: str) -> str:
    x, y = place
    if kind == "circle":
        return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{size}" {style}/>'
    if kind == "square":
        corner = f'x="{x - size:.0f}" y="{y - size:.0f}"'
        return f'<rect {corner} width="{2 * size:.0f}" height="{2 * size:.0f}" {style}/>'
    size *= 1.9
    corners = ((x, y - size), (x + size, y), (x, y + size), (x - size, y))
    points = " ".join(f"{a:.0f},{b:.0f}" for a, b in corners)
    return f'<polygon points="{points}" {style}/>'


def main() -> None:
    """Draw the methods that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *REGISTRIES], metavar="NAME")
    FOLDER.mkdir(exist_ok=True)
    for name in parser.parse_args().names or REGISTRIES:
        (FOLDER / f"{name}.svg").write_text(svg(name, follow(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
