"""Benchmarks: each program prints one JSON line a case; see report.py."""
