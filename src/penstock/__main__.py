"""`python -m penstock`: the command line, wherever the command itself is not on the path."""

from penstock.cli.main import main

if __name__ == "__main__":
    main()
