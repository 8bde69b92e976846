"""Where student code runs: how it is locked in and talked to; inside/ is all that it sees of us."""
