"""Builders of mixed examples: mixup (Zhang et al. 2017) and MixMatch (Berthelot et al. 2019)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ns3l.draw import Draw
from ns3l.errors import is_number, is_whole
from ns3l.objective import Builder, Views
from ns3l.passes import Passes


@dataclass(frozen=True)
class MixMatch(Builder):
    """Guess labels by A augmentations, sharpen them, mix labeled and unlabeled examples (the paper's Section 2).

    λ ~ Beta(α, α) per example, λ' = max(λ, 1 − λ). The guess passes see the unlabeled examples alone and move nothing.
    """

    augmentations: int = 2
    temperature: float = 0.5
    alpha: float = 0.75

    def __post_init__(self) -> None:
        positive = all(is_number(value) and value > 0 for value in (self.temperature, self.alpha))
        if not positive or not is_whole(self.augmentations) or self.augmentations < 1:
            raise ValueError(f"MixMatch needs whole augmentations >= 1, temperature > 0 and alpha > 0, got {self}")

    @property
    def makes(self) -> tuple[str, ...]:
        """X′ and U′."""
        return ("mixed_labeled", "mixed_unlabeled")

    def __call__(self, passes: Passes) -> Views:
        """X′, U′ and their labels."""
        renders = [passes.render(f"guess_{a}") for a in range(self.augmentations)]
        views = [passes.unlabeled(render) for render in renders]
        guess = guessed(passes, views, self.temperature)
        labeled = renders[0][: passes.sizes["labeled"]]
        x, y = torch.cat([labeled, *views]), torch.cat([one_hot(passes, guess), *[guess] * self.augmentations])
        x, y = passes.compile(mixed)(passes.draw.stream("mixmatch"), self.alpha, x, y)
        sizes = [len(labeled), len(x) - len(labeled)]
        return Views(
            dict(zip(self.makes, x.split(sizes), strict=True)), dict(zip(self.makes, y.split(sizes), strict=True))
        )


@dataclass(frozen=True)
class Mixup(Builder):
    """Mix labeled examples among themselves, and unlabeled ones with their own predictions among themselves.

    The predictions come from a joint pass that moves nothing.
    """

    alpha: float = 0.75

    def __post_init__(self) -> None:
        if not is_number(self.alpha) or self.alpha <= 0:
            raise ValueError(f"mixup needs alpha > 0, got {self.alpha}")

    @property
    def makes(self) -> tuple[str, ...]:
        """The mixed labeled and the mixed unlabeled examples."""
        return ("mixed_labeled", "mixed_unlabeled")

    def __call__(self, passes: Passes) -> Views:
        """Both mixed parts and their labels."""
        render = passes.render("first")
        labeled, unlabeled = render.split(list(passes.sizes.values()))
        with torch.no_grad():
            guess = passes.unlabeled(passes.run(render)).softmax(1)
        x, y = {}, {}
        parts = [(labeled, one_hot(passes, guess)), (unlabeled, guess)]
        for view, (inputs, targets) in zip(self.makes, parts, strict=True):
            draw = passes.draw.stream(f"mixup/{view}")
            x[view], y[view] = passes.compile(mixed)(draw, self.alpha, inputs, targets)
        return Views(x, y)


BUILDERS: dict[str, type[Builder]] = {"mixup": Mixup, "mixmatch": MixMatch}


def guessed(passes: Passes, views: list[Tensor], temperature: float) -> Tensor:
    """The mean prediction over renderings of the unlabeled examples, sharpened; without gradient."""
    with torch.no_grad():
        return passes.compile(_agreed)([passes.run(x) for x in views], temperature)


def _agreed(logits: list[Tensor], temperature: float) -> Tensor:
    return sharpen(torch.stack([part.softmax(1) for part in logits]).mean(0), temperature)


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Sharpen(p, E)ₖ = pₖ^(1/E) / Σⱼ pⱼ^(1/E)."""
    return (p.log() / temperature).softmax(1)


def mixed(draw: Draw, alpha: float, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Each row mixed with another one, drawn without repetition."""
    partner = draw.stream("partner").alone().permutation(len(x))
    return mix(x, y, shares(draw, alpha, len(x)), partner)


def shares(draw: Draw, alpha: float, rows: int) -> Tensor:
    """λ' = max(λ, 1 − λ), λ ~ Beta(α, α), one for every row."""
    share = draw.stream("share").rows(rows).beta(alpha, rows)
    return torch.maximum(share, 1 - share)


def mix(x: Tensor, y: Tensor, share: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
    """λ' x₁ + (1 − λ') x₂ and the same of the labels."""
    wide = share.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1))
    return torch.lerp(x[partner], x, wide), torch.lerp(y[partner], y, share.to(y.dtype)[:, None])


def one_hot(passes: Passes, like: Tensor) -> Tensor:
    """The labels of the labeled rows as distributions."""
    return F.one_hot(passes.batch.y["labeled"], like.shape[1]).to(like.dtype)
