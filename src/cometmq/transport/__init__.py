"""Connections over asyncio: framing, requests and answers, TLS, limits.

It knows commands but none of their codes: what they mean is the business of those who register
handlers.
"""
