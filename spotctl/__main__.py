"""``python -m spotctl``: the command line."""

from spotctl.cli.app import main

if __name__ == "__main__":
    main()
