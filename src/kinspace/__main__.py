"""The command line as `python -m kinspace`."""

from kinspace.cli import main

if __name__ == "__main__":
    main()
