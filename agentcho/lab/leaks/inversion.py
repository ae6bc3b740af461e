"""Inversion attack: a small transformer that is trained to write out a secret, symbol by symbol, from keys and values.

Each token of each kept layer is projected to one vector; the decoder attends to these while it writes. It is tested on
secrets that it has never written. Independent of engines.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from agentcho.lab.leaks.guesses import SHARPNESS, Case, Guess, Scores, doubt, log_probabilities
from agentcho.lab.leaks.probes import fit
from agentcho.lab.leaks.secrets import Symbols

WIDTH = 96
HEADS = 4
DEPTH = 2
STEPS = 1200


class Writer(nn.Module):
    """Writes `slots` symbols of `options` each, from scaled keys and values `[batch, layers, tokens, width]`."""

    def __init__(self, layers: int, tokens: int, width: int, slots: int, options: int) -> None:
        super().__init__()
        self.project = nn.ModuleList([nn.Linear(width, WIDTH) for _ in range(layers)])
        self.token = nn.Parameter(torch.randn(tokens, WIDTH) * 0.02)
        self.symbol = nn.Embedding(slots * options + 1, WIDTH)
        self.place = nn.Parameter(torch.randn(slots, WIDTH) * 0.02)
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.1, batch_first=True, norm_first=True)
        self.decode = nn.TransformerDecoder(layer, DEPTH)
        self.out = nn.Linear(WIDTH, options)
        self.slots, self.options = slots, options

    def remembered(self, vectors: Tensor) -> Tensor:
        """The memory to attend to: `[batch, layers * tokens, WIDTH]`."""
        parts = [project(vectors[:, layer]) + self.token for layer, project in enumerate(self.project)]
        return torch.cat(parts, dim=1)

    def written(self, memory: Tensor, unseen: Tensor, symbols: Tensor) -> Tensor:
        """Scores of the next symbol, `[batch, symbols + 1, options]`, after `symbols` `[batch, some]`."""
        places = torch.arange(symbols.shape[1]) * self.options
        begun = torch.full((len(memory), 1), self.slots * self.options)
        words = self.symbol(torch.cat([begun, symbols + places], dim=1)) + self.place[: symbols.shape[1] + 1]
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        told = self.decode(words, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=unseen)
        found: Tensor = self.out(told)
        return found


class _Given:
    """The vectors seen, standardized by those trained on, and a mask of positions without a token."""

    def __init__(self, case: Case) -> None:
        known = case.seen.vectors[case.split.train]
        middle = known.mean(axis=0, keepdims=True)
        spread = known.std(axis=0, keepdims=True)
        self.middle = torch.from_numpy(middle)
        self.scale = torch.from_numpy(np.where(spread > 1e-7, 1 / np.maximum(spread, 1e-7), 0).astype(np.float32))
        self.vectors = torch.from_numpy(case.seen.vectors)
        tokens = np.arange(case.seen.vectors.shape[2])
        absent = torch.from_numpy(tokens >= case.seen.lengths[:, None])
        self.unseen = absent.repeat(1, case.seen.vectors.shape[1])
        self.symbols = torch.from_numpy(case.symbols)

    def of(self, net: Writer, rows: Tensor) -> tuple[Tensor, Tensor]:
        return net.remembered((self.vectors[rows] - self.middle) * self.scale), self.unseen[rows]


def inversion(case: Case) -> Guess:
    """Train with teacher forcing until the checked secrets stop improving, then decode the tested ones."""
    kind, given = case.scene.kind, _Given(case)
    train, check, test = (torch.from_numpy(part) for part in case.split)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        _, layers, tokens, width = case.seen.vectors.shape
        net = Writer(layers=layers, tokens=tokens, width=width, slots=len(kind.slots), options=kind.options)

        def loss(rows: Tensor) -> Tensor:
            scores = net.written(*given.of(net, rows), given.symbols[rows, :-1])
            return cross_entropy(scores.reshape(-1, kind.options), given.symbols[rows].reshape(-1))

        def checked() -> Tensor:
            case.told("inversion trained")
            return loss(check)

        fit(net=net, count=len(train), loss=lambda rows: loss(train[rows]), checked=checked, steps=STEPS)
    with torch.no_grad():
        sharpness, left = _sharpness(_forced(net, given, check), case.of(case.split.check)), doubt(len(check))
        cost = _cost(_forced(net, given, test), case.of(case.split.test), sharpness, left)
        return case.guess(_greedy(net, given, test), -cost / np.log(2), f"{len(case.seen.layers)} layers")


def _forced(net: Writer, given: _Given, rows: Tensor) -> Scores:
    """Scores `[rows, slots, options]` of each symbol, given the right ones before it."""
    parts = [net.written(*given.of(net, some), given.symbols[some, :-1]) for some in torch.split(rows, 256)]
    found: Scores = torch.cat(parts).double().numpy()
    return found


def _greedy(net: Writer, given: _Given, rows: Tensor) -> Symbols:
    """The greedily decoded symbols, `[rows, slots]`."""
    found = []
    for some in torch.split(rows, 256):
        memory, unseen = given.of(net, some)
        symbols = torch.zeros(len(some), 0, dtype=torch.long)
        for _ in range(net.slots):
            symbols = torch.cat([symbols, net.written(memory, unseen, symbols)[:, -1:].argmax(-1)], dim=1)
        found.append(symbols)
    return torch.cat(found).numpy()


def _cost(scores: Scores, truth: Symbols, sharpness: float, left: float) -> Scores:
    """The cost of each whole secret, in nats."""
    flat = log_probabilities(scores.reshape(-1, scores.shape[-1]), sharpness, left)
    own = flat[np.arange(truth.size), truth.reshape(-1)].reshape(truth.shape)
    found: Scores = -own.sum(axis=1)
    return found


def _sharpness(scores: Scores, truth: Symbols) -> float:
    costs = [float(_cost(scores, truth, each, doubt(len(truth))).mean()) for each in SHARPNESS]
    return float(SHARPNESS[int(np.argmin(costs))])
