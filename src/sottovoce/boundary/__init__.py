"""The boundary around the guarantee: what may leave a run's folder, and a test of it.

    publish       `publish` exports what the guarantee covers; `public_files` is the list of it, `scan.py` a last check
    neighbours    `neighbours` makes a run with and without one user and compares everything that is public

`privacy/run_files.py` says on which side of the boundary every file of a run is.
"""
