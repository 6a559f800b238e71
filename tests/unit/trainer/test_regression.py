import numpy as np
import pytest

from numpy_ddp.regression import Regression

MODEL = Regression(seed=3, hidden=4, batch=16)


def test_gradient_is_the_slope_of_the_loss():
    parameters = MODEL.initial()
    _, gradient = MODEL.loss_and_gradient(parameters, step=1, rank=0)
    for index in range(MODEL.size):
        nudge = np.zeros(MODEL.size)
        nudge[index] = 1e-6
        above, _ = MODEL.loss_and_gradient(parameters + nudge, step=1, rank=0)
        below, _ = MODEL.loss_and_gradient(parameters - nudge, step=1, rank=0)
        assert gradient[index] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_samples_depend_on_seed_step_and_rank_alone():
    rows, wanted = MODEL.samples(5, 2)
    again, wanted_again = MODEL.samples(5, 2)
    assert np.array_equal(rows, again) and np.array_equal(wanted, wanted_again)
    for other in (MODEL.samples(5, 3), MODEL.samples(6, 2), Regression(4, 4, 16).samples(5, 2)):
        assert not np.array_equal(rows, other[0])
