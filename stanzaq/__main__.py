"""`python -m stanzaq`: the library's commands."""

from stanzaq.shell import main

if __name__ == "__main__":
    main()
