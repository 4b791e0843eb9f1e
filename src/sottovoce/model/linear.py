"""Matrix products whose gradients go straight into the memory where they are collected.

PyTorch computes the gradient of a matrix as a new tensor and then adds it to the one it keeps. With tens of millions of
parameters and a user's small batches, these passes over memory take a tenth of the time on a CPU. Here the product
itself adds to the gradient, where `FlatModel` has said in which memory that is. Elsewhere this is PyTorch's own linear.

With an adapter (`adapters.py`) the product is that with the effective matrix W + scale B A, which takes less time to
make than two thin products with many places. The gradient of that matrix, g^T x, is never made: that of A is
(scale g B)^T x, that of B is g^T (scale x A^T), all of them thin.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn
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


def project(x: Tensor, layer: nn.Linear, residual: Tensor | None = None) -> Tensor:
    """Return what a linear layer without a bias, with or without an adapter, makes of x (places, channels)."""
    if isinstance(layer, AdaptedLinear):
        return layer.project(x, residual)
    return linear(x, layer.weight, residual)


class AdaptedLinear(nn.Linear):
    """A linear layer whose frozen matrix W counts as W + scale B A; `weight` is W."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        """Take the parameters of a layer, and begin with an adapter of zeros."""
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.scale = layer.in_features, layer.out_features, scale
        self.weight, self.bias = layer.weight, layer.bias
        self.weight.requires_grad_(False)
        self.a = nn.Parameter(self.weight.new_zeros(rank, self.in_features))
        self.b = nn.Parameter(self.weight.new_zeros(self.out_features, rank))

    def merged(self) -> Tensor:
        """Return the effective matrix."""
        return torch.addmm(self.weight, self.b, self.a, alpha=self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the product for x (..., channels), with the bias where there is one."""
        product = self.project(x.flatten(0, -2)).view(*x.shape[:-1], self.out_features)
        bias: Tensor | None = self.bias
        return product if bias is None else product + bias

    def project(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return the product for x (places, channels), plus `residual` if there is one."""
        if not torch.is_grad_enabled():
            return linear(x, self.merged(), residual)
        if x.device.type != "cpu":  # PyTorch differentiates it, in any precision, without the gradient of W
            thin = F.linear(F.linear(x, self.a), self.scale * self.b)
            return linear(x, self.weight, thin if residual is None else residual + thin)
        result: Tensor = _AdaptedLinear.apply(x, self.weight, self.a, self.b, self.scale, residual)  # type: ignore[no-untyped-call]
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


class _AdaptedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, a: Tensor, b: Tensor, scale: float, residual: Tensor | None
    ) -> Tensor:
        merged = torch.addmm(weight, b, a, alpha=scale)
        ctx.save_for_backward(x, merged)
        ctx.a, ctx.b, ctx.scale = a, b, scale  # the parameters themselves, which know their homes
        return _product(x, merged, residual)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, merged = ctx.saved_tensors
        of_x = grad @ merged if ctx.needs_input_grad[0] else None
        of_a = _collect(ctx.a, (grad @ ctx.b).mul_(ctx.scale).t(), x) if ctx.needs_input_grad[2] else None
        of_b = _collect(ctx.b, grad.t(), (x @ ctx.a.t()).mul_(ctx.scale)) if ctx.needs_input_grad[3] else None
        return of_x, None, of_a, of_b, None, grad if ctx.needs_input_grad[5] else None


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
