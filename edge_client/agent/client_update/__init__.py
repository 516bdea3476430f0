"""Updates of the client itself: installed beside the running one, checked, switched to, watched."""
