"""A worker that adds up integers and leaves what its process holds afterwards."""

import torch

from sottovoce import distributed


def leave_with_the_sum(group, folder, few):
    """Add 3, 4, 5 and so on times the place of every coordinate, twice, and write what is left on this process."""
    distributed._FEW, distributed._PIECE = few, 1000
    totals = torch.arange(1, 8193).view(2, 4096) * (3 + group.rank)
    for total in totals:
        group.sum_to_leader_(total)
    torch.save(totals, folder / f"{group.rank}.pt")
