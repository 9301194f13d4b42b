"""Compiled core of the particle engine: likelihood of one run and sequential Monte Carlo.

Parameters are whitened, z ~ N(0, I); `unpack` says what they mean, `from_coordinates` in which coordinates particles
move. No function here touches Python objects, so a fit releases the interpreter lock and threads share the cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import numpy as np
from numba import njit

from forecast.inference.run_prior import (
    BURR,
    COLLAPSE,
    EXPONENT,
    FLOOR,
    GAIN,
    MIDPOINT,
    NOISE,
    PERSISTENCE,
    POWER_LAW,
    SECOND_EXPONENT,
    SECOND_MIDPOINT,
    SECOND_RISE,
    SIZE,
    TAIL,
)


def _jit(inline: Literal["never", "always"]) -> Callable[[Callable[..., Any]], Any]:
    """Compile without the interpreter lock, and keep the code on disk where some folder can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        for cache in (True, False):
            with suppress(RuntimeError):  # no folder for the cache
                return njit(inline=inline, cache=cache, nogil=True, error_model="numpy")(function)
        raise AssertionError("not reached: without a cache nothing is written")

    return decorate


_compiled, _inlined = _jit("never"), _jit("always")
_LOG_2PI = math.log(2 * math.pi)
_LIMIT = 500.0  # as in forecast.curves.share: beyond it no digit of a pass rate changes
_FOLD = 12  # points between logarithms: a product of this many variances (1e-12 ... 1) stays a float
_TINY = 1e-12  # variance below the rounding of any logged value
_BLURRED = math.log(2.0)  # log sd at which evaluations, all within 0-1, say nothing yet
_SHARP = math.log(0.01)  # below it, it is tried at every step whether the rest of the blur matters
_SLACK = 0.15  # a step that keeps this much more than asked is too small
_TRIES = 8  # of a step
_ACCEPT = 0.28  # near the optimum of random-walk Metropolis in 5-10 dimensions
_DEGREES = 5.0  # of the Student-t that independence proposals are drawn from


@_inlined
def _logistic(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-min(x, _LIMIT)))
    e = math.exp(max(x, -_LIMIT))
    return e / (1.0 + e)


@_inlined
def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-min(abs(x), _LIMIT)))


