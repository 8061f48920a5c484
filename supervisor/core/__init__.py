"""The pure part: no I/O, no async, no clock (`now` is an argument). Everything here can be tested as a table."""
