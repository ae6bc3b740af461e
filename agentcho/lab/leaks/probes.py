"""Probes: a linear classifier and a small network for each layer, trained to tell the symbols of a secret.

The layer and the strength of regularization are selected on secrets that are neither trained on nor tested. Independent
of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from agentcho.lab.leaks.guesses import Case, Guess, Scores, Sharpened, answered, by_slot, layers, one_hot, sharpened

RIDGES = (0.01, 0.1, 1.0, 10.0)
"""The ridge penalties of a linear probe, relative to the mean square of its features."""
PARTS = 192
"""The maximum of principal components that the network gets."""
STEPS, BATCH, RATE = 600, 64, 1e-3
"""The maximum of training batches, the samples per batch, and the learning rate."""


class Kernel(NamedTuple):
    """Inner products of samples: `train` with each other, `others` (checked, then tested) with those trained on."""

    train: Scores
    others: Scores
    checked: int


def kernel(case: Case, places: Sequence[int]) -> Kernel:
    """The kernel of some layers. Features are standardized over those trained on; each layer has equal weight."""
    train = np.zeros((len(case.split.train),) * 2)
    rest = np.concatenate([case.split.check, case.split.test])
    others = np.zeros((len(rest), len(train)))
    for place in places:
        features = case.seen.features(place).astype(np.float64)
        known, asked = features[case.split.train], features[rest]
        middle, spread = known.mean(axis=0), known.std(axis=0)
        spread[spread < 1e-9] = np.inf  # a feature that is the same for all secrets says nothing
        known, asked = (known - middle) / spread, (asked - middle) / spread
        size = max(float((known * known).sum(axis=1).mean()), 1e-12)
        train += known @ known.T / size
        others += asked @ known.T / size
    return Kernel(train / len(places), others / len(places), len(case.split.check))


def linear(case: Case) -> Guess:
    """Ridge regression on the symbols; the best layer is selected on secrets that are not tested."""
    target = one_hot(case, case.of(case.split.train))
    middle, truth = target.mean(axis=0), case.of(case.split.check)
    best: tuple[Sharpened, str, list[Scores]] | None = None
    for name, places in layers(case):
        found = kernel(case, places)
        values, basis = np.linalg.eigh(found.train)
        turned, across = basis.T @ (target - middle), found.others @ basis
        for ridge in RIDGES:
            scores = across @ (turned / (np.maximum(values, 0) + ridge)[:, None]) + middle
            check = by_slot(case, scores[: found.checked])
            sharp = sharpened(check, truth)
            if best is None or sharp.bits < best[0].bits:
                best = sharp, name, by_slot(case, scores[found.checked :])
        case.told(f"linear probe, {name}")
    assert best is not None
    return answered(case, best[2], best[0], best[1])


def mlp(case: Case) -> Guess:
    """A network of one hidden layer on principal components; the best layer is selected on secrets that are not
    tested."""
    truth = case.of(case.split.check)
    best: tuple[Sharpened, str, list[Scores]] | None = None
    for name, places in layers(case):
        found = kernel(case, places)
        scores = _trained(case, found)
        sharp = sharpened(by_slot(case, scores[: found.checked]), truth)
        if best is None or sharp.bits < best[0].bits:
            best = sharp, name, by_slot(case, scores[found.checked :])
        case.told(f"MLP probe, {name}")
    assert best is not None
    return answered(case, best[2], best[0], best[1])


def _components(found: Kernel) -> tuple[Tensor, Tensor]:
    """Principal components of those trained on, and of the others: at most `PARTS`, none without variance."""
    values, basis = np.linalg.eigh(found.train)
    kept = np.flatnonzero(values > 1e-9)[::-1][:PARTS]
    if not len(kept):
        kept = np.array([len(values) - 1])
    root = np.sqrt(np.maximum(values[kept], 1e-9))
    train, others = basis[:, kept] * root, found.others @ basis[:, kept] / root
    size = max(float(train.std()), 1e-9)
    return torch.from_numpy(train / size).float(), torch.from_numpy(others / size).float()


def _trained(case: Case, found: Kernel) -> Scores:
    """The scores of the checked and tested secrets, by the network that was best on the checked ones."""
    slots, options = len(case.scene.kind.slots), case.scene.kind.options
    truth = torch.from_numpy(case.of(case.split.train))
    checked = torch.from_numpy(case.of(case.split.check))
    train, others = _components(found)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        net = nn.Sequential(nn.Linear(train.shape[1], 256), nn.GELU(), nn.Dropout(0.3), nn.Linear(256, slots * options))

        def loss(rows: Tensor, symbols: Tensor) -> Tensor:
            return cross_entropy(net(rows).view(-1, options), symbols.reshape(-1))

        fit(net, len(train), lambda rows: loss(train[rows], truth[rows]), lambda: loss(others[: len(checked)], checked))
    with torch.no_grad():
        return net(others).double().numpy()  # type: ignore[no-any-return]


def fit(
    net: nn.Module,
    count: int,
    loss: Callable[[Tensor], Tensor],
    checked: Callable[[], Tensor],
    steps: int = STEPS,
) -> None:
    """Train a network on batches of `count` samples, given by index. Stops early when `checked` has not improved for a
    fifth of all epochs (at least five); the best state is restored."""
    maker = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.05)
    epochs = -(-steps // -(-count // BATCH))
    best = float("inf")
    kept = {name: each.clone() for name, each in net.state_dict().items()}
    since = 0
    for _ in range(epochs):
        net.train()
        for rows in torch.split(torch.randperm(count), BATCH):
            maker.zero_grad()
            loss(rows).backward()  # type: ignore[no-untyped-call]
            maker.step()
        net.eval()
        with torch.no_grad():
            now = float(checked())
        since = 0 if now < best else since + 1
        if now < best:
            best, kept = now, {name: each.clone() for name, each in net.state_dict().items()}
        if since >= max(5, epochs // 5):
            break
    net.load_state_dict(kept)
    net.eval()
