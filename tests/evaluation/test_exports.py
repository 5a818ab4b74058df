"""What `kinspace.evaluation` exports, and what importing it loads."""

import subprocess
import sys

import kinspace.evaluation


def test_every_exported_name_exists() -> None:
    for name in kinspace.evaluation.__all__:
        assert getattr(kinspace.evaluation, name) is not None


def test_the_measures_do_not_import_training_or_the_report() -> None:
    code = (
        "import sys, kinspace.evaluation\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('kinspace.')}\n"
        "print(sorted(rooms & {'training', 'run', 'report', 'recipes', 'search'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
