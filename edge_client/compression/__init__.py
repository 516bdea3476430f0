"""How updates and models are made small: pieces that a recipe names, and the one form that they give."""