@_compiled
def unpack(z: np.ndarray, family: int, prior: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
    """Turn one whitened vector into the parameters of a curve and its noise.

    Parameters
    ----------
    z : ndarray, shape (d,)
    family : int
        Number of the curve family.
    prior : ndarray, shape (d, 2)
        Mean and sd of each parameter before its transform (second midpoint: ends of its log range).
    start : ndarray, shape (5,)
        Whether the floor is known, its value, its standard error; the pass rate that guessing scores; the level that
        the run reached.
    out : ndarray, shape (d + 1,)
        Written: floor, ceiling, exponent, log midpoint, noise, persistence, then what the family adds; last the
        gain on the logit scale.
    """
    gain_logit = prior[GAIN, 0] + prior[GAIN, 1] * z[GAIN]
    gain = _logistic(gain_logit)
    if start[0] > 0:
        value, softness = start[1] + start[2] * z[FLOOR], start[2]
        value = softness * _softplus(value / softness)
        floor = 1.0 - softness * _softplus((1.0 - value) / softness)
    else:
        share = _logistic(prior[FLOOR, 0] + prior[FLOOR, 1] * z[FLOOR])
        chance = start[3]
        # floor = chance + share (ceiling - chance), solved with ceiling = floor + (1 - floor) gain.
        floor = (chance * (1.0 - share) + share * gain) / (1.0 - share * (1.0 - gain))
    ceiling = floor + (1.0 - floor) * gain
    out[FLOOR] = floor
    out[GAIN] = ceiling
    out[EXPONENT] = math.exp(prior[EXPONENT, 0] + prior[EXPONENT, 1] * z[EXPONENT])
    out[MIDPOINT] = prior[MIDPOINT, 0] + prior[MIDPOINT, 1] * z[MIDPOINT]
    out[NOISE] = math.exp(prior[NOISE, 0] + prior[NOISE, 1] * z[NOISE])
    out[PERSISTENCE] = _logistic(prior[PERSISTENCE, 0] + prior[PERSISTENCE, 1] * z[PERSISTENCE])
    if family == BURR:
        out[TAIL] = math.exp(prior[TAIL, 0] + prior[TAIL, 1] * z[TAIL])
    elif family in (SECOND_RISE, COLLAPSE):
        size = _logistic(prior[SIZE, 0] + prior[SIZE, 1] * z[SIZE])
        out[SIZE] = size * ((1.0 - ceiling) if family == SECOND_RISE else -ceiling)
        out[SECOND_EXPONENT] = math.exp(
            prior[SECOND_EXPONENT, 0] + prior[SECOND_EXPONENT, 1] * z[SECOND_EXPONENT]
        )
        low, high = prior[SECOND_MIDPOINT, 0], prior[SECOND_MIDPOINT, 1]
        out[SECOND_MIDPOINT] = low + (high - low) * 0.5 * math.erfc(-z[SECOND_MIDPOINT] / math.sqrt(2.0))
    out[len(z)] = gain_logit


@_inlined
def _reached(z_floor: float, prior: np.ndarray, start: np.ndarray) -> float:
    """Log odds, within the room above the floor, of the level that the run reached."""
    floor = start[1]
    if start[0] == 0:
        share = _logistic(prior[FLOOR, 0] + prior[FLOOR, 1] * z_floor)
        floor = start[3] + share * (start[4] - start[3]) if start[4] > start[3] else share * start[4]
    return math.log(max(start[4] - floor, 1e-6)) - math.log(1.0 - start[4])


@_compiled
def from_coordinates(c: np.ndarray, prior: np.ndarray, start: np.ndarray, z: np.ndarray) -> float:
    """Turn the coordinates that particles move in into whitened parameters; return the log volume element.

    As in the hierarchical model: data determine the level reached at the end, so particles move in (log odds of the
    gain made by then, what is left of it) instead of (gain, midpoint), whose posterior is a thin crescent.
    """
    z[:] = c
    exponent = math.exp(prior[EXPONENT, 0] + prior[EXPONENT, 1] * c[EXPONENT])
    made = _reached(c[FLOOR], prior, start) + c[GAIN]
    # On a plateau the midpoint is known relative to 1 / exponent only: that side is scaled with the exponent.
    left = _softplus(c[MIDPOINT]) - exponent * _softplus(-c[MIDPOINT])
    larger, smaller = max(made + _softplus(left), left), min(made + _softplus(left), left)
    gain = larger + math.log1p(math.exp(max(smaller - larger, -_LIMIT)))
    z[GAIN] = (gain - prior[GAIN, 0]) / prior[GAIN, 1]
    z[MIDPOINT] = (-(made + _softplus(-left)) / exponent - prior[MIDPOINT, 0]) / prior[MIDPOINT, 1]
    stretch = _logistic(c[MIDPOINT]) + exponent * _logistic(-c[MIDPOINT])
    return math.log(stretch) - math.log(exponent)


@_compiled
def to_coordinates(z: np.ndarray, prior: np.ndarray, start: np.ndarray, c: np.ndarray) -> None:
    """Invert `from_coordinates`."""
    c[:] = z
    exponent = math.exp(prior[EXPONENT, 0] + prior[EXPONENT, 1] * z[EXPONENT])
    gain = prior[GAIN, 0] + prior[GAIN, 1] * z[GAIN]
    odds = -exponent * (prior[MIDPOINT, 0] + prior[MIDPOINT, 1] * z[MIDPOINT])
    # Logs of the gain already made, still to come, and of the room that is never used.
    done, coming, never = (
        -_softplus(-gain) - _softplus(-odds),
        -_softplus(-gain) - _softplus(odds),
        -_softplus(gain),
    )
    rest = max(coming, never) + math.log1p(math.exp(max(-abs(coming - never), -_LIMIT)))
    c[GAIN] = done - rest - _reached(z[FLOOR], prior, start)
    left = coming - never
    guess = left if left > 0 else left / exponent
    for _ in range(50):
        error = _softplus(guess) - exponent * _softplus(-guess) - left
        step = error / (_logistic(guess) + exponent * _logistic(-guess))
        guess -= step
        if abs(step) < 1e-13 * max(1.0, abs(guess)):
            break
    c[MIDPOINT] = guess


@_inlined
def _level(family: int, p: np.ndarray, x: float) -> float:
    """Pass rate of a curve at log compute `x`; held within 0-1, which a falling sum can leave."""
    if family == POWER_LAW:
        done = -math.expm1(-p[EXPONENT] * _softplus(x - p[MIDPOINT]))
    elif family == BURR:
        done = -math.expm1(-p[TAIL] * _softplus(p[EXPONENT] * (x - p[MIDPOINT])))
    else:
        done = _logistic(p[EXPONENT] * (x - p[MIDPOINT]))
    level = p[FLOOR] + (p[GAIN] - p[FLOOR]) * done
    if family in (SECOND_RISE, COLLAPSE):
        level += p[SIZE] * _logistic(p[SECOND_EXPONENT] * (x - p[SECOND_MIDPOINT]))
    return min(max(level, 0.0), 1.0)


@_compiled
def log_likelihood(
    family: int,
    p: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    inverse_trials: np.ndarray,
    distance: np.ndarray,
    blur: float,
) -> float:
    """Exact log likelihood of one run: a scalar Kalman filter.

    The residual is a stationary Ornstein-Uhlenbeck process (sd ``noise``, correlation ``persistence`` at distance
    1) seen through white noise with the variance of a binomial share of ``1 / inverse_trials`` trials.

    Parameters
    ----------
    p : ndarray
        From `unpack`.
    x, y, inverse_trials, distance : ndarray, shape (n,)
        Log compute, pass rate, 1 / trials, distance from the previous evaluation.
    blur : float
        Variance of white noise added to every evaluation; 0 for the likelihood itself.
    """
    blur += _TINY
    stationary = p[NOISE] * p[NOISE]
    persistence = p[PERSISTENCE]
    gap, kept = 1.0, persistence
    mean, variance = 0.0, stationary
    squares, logs, product = 0.0, 0.0, 1.0
    for i in range(len(x)):
        if i > 0:
            if distance[i] != gap:
                gap = distance[i]
                kept = persistence**gap
            mean *= kept
            variance = stationary + kept * kept * (variance - stationary)
        level = _level(family, p, x[i])
        total = variance + level * (1.0 - level) * inverse_trials[i] + blur
        residual = y[i] - level - mean
        inverse = 1.0 / total
        squares += residual * residual * inverse
        product *= total
        if i % _FOLD == _FOLD - 1:
            logs += math.log(product)
            product = 1.0
        weight = variance * inverse
        mean += weight * residual
        variance -= weight * variance
    found = -0.5 * (squares + logs + math.log(product) + len(x) * _LOG_2PI)
    # Parameters so far out that a product of them overflows: no step could be chosen among NaNs.
    return found if math.isfinite(found) else -1e300


@_compiled
def _effective_share(log_weights: np.ndarray) -> float:
    """Effective sample size of the weights, as a share of their number."""
    top = log_weights.max()
    total = squares = 0.0
    for value in log_weights:
        w = math.exp(value - top)
        total += w
        squares += w * w
    return total * total / squares / len(log_weights)


@_compiled
def _sharpen(
    family: int,
    p: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    inverse_trials: np.ndarray,
    distance: np.ndarray,
    log_l: np.ndarray,
    log_blur: float,
    pace: float,
    keep: float,
    log_l_next: np.ndarray,
) -> tuple[float, float]:
    """Choose the next, smaller blur: particles are to stay effective to a share of `keep` or a little more.

    Writes the likelihoods there into `log_l_next` and returns the log sd of the blur (-inf: none is left) and the
    size of the step, where the next search begins.
    """
    smallest, largest = 0.0, math.inf
    log_next = log_blur
    for attempt in range(_TRIES):
        # Once the blur is small next to the noise, the rest of it may go in one step.
        last = attempt == 0 and log_blur < _SHARP
        log_next = -math.inf if last else log_blur - pace
        blur = math.exp(2.0 * log_next)
        for k in range(len(p)):
            log_l_next[k] = log_likelihood(family, p[k], x, y, inverse_trials, distance, blur)
        share = _effective_share(log_l_next - log_l)
        if last:
            if share >= keep:
                break
        elif share < keep:
            largest = pace
            pace = 0.5 * (smallest + largest) if smallest > 0.0 else 0.6 * pace
        elif share > keep + _SLACK and attempt < _TRIES // 2:
            smallest = pace
            pace = 0.5 * (smallest + largest) if largest < math.inf else 1.5 * pace
        else:
            break
    return log_next, pace


@_compiled
def _resample(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Systematic resampling: indices of the particles that go on."""
    n = len(weights)
    chosen = np.empty(n, dtype=np.int64)
    point, total, j = rng.random(), weights[0] * n, 0
    for i in range(n):
        while total < point + i and j < n - 1:
            j += 1
            total += weights[j] * n
        chosen[i] = j
    return chosen


@_compiled
def _spread(c: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean of the particles and Cholesky factor of their covariance."""
    d = c.shape[1]
    centre = np.zeros(d)
    for k in range(len(c)):
        centre += weights[k] * c[k]
    covariance = np.zeros((d, d))
    for k in range(len(c)):
        for i in range(d):
            for j in range(i + 1):
                covariance[i, j] += weights[k] * (c[k, i] - centre[i]) * (c[k, j] - centre[j])
    for i in range(d):
        for j in range(i):
            covariance[j, i] = covariance[i, j]
        covariance[i, i] += 1e-9
    return centre, np.linalg.cholesky(covariance)


@_compiled
def anneal(
    rng: np.random.Generator,
    family: int,
    prior: np.ndarray,
    start: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    inverse_trials: np.ndarray,
    distance: np.ndarray,
    particles: int,
    moves: int,
    keep: float,
) -> tuple[np.ndarray, float, int, float, float]:
    """Carry particles from the prior to the posterior (Del Moral et al. 2006, doi:10.1111/j.1467-9868.2006.00553.x).

    On the way evaluations are blurred by white noise that shrinks from more than the scale to nothing, so that
    particles find the shape of the curve before its details. (Raising the likelihood to a power instead lets the
    run's own noise swallow a jump early on, and particles do not come back from there.) The blur shrinks as fast as
    a share `keep` of the particles stays effective; after each step they are resampled and moved, in turn by a
    random walk (scale adapted to its acceptance) and by independence proposals from a Student-t with the particles'
    own mean and covariance.

    Returns
    -------
    parameters : ndarray, shape (particles, d + 1)
        As written by `unpack`.
    log_evidence : float
    steps : int
    walk_acceptance, leap_acceptance : float
        Of random-walk and independence moves after the last step.
    """
    d = len(prior)
    c = np.empty((particles, d))
    p = np.empty((particles, d + 1))
    log_prior = np.empty(particles)
    z = np.empty(d)
    for k in range(particles):
        for i in range(d):
            z[i] = rng.standard_normal()
        to_coordinates(z, prior, start, c[k])
        log_prior[k] = from_coordinates(c[k], prior, start, z) - 0.5 * np.sum(z * z)
        unpack(z, family, prior, start, p[k])

    scale = 2.38 / math.sqrt(d)
    log_blur, pace = _BLURRED, 0.7
    log_l, log_l_next = np.zeros(particles), np.empty(particles)
    log_evidence, steps = 0.0, 0
    walk = leap = 0.0
    weights, log_t = np.empty(particles), np.empty(particles)
    candidate, normal = np.empty(d), np.empty(d)
    fresh = np.empty(d + 1)
    while log_blur > -math.inf:
        log_blur, pace = _sharpen(
            family, p, x, y, inverse_trials, distance, log_l, log_blur, pace, keep, log_l_next
        )
        blur = math.exp(2.0 * log_blur)
        steps += 1
        top = (log_l_next - log_l).max()
        total = 0.0
        for k in range(particles):
            weights[k] = math.exp(log_l_next[k] - log_l[k] - top)
            total += weights[k]
        log_evidence += top + math.log(total / particles)
        weights /= total
        log_l[:] = log_l_next

        centre, lower = _spread(c, weights)
        chosen = _resample(rng, weights)
        c, p, log_l, log_prior = c[chosen], p[chosen], log_l[chosen], log_prior[chosen]
        for k in range(particles):
            log_t[k] = _log_student(c[k], centre, lower, normal)

        walked = leapt = walks = leaps = 0
        for move in range(moves):
            independent = move % 2 == 1
            accepted = 0
            for k in range(particles):
                for i in range(d):
                    normal[i] = rng.standard_normal()
                if independent:
                    square = 0.0
                    for _ in range(int(_DEGREES)):
                        g = rng.standard_normal()
                        square += g * g
                    stretch = math.sqrt(_DEGREES / square)
                else:
                    stretch = scale
                for i in range(d):
                    step = 0.0
                    for j in range(i + 1):
                        step += lower[i, j] * normal[j]
                    candidate[i] = (centre[i] if independent else c[k, i]) + stretch * step
                log_prior_new = from_coordinates(candidate, prior, start, z) - 0.5 * np.sum(z * z)
                unpack(z, family, prior, start, fresh)
                log_l_new = log_likelihood(family, fresh, x, y, inverse_trials, distance, blur)
                log_t_new = _log_student(candidate, centre, lower, normal)
                log_ratio = log_l_new - log_l[k] + log_prior_new - log_prior[k]
                if independent:
                    log_ratio += log_t[k] - log_t_new
                if math.log(rng.random() + 1e-300) < log_ratio:
                    accepted += 1
                    c[k] = candidate
                    p[k] = fresh
                    log_l[k], log_prior[k], log_t[k] = log_l_new, log_prior_new, log_t_new
            if independent:
                leapt += accepted
                leaps += particles
            else:
                walked += accepted
                walks += particles
                scale *= math.exp(accepted / particles - _ACCEPT)
        walk = walked / max(walks, 1)
        leap = leapt / max(leaps, 1)
    return p, log_evidence, steps, walk, leap


@_compiled
def _log_student(z: np.ndarray, centre: np.ndarray, lower: np.ndarray, work: np.ndarray) -> float:
    """Log density, up to a constant, of the Student-t that independence proposals come from."""
    square = 0.0
    for i in range(len(z)):
        value = z[i] - centre[i]
        for j in range(i):
            value -= lower[i, j] * work[j]
        work[i] = value / lower[i, i]
        square += work[i] * work[i]
    return -0.5 * (_DEGREES + len(z)) * math.log1p(square / _DEGREES)
