"""Updates of the client itself: installed next to the running one, checked, switched to, watched."""
