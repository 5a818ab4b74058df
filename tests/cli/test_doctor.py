"""kinspace doctor: what it looks at, and what it says where something is missing."""

import json

import pytest

import kinspace.environment
from command_line import run
from kinspace.environment import Part, inspect_environment


def test_every_line_begins_with_its_mark_and_the_self_test_searches() -> None:
    said = run("doctor").splitlines()
    assert said[-1] == "kinspace works here"
    assert all(line[:4] in ("ok  ", "--  ") for line in said[:-1])
    for text in ("versions, torch: ", "devices, CPU: ", "extras, onnx: ", "self-test, train and"):
        assert any(text in line for line in said), text


def test_as_json_it_says_the_same() -> None:
    found = json.loads(run("doctor", "--json", "--no-self-test"))
    assert found["ok"]
    groups = {part["group"] for part in found["parts"]}
    assert groups == {"versions", "devices", "extras", "weights"}


def test_an_older_package_is_wrong_and_a_missing_extra_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        kinspace.environment,
        "_requirements",
        lambda: {None: [("torch", "99.1")], "moon": [("no-such-package", "1.0")]},
    )
    found = inspect_environment(self_test=False)
    assert not found.ok
    torch, moon = (
        next(part for part in found.parts if part.name == name) for name in ("torch", "moon")
    )
    assert (torch.state, torch.advice) == ("bad", "pip install 'torch>=99.1'")
    assert (moon.state, moon.advice) == ("missing", "pip install 'kinspace[moon]'")
    assert "something is wrong" in run("doctor", "--no-self-test", code=1)


def test_a_self_test_that_fails_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinspace.environment.QUICK, "schedule.steps", -1)
    (part,) = kinspace.environment._self_test()
    assert isinstance(part, Part)
    assert part.state == "bad"
    assert "\n" not in part.found
