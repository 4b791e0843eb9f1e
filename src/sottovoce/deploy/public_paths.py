"""The paths of the public socket, for both sides (`public_socket.py` says what is behind them)."""

FLEET, HELLO, ENROL = "/v1/fleet/", "/v1/sotto/hello", "/v1/sotto/enrol"
