"""The loop that one writes by hand, to be timed beside the engine: plain, eager, with `torch.optim.Adam`.

The same network, passes and augmentation as ours, by method; the default generator of random numbers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ns3l.shared import Plan, Shared


class Plain:
    """A plain eager loop of one method."""

    def __init__(self, method: str, shared: Shared, plan: Plan, precision: torch.dtype | None):
        self.method, self.precision, device = method, precision, shared.device
        self.batch, self.classes = plan.recipe.batch, plan.recipe.classes
        self.x = torch.from_numpy(shared.data.x).to(device)
        self.y = torch.from_numpy(shared.data.y).to(device)
        self.labeled, self.pool = (torch.from_numpy(i).to(device) for i in (plan.split.labeled, plan.split.unlabeled))
        self.preprocess = shared.preprocess(plan.recipe)
        torch.manual_seed(0)
        self.model = plan.recipe.network_for(shared.data.x.shape[1:]).to(device).train()
        self.norms = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-4)

    def step(self) -> None:
        """Draw, forward, backward, update."""
        both = self.method != "supervised"
        xl, y = self.drawn(self.labeled, self.batch.labeled)
        xu = self.drawn(self.pool, self.batch.unlabeled)[0] if both else None
        with torch.autocast(xl.device.type, self.precision, enabled=self.precision is not None):
            loss = self.mixmatch(xl, y, xu) if "mixmatch" in self.method else self.loss(xl, y, xu)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def drawn(self, members: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Random examples, preprocessed."""
        index = members[torch.randint(len(members), (n,), device=members.device)]
        return self.preprocess(self.x[index]), self.y[index]

    def augment(self, x: Tensor) -> Tensor:
        """Shift (flip, noise), or noise."""
        if x.dim() == 2:
            return x + 0.1 * torch.randn_like(x)
        n, c, h, w = x.shape
        by = 2 if h == 32 else 1
        move = torch.randint(0, 2 * by + 1, (2, n, 1), device=x.device)
        rows, columns = (torch.arange(side, device=x.device) + m for side, m in zip((h, w), move, strict=True))
        padded = F.pad(x, (by, by, by, by), mode="reflect")
        x = padded.gather(2, rows[:, None, :, None].expand(n, c, h, w + 2 * by))
        x = x.gather(3, columns[:, None, None, :].expand(n, c, h, w))
        if h == 32:
            x = torch.where(torch.rand(n, 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
            x = x + 0.15 * torch.randn_like(x)
        return x

    @contextmanager
    def still(self) -> Iterator[None]:
        """No running statistics move."""
        for norm in self.norms:
            norm.track_running_stats = False
        yield
        for norm in self.norms:
            norm.track_running_stats = True

    def again(self, x: Tensor) -> Tensor:
        """A further pass."""
        with self.still():
            return self.model(x)

    def loss(self, xl: Tensor, y: Tensor, xu: Tensor | None) -> Tensor:
        """Cross-entropy, and by name what comes on top."""
        x, n = xl if xu is None else torch.cat([xl, xu]), len(xl)
        logits = self.model(self.augment(x))
        loss = F.cross_entropy(logits[:n], y)
        if "ns3l" in self.method:
            one = "one-pass" in self.method
            loss = loss + ns3l(logits[n:] if one else self.again(self.augment(x))[n:], logits[n:], self.classes)
        if self.method == "pi":
            target = self.again(self.augment(x))[n:].softmax(1).detach()
            loss = loss + F.mse_loss(logits[n:].softmax(1), target)
        return loss + self.vat(x, logits.detach())[n:].mean() if "vat" in self.method else loss

    def vat(self, x: Tensor, clean: Tensor) -> Tensor:
        """Probe and adversarial pass."""
        r = unit(torch.randn_like(x)).mul_(0.1).requires_grad_()
        probe = divergence(self.again(self.augment(x + r)), clean).sum()
        r = unit(torch.autograd.grad(probe, r)[0])
        return divergence(self.again(self.augment(x + 6 * r)), clean)

    def mixmatch(self, xl: Tensor, y: Tensor, xu: Tensor | None) -> Tensor:
        """Guess, sharpen, mix, three interleaved passes."""
        n, views = len(xl), [self.augment(torch.cat([xl, xu])) for _ in range(2)]
        with torch.no_grad():
            p = sum(self.again(v[n:]).softmax(1) for v in views) / 2
            p = p**2 / (p**2).sum(1, keepdim=True)
        x = torch.cat([views[0][:n], views[0][n:], views[1][n:]])
        targets = torch.cat([F.one_hot(y, self.classes).to(p.dtype), p, p])
        share = torch.from_numpy(np.random.beta(0.75, 0.75, len(x)).astype(np.float32)).to(x.device)  # noqa: NPY002
        share, partner = torch.maximum(share, 1 - share), torch.randperm(len(x), device=x.device)
        x = share.view(-1, *[1] * (x.dim() - 1)) * x + (1 - share).view(-1, *[1] * (x.dim() - 1)) * x[partner]
        targets = share[:, None] * targets + (1 - share)[:, None] * targets[partner]
        parts = [self.model(x[0::3]), self.again(x[1::3]), self.again(x[2::3])]
        logits = torch.stack(parts, 1).flatten(0, 1)
        loss = F.cross_entropy(logits[:n], targets[:n]) + F.mse_loss(logits[n:].softmax(1), targets[n:])
        return loss + (ns3l(logits, targets.log(), self.classes) if "ns3l" in self.method else 0)


def ns3l(scored: Tensor, chooser: Tensor, classes: int) -> Tensor:
    """-log(1 - sum of the improbable), as one writes it first."""
    negative = chooser.detach().softmax(1) < 0.4 / classes
    return -torch.log1p(-(scored.float().softmax(1) * negative).sum(1).clamp(max=1 - 1e-6)).mean()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) by row."""
    p, q = p.float().log_softmax(1), q.float().log_softmax(1)
    return (p.exp() * (p - q)).sum(1)


def unit(x: Tensor) -> Tensor:
    """Rows of norm 1."""
    return x / (x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1)) + 1e-12)
