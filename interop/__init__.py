"""Real Apache RocketMQ as a test peer.

`toolchain` resolves and compiles, `rocketmq` starts servers and the Java peer, the tests here
compare what the two sides say. Nothing in `src/` imports this package.
"""
