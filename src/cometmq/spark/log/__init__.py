"""`format("rocketmq-log")`: a broker's files read without a broker."""
