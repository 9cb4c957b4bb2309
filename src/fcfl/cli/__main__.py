"""``python -m fcfl.cli`` is ``fcfl``."""

from fcfl.cli import main

if __name__ == "__main__":
    main()
