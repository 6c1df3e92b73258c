"""Run the command line as ``python -m resonax``."""

from resonax.cli.start import main

if __name__ == "__main__":
    main()
