"""The device runtime: the process that takes tasks from a server and does them."""
