"""The command line in this process."""

from typer.testing import CliRunner

from kinspace.cli import app


def run(*arguments: object, code: int = 0) -> str:
    """What a command prints on stdout and stderr; an assertion that it exits with the code."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output
