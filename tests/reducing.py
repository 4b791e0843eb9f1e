"""A worker that adds up integers and leaves what its process holds afterwards."""

import torch


def leave_with_the_sum(group, folder):
    """Add 3 and 4 in every coordinate, twice, and write what is left on this process."""
    totals = torch.full((2, 4096), 3 + group.rank, dtype=torch.int64)
    for total in totals:
        group.sum_to_leader_(total)
    torch.save(totals, folder / f"{group.rank}.pt")
