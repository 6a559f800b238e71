"""The facts of a host, each probe in a process of its own and within its time, and what the rules make of them."""
