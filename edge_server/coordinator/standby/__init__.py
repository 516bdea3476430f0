"""A server and its standby: what happens on one is on the other before anybody hears of it."""
