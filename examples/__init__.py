"""Runnable examples; the tests run them."""
