"""An HTTP server that answers at `/completion` like llama.cpp's, computed by transformers; it keeps its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import torch
from transformers import DynamicCache

from agentcho.lab.bench.peers.prefixes import taking


class Completing(ThreadingHTTPServer):
    """Serves greedy completions of a network, one request at a time."""

    def __init__(self, network: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Completed)
        self.network, self.lock = network, Lock()
        self.asked: list[dict[str, Any]] = []

    @torch.inference_mode()
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The likeliest tokens, with the fields of a real server's answer."""
        ids, said, steps = list(body["prompt"]), list[int](), list[dict[str, Any]]()
        fed, cache = ids, DynamicCache()
        for _ in range(body["n_predict"]):
            out = self.network(input_ids=torch.tensor([fed]), use_cache=True, **taking(self.network, cache))
            row = out.logits[0, -1].log_softmax(-1)
            best = row.topk(max(1, body.get("n_probs", 0)))
            said.append(int(best.indices[0]))
            likely = [{"id": int(id), "logprob": float(p)} for p, id in zip(*best, strict=True)]
            fed = said[-1:]
            steps.append({"id": said[-1], "top_logprobs": likely})
        times = {"prompt_n": len(ids), "cache_n": 0, "prompt_ms": 4.0, "predicted_ms": 2.0, "predicted_n": len(said)}
        return {"tokens": said, "completion_probabilities": steps, "timings": times}


class _Completed(BaseHTTPRequestHandler):
    server: Completing

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body)
            said = self.server.answer(body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def completing(network: Any) -> Iterator[Completing]:
    """A server that listens until the context ends."""
    server = Completing(network)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
