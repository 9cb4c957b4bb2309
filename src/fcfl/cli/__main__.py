"""Run the command line with ``python -m fcfl.cli``."""

from fcfl.cli import main

if __name__ == "__main__":
    main()
