"""python -m kinspace: the command line."""

from kinspace.cli import main

if __name__ == "__main__":
    main()
