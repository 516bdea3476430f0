"""An algorithm as a frozen record of components, one per concept, and the pure functions that use it."""
