"""How an update is made small for its way up: pieces that a recipe names, and the one form that they give."""
