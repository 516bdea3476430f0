"""An algorithm as a frozen record of pieces, one per concept, and the two pure functions that use it."""
