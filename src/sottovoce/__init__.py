"""Sottovoce: federated learning with user-level differential privacy for speech recognition."""
