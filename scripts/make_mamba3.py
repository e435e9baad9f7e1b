#!/usr/bin/env python3
"""Writes crates/vim-kernels/tests/fixtures/mamba3.npz: Mamba-3's recurrence, in NumPy.

    python scripts/make_mamba3.py

Written from the paper (arXiv 2603.15569, the exponential-trapezoidal rule), with lambda = 1/2: the
recurrence h[t] = alpha h[t-1] + beta B[t-1] x[t-1] + gamma B[t] x[t] with alpha = exp(delta A),
beta = (1 - lambda) delta alpha, gamma = lambda delta; and the same as the paper's mask, a decay
matrix times a matrix of two bands, against which this file checks it.
"""

from pathlib import Path

import numpy as np

LAMBDA = 0.5
LEN, CHANNELS, STATES = 23, 3, 4


def recurrence(x, delta, a, b, c):
    h = np.zeros((CHANNELS, STATES))
    before = np.zeros((CHANNELS, STATES))
    y = np.zeros((LEN, CHANNELS))
    for t in range(LEN):
        alpha = np.exp(delta[t][:, None] * a)
        beta = (1 - LAMBDA) * delta[t][:, None] * alpha
        gamma = LAMBDA * delta[t][:, None]
        now = x[t][:, None] * b[t][None, :]
        h = alpha * h + beta * before + gamma * now
        before = now
        y[t] = h @ c[t]
    return y, h


def masked(x, delta, a, b, c):
    y = np.zeros((LEN, CHANNELS))
    for i in range(CHANNELS):
        for n in range(STATES):
            exponents = np.cumsum(delta[:, i] * a[i, n])
            decay = np.tril(np.exp(np.tril(exponents[:, None] - exponents[None, :])))
            bands = np.diag(LAMBDA * delta[:, i])
            beta = (1 - LAMBDA) * delta[1:, i] * np.exp(delta[1:, i] * a[i, n])
            bands += np.diag(beta, -1)
            y[:, i] += c[:, n] * (decay @ bands @ (b[:, n] * x[:, i]))
    return y


def main():
    random = np.random.default_rng(3)
    x = random.standard_normal((LEN, CHANNELS))
    delta = np.log1p(np.exp(random.standard_normal((LEN, CHANNELS)) - 1))
    a = -np.exp(random.standard_normal((CHANNELS, STATES)))
    b, c = random.standard_normal((2, LEN, STATES))
    y, last_state = recurrence(x, delta, a, b, c)
    assert np.abs(y - masked(x, delta, a, b, c)).max() < 1e-13 * np.abs(y).max() * LEN
    folder = Path(__file__).resolve().parents[1] / "crates/vim-kernels/tests/fixtures"
    np.savez(folder / "mamba3.npz", x=x, delta=delta, A=a, B=b, C=c, y=y, last_state=last_state)


if __name__ == "__main__":
    main()
