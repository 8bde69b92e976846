"""say: print for a notebook, whose page breaks long lines anywhere, in the middle of words too."""
import textwrap

WIDTH = 100  # letters; some more fit beside JupyterLab's list of files on a screen that is 1280 wide


def say(*what: object) -> None:
    """Prints like `print`; a line that is too long for the page is broken between words and goes on indented.

    >>> say("SpecError:", "a kernel returns nothing")
    SpecError: a kernel returns nothing
    """
    for line in " ".join(map(str, what)).splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        fits = len(line) <= WIDTH
        print(line if fits else textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False,
                                              break_on_hyphens=False))
