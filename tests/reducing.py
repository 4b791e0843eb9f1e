"""A worker that adds up integers and leaves what its process holds afterwards."""

import torch


def leave_with_the_sum(group, folder):
    """Add 3 and 4 in every coordinate, and write what is left on this process."""
    total = torch.full((4096,), 3 + group.rank, dtype=torch.int64)
    group.sum_to_leader_(total)
    torch.save(total, folder / f"{group.rank}.pt")
