"""`python -m stanzaq`: the library's commands."""

from stanzaq.command.shell import main

if __name__ == "__main__":
    main()
