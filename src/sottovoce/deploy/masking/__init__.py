"""Secure aggregation of clipped integers: the server learns the sum of a cohort's updates, and no single one.

`masking_session.py` says what is agreed before a step, `masking_client.py` and `masking_server.py` are the two sides,
`wire.py` has their messages, `directory.py` who signs them, `ring.py` the arithmetic, `key_agreement.py` and
`shamir.py` the cryptography.
"""
