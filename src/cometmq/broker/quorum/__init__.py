"""What is different at a broker that is a member of a Raft group."""
