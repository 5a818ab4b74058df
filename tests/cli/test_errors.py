"""The exit codes that all commands share."""

import pytest
import typer

from kinspace.cli.errors import user_errors


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("expected a folder"), 2, "expected a folder"),
        (OSError(28, "No space left on device", "table.npz"), 1, "table.npz: No space left"),
        (OSError("the disk failed"), 1, "the disk failed"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues"),
    ],
    ids=["invalid input", "disk, with its file", "disk", "Ctrl-C"],
)
def test_an_error_is_a_line_on_stderr_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(typer.Exit) as exited,
        user_errors(interrupted="interrupted; the same command continues"),
    ):
        raise error
    assert exited.value.exit_code == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="a defect"), user_errors():
        raise RuntimeError("a defect")
