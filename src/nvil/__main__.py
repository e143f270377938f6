"""`python -m nvil` and the `nvil` command."""

from nvil.cli import main

if __name__ == "__main__":
    main()
