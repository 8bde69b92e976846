"""What a picture shows, read back from its artists."""
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex


def boxes(ax):
    """Of each box: its corners and their first again, its colour, whether it is hatched. Those alike are one path."""
    found = []
    for c in ax.collections:
        if isinstance(c, PathCollection | PolyCollection):
            colours = [to_hex(colour).upper() for colour in c.get_facecolor()] or [None]
            for n, path in enumerate(c.get_paths()):
                found += [(corners, colours[n % len(colours)], c.get_hatch())
                          for corners in path.vertices.reshape(-1, 5, 2)]
    return found
