"""Gradient estimators behind the contract `nvil.contracts.Estimator`, one file each."""

from nvil.estimators.nvil import NVIL, nvil, reinforce
from nvil.estimators.vimco import VIMCO, vimco
from nvil.estimators.wake_sleep import WakeSleep, wake_sleep

__all__ = ["NVIL", "VIMCO", "WakeSleep", "nvil", "reinforce", "vimco", "wake_sleep"]
