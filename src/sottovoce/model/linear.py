"""Matrix products whose gradients go straight into the memory where they are collected.

PyTorch computes the gradient of a matrix as a new tensor and then adds it to the one it keeps. With tens of millions of
parameters and a user's small batches, these passes over memory take a tenth of the time on a CPU. Here the product
itself adds to the gradient, where `FlatModel` has said in which memory that is. Elsewhere this is PyTorch's own linear.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor
from torch.autograd.function import once_differentiable

_HOME = "gradient_home"


def set_gradient_home(parameter: Tensor, home: Tensor) -> None:
    """Say where the gradient of a parameter is to be collected."""
    setattr(parameter, _HOME, home)


def linear(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return x weight^T, plus `residual` if there is one; x is (places, channels)."""
    if x.device.type != "cpu":
        product = F.linear(x, weight)
        return product if residual is None else residual + product
    if not torch.is_grad_enabled():  # the same product, which an exporter can follow
        return _product(x, weight, residual)
    result: Tensor = _Linear.apply(x, weight, residual)  # type: ignore[no-untyped-call]  # untyped in torch
    return result


def _product(x: Tensor, weight: Tensor, residual: Tensor | None) -> Tensor:
    return x @ weight.t() if residual is None else torch.addmm(residual, x, weight.t())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, residual: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight  # the parameter itself, which knows its home
        return _product(x, weight, residual)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        of_x = grad @ ctx.weight if ctx.needs_input_grad[0] else None
        of_weight = _collect(ctx.weight, grad.t(), x) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, grad if ctx.needs_input_grad[2] else None


def _collect(parameter: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """Add left @ right to the gradient of a parameter; return it instead where the parameter has no home for it."""
    home: Tensor | None = getattr(parameter, _HOME, None)
    if home is None:
        return left @ right
    if parameter.grad is None:
        parameter.grad = torch.mm(left, right, out=home)
    else:
        parameter.grad.addmm_(left, right)
    return None
