"""A worker that adds up integers and leaves what its process holds afterwards."""

import torch

from sottovoce import distributed


def leave_with_the_sum(group, folder):
    """Add 3, 4, 5 and so on times the place of every coordinate, twice, and write what is left on this process.

    Do it as many processes would, then as a few.
    """
    distributed._PIECE = 1000
    for name, few in (("many", 1), ("few", 4)):
        distributed._FEW = few
        totals = torch.arange(1, 8193).view(2, 4096) * (3 + group.rank)
        for total in totals:
            group.sum_to_leader_(total)
        torch.save(totals, folder / f"{name}-{group.rank}.pt")
