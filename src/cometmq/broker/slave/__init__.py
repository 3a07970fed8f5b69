"""What is different at a broker that is a slave."""
