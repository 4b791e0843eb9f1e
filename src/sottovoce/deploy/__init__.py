"""The same training on real clients: what they send, and how it is added up without reading anyone's update."""
