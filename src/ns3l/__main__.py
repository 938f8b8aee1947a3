"""`python -m ns3l`: the command line, also under torchrun."""

from ns3l.cli import main

if __name__ == "__main__":
    main()
