"""For tests, ours and our users': parts of the system that can be made to fail on purpose."""
