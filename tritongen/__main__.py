"""`python -m tritongen`: the command line."""

from tritongen.cli import main

if __name__ == "__main__":
    main()
