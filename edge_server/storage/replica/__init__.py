"""A copy of a run folder that follows it: changes of the journal, files by digest."""
