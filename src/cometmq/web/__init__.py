"""What operators and their tools see of servers over HTTP: metrics, health, readiness."""
