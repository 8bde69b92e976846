"""plot: pictures, one file each. Every function takes data and an `ax`, draws what they say, and returns the `ax`."""
from .choices import plot_choices as plot_choices
from .grid import plot_grid as plot_grid
from .listing import plot_listing as plot_listing
from .look import PALETTE as PALETTE
from .roofline import plot_roofline as plot_roofline
from .slots import plot_slots as plot_slots
from .sweep import plot_sweep as plot_sweep
from .timeline import plot_timeline as plot_timeline
