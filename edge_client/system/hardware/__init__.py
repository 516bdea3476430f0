"""What the board says of itself: one small reader per source; nothing here raises."""
